"""``ledger query``."""

import base64
import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
)
from ledger.errors import Unfinished, Usage
from schemas.counted import counted


@click.command("query")
@click.argument("sql", required=False)
@study_option
@json_option
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print CSV (RFC 4180); control characters are escaped.",
)
@click.option("--tables", "list_tables", is_flag=True, help="List tables and columns; no query.")
@click.option("--reason", help="Why outcomes are looked at; recorded before they are shown.")
@click.option(
    "--max-rows",
    type=click.IntRange(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="Stop after so many rows; more is status 5.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=60.0,
    show_default=True,
    help="Stop a query that computes longer; status 5.",
)
def command(
    sql: str | None,
    study: Path,
    as_json: bool,
    as_csv: bool,
    list_tables: bool,
    reason: str | None,
    max_rows: int,
    seconds: float,
) -> int:
    """Ask the projections in SQL: one SELECT, read-only.

    The projections are brought up to date first. A query that reads a table of outcomes needs
    --reason and is recorded before anything is shown:

        ledger query "SELECT arm, sum(turns) FROM cells GROUP BY arm"

        ledger query "SELECT * FROM outcomes" --reason "planned analysis"
    """
    from ledger.cli.inspection_gate import pass_gate
    from ledger.cli.replay import progress_bar
    from projections import queries, store

    if as_json and as_csv:
        raise Usage("--json and --csv exclude each other")
    if list_tables:
        _print_tables(as_json)
        return 0
    if math.isnan(seconds):
        raise Usage("--seconds nan: give a number of seconds")
    if not sql:
        raise Usage('write a SELECT, for example: ledger query "SELECT * FROM cells"')
    guarded = queries.guarded_tables_read(sql)
    if guarded:
        pass_gate(study, reason, f"the table {', '.join(guarded)}")
    with (
        reading(study) as context,
        progress_bar() as report,
        store.current(context.directory, context.log, report) as generation,
    ):
        answer = queries.ask(generation, sql, bool(guarded), max_rows, seconds)
        built_from = generation.built_from
    if as_json:
        print_json(
            {
                "head": {"seq": built_from.seq, "leaf": built_from.leaf},
                "columns": list(answer.columns),
                "rows": [
                    dict(zip(answer.columns, map(_json_value, row), strict=True))
                    for row in answer.rows
                ],
            }
        )
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(map(_csv_value, answer.columns))
        writer.writerows(map(_csv_value, row) for row in answer.rows)
    else:
        _print_answer(answer.columns, answer.rows)
        print(f"{counted(len(answer.rows), 'row')}, from records 0 to {built_from.seq}")
    if not answer.complete:
        raise Unfinished(f"only the first {max_rows} rows are shown; --max-rows shows more")
    return 0


def _print_answer(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    names = [printable(name) for name in columns]
    print_table([dict(zip(names, map(_json_value, row), strict=True)) for row in rows], names)


def _print_tables(as_json: bool) -> None:
    from projections.fold import columns_of
    from projections.queries import readable_tables

    rows: list[dict[str, Any]] = [
        {"table": name, "guarded": guarded, "columns": list(columns_of(table))}
        for name, (table, guarded) in readable_tables().items()
    ]
    if as_json:
        print_json({"tables": rows})
        return
    for row in rows:
        print(f"{row['table']}{' (behind the inspection gate)' if row['guarded'] else ''}")
        print(f"    {', '.join(row['columns'])}")


def _csv_value(value: Any) -> Any:
    """The same, and text in which a terminal finds nothing to obey."""
    return printable(value) if isinstance(value, str) else _json_value(value)


def _json_value(value: Any) -> Any:
    """What JSON cannot carry as text: bytes in base64, and numbers that are not finite."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
