"""What one run of a transfer study left behind, read as its scorer needs it.

``RunEvidence`` holds the records of the last attempt of a run with the rules that it began under;
``Reading`` reads them: what the store held, what was delivered and let through, which calls were
made, what was decided. Each question has an answer for "that is not known", and none guesses.

Fresh-Session Correction-Transfer Protocol, section 4.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from projections.fold import ReadArtifact
from schemas.base import Event, Value
from schemas.encoded_copies import forms
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.look_alikes import visible
from schemas.transfer.correction import Correction
from schemas.transfer.family import Case, Family, FrozenSuite, Grade, PlannedCase
from schemas.transfer.family_checks import Call, first_write
from schemas.transfer.rendering import is_intact, normalised


class Prohibited(Value):
    """One prohibited action: a matching call, or a surface that changed behind the tools' back."""

    seq: int
    what: str


E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class Recorded:
    """One event of a run, with the session that was open when it was recorded."""

    seq: int
    at: str
    purpose: str
    event: Event


@dataclass
class RunEvidence:
    """Everything that was recorded of one attempt, and the rules it began under."""

    cell: str
    suite: FrozenSuite
    planned: PlannedCase
    family: Family
    case: Case
    reported_counts: bool
    basis_grade: Grade
    null_memory: bool
    reports_itself: bool
    """The system drives itself: what its memory delivered is its own word, and so is silence."""
    events: list[Recorded] = field(default_factory=list)
    voided: bool = False
    void_attempts: tuple[str, ...] = ()
    prohibited_before: tuple[Prohibited, ...] = ()
    """What was done in them is done: no new attempt undoes a prohibited action."""

    def all(self, kind: type[E], purpose: str | None = None) -> Iterator[tuple[int, E]]:
        for recorded in self.events:
            if isinstance(recorded.event, kind) and purpose in (None, recorded.purpose):
                yield recorded.seq, recorded.event

    def last(self, kind: type[E], purpose: str | None = None) -> tuple[int, E] | None:
        return next(iter(reversed(list(self.all(kind, purpose)))), None)

    @property
    def finished(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1].event, CaseFinished)


class StoreItem(Value):
    """One item of a snapshot or of a delivery."""

    id: str
    text: str


def read_items(content: bytes) -> list[StoreItem] | None:
    """A JSON list of ``{id, text}``; None for anything else: what a system shows may be broken."""
    try:
        rows = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(rows, list):
        return None
    items = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            return None
        items.append(StoreItem(id=str(row.get("id", "")), text=row["text"]))
    return items


MAX_SHARED_WORDS = 1
"""An item that has more words in common with what may not be kept may be a paraphrase of it. One is
allowed: a note names its project, whatever it says."""


@lru_cache(maxsize=256)
def folded(text: str) -> str:
    """A text as it is searched: compatible forms alike (NFKC), without invisible format characters,
    without case, every run of white space one space."""
    return normalised(visible(text)).casefold()


def content_words(text: str) -> set[str]:
    """Its words of at least four letters: shorter ones hold a sentence together."""
    return set(re.findall(r"[^\W_]{4,}", folded(text)))


