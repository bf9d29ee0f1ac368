"""``ledger status``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.loop import Context
from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
)
from ledger.errors import LedgerError
from schemas.counted import counted

if TYPE_CHECKING:
    from projections.progress import Progress


@click.command("status")
@study_option
@json_option
@click.option("--cells", is_flag=True, help="One line per cell.")
def command(study: Path, as_json: bool, cells: bool) -> None:
    """Show how far the study has come, also while it runs. Shows no outcome.

    Also says what differs from what was frozen, and what to do next.
    """
    from actors.study.declarations import Changes, differs, not_as_frozen
    from actors.study_kinds import kind_of
    from ledger.cli.next_step import as_bound
    from ledger.cli.run import summary
    from projections.fold import fold
    from projections.progress import Progress

    with reading(study) as context:
        progress = fold(Progress(context.artifacts.get), context.log_facts())
        head = context.log.head()
        amendments = as_bound(context)
        changed = Changes()
        if amendments and amendments.study:
            components = kind_of(amendments.study).components(amendments.study)
            changed = not_as_frozen(context.directory, amendments, components)
        running = context.directory.is_held("run")
        if progress.frozen is None and not context.directory.is_imported:
            context.directory.read_study()  # says which key is wrong
        hint = "" if as_json else _hint(context, progress)
    rows = [row.as_dict() for row in progress.cell_rows()]
    found = {
        "head": head.seq if head else None,
        **summary(progress),
        "running": running,
        "not_as_frozen": changed.names(),
    }
    if as_json:
        print_json({**found, **({"rows": rows} if cells else {})})
        return
    if progress.frozen is None:
        print("not frozen yet")
        if hint:
            print(f"next: {hint}")
        return
    if progress.simulated:
        print("SIMULATED: a rehearsal, not evidence")
    # A run that ends, however it fails, says so; only one that was killed cannot.
    state = progress.stopped or "no run is at work here, and the last one was killed (or copied)"
    if running:
        state, hint = "running", "wait for the end of `ledger run`, or stop it with Ctrl-C"
    elif progress.completed:
        state = "complete"
    elif progress.runs == 0:
        state = "frozen, not started"
    elif progress.stopped == "complete":
        state = "planned cells were added"
    print(f"study       {progress.frozen.digest}")
    print(f"state       {state} (run {progress.runs}, head record {found['head']})")
    if progress.stopped_because and not running and not progress.completed:
        print(f"because     {printable(progress.stopped_because)}")
    print(f"done        {progress.cells_in_words()}")
    if progress.is_graded:
        print(f"graded      {progress.graded()}")
    for line in kind_of(progress.study).status(progress) if progress.study else ():
        print(printable(line))
    loads = counted(progress.model_switches, "load")
    print(f"model       {progress.resident or 'none resident'}, {loads}")
    print(
        f"turns       {found['turn_attempts']} asked, {found['abandoned_turns']} abandoned, "
        f"transport retries {found['transport_retries']}"
    )
    if changed and amendments:
        print(f"changed     {differs(changed, amendments.study)}")
        if not running and not progress.completed:
            hint = f"put that back or amend it, then {hint}"
    print(f"next        {hint}")
    if cells:
        print_table(rows, ["position", "cell", "block", "status", "ended", "turns", "tool_calls"])


def _hint(context: Context, progress: "Progress") -> str:
    """What comes next; nothing where study.toml cannot be read."""
    from ledger.cli.next_step import after_freeze, next_step

    if context.directory.is_imported and not progress.completed:
        return "nothing: an imported ledger is never written; its owner goes on with it"
    if progress.frozen is not None:
        return after_freeze(context, progress)
    try:
        _, study = context.directory.read_study()
    except LedgerError:
        return ""
    return next_step(context, study)
