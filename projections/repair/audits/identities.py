"""What the cells of a repair study are made of: tasks, treatments and models, by digest."""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.amendments import Amendments
from projections.audits.finding import Severity
from projections.audits.identity import identity_digest
from projections.fold import ReadArtifact
from schemas.base import ArtifactRef, Event
from schemas.events.study import AmendmentRecorded, StudyFrozen, TasksFrozen
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task
from schemas.study_file import parse_study


class RepairIdentities:
    UNIT: ClassVar[str] = "task"
    AGENT: ClassVar[str] = "model"
    FOLDS: ClassVar[tuple[type[Event], ...]] = (TasksFrozen, StudyFrozen, AmendmentRecorded)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._amendments = Amendments(read)
        self.frozen_units: ArtifactRef | None = None
        self.arms: dict[str, str] = {}
        self.agents: dict[str, str] = {}
        self.code_of_agents: tuple[str, ...] = ()

    def apply(self, fact: Fact) -> None:
        match fact.event:
            case TasksFrozen() as event:
                self.frozen_units = event.tasks
            case StudyFrozen() | AmendmentRecorded() as event:
                study = parse_study(self._read(event.study))
                if not isinstance(study, RepairStudy):
                    return
                self.agents = {model.id: identity_digest(model) for model in study.models}
                self._amendments.apply(fact)
                self.arms = {
                    name.removeprefix("arm "): component.digest
                    for name, component in self._amendments.components.items()
                    if name.startswith("arm ")
                }

    def read_units(self, content: bytes) -> dict[str, str]:
        tasks = msgspec.json.decode(content, type=list[Task])
        return {task.id: identity_digest(task) for task in tasks}

    def beside(self, fact: Fact) -> Iterator[tuple[Severity, str]]:
        return iter(())
