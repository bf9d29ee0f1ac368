"""Re-executing a recorded cell from the log, without any model: what every kind has in common.

How a cell is driven again is its kind's: ``actors/repair/reexecution.py``,
``actors/transfer/reexecution.py``.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass

from actors.loop import Context
from ledger.errors import Refused
from ledger.log import decode
from projections.fold import fold
from projections.progress import Progress
from schemas.events.run import RunStarted
from schemas.identifiers import RUN_STREAM, CellId, parse_cell_id


@dataclass(frozen=True)
class Comparison:
    """``compared`` recorded events came out the same; ``seq`` is the first other one, or None."""

    compared: int
    seq: int | None = None
    detail: str = ""


Execute = Callable[[Context, CellId], Comparison]
"""Drives a finished cell again. Raises Refused for one that has not finished, or that is not to be
executed again."""


@dataclass(frozen=True)
class Reexecution:
    """``compared`` counts recorded events that were decided again; ``first_difference`` is the seq
    of the first one that differs. ``platform_note`` names both platforms where they differ."""

    cell: str
    identical: bool
    compared: int
    first_difference: int | None
    detail: str
    platform_note: str


def reexecute(context: Context, cell_name: str, execute: Execute) -> Reexecution:
    """Drive one finished cell again. Raises Refused for a cell that is not of this study, and where
    ``execute`` does."""
    cell = parse_cell_id(cell_name)
    progress = fold(Progress(context.artifacts.get), context.log_facts())
    if str(cell) not in progress.cells:
        raise Refused(f"cell {cell} is not of this study; `ledger status --cells` lists its cells")
    found = execute(context, cell)
    return Reexecution(
        cell=str(cell),
        identical=found.seq is None,
        compared=found.compared,
        first_difference=found.seq,
        detail=found.detail,
        platform_note=_platform_note(context),
    )


def _platform_note(context: Context) -> str:
    here = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    runs = [decode(stored).event for stored in context.log.read_stream(RUN_STREAM)]
    recorded = {
        f"{run.platform}, Python {run.python}" for run in runs if isinstance(run, RunStarted)
    }
    if recorded <= {here}:
        return ""
    return f"recorded on {' and '.join(sorted(recorded))}; executed again on {here}"
