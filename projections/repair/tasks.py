"""Tasks: the funnel from commits to valid tasks, outcome-blind by construction."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact, Row
from schemas.base import Event
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import TasksFrozen
from schemas.repair.selection import (
    NOT_RECORDED,
    TEXTS,
    ChangedSetting,
    changed_settings,
    selection_settings,
    settings_digest,
)
from schemas.repair.study import RepairStudy, Repository
from schemas.repair.task import Task


class CommitRow(Row):
    TABLE: ClassVar[str] = "commits"
    KEY: ClassVar[tuple[str, ...]] = ("repository", "commit_id")
    repository: str
    commit_id: str  # `commit` is a word of SQL
    date: str
    subject: str
    verdict: str
    criterion: str
    reason: str


class CandidateRow(Row):
    TABLE: ClassVar[str] = "candidates"
    KEY: ClassVar[tuple[str, ...]] = ("repository", "commit_id")
    repository: str
    commit_id: str
    valid: int
    criterion: str
    reason: str
    environment: str
    sandbox: str
    duration_ns: int


@dataclass
class MinedTasks:
    """Latest funnel and verdicts by repository; verdicts in mining order (newest commit first).

    A verdict belongs to the funnel and the settings that it was made under: mined again under
    others, a repository has the verdicts that were made under those, or none.
    """

    NAME: ClassVar[str] = "tasks"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        RepositoryMined,
        CandidateValidated,
        TasksFrozen,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (
        CommitRow,
        CandidateRow,
    )

    read: ReadArtifact
    mined: dict[str, RepositoryMined] = field(default_factory=dict)
    validated: dict[str, dict[str, CandidateValidated]] = field(default_factory=dict)
    frozen: "MinedTasks | None" = None
    """As it stood when the tasks were frozen last."""
    frozen_tasks: TasksFrozen | None = None
    _verdicts: dict[tuple[str, str, str], dict[str, CandidateValidated]] = field(
        default_factory=dict
    )
    """Of every funnel that there was: by repository, digest of settings, digest of audit."""

    def apply(self, fact: Fact) -> None:
        match fact.event:
            case RepositoryMined() as event:
                key = (event.repository, settings_digest(event.settings), event.audit.digest)
                self.validated[event.repository] = self._verdicts.setdefault(key, {})
                self.mined[event.repository] = event
            case CandidateValidated() as event:
                mined = self.mined.get(event.repository)
                if mined is not None and event.settings == settings_digest(mined.settings):
                    self.validated[event.repository][event.commit] = event
            case TasksFrozen() as event:
                verdicts = {name: dict(found) for name, found in self.validated.items()}
                self.frozen = MinedTasks(self.read, dict(self.mined), verdicts)
                self.frozen_tasks = event

    def selection(self) -> "MinedTasks":
        """What the frozen tasks were taken from: later mining does not belong to it. Before tasks
        are frozen, what stands now."""
        return self.frozen or self

    def changed_settings(
        self, study: RepairStudy, repository: Repository, texts: str | None
    ) -> list[ChangedSetting]:
        """Settings of ``study`` that are not those under which the repository was mined; a
        repository that is not mined has none of them. ``texts``: see ``selection_settings``; None
        where that file is not at hand, and taken to be as it was."""
        mined = self.mined.get(repository.id)
        then = {} if mined is None else mined.settings
        if texts is None:
            texts = msgspec.json.decode(then.get(TEXTS, '""'), type=str)
        return changed_settings(repository.id, then, selection_settings(study, repository, texts))

    def changed_since_frozen(self, study: RepairStudy, texts: str | None) -> list[ChangedSetting]:
        """What ``study`` declares otherwise than the frozen tasks were selected, their number
        included. Where nothing is frozen nothing has changed."""
        if self.frozen is None or self.frozen_tasks is None:
            return []
        tasks = msgspec.json.decode(self.read(self.frozen_tasks.tasks), type=list[Task])
        taken = Counter(task.repository for task in tasks)
        declared = {repository.id: repository for repository in study.repositories}
        changed = []
        for name in sorted(taken.keys() | declared.keys()):
            repository = declared.get(name)
            count = {} if repository is None else {"repositories.tasks": str(repository.tasks)}
            changed += changed_settings(name, {"repositories.tasks": str(taken[name])}, count)
            if repository is not None:
                changed += self.frozen.changed_settings(study, repository, texts)
        return changed

    def amended_selection(self, study: RepairStudy) -> list[str]:
        """Why ``study`` is no amendment of what the frozen tasks were selected under. What an
        earlier version did not record of the selection is not held against anybody."""
        return [
            f"the tasks are frozen, and {setting}"
            for setting in self.changed_since_frozen(study, None)
            if setting.then != NOT_RECORDED
        ]

    def validated_in(self) -> frozenset[str]:
        """Kinds of sandbox in which the frozen tasks were validated; empty before the freeze."""
        if self.frozen is None or self.frozen_tasks is None:
            return frozenset()
        tasks = msgspec.json.decode(self.read(self.frozen_tasks.tasks), type=list[Task])
        verdicts = self.frozen.validated
        events = [verdicts.get(task.repository, {}).get(task.commit) for task in tasks]
        return frozenset(event.sandbox for event in events if event is not None)

    def waiting(self, repository: str) -> list[str]:
        """Candidates without a verdict, in mining order."""
        judged = self.validated.get(repository, {})
        return [
            row["commit"]
            for row in self.audit_rows(repository)
            if row["verdict"] == "candidate" and row["commit"] not in judged
        ]

    def valid_tasks(self, repository: str) -> list[Task]:
        """Validated tasks in mining order."""
        return [
            msgspec.json.decode(self.read(event.task), type=Task)
            for event in self.validated.get(repository, {}).values()
            if event.task is not None
        ]

    def audit_rows(self, repository: str) -> list[dict[str, Any]]:
        """The audit of the static funnel: one row for every walked commit."""
        event = self.mined.get(repository)
        if event is None:
            return []
        return [msgspec.json.decode(line) for line in self.read(event.audit).splitlines()]

    def commits(self, repository: str) -> Iterator[CommitRow]:
        """Every walked commit with what has become of it: ``rejected`` by a static or an executed
        criterion, with what decided it; ``candidate`` while it is not validated; ``valid``."""
        judged = self.validated.get(repository, {})
        for row in self.audit_rows(repository):
            verdict, criterion = row["verdict"], row["criterion"]
            reason = row["reasons"].get(criterion, "")
            executed = judged.get(row["commit"])
            if executed is not None:
                verdict = "valid" if executed.valid else "rejected"
                criterion, reason = executed.criterion, executed.reason
            yield CommitRow(
                repository=repository,
                commit_id=row["commit"],
                date=row["date"],
                subject=row["subject"],
                verdict=verdict,
                criterion=criterion,
                reason=reason,
            )

    def rows(self) -> Iterator[Row]:
        selection = self.selection()
        for repository in sorted(selection.mined):
            yield from selection.commits(repository)
        for _, by_commit in sorted(selection.validated.items()):
            for event in by_commit.values():
                yield CandidateRow.of(event, commit_id=event.commit)
