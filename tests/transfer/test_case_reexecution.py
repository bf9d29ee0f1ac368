"""A recorded run is executed again from the log: without its memory, with the same acts."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from actors.memory_systems.contract import Acknowledgement, Delivery, Snapshot, SystemFailure
from actors.memory_systems.store import StoreMemory
from actors.study.reexecution import Comparison
from actors.transfer.reexecution import compare_case
from ledger.errors import Refused
from ledger.log import Fact
from schemas.base import Event
from schemas.events.cell import CellStarted
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    SurfaceRead,
)
from schemas.identifiers import parse_cell_id
from schemas.transfer.correction import Session

Make = Callable[..., Any]
POSITIVE = "F101-01-positive.d0/full/reader/0"
PERSISTENCE = "F105-02-persistence.d50/full/reader/0"


def again(lab: Any, cell: str, facts: Sequence[Fact] | None = None) -> Comparison:
    recorded = lab.facts(cell) if facts is None else facts
    return compare_case(lab.in_hand, parse_cell_id(cell), recorded, lab.context.artifacts.get)


@pytest.mark.parametrize("driver", ["reader", "null", "over_applier", "ignorer", "liar"])
@pytest.mark.parametrize("memory", ["none", "everything", "retrieval", "full", "folder"])
def test_every_rule_based_system_does_the_same_again(
    laboratory: Make, memory: str, driver: str
) -> None:
    lab = laboratory()
    for unit in ("F101-01-positive.d50", "F105-02-persistence.d0"):
        cell = f"{unit}/{memory}/{driver}/0"
        recorded = lab.run(cell)
        assert again(lab, cell) == Comparison(len(recorded)), cell


class Fails(StoreMemory):
    at = ""

    def seed(self, texts: Any) -> Any:
        if self.at == "seed":
            raise SystemFailure("flooded", "too much")
        return super().seed(texts)

    def snapshot(self) -> Snapshot:
        if self.at == "snapshot":
            raise SystemFailure("malformed", "no answer")
        return super().snapshot()

    def recall(self, query: str, session: Session) -> Delivery:
        if self.at == "recall":
            raise SystemFailure("crashed", "gone")
        return super().recall(query, session)

    def remember(self, text: str, session: Session) -> Acknowledgement:
        if self.at == "remember":
            raise SystemFailure("timed_out", "no answer in time")
        return super().remember(text, session)


@pytest.mark.parametrize("where", ["seed", "snapshot", "recall", "remember"])
def test_a_system_that_failed_fails_again_at_the_same_place(laboratory: Make, where: str) -> None:
    class Here(Fails):
        at = where

    lab = laboratory(opener=Here)
    recorded = lab.run(PERSISTENCE)
    assert recorded[-1].ended not in ("completed", "void")
    assert again(lab, PERSISTENCE) == Comparison(len(recorded))


def replaced(facts: Sequence[Fact], kind: type[Event], **changes: Any) -> tuple[int, list[Fact]]:
    """The facts with the first event of a kind altered, and its position."""
    number = next(n for n, fact in enumerate(facts) if isinstance(fact.event, kind))
    altered = msgspec.structs.replace(facts[number].event, **changes)
    changed = list(facts)
    changed[number] = msgspec.structs.replace(facts[number], event=altered)
    return facts[number].seq, changed


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (FixtureCalled, {"tool": "another"}),
        (FixtureCalled, {"state": "0" * 64}),
        (DecisionDeclared, {"option": "another"}),
        (SurfaceRead, {"calls": 99}),
        (CaseFinished, {"detail": "another"}),
        (CellStarted, {"arm": "0" * 64}),
    ],
)
def test_what_does_not_follow_from_the_deliveries_is_found(
    laboratory: Make, kind: type[Event], changes: dict[str, Any]
) -> None:
    lab = laboratory()
    lab.run(POSITIVE)
    seq, facts = replaced(lab.facts(POSITIVE), kind, **changes)
    found = again(lab, POSITIVE, facts)
    assert found.seq == seq
    if kind is not CellStarted:
        (name,) = changes
        assert found.detail == f"{kind.TYPE}: executed again with other {name}", "and no value"


def test_another_delivery_would_have_led_to_other_acts(laboratory: Make) -> None:
    lab = laboratory()
    lab.run(POSITIVE)
    _, facts = replaced(lab.facts(POSITIVE), MemoryRetrieved, admitted=())
    found = again(lab, POSITIVE, facts)
    assert found.seq is not None
    (first,) = [fact.event for fact in facts if fact.seq == found.seq]
    assert not isinstance(first, MemoryRetrieved), "the delivery is taken as it is"


def test_calls_that_nobody_made_are_found(laboratory: Make) -> None:
    lab = laboratory()
    lab.run(POSITIVE)
    facts = [fact for fact in lab.facts(POSITIVE) if not isinstance(fact.event, FixtureCalled)]
    assert again(lab, POSITIVE, facts).seq is not None


def test_what_cannot_be_executed_again_says_why(laboratory: Make) -> None:
    lab = laboratory()
    with pytest.raises(Refused, match="has not ended"):
        again(lab, POSITIVE)
    lab.run(POSITIVE)
    _, void = replaced(lab.facts(POSITIVE), CaseFinished, ended="void")
    with pytest.raises(Refused, match="is void"):
        again(lab, POSITIVE, void)
    over = {"ended": "timed_out", "detail": "no end after 9 seconds"}
    _, cut = replaced(lab.facts(POSITIVE), CaseFinished, **over)
    with pytest.raises(Refused, match="depends on the clock"):
        again(lab, POSITIVE, cut)
