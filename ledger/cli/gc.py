"""``ledger gc``."""

import math
from pathlib import Path

import click

from ledger.cli.options import (
    json_option,
    judged,
    ledger_of,
    print_json,
    reading,
    study_option,
)
from ledger.errors import Usage
from schemas.counted import counted

SHOWN = 20


@click.command("gc")
@study_option
@json_option
@click.option("--remove", is_flag=True, help="Remove what is old enough.")
@click.option(
    "--older-than",
    "hours",
    type=click.FloatRange(0, 1_000_000),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="Leave younger files alone. A minute is always added: the clocks of disks lag.",
)
def command(study: Path, as_json: bool, remove: bool, hours: float) -> None:
    """List what crashes left behind: artifacts that no record names, and unfinished files.

        ledger gc

        ledger gc --remove

    Nothing is removed without --remove, and never an artifact that a record names. Safe to run
    during a study: files younger than the oldest unfinished command, or than --older-than and a
    minute, are kept. Nothing of a ledger that fails verification is removed.
    """
    from ledger.leftovers import find_leftovers, remove_leftovers

    if math.isnan(hours):
        raise Usage("--older-than nan: give a number of hours")
    with reading(study) as context:
        directory = context.directory
        ledger = ledger_of(context)
        found = find_leftovers(directory, context.log, hours * 3600)
    gone = set(remove_leftovers(directory, found)) if remove else set()
    rows = [
        {
            "file": one.path.relative_to(directory.root).as_posix(),
            "kind": one.kind,
            "bytes": one.bytes,
            "removable": one.old,
            "removed": one in gone,
        }
        for one in found
    ]
    old = [one for one in found if one.old]
    if as_json:
        print_json(
            {
                "path": str(directory.ledger),
                "ledger": ledger,
                "leftovers": rows,
                "bytes": sum(one.bytes for one in found),
                "removable": len(old),
                "removed": len(gone),
            }
        )
        return
    print(f"ledger {judged(directory.ledger, ledger)}")
    for row in rows[:SHOWN]:
        state = "removed" if row["removed"] else "old" if row["removable"] else "kept: too young"
        print(f"{row['bytes']:>10}  {row['kind']:<16}  {state:<15}  {row['file']}")
    if len(rows) > SHOWN:
        print(f"            and {len(rows) - SHOWN} more (--json shows all)")
    print(
        f"{counted(len(found), 'leftover')} of {sum(one.bytes for one in found)} bytes; old enough "
        f"to remove: {len(old)}, removed: {len(gone)}"
        + ("" if remove or not old else "; `ledger gc --remove` removes them")
    )
    if len(old) < len(found):
        print(
            f"too young is what changed in the last {hours:g} hours (--older-than) and a minute, "
            "or after a command was asked for that has not ended"
        )
