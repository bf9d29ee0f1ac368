"""Remediations of a transfer study: what was assigned, changed, run again, and closed or
abandoned."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ledger.log import Fact
from projections.fold import Row
from schemas.base import Event
from schemas.events.transfer import (
    RemediationAbandoned,
    RemediationChanged,
    RemediationClosed,
    RemediationOpened,
    RemediationRerun,
)

Status = Literal["opened", "changed", "rerun", "closed", "abandoned"]


@dataclass
class Remediation:
    """One remediation. A step that did not happen is None."""

    opened: RemediationOpened
    opened_at: int
    changed: RemediationChanged | None = None
    changed_at: int = -1
    rerun: RemediationRerun | None = None
    rerun_at: int = -1
    closed: RemediationClosed | None = None
    closed_at: int = -1
    abandoned: RemediationAbandoned | None = None
    abandoned_at: int = -1

    @property
    def ended_at(self) -> int:
        """Record that ended it; -1: it is at work."""
        return max(self.closed_at, self.abandoned_at)

    @property
    def left(self) -> str:
        """What is unresolved, or why it was given up; empty while it is at work."""
        if self.abandoned is not None:
            return self.abandoned.reason
        return self.closed.limitation if self.closed is not None else ""

    @property
    def status(self) -> Status:
        if self.abandoned is not None:
            return "abandoned"
        if self.closed is not None:
            return "closed"
        if self.rerun is not None:
            return "rerun"
        return "changed" if self.changed is not None else "opened"


class RemediationRow(Row):
    TABLE: ClassVar[str] = "remediations"
    KEY: ClassVar[tuple[str, ...]] = ("remediation",)
    remediation: str
    cell: str
    stage: str
    layer: str
    status: str
    attributed: int | None
    memory: str
    driver: str
    reruns: int
    opened: int
    changed: int | None
    rerun: int | None
    closed: int | None
    abandoned: int | None
    limitation: str
    reason: str


@dataclass
class Remediations:
    """By name, in the order in which they were opened."""

    NAME: ClassVar[str] = "remediations"
    GUARDED: ClassVar[bool] = True
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        RemediationOpened,
        RemediationChanged,
        RemediationRerun,
        RemediationClosed,
        RemediationAbandoned,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (RemediationRow,)

    remediations: dict[str, Remediation] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, RemediationOpened):
            self.remediations.setdefault(event.remediation, Remediation(event, fact.seq))
            return
        assert isinstance(
            event, RemediationChanged | RemediationRerun | RemediationClosed | RemediationAbandoned
        )
        remediation = self.remediations.get(event.remediation)
        if remediation is None:
            return
        match event:
            case RemediationChanged():
                remediation.changed, remediation.changed_at = event, fact.seq
            case RemediationRerun():
                remediation.rerun, remediation.rerun_at = event, fact.seq
            case RemediationClosed():
                remediation.closed, remediation.closed_at = event, fact.seq
            case RemediationAbandoned():
                remediation.abandoned, remediation.abandoned_at = event, fact.seq

    def row(self, name: str) -> RemediationRow:
        remediation = self.remediations[name]
        changed = remediation.changed
        return RemediationRow(
            remediation=name,
            cell=remediation.opened.cell,
            stage=remediation.opened.stage,
            layer=remediation.opened.layer,
            status=remediation.status,
            attributed=int(changed.attributed) if changed else None,
            memory=changed.new_memory if changed else "",
            driver=changed.new_driver if changed else "",
            reruns=len(remediation.rerun.cells) if remediation.rerun else 0,
            opened=remediation.opened_at,
            changed=remediation.changed_at if changed else None,
            rerun=remediation.rerun_at if remediation.rerun else None,
            closed=remediation.closed_at if remediation.closed else None,
            abandoned=remediation.abandoned_at if remediation.abandoned else None,
            limitation=remediation.closed.limitation if remediation.closed else "",
            reason=remediation.abandoned.reason if remediation.abandoned else "",
        )

    def rows(self) -> list[RemediationRow]:
        return list(map(self.row, self.remediations))
