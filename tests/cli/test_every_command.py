"""Every command teaches by its help, and every one that reads speaks JSON."""

import click
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
