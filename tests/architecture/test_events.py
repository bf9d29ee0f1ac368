"""Every event is declared once, and has an emitter."""

import re
from pathlib import Path

import schemas.events
from ledger.cli.docs import emitters
from schemas.events import ALL_EVENTS, SUBJECTS

ROOT = Path(__file__).parents[2]


def test_every_file_of_events_is_read_and_every_event_in_it() -> None:
    folder = Path(schemas.events.__path__[0])
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "earlier"}
    assert {subject.__name__.rpartition(".")[2] for subject in SUBJECTS} == files
    written = {
        tag
        for path in folder.glob("*.py")
        if path.stem != "earlier"
        for tag in re.findall(r'TYPE: ClassVar\[str\] = "(.+)"', path.read_text(encoding="utf-8"))
    }
    assert {event.TYPE for event in ALL_EVENTS} == written


def test_every_event_type_is_emitted_by_somebody() -> None:
    assert set(emitters()) == set(ALL_EVENTS)


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
        "remediation.opened.v1",
    }
