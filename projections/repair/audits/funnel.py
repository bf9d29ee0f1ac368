"""Does the split follow from the history, commit by commit, with nothing skipped?"""

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from projections.repair.tasks import MinedTasks
from schemas.base import Event
from schemas.events.cell import TurnStarted
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import AmendmentRecorded, StudyFrozen, TasksFrozen
from schemas.repair.selection import settings_digest
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task
from schemas.study_file import parse_study


class FunnelAudit:
    """Counts the audit rows of every repository again and selects the tasks again.

    Counted is the funnel that the frozen tasks were taken from: what was mined before it and
    replaced, and what was mined after it, is none.
    """

    NAME: ClassVar[str] = "funnel"
    QUESTION: ClassVar[str] = (
        "Has every walked commit one row, do the counts agree, and are the tasks the first valid "
        "candidates under the frozen settings, which no amendment changed?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        *MinedTasks.FOLDS,
        StudyFrozen,
        AmendmentRecorded,
        TurnStarted,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._mined = MinedTasks(read)
        self._candidates: dict[str, list[str]] = {}
        """Commits that pass every static criterion, in mining order, by repository."""
        self._asked: int | None = None
        """First record in which a model was asked."""
        self._frozen: int | None = None
        self._tasks = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, MinedTasks.FOLDS):
            self._mined.apply(fact)
        for problem in self._problems(event):
            self._findings.violation(fact.seq, problem)
        if isinstance(event, TurnStarted) and self._asked is None:
            self._asked = fact.seq
        if isinstance(event, StudyFrozen) and self._frozen is None:
            self._frozen = fact.seq

    def _problems(self, event: Event) -> Iterator[str]:
        if isinstance(event, MinedTasks.FOLDS) and self._frozen is not None:
            yield f"{event.TYPE} came after the study was frozen (record {self._frozen})"
        match event:
            case RepositoryMined():
                yield from self._count(event)
            case CandidateValidated():
                where = f"{event.repository}: {event.commit[:12]}"
                if event.commit not in self._candidates.get(event.repository, ()):
                    yield f"{where} was validated, no candidate"
                if event.valid != (event.task is not None):
                    yield f"{where} is valid without a task"
                mined = self._mined.mined.get(event.repository)
                if mined is not None and event.settings != settings_digest(mined.settings):
                    yield f"{where} was validated under other settings than it was mined under"
            case TasksFrozen():
                if self._asked is not None:
                    yield f"tasks were frozen after a model was asked (record {self._asked})"
                yield from self._select(event)
            case StudyFrozen():
                yield from self._compare_settings(event)
            case AmendmentRecorded():
                study = parse_study(self._read(event.study))
                if isinstance(study, RepairStudy):
                    for problem in self._mined.amended_selection(study):
                        yield f"no amendment can change this: {problem}"

    def _count(self, event: RepositoryMined) -> Iterator[str]:
        rows = self._mined.audit_rows(event.repository)
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

    def _compare_settings(self, event: StudyFrozen) -> Iterator[str]:
        study = parse_study(self._read(event.study))
        if not isinstance(study, RepairStudy):
            return
        # Files beside study.toml are not in the ledger: what they held is taken from the record.
        for changed in self._mined.changed_since_frozen(study, None):
            recorded = self._mined.selection().mined.get(changed.repository)
            if changed.key == "repositories.tasks" or (recorded and recorded.settings):
                yield f"the study was frozen with another setting: {changed}"

    def verdict(self) -> Verdict:
        selection = self._mined.selection()
        commits = sum(mined.walked for mined in selection.mined.values())
        return self._findings.verdict(
            applicable=commits > 0,
            commits=commits,
            validated=sum(len(judged) for judged in selection.validated.values()),
            tasks=self._tasks,
        )
