"""Did every cell run with the unit, arm and agent that were frozen?"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import msgspec

from ledger.log import Fact
from projections.amendments import Amendments
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from projections.transfer.frozen_programs import FrozenPrograms
from projections.transfer.system_identity import driver_digest, memory_digest, unit_digest
from schemas.base import ArtifactRef, Event
from schemas.events.cell import CellStarted
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded, StudyFrozen, TasksFrozen
from schemas.events.transfer import FamiliesFrozen, SystemDescribed
from schemas.repair.task import Task
from schemas.study_file import parse_study
from schemas.transfer.family import FrozenSuite
from schemas.transfer.study import TransferStudy


class Words(NamedTuple):
    """What the parts of a cell are called in a kind of study."""

    unit: str
    agent: str


REPAIR, TRANSFER = Words("task", "model"), Words("case", "driver")


class IdentityAudit:
    """Computes the frozen digests again from the artifacts and compares them with every start."""

    NAME: ClassVar[str] = "identity"
    QUESTION: ClassVar[str] = (
        "Did every cell start with the frozen task, treatment and model (case, memory and driver, "
        "with the program that a memory is), and every run with the frozen study?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        FamiliesFrozen,
        StudyFrozen,
        AmendmentRecorded,
        RunStarted,
        CellStarted,
        SystemDescribed,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._frozen: StudyFrozen | None = None
        self._split: TasksFrozen | FamiliesFrozen | None = None
        self._amendments = Amendments(read)
        self._programs = FrozenPrograms(read)
        self._units: dict[str, str] = {}
        self._arms: dict[str, str] = {}
        self._agents: dict[str, str] = {}
        self._words = REPAIR
        self._code_amended: int | None = None
        self._platforms: dict[str, int] = {}
        self._cells = self._runs = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, FrozenPrograms.FOLDS):
            self._programs.apply(fact)
        match event:
            case TasksFrozen() | FamiliesFrozen():
                self._split = event
            case StudyFrozen():
                self._amendments.apply(fact)
            case AmendmentRecorded():
                self._amendments.apply(fact)
                self._read_identities(event)
                if any(file.name.startswith("code/harnesses/") for file in event.changed):
                    self._code_amended = fact.seq
            case RunStarted():
                self._runs += 1
                platform = f"{event.platform}, Python {event.python}"
                self._platforms.setdefault(platform, fact.seq)
                if event.dirty:
                    self._findings.note(fact.seq, "the checkout had uncommitted changes")
        for problem in self._problems(event):
            self._findings.violation(fact.seq, problem)
        if isinstance(event, CellStarted):
            self._cells += 1
            self._compare_arm(fact.seq, event)
        if isinstance(event, SystemDescribed):
            self._compare_program(fact)

    def _problems(self, event: Event) -> Iterator[str]:
        match event:
            case StudyFrozen():
                self._frozen = event
                yield from self._freeze(event)
            case RunStarted():
                if self._frozen is None or event.study != self._frozen.digest:
                    yield f"the run is of study {event.study[:12]}, which is not the frozen one"
            case CellStarted():
                cell = event.cell
                if cell.unit not in self._units:
                    yield f"{cell}: {cell.unit} is not a frozen {self._words.unit}"
                elif event.unit != self._units[cell.unit]:
                    yield f"{cell}: the {self._words.unit} is not the frozen one"
                if event.agent != self._agents.get(cell.agent):
                    yield (
                        f"{cell}: the identity of {self._words.agent} {cell.agent} is not the "
                        "frozen one"
                    )
                if self._frozen is not None and event.simulated != self._frozen.simulated:
                    yield f"{cell}: simulated is {event.simulated}, frozen was the opposite"

    def _freeze(self, event: StudyFrozen) -> Iterator[str]:
        unsigned = msgspec.structs.replace(event, digest="0" * 64)
        if event.digest != _digest(unsigned):
            yield "the study digest is not the digest of what was frozen"
        for file, content in zip(event.documents, event.document_contents, strict=False):
            if file.digest != content.digest:
                yield f"the content of document {file.name} has another digest"
        self._read_identities(event)
        named = _content(self._split)
        if named is None or named.digest != event.tasks:
            yield f"the study binds other {self._words.unit}s than were frozen"
            return
        if isinstance(self._split, FamiliesFrozen):
            suite = msgspec.json.decode(self._read(named), type=FrozenSuite)
            families = {family.family_id: family for family in suite.families}
            self._units = {u.unit: unit_digest(families[u.family_id], u) for u in suite.units}
        else:
            tasks = msgspec.json.decode(self._read(named), type=list[Task])
            self._units = {task.id: _digest(task) for task in tasks}

    def _read_identities(self, event: StudyFrozen | AmendmentRecorded) -> None:
        """Arms and agents as they are from here on."""
        study = parse_study(self._read(event.study))
        if isinstance(study, TransferStudy):
            code = self._amendments.code()
            self._words = TRANSFER
            self._arms = {memory.id: memory_digest(memory, code) for memory in study.memories}
            self._agents = {d.id: driver_digest(study, d, code) for d in study.drivers}
            return
        self._agents = {model.id: _digest(model) for model in study.models}
        if isinstance(event, StudyFrozen):
            self._arms = {treatment.id: treatment.source for treatment in event.treatments}

    def _compare_arm(self, seq: int, event: CellStarted) -> None:
        arm = event.cell.arm
        if event.arm == self._arms.get(arm):
            return
        if self._code_amended is None:
            self._findings.violation(seq, f"{event.cell}: the code of {arm} is not the frozen one")
            return
        self._arms[arm] = event.arm
        self._findings.note(
            seq, f"{arm} has other code from here on (amendment at record {self._code_amended})"
        )

    def _compare_program(self, fact: Fact) -> None:
        other = self._programs.others.get(fact.stream.removeprefix("cell/"))
        if other is None:
            return
        text = f"{other.cell}: the program of {other.memory} is not the frozen one: {other.what}"
        if other.amendment < 0:
            self._findings.violation(fact.seq, text)
        else:
            self._findings.note(fact.seq, f"{text} (amendment at record {other.amendment})")

    def verdict(self) -> Verdict:
        if len(self._platforms) > 1:
            for platform, seq in self._platforms.items():
                self._findings.note(seq, f"a run on {platform}")
        return self._findings.verdict(
            applicable=self._frozen is not None,
            cell_attempts=self._cells,
            runs=self._runs,
            **{f"{self._words.unit}s": len(self._units)},
        )


def _content(split: TasksFrozen | FamiliesFrozen | None) -> ArtifactRef | None:
    """What a split names: tasks, or the suite."""
    match split:
        case TasksFrozen():
            return split.tasks
        case FamiliesFrozen():
            return split.suite
    return None


def _digest(value: Any) -> str:
    """Digest of an identity, as ``cell.started`` records it."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
