"""Whatever a message, a help text or a docstring tells the user to run: it exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ledger.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "ledger", "projections", "harnesses", "actors")
QUOTED = re.compile(r"`ledger ([^`\n]*)`?")
"""A command in backticks. What is filled in (an f-string's values) is read as VALUE."""
TYPED = re.compile(r"^ *(?:\$ )?ledger ((?:[a-z][a-z-]*)(?: .*)?)$", re.MULTILINE)
"""One on a line of its own, as in an example."""


def texts_of(path: Path) -> Iterator[str]:
    """Every text of a module, joined as Python joins it, docstrings included."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "VALUE"
                for part in node.values
            )


def commands_in(text: str, examples: bool) -> Iterator[str]:
    yield from (match[1] for match in QUOTED.finditer(re.sub(r"\n\s*", " ", text)))
    if examples:
        yield from (match[1] for match in TYPED.finditer(text))


def problem_of(words: str) -> str:
    """What is wrong with a command as it is written; "" where it exists with all its options."""
    context = cli.make_context("ledger", [], resilient_parsing=True)
    command: click.Command | None = cli
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        command = command.get_command(context, word)
        if command is None:
            return f"there is no command {word!r}"
    assert command is not None
    known = {option for part in command.params for option in part.opts} | {"--help", "-h"}
    for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", words):
        if option not in known:
            return f"{command.name} has no option {option}"
    return ""


@pytest.mark.parametrize("package", [*PACKAGES, "docs"])
def test_every_command_that_is_named_exists(package: str) -> None:
    wrong, found = [], 0
    paths = sorted((ROOT / package).rglob("*.md" if package == "docs" else "*.py"))
    for path in [*paths, *(sorted(ROOT.glob("*.md")) if package == "docs" else [])]:
        texts = [path.read_text("utf-8")] if package == "docs" else texts_of(path)
        for text in texts:
            for words in commands_in(text, examples=path.parent.name == "cli"):
                found += 1
                if problem := problem_of(words):
                    wrong.append(f"{path.relative_to(ROOT)}: `ledger {words}`: {problem}")
    assert wrong == []
    assert found or package in ("harnesses", "schemas", "projections")


def test_every_command_is_named_somewhere_else_than_in_the_list() -> None:
    """The test above reads what it should: the commands of the usual way are among them."""
    named = {
        words.split()[0]
        for path in (ROOT / "ledger").rglob("*.py")
        for text in texts_of(path)
        for words in commands_in(text, examples=False)
        if words
    }
    assert {"init", "tasks", "freeze", "run", "verify-chain", "checkpoint"} <= named
    assert problem_of("fly") == "there is no command 'fly'"
    assert problem_of("verify-chain --fly") == "verify-chain has no option --fly"
    assert set(COMMANDS) >= named - {"--help", "VALUE"}
