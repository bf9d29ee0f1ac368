"""Runs and counts of a transfer study as CSV (RFC 4180)."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from projections.transfer.results import TransferResults
from projections.transfer.tables import count_row, run_row

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_runs(results: TransferResults) -> bytes:
    """One row a run, the seven verdicts in columns of their own."""
    rows = [
        {
            **run_row(run).as_dict(),
            **{f"stage_{stage}": found.verdict for stage, found in run.stages.items()},
            "exploratory": _exploratory(results, run.memory, run.driver),
        }
        for run in results.runs
    ]
    return _rows(rows, results.simulated)


def render_counts(results: TransferResults) -> bytes:
    """One row a count, system and class."""
    rows = [
        {
            **count_row(count).as_dict(),
            "exploratory": _exploratory(results, count.memory, count.driver),
        }
        for count in results.counts
    ]
    return _rows(rows, results.simulated)


def _exploratory(results: TransferResults, memory: str, driver: str) -> int:
    """1 for a system that an amendment after the first run declared or changed, or that ran with a
    program that is not the frozen one."""
    return int((memory, driver) in {(s.memory, s.driver) for s in results.systems if s.exploratory})


def _rows(rows: Sequence[Mapping[str, Any]], simulated: bool) -> bytes:
    """A missing value is an empty field; ``simulated`` stands in every row. A text that a
    spreadsheet would take for a formula gets an apostrophe in front."""
    text = io.StringIO()
    writer = csv.writer(text)
    if rows:
        writer.writerow([*rows[0], "simulated"])
    for row in rows:
        writer.writerow([*map(_plain, row.values()), int(simulated)])
    return text.getvalue().encode()


def _plain(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
