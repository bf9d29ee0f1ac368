"""Did every cell run with the task, arm and model that were frozen?"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import CellStarted
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded, StudyFrozen, TasksFrozen
from schemas.study_file import parse_study
from schemas.task import Task


class IdentityAudit:
    """Computes the frozen digests again from the artifacts and compares them with every start."""

    NAME: ClassVar[str] = "identity"
    QUESTION: ClassVar[str] = (
        "Did every cell start with the frozen task, treatment and model, and every run with the "
        "frozen study?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        StudyFrozen,
        AmendmentRecorded,
        RunStarted,
        CellStarted,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._frozen: StudyFrozen | None = None
        self._frozen_tasks: TasksFrozen | None = None
        self._tasks: dict[str, Task] = {}
        self._task_digests: dict[str, str] = {}
        self._treatments: dict[str, str] = {}
        self._models: dict[str, str] = {}
        self._code_amended: int | None = None
        self._platforms: dict[str, int] = {}
        self._cells = self._runs = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case TasksFrozen():
                self._frozen_tasks = event
            case AmendmentRecorded():
                self._read_models(event)
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
            self._compare_treatment(fact.seq, event)

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
                if cell.unit not in self._task_digests:
                    yield f"{cell}: {cell.unit} is not a frozen task"
                elif event.unit != self._task_digests[cell.unit]:
                    yield f"{cell}: the task is not the frozen one"
                if event.agent != self._models.get(cell.agent):
                    yield f"{cell}: the identity of model {cell.agent} is not the frozen one"
                if self._frozen is not None and event.simulated != self._frozen.simulated:
                    yield f"{cell}: simulated is {event.simulated}, frozen was the opposite"

    def _freeze(self, event: StudyFrozen) -> Iterator[str]:
        unsigned = msgspec.structs.replace(event, digest="0" * 64)
        if event.digest != _digest(unsigned):
            yield "the study digest is not the digest of what was frozen"
        for file, content in zip(event.documents, event.document_contents, strict=False):
            if file.digest != content.digest:
                yield f"the content of document {file.name} has another digest"
        self._treatments = {treatment.id: treatment.source for treatment in event.treatments}
        self._read_models(event)
        if self._frozen_tasks is None or self._frozen_tasks.tasks.digest != event.tasks:
            yield "the study binds other tasks than were frozen"
            return
        content_of_tasks = self._read(self._frozen_tasks.tasks)
        self._tasks = {
            task.id: task for task in msgspec.json.decode(content_of_tasks, type=list[Task])
        }
        self._task_digests = {name: _digest(task) for name, task in self._tasks.items()}

    def _read_models(self, event: StudyFrozen | AmendmentRecorded) -> None:
        study = parse_study(self._read(event.study))
        self._models = {model.id: _digest(model) for model in study.models}

    def _compare_treatment(self, seq: int, event: CellStarted) -> None:
        arm = event.cell.arm
        if event.arm == self._treatments.get(arm):
            return
        if self._code_amended is None:
            self._findings.violation(seq, f"{event.cell}: the code of {arm} is not the frozen one")
            return
        self._treatments[arm] = event.arm
        self._findings.note(
            seq, f"{arm} has other code from here on (amendment at record {self._code_amended})"
        )

    def verdict(self) -> Verdict:
        if len(self._platforms) > 1:
            for platform, seq in self._platforms.items():
                self._findings.note(seq, f"a run on {platform}")
        return self._findings.verdict(
            applicable=self._frozen is not None,
            cell_attempts=self._cells,
            runs=self._runs,
            tasks=len(self._tasks),
        )


def _digest(value: Any) -> str:
    """Digest of an identity, as ``cell.started`` records it."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
