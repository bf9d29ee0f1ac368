"""Re-executing a recorded cell from the log, without any model.

The arm is driven with the recorded answers and test reports; every tool result, every charge, the
final files and the patch are computed again from the frozen base tree, and must equal what is
recorded, by digest. The same code as the live cell's. Runs of transfer studies:
``case_reexecution``.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from actors.loop import Context
from actors.repair.cell_engine import Ended
from actors.repair.cells import (
    DECIDED_HERE,
    Divergence,
    catch_up,
    finish,
    in_words,
    new_engine,
    started,
)
from actors.repair.frozen_study import FrozenStudy
from actors.transfer.frozen_suite import FrozenTransfer
from actors.transfer.reexecution import compare_case
from ledger.errors import Refused
from ledger.log import Fact, decode
from projections.fold import fold
from projections.progress import Progress
from schemas.base import ArtifactRef
from schemas.events.cell import CellFinished, CellStarted, TurnStarted
from schemas.events.run import RunStarted
from schemas.identifiers import RUN_STREAM, CellId, parse_cell_id


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


def reexecute(context: Context, cell_name: str) -> Reexecution:
    """Drive one finished cell again, of either kind of study. Raises Refused for a cell that is not
    recorded, not finished, or not to be executed again."""
    cell = parse_cell_id(cell_name)
    progress = fold(Progress(context.artifacts.get), context.log_facts())
    if progress.suite is not None:
        if str(cell) not in progress.cells:
            raise Refused(_stranger(cell))
        facts = [decode(stored) for stored in context.log.read_stream(cell.stream)]
        found = compare_case(FrozenTransfer(context), cell, facts, context.artifacts.get)
        note = _platform_note(context)
        same = found.seq is None
        return Reexecution(str(cell), same, found.compared, found.seq, found.detail, note)
    frozen = FrozenStudy(context)
    facts = [decode(stored) for stored in context.log.read_stream(cell.stream)]
    begins = [i for i, fact in enumerate(facts) if isinstance(fact.event, CellStarted)]
    ends = [i for i, fact in enumerate(facts) if isinstance(fact.event, CellFinished)]
    if str(cell) not in frozen.planned:
        raise Refused(_stranger(cell))
    if not begins or not ends or ends[-1] < begins[-1]:
        raise Refused(
            f"cell {cell} has not finished: there is nothing to execute again; `ledger status "
            "--cells` shows which have"
        )
    attempt_facts = facts[begins[-1] : ends[-1] + 1]
    note = _platform_note(context)
    try:
        compared = _compare(context, frozen, cell, attempt_facts)
    except _Difference as difference:
        return Reexecution(
            str(cell), False, difference.compared, difference.seq, str(difference), note
        )
    return Reexecution(str(cell), True, compared, None, "", note)


def _stranger(cell: CellId) -> str:
    return f"cell {cell} is not of this study; `ledger status --cells` lists its cells"


class _Difference(Exception):
    def __init__(self, seq: int, compared: int, detail: str) -> None:
        super().__init__(detail)
        self.seq = seq
        self.compared = compared


def _compare(context: Context, frozen: FrozenStudy, cell: CellId, facts: Sequence[Fact]) -> int:
    """Number of recorded events that came out the same. Raises _Difference at the first other."""
    begin, end = facts[0], facts[-1]
    assert isinstance(begin.event, CellStarted) and isinstance(end.event, CellFinished)
    frozen = frozen.as_of(begin.seq)
    again = started(frozen, cell, begin.event.attempt)
    if again != begin.event:
        said = f"recorded {in_words(begin.event)}, now {in_words(again)}"
        raise _Difference(begin.seq, 0, said)
    compared = 1
    engine = new_engine(frozen, cell, _digest_only)
    try:
        need, undecided = catch_up(engine, facts, context.artifacts.get)
    except Divergence as divergence:
        before = [f for f in facts if isinstance(f.event, DECIDED_HERE) and f.seq < divergence.seq]
        raise _Difference(divergence.seq, compared + len(before), str(divergence)) from None
    compared += len(engine.events) - len(undecided)
    asked = {f.event.turn: f for f in facts if isinstance(f.event, TurnStarted)}
    for turn, request in enumerate(engine.requests):
        fact = asked.get(turn)
        if fact is not None and isinstance(fact.event, TurnStarted):
            if fact.event.request != request:
                detail = f"turn {turn}: another request than the recorded one"
                raise _Difference(fact.seq, compared, detail)
            compared += 1
    if undecided or not isinstance(need, Ended):
        said = f"recorded is the end, the arm goes on with {type(need).__name__}"
        raise _Difference(end.seq, compared, said)
    finished = finish(frozen, engine, cell, begin.event.attempt, need, _digest_only)
    if finished != end.event:
        raise _Difference(
            end.seq,
            compared,
            f"recorded {in_words(end.event)}, executed again {in_words(finished)}",
        )
    return compared + 1


def _digest_only(content: bytes, media_type: str) -> ArtifactRef:
    return ArtifactRef(
        digest=sha256(content).hexdigest(), length=len(content), media_type=media_type
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
