"""Could a task of the split have been seen while prompts or constants were chosen?"""

from collections import Counter
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.study import StudyFrozen, TasksFrozen
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task
from schemas.study_file import parse_study


class ContaminationAudit:
    """Checks what the log knows: constants may be chosen on commits before the study's first day
    (``tasks.not_before``), so no task may be older. Which commits were in fact used for choosing
    is in no record; the audit says so instead of being silent."""

    NAME: ClassVar[str] = "contamination"
    QUESTION: ClassVar[str] = "Is the split disjoint from what treatments were tuned on?"
    FOLDS: ClassVar[tuple[type[Event], ...]] = (TasksFrozen, StudyFrozen)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._tasks: list[Task] = []

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, TasksFrozen):
            self._tasks = msgspec.json.decode(self._read(event.tasks), type=list[Task])
            commits = Counter((task.repository, task.commit) for task in self._tasks)
            for (repository, commit), count in commits.items():
                if count > 1:
                    self._findings.violation(
                        fact.seq, f"{repository}: {commit[:12]} is {count} tasks of the split"
                    )
        elif isinstance(event, StudyFrozen):
            study = parse_study(self._read(event.study))
            first_day = study.tasks.not_before if isinstance(study, RepairStudy) else ""
            for task in self._tasks:
                if task.committed[:10] < first_day:
                    self._findings.violation(
                        fact.seq, f"{task.id} is of {task.committed[:10]}, before {first_day}"
                    )

    def verdict(self) -> Verdict:
        self._findings.note(
            None,
            "no tuning set is declared, so nothing can be compared with the split beyond the "
            "tasks' dates",
        )
        return self._findings.verdict(applicable=False, tasks=len(self._tasks))
