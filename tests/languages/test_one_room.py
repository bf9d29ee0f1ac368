"""A language is one record: nothing else names its tools, its files or their suffixes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ACTORS = Path(__file__).parents[2] / "actors"
NAMED = re.compile(
    r"pytest|\bpip\b|^\W*\.(pyi?|go)$|conftest|sitecustomize|__init__\.py|pyproject"
    r"|requirements\.txt|\bgo (test|mod|build)\b|_test\.go|go\.(mod|sum|work)"
)


def texts(path: Path) -> Iterator[str]:
    """Texts that the program uses: not its documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            value = node.value
            if isinstance(value, bytes):
                value = value.decode("latin-1")
            if isinstance(value, str):
                yield value


@pytest.mark.parametrize("room", ["mining", "repair", "test_runs"])
def test_the_miner_and_the_grader_name_nothing_of_a_language(room: str) -> None:
    found = [
        (path.relative_to(ACTORS).as_posix(), text)
        for path in sorted((ACTORS / room).rglob("*.py"))
        for text in texts(path)
        if NAMED.search(text)
    ]
    assert found == []
    assert any(NAMED.search(text) for text in texts(ACTORS / "languages/python/command.py"))
