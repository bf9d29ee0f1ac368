"""Every command teaches by its help, and every one that reads speaks JSON."""

from pathlib import Path

import click
import msgspec
import pytest

from ledger.cli.main import COMMANDS, cli
from tests.cli.conftest import Run


def every_command() -> list[tuple[str, ...]]:
    context = cli.make_context("ledger", [], resilient_parsing=True)
    found: list[tuple[str, ...]] = []

    def add(words: tuple[str, ...], command: click.Command) -> None:
        if not isinstance(command, click.Group):
            found.append(words)
            return
        for name, sub in command.commands.items():
            add((*words, name), sub)

    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        add((name,), command)
    return found


WITHOUT_JSON = {("demo",), ("worker",), ("docs",), ("transfer", "proxy")}
"""They read nothing: one prints a tour for people, one works, one writes files, one relays."""


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_help_teaches_and_reading_commands_speak_json(ledger: Run, words: tuple[str, ...]) -> None:
    shown = ledger(*words, "--help")
    assert (shown.status, shown.err) == (0, "")
    usage, text = shown.out.split("\n", 1)
    assert usage.startswith(f"Usage: ledger {' '.join(words)}")
    assert len(text.split("Options:")[0].split()) >= 8, "one sentence at least"
    assert ("--json" in shown.out) == (words not in WITHOUT_JSON)
    listed = ledger("--help")
    assert f"  {words[0]} " in listed.out
    unknown = ledger(*words, "--no-such-option")
    assert unknown.status == 2 and "--no-such-option" in unknown.err and unknown.out == ""


def test_the_exit_statuses_are_in_the_help(ledger: Run) -> None:
    text = " ".join(ledger("--help").out.split())
    for status in (0, 1, 2, 3, 4, 5, 6, 7, 8, 130):
        assert f"{status} " in text.partition("Exit status:")[2]


def test_an_unknown_command(ledger: Run) -> None:
    ran = ledger("fly")
    assert (ran.status, ran.out) == (2, "") and "No such command 'fly'" in ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("statuss", "`ledger status`?"),
        ("tasks validat", "`ledger tasks validate`?"),
        ("transfer remediation opn", "`ledger transfer remediation open`?"),
        ("validate", "`ledger tasks validate` or `ledger transfer validate`?"),
        ("tasks plan", "`ledger plan`?"),
        ("status --jsn", "'--json'?"),
        ("--study here status --cells", "`ledger status --cells --study here`"),
        ("--json tasks show R001-001", "`ledger tasks show R001-001 --json`"),
        ("corrections --study here list", "`ledger corrections list --study here`"),
    ],
)
def test_what_is_mistyped_is_told_where_it_belongs(ledger: Run, words: str, hint: str) -> None:
    ran = ledger(*words.split())
    assert (ran.status, ran.out) == (2, "") and hint in ran.err


def test_an_error_is_json_where_json_was_asked_for(ledger: Run, tmp_path: Path) -> None:
    for words, status in (
        (["status", "--study", tmp_path], 2),
        (["statuss"], 2),
        (["status", "--cell"], 2),
        (["import", tmp_path, tmp_path / "in"], 1),
    ):
        said = ledger(*words)
        ran = ledger(*words, "--json")
        error = msgspec.json.decode(ran.err.splitlines()[-1])
        assert (ran.status, ran.out, error["exit_status"]) == (status, "", status)
        assert said.status == status and error["error"] in said.err
    relayed = ledger("transfer", "proxy", "--journal", tmp_path, "--", "server", "--json")
    assert relayed.status == 2 and relayed.err.startswith("Usage: "), "the server's, not ours"
