"""``ledger demo``: the main job, by the same commands that a user would type.

``ledger/cli/demo_transfer.py`` has the demo of the other kind of study.
"""

import shlex
import sys
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from ledger.cli.demo_steps import (
    begin_folder,
    goes_on,
    print_block,
    proven,
    read_command,
    run_command,
)
from ledger.errors import Unfinished, Usage

QUICK_TASKS = 2


@click.command("demo")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="var/demo, or var/demo-transfer",
    help="Folder of the demo's study.",
)
@click.option(
    "--transfer", is_flag=True, help="The other kind of study: which memories carry a correction."
)
@click.option(
    "--server-memory",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --transfer: folder where `npm ci` has installed server-memory; a system more.",
)
@click.option(
    "--language",
    type=click.Choice(["python", "go"]),
    default="python",
    show_default=True,
    help="Of the example repository; Go must be installed for the second.",
)
@click.option(
    "--quick",
    is_flag=True,
    help=f"Only {QUICK_TASKS} tasks, in about half a minute, or one family in less.",
)
def command(
    directory: Path | None,
    transfer: bool,
    server_memory: Path | None,
    language: str,
    quick: bool,
) -> int:
    """Run the whole product on the example repository: mine, validate, freeze, run, grade, verify,
    replay, re-execute, analyse, report. With --transfer: on the eight example families.

    Everything that acts as a model here is simulated and says so. An unfinished demo goes on where
    it stopped; a finished one is made anew.
    """
    if transfer:
        from ledger.cli.demo_transfer import run_demo

        return run_demo(directory or Path("var/demo-transfer"), quick, server_memory)
    begun = time.monotonic()
    study = prepare(directory or Path("var/demo"), quick, language)
    where = ["--study", str(study)]
    accepted = _without_sandbox()
    if read_command("status", *where, show=False)["frozen"] is None:
        # Killed behind this, a demo finds its tasks frozen: they are not selected a second time.
        if not read_command("tasks", "show", *where, show=False)["frozen"]:
            run_command("tasks", "mine", *where)
            run_command("tasks", "validate", *accepted, *where)
            run_command("tasks", "freeze", *where)
        run_command("plan", *where)
        run_command("freeze", *where)
    status = run_command("run", *accepted, *where)
    if status != 0:
        return status
    analysis = read_command("analyze", "--reason", "the demo shows its result", *where)
    print(analysis["sentence"])
    report = read_command("report", *where)
    cell = read_command("status", "--cells", *where, show=False)["rows"][0]["cell"]
    executed = read_command("replay", "--execute", cell, *where)
    replayed = read_command("replay", "--check", *where)
    verified = read_command("verify-chain", *where)
    audited = read_command("audit", *where)
    _closing_block(study, begun, report, executed, replayed, verified, audited, analysis, cell)
    return 0


def _without_sandbox() -> list[str]:
    """The option that goes on where nothing here contains a test run, or none.

    The demo may: what is tested is the example repository with its own gold edits, all of it part
    of this program.
    """
    from actors.sandbox import probe

    report = probe()
    if report.kind != "none":
        return []
    print(
        "no sandbox works here, so the demo runs its tests without one: every line of them comes "
        f"with this program. For repositories of others: {report.remedy}",
        file=sys.stderr,
    )
    return ["--unsafe-no-sandbox"]


def prepare(directory: Path, quick: bool, language: str = "python") -> Path:
    """Make the demo's study folder, or find an unfinished one. Raises Refused for a folder that the
    demo did not make, and Usage where Go is asked for and not installed."""
    from actors.rehearsal import example_repository
    from ledger.cli.init import with_this_python

    if goes_on(directory, "repair"):
        return directory.resolve()
    in_language = _in_go() if language == "go" else {}
    try:
        begin_folder(directory)
        head = example_repository.create(directory / "example-repository", language)
        text = (files("actors.rehearsal") / "templates" / "demo.toml").read_text()
    except OSError as error:
        raise Unfinished(f"{directory}: {error.strerror}") from None
    text = with_this_python(text.replace("HEAD-OF-THE-EXAMPLE-REPOSITORY", head))
    for old, new in in_language.items():
        text = text.replace(old, new)
    if quick:
        text = text.replace("tasks = 8", f"tasks = {QUICK_TASKS}")
    (directory / "study.toml").write_text(text)
    run_command("init", str(directory))
    return directory.resolve()


def _in_go() -> dict[str, str]:
    """What the study of the Go repository says instead of that of the Python one."""
    from actors.languages.go.environments import toolchain

    found = toolchain()
    if found is None:
        raise Usage("no Go on this host: install it from https://go.dev/dl/, or leave --language")
    version = ".".join(found.version.split(".")[:2])
    return {
        'language = "python"': 'language = "go"',
        'test_roots = ["tests"]': "test_roots = []",
        'goos = "linux"': f'goos = "{found.goos}"',
        'goarch = "amd64"': f'goarch = "{found.goarch}"\ngo = "{version}"',
    }


def _closing_block(
    study: Path,
    begun: float,
    report: dict[str, Any],
    executed: dict[str, Any],
    replayed: dict[str, Any],
    verified: dict[str, Any],
    audited: dict[str, Any],
    analysis: dict[str, Any],
    cell: str,
) -> None:
    lines: Sequence[tuple[str, str]] = (
        *proven(study, verified, replayed),
        (
            "re-executed",
            f"{cell}: {executed['compared']} results "
            f"{'identical' if executed['identical'] else 'DIFFERENT'}, no model",
        ),
        (
            "audits",
            f"{sum(row['ok'] for row in audited['audits'])} of "
            f"{len(audited['audits'])} without a finding",
        ),
        ("result", analysis["sentence"]),
        ("report", report["html"]),
        ("", report["markdown"]),
        ("simulated", "every agent here is simulated: not evidence"),
        ("time", f"{time.monotonic() - begun:.0f} s"),
    )
    print_block(lines)
    where = shlex.quote(str(study))
    print(f"next: ledger status --study {where}   ledger query --tables --study {where}")