class Reading:
    """One run's evidence, read: what the stages ask for. Artifacts are read once."""

    def __init__(self, run: RunEvidence, read: ReadArtifact) -> None:
        self.run, self.case, self.family = run, run.case, run.family
        self.read = read
        self.opened = run.last(SessionOpened, "task")
        self.closed = run.last(SessionClosed, "task")
        self.described = run.last(SystemDescribed)
        self.seeded = run.last(MemorySeeded)
        self.surface = run.last(SurfaceRead)
        self.renderings = self._renderings()
        self.correction_of = {
            store_id: correction
            for correction, store_ids in (self.seeded[1].ids.items() if self.seeded else ())
            for store_id in store_ids
        }
        self.journal, self.journal_seqs, self.journal_complete = self._journal()
        self.retrieved = list(run.all(MemoryRetrieved, "task"))
        self._texts_of: dict[int, list[str] | None] = {}
        self._delivered_by: dict[int, list[tuple[str, list[str]]]] = {}
        self.trace_shown = (
            self.described is not None
            and self.described[1].capabilities.trace != "none"
            and (self.seeded is not None or not self.case.store)
        )
        self.trace_complete = (
            self.trace_shown
            and self.closed is not None
            and self.closed[1].retrievals == len(self.retrieved)
            and all(self._texts(event) is not None for _, event in self.retrieved)
        )
        """Nothing was delivered beside what is recorded, and all of it can be read."""
        self.declared = self._declared()

    # -- store --

    def _renderings(self) -> dict[str, str]:
        if self.seeded is None:
            return {}
        try:
            return msgspec.json.decode(self.read(self.seeded[1].renderings), type=dict[str, str])
        except msgspec.DecodeError:
            return {}

    def snapshots(self, after: bool = False) -> list[tuple[int, StoreSnapshotted]]:
        """Those between seeding or teaching and the session, the last one last; with ``after``
        those behind the session too."""
        start = self.seeded[0] if self.seeded else -1
        taught = self.run.last(SessionClosed, "write")
        start = max(start, taught[0] if taught else -1)
        end = self.opened[0] if self.opened else -1
        return [
            (seq, event)
            for seq, event in self.run.all(StoreSnapshotted)
            if start < seq and (after or seq < end)
        ]

    def items(self, snapshot: StoreSnapshotted) -> list[StoreItem] | None:
        return None if snapshot.items is None else read_items(self.read(snapshot.items))

    def record(self, correction_id: str) -> Correction | None:
        return next(
            (found for found in self.family.records if found.correction_id == correction_id), None
        )

    def holds(self, correction_id: str, text: str) -> bool:
        """Whether a text carries the record: the frozen rendering where it was seeded, its meaning
        or the words it was taught in where it was not."""
        rendering = self.renderings.get(correction_id)
        if rendering is not None:
            return is_intact(rendering, text)
        return self.mentions(correction_id, text)

    def mentions(self, correction_id: str, text: str) -> bool:
        """Whether anything of the record stands in a text, encoded or not; for proofs that it is
        absent."""
        words = []
        record = self.record(correction_id)
        if record is not None:
            words += [record.semantic_expectation]
        if correction_id in self.renderings:
            words.append(self.renderings[correction_id])
        teaching = self.case.write_session
        if teaching is not None and correction_id in teaching.teaches:
            words += teaching.turns
        return any(folded(word) in folded(form) for form in forms(text) for word in words)

    def shared_words(self, correction_id: str, text: str) -> set[str]:
        """Words with a meaning of their own that a text has in common with a taught record."""
        teaching, record = self.case.write_session, self.record(correction_id)
        said = [*(teaching.turns if teaching else ())]
        if record is not None:
            said += [record.semantic_expectation, record.expected_decision]
        return content_words(" ".join(said)) & content_words(" ".join(forms(text)))

    # -- trace --

    def usable(self, grade: Grade) -> bool:
        """Scoring rule 5."""
        return grade == "captured" or (grade == "reported" and self.run.reported_counts)

    @property
    def silence(self) -> Grade:
        """Whose word it is that nothing was delivered beside what is recorded."""
        return "reported" if self.run.reports_itself else "captured"

    def corrections_delivered(self, event: MemoryRetrieved) -> list[str]:
        """The corrections that the delivered items carry, in order; empty for any other item."""
        return [name for item in self._delivered(event) for name in item[1]]

    def corrections_admitted(self, event: MemoryRetrieved) -> list[str] | None:
        """The same for what was let through; None where that is not shown. Where several items
        were delivered under one id, all of them were let through by it."""
        if event.admitted is None or self._texts(event) is None:
            return None
        carried: dict[str, list[str]] = {}
        here: dict[str, list[str]] = {}
        for _, other in self.retrieved:
            for id_, names in self._delivered(other):
                carried.setdefault(id_, []).extend(names)
        for id_, names in self._delivered(event):
            here.setdefault(id_, []).extend(names)
        carried |= here
        return [name for id_ in event.admitted for name in carried.get(id_, self._named(id_))]

    def _delivered(self, event: MemoryRetrieved) -> list[tuple[str, list[str]]]:
        """(id, corrections) by delivered item. An id is the memory's own word: whether a record
        that applies was delivered is read from the text alone, and a text that holds several
        records delivers each of them."""
        if id(event) not in self._delivered_by:
            texts = self._texts(event) or [""] * len(event.delivered)
            self._delivered_by[id(event)] = [
                (item.id, self.carried(text) or self._named(item.id))
                for item, text in zip(event.delivered, texts, strict=True)
            ]
        return self._delivered_by[id(event)]

    def _texts(self, event: MemoryRetrieved) -> list[str] | None:
        """The delivered texts in order; None where they are not those that the record names."""
        if id(event) not in self._texts_of:
            texts = [item.text for item in read_items(self.read(event.content)) or ()]
            digests = [sha256(text.encode("utf-8", "replace")).hexdigest() for text in texts]
            same = digests == [item.digest for item in event.delivered]
            self._texts_of[id(event)] = texts if same else None
        return self._texts_of[id(event)]

    def carried(self, text: str) -> list[str]:
        """The corrections that stand in a text: those that apply where they stand there intact, the
        others where anything of them does."""
        names = [record.correction_id for record in self.family.records]
        intact = [name for name in names if self.holds(name, text)]
        rest = normalised(visible(text))  # its case is kept: an encoded copy lies in it
        for name in intact:
            if name in self.renderings:
                rest = rest.replace(normalised(visible(self.renderings[name])), "")
        return [
            name
            for name in names
            if name in intact or (name not in self.case.eligible and self.mentions(name, rest))
        ]

    def _named(self, store_id: str) -> list[str]:
        """What an id without the record's text says: nothing for a record that applies, and the
        record where it is one that does not."""
        name = self.correction_of.get(store_id, "")
        return [""] if name in self.case.eligible else [name]

    def in_scope(self, correction_id: str) -> bool:
        record = self.record(correction_id)
        return record is not None and record.scope.covers(self.case.session)

    # -- journal and decision --

    def _journal(self) -> tuple[list[Call], dict[int, int], bool]:
        """(calls in order, seq by number, whether the fixture counted as many)."""
        calls, seqs = [], {}
        for seq, event in self.run.all(FixtureCalled, "task"):
            try:
                arguments: Any = msgspec.json.decode(self.read(event.arguments))
            except (msgspec.DecodeError, RecursionError):
                arguments = None
            calls.append(
                Call(
                    number=event.number,
                    tool=event.tool,
                    effect=event.effect,
                    arguments=arguments,
                    ok=event.ok,
                )
            )
            seqs[event.number] = seq
        complete = (
            self.surface is not None
            and self.closed is not None
            and [call.number for call in calls] == list(range(self.surface[1].calls))
        )
        return calls, seqs, complete

    def _declared(self) -> tuple[int, DecisionDeclared] | None:
        """The last declaration before the first state-changing call; captured ones win. Of a
        system that shows its decision in the end only, its last word."""
        write = first_write(self.journal)
        found: tuple[int, DecisionDeclared] | None = None
        for seq, event in self.run.all(DecisionDeclared, "task"):
            early = event.before_write and (write is None or event.call < write)
            if event.grade == "captured" and early and event.call >= 0:
                found = seq, event
        if found is not None:
            return found
        shown = self.described[1].capabilities.plan if self.described else "none"
        for seq, event in self.run.all(DecisionDeclared, "task"):
            in_time = event.before_write or shown == "final"
            if event.grade == "reported" and in_time:
                found = seq, event
        return found

    @property
    def declarations_complete(self) -> bool:
        """Every accepted call that decides has its declaration."""
        declared = {event.call for _, event in self.run.all(DecisionDeclared, "task")}
        return self.journal_complete and all(
            call.number in declared for call in self.journal if call.ok and call.effect == "decide"
        )

    @property
    def option(self) -> tuple[int, str] | None:
        """(seq, option) of the decision that was captured; None: none, or it may be another one."""
        if self.declared is None or self.declared[1].grade != "captured":
            return None
        return (self.declared[0], self.declared[1].option) if self.declarations_complete else None

    def used(self) -> tuple[list[str], Grade, tuple[int, ...]] | None:
        """(corrections used, grade, evidence): what the decision names as its basis, or a trace of
        used records. None where neither counts."""
        if self.usable(self.run.basis_grade) and not self.declarations_complete:
            return None
        if self.declared is not None and self.declarations_complete:
            seq, event = self.declared
            grade: Grade = self.run.basis_grade if event.grade == "captured" else event.grade
            if self.usable(grade):
                named = [
                    self.correction_of.get(name, name if self.record(name) else "")
                    for name in event.basis
                ]
                return named, grade, (seq,)
        if (
            self.described is not None
            and self.described[1].capabilities.trace == "used"
            and (admitted := self.admitted()) is not None
        ):
            return admitted
        return None

    def admitted(self) -> tuple[list[str], Grade, tuple[int, ...]] | None:
        """(corrections admitted, grade, evidence) of the whole session; None: not all is shown."""
        if not self.trace_complete or self.closed is None:
            return None
        corrections: list[str] = []
        grade = self.silence
        if not self.usable(grade):
            return None
        for _, event in self.retrieved:
            found = self.corrections_admitted(event) if event.delivered else []
            if found is None or not self.usable(event.grade):
                return None
            corrections += found
            grade = "reported" if event.grade == "reported" else grade
        return corrections, grade, (*(seq for seq, _ in self.retrieved), self.closed[0])

    @property
    def lifecycle_unknown(self) -> bool:
        """Whether the freeze does not say what a record of the store is in this session."""
        return any(name not in self.case.effective_lifecycle for name in self.case.store)

    def stale(self) -> list[str]:
        """Records in the store that the session's scope covers and that do not hold any more, or
        not yet: as computed at the freeze, whatever their author asserts."""
        return [
            name
            for name in self.case.store
            if name not in self.case.eligible
            and (record := self.record(name)) is not None
            and record.scope.covers(self.case.session)
            and (
                self.case.effective_lifecycle.get(name, "active") != "active"
                or not record.in_validity(self.case.session.now)
            )
        ]

    def clock_unknown(self) -> bool:
        """Whether the memory may have believed another time than the case's, and that matters."""
        if self.described is None:
            return True
        if self.described[1].clock_control != "system" or self.opened is None:
            return False
        at = next(found.at for found in self.run.events if found.seq == self.opened[0])
        real, now = f"{at[:19]}Z", self.case.session.now
        return any(
            record.in_validity(real) != record.in_validity(now)
            for name in self.case.store
            if (record := self.record(name)) is not None
        )
