"""Does the split follow from the history, commit by commit, with nothing skipped?"""

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from projections.tasks import MinedTasks
from schemas.base import Event
from schemas.events.cell import TurnStarted
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import TasksFrozen
from schemas.task import Task


class FunnelAudit:
    """Counts the audit rows of every repository again and selects the tasks again."""

    NAME: ClassVar[str] = "funnel"
    QUESTION: ClassVar[str] = (
        "Has every walked commit one row, do the counts agree, and are the tasks the first valid "
        "candidates?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (*MinedTasks.FOLDS, TasksFrozen, TurnStarted)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._mined = MinedTasks(read)
        self._candidates: dict[str, list[str]] = {}
        """Commits that pass every static criterion, in mining order, by repository."""
        self._asked: int | None = None
        """First record in which a model was asked."""
        self._commits = self._validated = self._tasks = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, MinedTasks.FOLDS):
            self._mined.apply(fact)
        for problem in self._problems(event):
            self._findings.violation(fact.seq, problem)
        if isinstance(event, TurnStarted) and self._asked is None:
            self._asked = fact.seq

    def _problems(self, event: Event) -> Iterator[str]:
        match event:
            case RepositoryMined():
                yield from self._count(event)
            case CandidateValidated():
                self._validated += 1
                if event.commit not in self._candidates.get(event.repository, ()):
                    yield f"{event.repository}: {event.commit[:12]} was validated, no candidate"
                if event.valid != (event.task is not None):
                    yield f"{event.repository}: {event.commit[:12]} is valid without a task"
            case TasksFrozen():
                if self._asked is not None:
                    yield f"tasks were frozen after a model was asked (record {self._asked})"
                yield from self._select(event)

    def _count(self, event: RepositoryMined) -> Iterator[str]:
        rows = self._mined.audit_rows(event.repository)
        self._commits += len(rows)
        where = event.repository
        if len(rows) != event.walked:
            yield f"{where}: {event.walked} commits were walked, {len(rows)} have a row"
        for commit, count in Counter(row["commit"] for row in rows).items():
            if count > 1:
                yield f"{where}: {commit[:12]} has {count} rows"
        candidates = [row["commit"] for row in rows if row["verdict"] == "candidate"]
        if len(candidates) != event.candidates:
            yield f"{where}: {event.candidates} candidates are counted, rows: {len(candidates)}"
        rejected = Counter(row["criterion"] for row in rows if row["verdict"] != "candidate")
        if rejected != event.rejected:
            yield f"{where}: the counts by criterion differ from the rows"
        self._candidates[event.repository] = candidates

    def _select(self, event: TasksFrozen) -> Iterator[str]:
        tasks = msgspec.json.decode(self._read(event.tasks), type=list[Task])
        self._tasks = len(tasks)
        if len(tasks) != event.count:
            yield f"{event.count} tasks are counted, frozen were {len(tasks)}"
        for repository in sorted({task.repository for task in tasks}):
            chosen = [task for task in tasks if task.repository == repository]
            valid = {task.commit: task for task in self._mined.valid_tasks(repository)}
            judged = self._mined.validated.get(repository, {})
            walked = self._candidates.get(repository, [])
            expected = [valid[commit] for commit in walked if commit in valid][: len(chosen)]
            if chosen != expected:
                yield f"{repository}: the tasks are not its first {len(chosen)} valid candidates"
                continue
            last = walked.index(chosen[-1].commit)
            skipped = [commit[:12] for commit in walked[:last] if commit not in judged]
            if skipped:
                yield f"{repository}: never validated, though newer: {', '.join(skipped)}"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._commits > 0,
            commits=self._commits,
            validated=self._validated,
            tasks=self._tasks,
        )
