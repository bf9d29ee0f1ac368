"""Repairs of a transfer study: what was assigned, changed, run again, and closed or abandoned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ledger.log import Fact
from projections.fold import Row, Table
from schemas.base import Event
from schemas.events.transfer import (
    RepairAbandoned,
    RepairChanged,
    RepairClosed,
    RepairOpened,
    RepairRerun,
)

Status = Literal["opened", "changed", "rerun", "closed", "abandoned"]


@dataclass
class Repair:
    """One repair. A step that did not happen is None."""

    opened: RepairOpened
    opened_at: int
    changed: RepairChanged | None = None
    changed_at: int = -1
    rerun: RepairRerun | None = None
    rerun_at: int = -1
    closed: RepairClosed | None = None
    closed_at: int = -1
    abandoned: RepairAbandoned | None = None
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


@dataclass
class Repairs:
    """By name, in the order in which they were opened."""

    NAME: ClassVar[str] = "repairs"
    GUARDED: ClassVar[bool] = True
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        RepairOpened,
        RepairChanged,
        RepairRerun,
        RepairClosed,
        RepairAbandoned,
    )
    TABLES: ClassVar[Mapping[str, Table]] = {
        "repairs": Table(
            key=("repair",),
            columns={
                "repair": str,
                "cell": str,
                "stage": str,
                "layer": str,
                "status": str,
                "attributed": int | None,
                "memory": str,
                "driver": str,
                "reruns": int,
                "opened": int,
                "changed": int | None,
                "rerun": int | None,
                "closed": int | None,
                "abandoned": int | None,
                "limitation": str,
                "reason": str,
            },
        )
    }

    repairs: dict[str, Repair] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, RepairOpened):
            self.repairs.setdefault(event.repair, Repair(event, fact.seq))
            return
        assert isinstance(event, RepairChanged | RepairRerun | RepairClosed | RepairAbandoned)
        repair = self.repairs.get(event.repair)
        if repair is None:
            return
        match event:
            case RepairChanged():
                repair.changed, repair.changed_at = event, fact.seq
            case RepairRerun():
                repair.rerun, repair.rerun_at = event, fact.seq
            case RepairClosed():
                repair.closed, repair.closed_at = event, fact.seq
            case RepairAbandoned():
                repair.abandoned, repair.abandoned_at = event, fact.seq

    def tables(self) -> Mapping[str, Sequence[Row]]:
        return {"repairs": [row(name, repair) for name, repair in self.repairs.items()]}


def row(name: str, repair: Repair) -> dict[str, Any]:
    """One row of ``repairs``."""
    changed = repair.changed
    return {
        "repair": name,
        "cell": repair.opened.cell,
        "stage": repair.opened.stage,
        "layer": repair.opened.layer,
        "status": repair.status,
        "attributed": int(changed.attributed) if changed else None,
        "memory": changed.new_memory if changed else "",
        "driver": changed.new_driver if changed else "",
        "reruns": len(repair.rerun.cells) if repair.rerun else 0,
        "opened": repair.opened_at,
        "changed": repair.changed_at if changed else None,
        "rerun": repair.rerun_at if repair.rerun else None,
        "closed": repair.closed_at if repair.closed else None,
        "abandoned": repair.abandoned_at if repair.abandoned else None,
        "limitation": repair.closed.limitation if repair.closed else "",
        "reason": repair.abandoned.reason if repair.abandoned else "",
    }
