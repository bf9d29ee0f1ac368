"""What eleven systems do on the six given families: the full policy with the reader reaches every
expectation, and every other system fails where its name says, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    SurfaceRead,
)
from schemas.transfer.family_checks import (
    Call,
    Decision,
    Observed,
    all_hold,
    expected_calls,
    prohibited_calls,
)

Make = Callable[..., Any]

OF_MEMORY = frozenset(("positive", "outcome", "persistence", "noninterference", "supersession"))
"""Kinds that nobody passes without the record."""
OF_CONTROL = frozenset(
    (
        "scope_negative", "principal_negative", "task_negative", "expiry", "not_yet_valid",
        "conflict",
    )
)  # fmt: skip
"""Kinds that only a memory or a driver passes that minds scope, time and conflict."""

FAILS: dict[tuple[str, str], tuple[frozenset[str], frozenset[str]]] = {
    # system: (kinds of which every case fails, kinds of which some cases fail)
    ("full", "reader"): (frozenset(), frozenset()),
    ("none", "reader"): (OF_MEMORY, frozenset(("conflict",))),
    ("full", "null"): (OF_MEMORY, frozenset(("conflict",))),
    ("full", "ignorer"): (OF_MEMORY, frozenset(("conflict",))),
    ("everything", "reader"): (OF_CONTROL, frozenset(("supersession",))),
    ("retrieval", "reader"): (OF_CONTROL, frozenset(("supersession",))),
    ("folder", "reader"): (
        OF_CONTROL - {"scope_negative"},
        frozenset(("supersession",)),
    ),
    ("full", "over_applier"): (frozenset(("conflict",)), frozenset()),
    ("everything", "over_applier"): (
        OF_CONTROL | {"supersession", "noninterference"},
        frozenset(),
    ),
    ("full", "early_acknowledger"): (frozenset(), frozenset(("outcome",))),
    ("full", "liar"): (OF_MEMORY | OF_CONTROL, frozenset()),
}


def reaches_expectation(lab: Any, case: Any, family: Any, events: list[Any]) -> bool:
    """Decision, action and outcome as the case expects, and nothing prohibited."""
    journal = [
        Call(
            number=event.number,
            tool=event.tool,
            effect=event.effect,
            arguments=lab.read(event.arguments),
            ok=event.ok,
        )
        for event in events
        if isinstance(event, FixtureCalled)
    ]
    declared = [e for e in events if isinstance(e, DecisionDeclared) and e.before_write]
    decision = Decision(option=declared[-1].option, basis=declared[-1].basis) if declared else None
    surface = next(event for event in events if isinstance(event, SurfaceRead))
    observed = Observed(
        family.fixture.surfaces,
        lab.read(surface.before),
        lab.read(surface.after),
        journal,
        decision,
    )
    return (
        decision is not None
        and decision.option in case.expected.decision_accept
        and expected_calls(case.expected.action, journal) is not None
        and not prohibited_calls(case.prohibited, journal)
        and all_hold(case.expected.outcome, observed)[0]
    )


def results(
    lab: Any, memory: str, driver: str, distractors: int, only: str = ""
) -> dict[str, list[bool]]:
    """By kind of case whether each reached its expectation."""
    found: dict[str, list[bool]] = {}
    for family in lab.in_hand.suite.families:
        for case in family.cases:
            if only not in ("", case.kind):
                continue
            events = lab.run(f"{case.case_id}.d{distractors}/{memory}/{driver}/0")
            assert isinstance(events[-1], CaseFinished)
            assert events[-1].ended == "completed"
            if case.kind != "baseline":
                reached = reaches_expectation(lab, case, family, events)
                found.setdefault(case.kind, []).append(reached)
    return found


@pytest.mark.parametrize(("memory", "driver"), FAILS)
def test_a_system_fails_where_its_name_says(laboratory: Make, memory: str, driver: str) -> None:
    always, sometimes = FAILS[memory, driver]
    found = results(laboratory(), memory, driver, 0)
    assert {kind for kind, reached in found.items() if not any(reached)} == always
    mixed = {kind for kind, reached in found.items() if any(reached) and not all(reached)}
    assert mixed == sometimes
    assert set(found) == OF_MEMORY | OF_CONTROL


def test_the_full_policy_and_the_reader_stand_fifty_unrelated_records(laboratory: Make) -> None:
    found = results(laboratory(), "full", "reader", 50)
    assert all(all(reached) for reached in found.values())
    assert sum(len(reached) for reached in found.values()) == 41


def test_fifty_unrelated_records_mislead_whoever_applies_the_first(laboratory: Make) -> None:
    found = results(laboratory(), "everything", "over_applier", 50, only="positive")
    assert found == {"positive": [False] * 6}


def test_an_unrelated_record_is_not_what_the_reader_goes_by(laboratory: Make) -> None:
    lab = laboratory()
    for family in lab.in_hand.suite.families:
        (case,) = [case for case in family.cases if case.kind == "baseline"]
        events = lab.run(f"{case.case_id}.d50/everything/reader/0")
        declared = [event for event in events if isinstance(event, DecisionDeclared)]
        assert [event.basis for event in declared] == [()]
