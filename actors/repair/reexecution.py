"""Re-executing a recorded cell of a repair study.

The arm is driven with the recorded answers and test reports; every tool result, every charge, the
final files and the patch are computed again from the frozen base tree, and must equal what is
recorded, by digest. The same code as the live cell's.
"""

from collections.abc import Sequence
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
from actors.repair.frozen_study import FrozenRepair
from actors.study.reexecution import Comparison
from ledger.errors import Refused
from ledger.log import Fact, decode
from schemas.base import ArtifactRef
from schemas.events.cell import CellFinished, CellStarted, TurnStarted
from schemas.identifiers import CellId


def execute_again(context: Context, cell: CellId) -> Comparison:
    """Drive the last attempt of a finished cell again. Raises Refused for one that has not
    finished."""
    facts = [decode(stored) for stored in context.log.read_stream(cell.stream)]
    begins = [i for i, fact in enumerate(facts) if isinstance(fact.event, CellStarted)]
    ends = [i for i, fact in enumerate(facts) if isinstance(fact.event, CellFinished)]
    if not begins or not ends or ends[-1] < begins[-1]:
        raise Refused(
            f"cell {cell} has not finished: there is nothing to execute again; `ledger status "
            "--cells` shows which have"
        )
    attempt = facts[begins[-1] : ends[-1] + 1]
    try:
        return Comparison(_compare(context, FrozenRepair(context), cell, attempt))
    except _Difference as difference:
        return Comparison(difference.compared, difference.seq, str(difference))


class _Difference(Exception):
    def __init__(self, seq: int, compared: int, detail: str) -> None:
        super().__init__(detail)
        self.seq = seq
        self.compared = compared


def _compare(context: Context, frozen: FrozenRepair, cell: CellId, facts: Sequence[Fact]) -> int:
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
