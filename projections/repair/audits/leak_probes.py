"""Was gold seen in any workspace that a cell or a test run gets?"""

from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.mining import LeakProbed
from schemas.events.study import TasksFrozen
from schemas.repair.task import Task


class LeakProbeAudit:
    """Every repository of the split needs a probe over all of its tasks, without findings."""

    NAME: ClassVar[str] = "leak-probes"
    QUESTION: ClassVar[str] = "Were the workspaces of all tasks searched for lines of gold?"
    FOLDS: ClassVar[tuple[type[Event], ...]] = (TasksFrozen, LeakProbed)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._tasks: dict[str, int] = {}
        """Frozen tasks by repository."""
        self._probed: dict[str, int] = {}
        self._probes = self._objects = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, TasksFrozen):
            self._tasks = {}
            for task in msgspec.json.decode(self._read(event.tasks), type=list[Task]):
                self._tasks[task.repository] = self._tasks.get(task.repository, 0) + 1
        elif isinstance(event, LeakProbed):
            self._probes += 1
            self._objects += event.objects
            self._probed[event.repository] = event.tasks
            for leak in event.findings:
                self._findings.violation(fact.seq, f"{event.repository}: gold was seen in {leak}")

    def verdict(self) -> Verdict:
        for repository, tasks in sorted(self._tasks.items()):
            probed = self._probed.get(repository, 0)
            if self._probes == 0:
                self._findings.note(None, f"{repository}: no leak probe is recorded")
            elif probed < tasks:
                self._findings.violation(
                    None, f"{repository}: {probed} of {tasks} tasks were searched"
                )
        return self._findings.verdict(
            applicable=self._probes > 0,
            probes=self._probes,
            objects=self._objects,
            tasks=sum(self._tasks.values()),
        )
