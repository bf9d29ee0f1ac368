"""mem0ai with our embedder: what it keeps, finds, and whose date it goes by."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from actors.memory_systems.mem0_process import DIMENSIONS, embed
from ledger.errors import Refused
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    MemoryRetrieved,
    MemorySeeded,
    StoreSnapshotted,
    SystemDescribed,
)
from schemas.transfer.rendering import is_intact
from schemas.transfer.study import Memory

Make = Callable[..., Any]
MEMORY = Memory(id="mem0", kind="mem0")
POSITIVE = "F101-01-positive.d0/mem0/reader/0"


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_the_embedder_is_deterministic_and_of_length_one() -> None:
    one, other = embed("Alder reports use the ledger"), embed("the LEDGER reports, use Alder")
    assert (one, len(one)) == (other, DIMENSIONS)
    assert sum(value * value for value in one) == pytest.approx(1.0)
    assert embed("") == [0.0] * DIMENSIONS
    unrelated = embed("Birch plans list sprints")
    assert sum(a * b for a, b in zip(one, unrelated, strict=True)) < 0.5


@pytest.mark.skipif(
    importlib.util.find_spec("mem0") is not None, reason="the extra mem0 is installed"
)
def test_without_the_extra_it_says_what_to_install(worker: Make) -> None:
    with pytest.raises(Refused, match="extra `mem0`"):
        worker(MEMORY).run(POSITIVE)


def test_it_keeps_texts_as_they_are_and_finds_them(worker: Make) -> None:
    pytest.importorskip("mem0")
    lab = worker(MEMORY)
    events = lab.run("F101-01-positive.d50/mem0/reader/0")
    end = of(events, CaseFinished)[0]
    assert end.ended == "completed", end.detail
    assert any(line.startswith("clock:") for line in end.uncertainty)
    seeded, described = of(events, MemorySeeded)[0], of(events, SystemDescribed)[0]
    assert described.clock_control == "system"
    before, after = of(events, StoreSnapshotted)
    items = {item["id"]: item["text"] for item in lab.read(before.items)}
    (stored,) = seeded.ids["CT-101"]
    assert is_intact(lab.read(seeded.renderings)["CT-101"], items[stored])
    assert (len(items), before.grade, before.digest) == (51, "captured", after.digest)
    retrieved = of(events, MemoryRetrieved)[0]
    assert len(retrieved.delivered) == MEMORY.results
    assert (retrieved.grade, retrieved.delivered[0].id) == ("captured", stored)
    assert of(events, DecisionDeclared)[0].option == "staging"


def test_what_is_taught_is_there_in_the_next_process(worker: Make) -> None:
    pytest.importorskip("mem0")
    events = worker(MEMORY).run("F105-02-persistence.d0/mem0/reader/0")
    assert of(events, CaseFinished)[0].ended == "completed"
    before, after, again, _ = of(events, StoreSnapshotted)
    assert before.digest != after.digest == again.digest
