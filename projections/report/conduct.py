"""How a study was conducted: a fold over everything that a reader should know beside the numbers.

Runs and their ends, sandboxes, voids, reruns, retries, lost models, failed controls and anchors.
"""

from collections.abc import Sequence
from typing import ClassVar

from ledger.log import Fact
from schemas.base import Event, Position, Value
from schemas.counted import counted
from schemas.events.cell import (
    CellFinished,
    CellStarted,
    CellVoided,
    TurnAbandoned,
    TurnFailed,
)
from schemas.events.grading import CellGraded, GoldChecked
from schemas.events.ledger import CheckpointAnchored, LedgerCreated
from schemas.events.mining import LeakProbed, SandboxProbed
from schemas.events.run import RunStarted, RunStopped, StudyCompleted
from schemas.events.server import ModelLost, ServerMismatched
from schemas.events.study import OutcomesInspected, StudyFrozen
from schemas.events.transfer import CaseFinished


class Deviation(Value):
    """Something that did not go as if nothing had happened, and where it stands in the log."""

    what: str
    records: tuple[Position, ...]
    detail: str


class Conduct:
    """What happened up to a head, in the order of records."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        LedgerCreated,
        StudyFrozen,
        OutcomesInspected,
        RunStarted,
        RunStopped,
        StudyCompleted,
        SandboxProbed,
        CellStarted,
        TurnFailed,
        TurnAbandoned,
        CellFinished,
        CellVoided,
        CaseFinished,
        CellGraded,
        GoldChecked,
        LeakProbed,
        ModelLost,
        ServerMismatched,
        CheckpointAnchored,
    )

    def __init__(self) -> None:
        self.ledger = ""
        """UUID of the ledger."""
        self.frozen: StudyFrozen | None = None
        self.frozen_at = self.completed_at = ""
        self.runs: list[tuple[int, str, RunStarted]] = []
        """(seq, time, event)"""
        self.probes: list[tuple[int, str, SandboxProbed]] = []
        """(seq, stream, event)"""
        self.anchors: list[tuple[int, CheckpointAnchored]] = []
        self._found: list[Deviation] = []
        self._asked_again: dict[str, list[tuple[int, str]]] = {}
        """(seq, cell) by reason."""
        self._is_inspected = False
        self._late: dict[str, int] = {}
        """Record of the outcome by cell, of those that came after an inspection."""
        self._void: dict[str, tuple[str, str]] = {}
        """What last kept a cell from being observed: what it was, and its words."""

    def apply(self, fact: Fact) -> None:
        event = fact.event
        cell = fact.stream.removeprefix("cell/")
        observed = (isinstance(event, CellGraded) and event.verdict != "infrastructure") or (
            isinstance(event, CaseFinished) and event.ended != "void"
        )
        if self._is_inspected and observed:
            self._late[cell] = fact.seq
        match event:
            case LedgerCreated():
                self.ledger = event.uuid
            case StudyFrozen():
                self.frozen, self.frozen_at = event, fact.at
                if event.dirty:
                    self._add("frozen with uncommitted changes", fact.seq, "in the checkout")
            case OutcomesInspected():
                self._is_inspected = True
            case RunStarted():
                self.runs.append((fact.seq, fact.at, event))
                if event.resumed:
                    self._add("run went on where an earlier one had stopped", fact.seq, "")
                if event.dirty:
                    self._add("run with uncommitted changes", fact.seq, "in the checkout")
            case RunStopped() if event.reason != "complete":
                self._add(f"run stopped: {event.reason}", fact.seq, event.detail)
            case StudyCompleted():
                self.completed_at = fact.at
            case SandboxProbed():
                self.probes.append((fact.seq, fact.stream, event))
                if event.accepted_unsafe:
                    self._add(
                        "tests ran without a sandbox", fact.seq, "accepted by who started the run"
                    )
            case CellStarted() if event.attempt > 0:
                cause, reason = self._void.get(cell, ("an infrastructure failure", ""))
                self._add(f"cell run again after {cause}", fact.seq, cell, reason)
            case CellFinished(ended="infrastructure"):
                self._void[cell] = "an infrastructure failure", event.detail
            case CaseFinished(ended="void"):
                cause = "a stop of the run" if event.stopped else "an infrastructure failure"
                self._void[cell] = cause, event.detail
            case CellVoided():
                self._add("cell voided", fact.seq, cell, event.reason)
            case TurnFailed(retry=True):
                self._again("turns asked again after a transport failure", fact.seq, cell)
            case TurnAbandoned():
                self._again("turns asked again after a process was lost", fact.seq, cell)
            case CellGraded(verdict="infrastructure"):
                reason = next((run.reason for run in event.runs if run.verdict != "finished"), "")
                self._add("cell could not be graded: no observation", fact.seq, cell, reason)
            case GoldChecked(passed=False):
                self._add("gold patch did not pass any more", fact.seq, event.task, event.reason)
            case LeakProbed() if event.findings:
                self._add(
                    "gold was seen in a workspace", fact.seq, event.repository, *event.findings
                )
            case ModelLost():
                self._add("a loaded model was gone", fact.seq, event.model)
            case ServerMismatched():
                self._add("preflight stopped a run", fact.seq, event.model, event.problem)
            case CheckpointAnchored():
                self.anchors.append((fact.seq, event))

    def deviations(self) -> Sequence[Deviation]:
        """In the order of their first record; turns asked again are counted together."""
        together = [
            Deviation(
                what=what,
                records=tuple(seq for seq, _ in asked),
                detail=f"{len(asked)} in {len({cell for _, cell in asked})} cells",
            )
            for what, asked in self._asked_again.items()
        ]
        if self._late:
            together.append(
                Deviation(
                    what="outcomes that came after an inspection: exploratory",
                    records=tuple(sorted(self._late.values())),
                    detail=counted(len(self._late), "cell"),
                )
            )
        return sorted([*self._found, *together], key=lambda deviation: deviation.records[0])

    def _add(self, what: str, seq: int, *details: str) -> None:
        detail = ": ".join(detail for detail in details if detail)
        self._found.append(Deviation(what=what, records=(seq,), detail=detail))

    def _again(self, what: str, seq: int, cell: str) -> None:
        self._asked_again.setdefault(what, []).append((seq, cell))
