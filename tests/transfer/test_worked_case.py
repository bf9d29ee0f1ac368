"""The protocol's worked case, Alder and Birch: right decision, wrong ledger; and own drivers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from actors.memory_systems.contract import Manifest, Opening, SystemFailure
from actors.memory_systems.store import StoreMemory
from harnesses.drivers.contract import (
    CallTool,
    Claimed,
    DeliveredText,
    Finish,
    ReportPlan,
    ReportRetrieval,
    SessionInput,
    Steps,
)
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    SessionClosed,
    SurfaceRead,
    SystemDescribed,
)
from schemas.transfer.family import DECLARE_DECISION
from schemas.transfer.family_checks import Call, expected_calls
from schemas.transfer.study import Memory

Make = Callable[..., Any]


def own(*effects: Any) -> Callable[[Memory, Opening], StoreMemory]:
    """A system that brings its driver: it yields these effects, whatever it is shown."""

    class OwnSystem(StoreMemory):
        def run(self, given: SessionInput) -> Steps:
            for effect in effects:
                if isinstance(effect, Exception):
                    raise effect
                yield effect

        def driver_manifest(self) -> Manifest:
            return Manifest(kind="own", id="own")

    return OwnSystem


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def journal(lab: Any, events: list[Any]) -> list[Call]:
    return [
        Call(
            number=event.number,
            tool=event.tool,
            effect=event.effect,
            arguments=lab.read(event.arguments),
            ok=event.ok,
        )
        for event in of(events, FixtureCalled)
    ]


def case_of(lab: Any, cell: str) -> Any:
    return lab.in_hand.unit(cell.split("/")[0])[2]


ALDER = "F106-01-positive.d0/full/own/0"


def report(source: str, status: str, read: str) -> Sequence[Any]:
    return (
        CallTool("source_read", {"source": read, "project": "alder"}),
        CallTool(DECLARE_DECISION, {"option": status, "basis": ["CT-106"]}),
        CallTool("report_write", {"project": "alder", "status": status, "source_ref": source}),
        Finish("Filed.", (Claimed("done", "report_write"),)),
    )


def test_the_right_decision_with_the_wrong_ledger_queried_is_another_action(
    laboratory: Make,
) -> None:
    right = laboratory(opener=own(*report("ledger-a", "incomplete", "ledger-a")))
    wrong = laboratory(opener=own(*report("ledger-a", "incomplete", "ledger-b")))
    seen = {}
    for name, lab in (("right", right), ("wrong", wrong)):
        events = lab.run(ALDER)
        expected = case_of(lab, ALDER).expected
        decision = of(events, DecisionDeclared)[0]
        assert decision.option in expected.decision_accept
        seen[name] = expected_calls(expected.action, journal(lab, events)) is not None
        assert lab.read(of(events, SurfaceRead)[0].after)["report"]["status"] == "incomplete"
    assert seen == {"right": True, "wrong": False}


@pytest.mark.parametrize(
    ("unit", "option", "source"),
    [
        ("F106-01-positive", "incomplete", "ledger-a"),
        ("F106-02-scope_negative", "complete", "board"),
        ("F106-03-supersession", "complete", "ledger-b"),
        ("F106-04-conflict", "needs_resolution", None),
        ("F106-05-expiry", "needs_resolution", None),
    ],
)
def test_alder_and_birch_each_follow_their_own_source(
    laboratory: Make, unit: str, option: str, source: str | None
) -> None:
    lab = laboratory()
    events = lab.run(f"{unit}.d50/full/reader/0")
    assert of(events, DecisionDeclared)[0].option == option
    after = lab.read(of(events, SurfaceRead)[0].after)
    assert after.get("report", {}).get("source_ref") == source
    calls = [call.tool for call in journal(lab, events)]
    assert ("report_write" in calls) is (source is not None)
    assert calls.count("ask") == (source is None)


def test_a_system_with_its_own_driver_is_taken_at_its_word_and_marked_so(
    laboratory: Make,
) -> None:
    lab = laboratory(
        opener=own(
            ReportRetrieval("alder?", (DeliveredText("x", "the ledger"),)),
            ReportPlan("incomplete", ("CT-106",)),
            Finish("Done."),
        )
    )
    events = lab.run(ALDER)
    retrieved, declared = of(events, MemoryRetrieved)[0], of(events, DecisionDeclared)[0]
    assert (retrieved.grade, retrieved.admitted) == ("reported", None)
    assert (declared.grade, declared.call, declared.before_write) == ("reported", -1, True)
    assert of(events, SessionClosed)[0].retrievals == 1
    assert lab.read(of(events, SystemDescribed)[0].driver)["kind"] == "own"


@pytest.mark.parametrize(
    ("effects", "ended"),
    [
        ((SystemFailure("timed_out", "silent"),), "timed_out"),
        ((SystemFailure("malformed", "not JSON"),), "malformed"),
        ((), "completed"),
        ((CallTool("x", {}),) * 100, "flooded"),
        ((ReportPlan("a"),) * 100, "flooded"),
        ((Finish("?", ended="malformed"),), "malformed"),
        ((CallTool(7, object()), CallTool("source_read", "{"), Finish("")), "completed"),  # type: ignore[arg-type]
    ],
)
def test_whatever_a_driver_of_its_own_does_has_its_class(
    laboratory: Make, effects: tuple[Any, ...], ended: str
) -> None:
    events = laboratory(opener=own(*effects)).run(ALDER)
    assert of(events, CaseFinished)[0].ended == ended
    assert len(of(events, FixtureCalled)) <= 65


def test_last_words_without_end_are_cut(laboratory: Make) -> None:
    claims = tuple(Claimed("done", "x" * 10_000) for _ in range(1000))
    lab = laboratory(opener=own(Finish("y" * 1_000_000 + "\ud800", claims)))
    closed = of(lab.run(ALDER), SessionClosed)[0]
    assert len(closed.claims) == 100
    assert max(len(claim.about) for claim in closed.claims) == 200
    assert closed.text.length <= 100_000
