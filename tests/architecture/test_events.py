"""Every event has an emitter, and an actor appends nothing outside its declaration."""

import importlib
import re
from pathlib import Path

import pytest

from actors.study_kinds import KINDS
from ledger.cli.docs import EMITTERS as OF_EVERY_KIND
from schemas.events import ALL_EVENTS, EVENT_TYPES

ROOT = Path(__file__).parents[2]
EMITTERS = (*OF_EVERY_KIND, *(name for kind in KINDS.values() for name in kind.emitters))
BY_THE_LOOP = {
    "ledger.created.v1",
    "command.requested.v1",
    "command.completed.v1",
    "command.refused.v1",
    "command.abandoned.v1",
}


def test_every_event_type_is_emitted_by_somebody() -> None:
    declared = {event.TYPE for name in EMITTERS for event in importlib.import_module(name).EMITS}
    assert set(EVENT_TYPES) - declared - BY_THE_LOOP == set()


@pytest.mark.parametrize("name", EMITTERS)
def test_an_actor_builds_only_events_that_it_declares(name: str) -> None:
    module = importlib.import_module(name)
    source = (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    source = re.sub(r"\bcase [^:]+:", "", source)  # patterns look like constructors
    built = {event for event in ALL_EVENTS if re.search(rf"\b{event.__name__}\(\n? *\w+=", source)}
    assert built <= set(module.EMITS)


def test_outcome_events_are_exactly_those_that_show_success() -> None:
    carriers = {event.TYPE for event in ALL_EVENTS if event.CARRIES_OUTCOME}
    assert carriers == {
        "cell.graded.v1",
        "analysis.completed.v1",
        "report.written.v1",
        "memory.seeded.v1",
        "memory.retrieved.v1",
        "memory.written.v1",
        "store.snapshotted.v1",
        "fixture.called.v1",
        "decision.declared.v1",
        "session.closed.v1",
        "surface.read.v1",
        "case.finished.v1",
        "transfer.scored.v1",
        "repair.opened.v1",
    }
