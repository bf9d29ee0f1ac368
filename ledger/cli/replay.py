"""``ledger replay``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
    writing,
)
from ledger.errors import Usage
from schemas.counted import counted

if TYPE_CHECKING:
    from projections.store import Report, TableDigest


@click.command("replay")
@study_option
@json_option
@click.option("--check", is_flag=True, help="Compare with the live projections; switch nothing.")
@click.option(
    "--execute",
    "cell",
    metavar="CELL",
    help="Execute this recorded cell again without a model: UNIT/ARM/AGENT/REPEAT.",
)
def command(study: Path, as_json: bool, check: bool, cell: str | None) -> int:
    """Rebuild the projections from record 0 and switch to them.

    With --check: rebuild beside the live ones and compare a digest of every table (status 3 and the
    first key that differs). With --execute: drive a recorded cell again with the recorded answers
    and compare every tool result and the patch; of a transfer study, with what the memory delivered
    and a model answered, and compare every call, decision and state (status 3 where one differs).

    \b
        ledger replay --check
        ledger replay --execute R001-003/H000/M002/0
        ledger replay --execute F106-01-positive.d0/full/reader/0
    """
    if check and cell is not None:
        raise Usage("--check and --execute are two different questions; ask one")
    if cell is not None:
        return _execute(study, cell, as_json)
    return _check(study, as_json) if check else _rebuild(study, as_json)


def _rebuild(study: Path, as_json: bool) -> int:
    from projections import store

    with (
        reading(study) as context,
        progress_bar() as report,
        store.rebuild(context.directory, context.log, report) as generation,
    ):
        built_from, path = generation.built_from, generation.path
        tables = _table_rows(store.digests(generation))
        shown = path.relative_to(context.directory.root).as_posix()
    if as_json:
        print_json({**msgspec.to_builtins(built_from), "path": shown, "tables": tables})
        return 0
    print(f"head     {built_from.seq}")
    print(f"leaf     {built_from.leaf}")
    print(f"source   {built_from.source}")
    print(f"path     {shown}")
    print_table(tables)
    return 0


def _row(row: Mapping[str, Any]) -> str:
    values = ("NULL" if value is None else repr(value) for value in row.values())
    return printable(
        ", ".join(f"{name!r}: {value}" for name, value in zip(row, values, strict=True))
    )


def _check(study: Path, as_json: bool) -> int:
    from projections import store

    with reading(study) as context, progress_bar() as report:
        found = store.check(context.directory, context.log, report)
    differences = msgspec.to_builtins(found.differences)
    if as_json:
        print_json(
            {
                "identical": not differences,
                "fresh": found.fresh,
                **msgspec.to_builtins(found.built_from),
                "tables": _table_rows(found.tables),
                "differences": differences,
            }
        )
        return 3 if differences else 0
    for difference in found.differences:
        print(f"{difference.table}: differs first where {printable(difference.key)}")
        if difference.live is None and difference.replayed is None:
            print("  values are behind the inspection gate")
            continue
        for name, row in (("live", difference.live), ("replayed", difference.replayed)):
            print(f"  {name:<9} {_row(row) if row else 'no such row'}")
    compared = "two replays" if found.fresh else "the live projections and a replay"
    verdict = "differ" if differences else "are identical"
    print(
        f"{compared} of records 0 to {found.built_from.seq} {verdict} "
        f"({len(found.tables)} tables, {counted(sum(t.rows for t in found.tables), 'row')})"
    )
    return 3 if differences else 0


def _table_rows(tables: "tuple[TableDigest, ...]") -> list[dict[str, Any]]:
    """For output. The digest of a small guarded table would give its values away by guessing."""
    return [
        {
            "table": table.table,
            "rows": table.rows,
            "digest": "behind the inspection gate" if table.guarded else table.digest,
        }
        for table in tables
    ]


def _execute(study: Path, cell: str, as_json: bool) -> int:
    from actors.loop import carry_out
    from actors.study.orders import HANDLERS
    from actors.study.reexecution import reexecute
    from actors.study_kinds import kind_in
    from ledger.cli.inspection_gate import may_append
    from schemas.commands import RecordReexecution
    from schemas.identifiers import parse_cell_id

    try:
        name = str(parse_cell_id(cell))
    except ValueError as error:
        raise Usage(f"{error}; `ledger status --cells` lists them") from None
    recorded = may_append(study)
    with writing(study) if recorded else reading(study) as context:
        found = reexecute(context, name, kind_in(context).execute_again)
        if recorded:
            record = RecordReexecution(
                cell=name,
                identical=found.identical,
                compared=found.compared,
                first_difference=found.first_difference,
            )
            carry_out(context, record, HANDLERS)
    if as_json:
        print_json({**msgspec.to_builtins(found), "recorded": recorded})
        return 0 if found.identical else 3
    if found.identical:
        print(f"{name}: identical, {found.compared} recorded events compared")
    else:
        print(f"{name}: differs first at seq {found.first_difference}")
        print(f"  {printable(found.detail)}")
    if found.platform_note:
        print(f"  platform: {printable(found.platform_note)}")
    if not recorded:
        print("  not recorded: this copy of the ledger is never written")
    return 0 if found.identical else 3


@contextmanager
def progress_bar() -> "Iterator[Report | None]":
    """A bar on standard error while records are replayed; None where that is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task("replaying records", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
