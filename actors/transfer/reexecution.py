"""Executing a recorded run of a transfer study again, without its memory and without a model.

What crossed the boundary from outside is taken from the log: what the memory showed, delivered and
acknowledged, what a model answered. Everything else is computed again by the same code as live and
must equal what is recorded, by digest: seeded records with their marks, prompts and tools, requests
to the model, every call, its result and the state after it, declared decisions, last words, the
surface. So it shows that the recorded acts follow from the recorded deliveries; that the memory
delivered these is its own matter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

from actors.loop import Context
from actors.memory_systems.contract import (
    Acknowledgement,
    CaseFolders,
    Delivery,
    Manifest,
    Snapshot,
    SystemFailure,
)
from actors.study.reexecution import Comparison
from actors.transfer.case_run import DECIDED_HERE, CaseRun, SuiteInHand
from actors.transfer.frozen_study import FrozenTransfer
from actors.transfer.sessions import model_answer
from harnesses.memory.contract import Notice, StoredItem
from ledger.errors import Refused
from ledger.log import Fact, decode
from projections.fold import ReadArtifact
from projections.transfer.evidence import read_items
from schemas.base import ArtifactRef, Event
from schemas.events.cell import CellStarted, TurnAnswered, TurnFailed, TurnStarted
from schemas.events.transfer import (
    Capabilities,
    CaseFinished,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.identifiers import CellId
from schemas.transfer.correction import Session

E = TypeVar("E", bound=Event)


class RecordedMemory:
    """A memory that shows, delivers and acknowledges what is recorded, in its order.

    Where the record of an answer is missing, the system failed there: so does this.
    """

    def __init__(self, facts: Sequence[Fact], read: ReadArtifact, end: CaseFinished) -> None:
        kinds = (SystemDescribed, MemorySeeded, StoreSnapshotted, MemoryRetrieved, MemoryWritten)
        self._events: list[Event] = [
            event
            for event in (fact.event for fact in facts)
            if isinstance(event, kinds)
            # A memory is not asked to seed nothing.
            and not (isinstance(event, MemorySeeded) and not event.ids and not event.distractors)
        ]
        self._side_effects = [
            fact.event.side_effects for fact in facts if isinstance(fact.event, SurfaceRead)
        ]
        self._freshness = [
            fact.event.freshness for fact in facts if isinstance(fact.event, SessionOpened)
        ]
        self._read = read
        self._end = end
        described = self._next(SystemDescribed)
        self.capabilities: Capabilities = described.capabilities
        self._manifest = msgspec.json.decode(read(described.memory), type=Manifest)

    def manifest(self) -> Manifest:
        return self._manifest

    def freshness(self) -> Mapping[str, str]:
        return self._freshness.pop(0) if self._freshness else {}

    def side_effects(self) -> tuple[str, ...]:
        return self._side_effects[-1] if self._side_effects else ()

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        event = self._next(MemorySeeded)
        unrelated = [name for name in texts if name not in event.ids]
        # Which of the unrelated ids belongs to which of their texts is not recorded.
        return {**event.ids, **dict.fromkeys(unrelated[:1], event.distractors)}

    def snapshot(self) -> Snapshot:
        event = self._next(StoreSnapshotted)
        items = None if event.items is None else self._items(event.items)
        return Snapshot(event.digest, event.grade, items, event.whole)

    def recall(self, query: str, session: Session) -> Delivery:
        event = self._next(MemoryRetrieved)
        return Delivery(
            query=event.query,
            items=self._items(event.content),
            admitted=event.admitted,
            notices=tuple(Notice(each.kind, each.records) for each in event.notices),
            grade=event.grade,
        )

    def remember(self, text: str, session: Session) -> Acknowledgement:
        event = self._next(MemoryWritten)
        return Acknowledgement(event.acknowledged, self._read(event.text).decode())

    def restore(self, digest: str) -> None:
        raise LookupError("a recorded memory has no store")

    def close(self) -> None:
        """There is nothing to end."""

    def _next(self, kind: type[E]) -> E:
        first = self._events[0] if self._events else None
        if isinstance(first, kind):
            del self._events[0]
            return first
        match self._end.ended:
            case "completed" | "void":  # it is asked for more than it was: a difference
                raise SystemFailure("crashed", "asked for more than is recorded")
            case ended:
                raise SystemFailure(ended, self._end.detail)

    def _items(self, ref: ArtifactRef) -> tuple[StoredItem, ...]:
        return tuple(StoredItem(each.id, each.text) for each in read_items(self._read(ref)) or ())


def execute_again(context: Context, cell: CellId) -> Comparison:
    """Execute the recorded run of a cell again. Raises Refused as :func:`compare_case`."""
    facts = [decode(stored) for stored in context.log.read_stream(cell.stream)]
    begins = [fact.seq for fact in facts if isinstance(fact.event, CellStarted)]
    frozen = FrozenTransfer(context).as_of(begins[-1] if begins else 0)
    return compare_case(frozen, cell, facts, context.artifacts.get)


def compare_case(
    frozen: SuiteInHand, cell: CellId, facts: Sequence[Fact], read: ReadArtifact
) -> Comparison:
    """Execute one run again and compare. ``facts`` are those of the cell's stream.

    Raises Refused for what cannot be executed again: a run that has not ended or is void, a system
    with a driver of its own, a session that ended because its time was over.
    """
    facts = _last_attempt(frozen, cell, facts)
    begin, end = facts[0].event, facts[-1].event
    assert isinstance(begin, CellStarted) and isinstance(end, CaseFinished)
    if (begin.unit, begin.arm, begin.agent) != frozen.digests(cell):
        return Comparison(0, facts[0].seq, "unit, memory or driver are not the frozen ones")
    recorded = [fact for fact in facts if isinstance(fact.event, DECIDED_HERE)]
    asked = [fact for fact in facts if isinstance(fact.event, TurnStarted)]
    requests: list[ArtifactRef] = []
    answers = [
        answer
        for fact in facts
        if isinstance(fact.event, TurnAnswered | TurnFailed)
        and (answer := model_answer([fact], read)) is not None
    ]
    memory: list[RecordedMemory] = []

    def opened(*_: Any) -> RecordedMemory:
        """The same one for both sessions: it goes on in the log."""
        if not memory:
            memory.append(RecordedMemory(facts, read, end))
        return memory[0]

    with TemporaryDirectory(prefix="ledger-") as folder:
        run = CaseRun(
            frozen=frozen,
            cell=cell,
            attempt=begin.attempt,
            folders=CaseFolders(Path(folder) / "case"),
            open=opened,
            monotonic=lambda: 0.0,  # no session that the clock ended comes here
        )
        steps = run.steps()
        finished: list[Event] = []
        try:
            question = next(steps)
            while True:
                requests.append(run.request(question))
                if len(requests) > len(answers):
                    break  # it asks once more than it did: the events that follow are missing
                question = steps.send(answers[len(requests) - 1])
        except StopIteration as stop:
            finished.append(stop.value)
        finally:
            steps.close()
            run.discard()
    again = [*run.take(), *finished]
    for number, fact in enumerate(recorded):
        now = again[number] if number < len(again) else None
        if now != fact.event:
            detail = _difference(fact.event, now)
            return Comparison(1 + number, fact.seq, detail)
    if len(again) > len(recorded):
        detail = f"recorded is the end, it goes on with {again[len(recorded)].TYPE}"
        return Comparison(1 + len(recorded), facts[-1].seq, detail)
    for fact in asked:
        turn = fact.event
        assert isinstance(turn, TurnStarted)
        if turn.turn >= len(requests) or turn.request != requests[turn.turn]:
            detail = f"turn {turn.turn}: another request than the recorded one"
            return Comparison(1 + len(recorded), fact.seq, detail)
    return Comparison(1 + len(recorded) + len(asked))


def _difference(recorded: Event, again: Event | None) -> str:
    """Types and names of fields; values are behind the inspection gate."""
    if again is None:
        return f"recorded {recorded.TYPE}, executed again it has ended"
    if type(again) is not type(recorded):
        return f"recorded {recorded.TYPE}, executed again {again.TYPE}"
    names = type(recorded).__struct_fields__
    differing = [name for name in names if getattr(recorded, name) != getattr(again, name)]
    return f"{recorded.TYPE}: executed again with other {', '.join(differing)}"


def _last_attempt(frozen: SuiteInHand, cell: CellId, facts: Sequence[Fact]) -> Sequence[Fact]:
    """From the last ``cell.started`` to ``case.finished``. Raises Refused."""
    begins = [i for i, fact in enumerate(facts) if isinstance(fact.event, CellStarted)]
    ends = [i for i, fact in enumerate(facts) if isinstance(fact.event, CaseFinished)]
    if not begins or not ends or ends[-1] < begins[-1]:
        raise Refused(
            f"run {cell} has not ended: there is nothing to execute again; `ledger status "
            "--cells` shows which have"
        )
    end = facts[ends[-1]].event
    assert isinstance(end, CaseFinished)
    if end.ended == "void":
        raise Refused(
            f"run {cell} is void: it says nothing about the system; `ledger show {cell}` says why"
        )
    if frozen.study.driver(cell.agent).kind == "own":
        raise Refused(
            f"{cell.arm} brings its own driver, a program of its own that is not in the log: its "
            "runs cannot be executed again; `ledger replay --check` derives their scores again"
        )
    if end.ended == "timed_out" and end.detail.startswith("no end after"):
        raise Refused(
            f"run {cell} ended because its session's time was over: where it was cut depends on "
            "the clock, and it cannot be executed again"
        )
    return facts[begins[-1] : ends[-1] + 1]
