"""Tasks: the funnel from commits to valid tasks, outcome-blind by construction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact, Row, Table
from schemas.base import Event
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.task import Task


@dataclass
class MinedTasks:
    """Latest funnel and verdicts by repository; verdicts in mining order (newest commit first)."""

    NAME: ClassVar[str] = "tasks"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (RepositoryMined, CandidateValidated)
    TABLES: ClassVar[Mapping[str, Table]] = {
        "commits": Table(
            key=("repository", "commit_id"),
            columns={
                "repository": str,
                "commit_id": str,
                "date": str,
                "subject": str,
                "verdict": str,
                "criterion": str,
            },
        ),
        "candidates": Table(
            key=("repository", "commit_id"),
            columns={
                "repository": str,
                "commit_id": str,
                "valid": int,
                "criterion": str,
                "reason": str,
                "environment": str,
                "sandbox": str,
                "duration_ns": int,
            },
        ),
    }

    read: ReadArtifact
    mined: dict[str, RepositoryMined] = field(default_factory=dict)
    validated: dict[str, dict[str, CandidateValidated]] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        match fact.event:
            case RepositoryMined() as event:
                earlier = self.mined.get(event.repository)
                if earlier is None or earlier.audit.digest != event.audit.digest:
                    self.validated[event.repository] = {}
                self.mined[event.repository] = event
            case CandidateValidated() as event:
                self.validated.setdefault(event.repository, {})[event.commit] = event

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

    def tables(self) -> Mapping[str, Sequence[Row]]:
        return {
            "commits": [
                {
                    "repository": repository,
                    "commit_id": row["commit"],  # `commit` is a word of SQL
                    "date": row["date"],
                    "subject": row["subject"],
                    "verdict": row["verdict"],
                    "criterion": row["criterion"],
                }
                for repository in sorted(self.mined)
                for row in self.audit_rows(repository)
            ],
            "candidates": [
                {
                    "repository": repository,
                    "commit_id": event.commit,
                    "valid": int(event.valid),
                    "criterion": event.criterion,
                    "reason": event.reason,
                    "environment": event.environment,
                    "sandbox": event.sandbox,
                    "duration_ns": event.duration_ns,
                }
                for repository, by_commit in sorted(self.validated.items())
                for event in by_commit.values()
            ],
        }
