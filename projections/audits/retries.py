"""Was anything asked or run a second time without a recorded, permitted reason?"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import (
    CellFinished,
    CellStarted,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.run import RunStopped
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.events.transfer import CaseFinished
from schemas.study_file import parse_study


@dataclass
class _Turn:
    attempts: int = 0
    open: bool = False
    may_go_on: bool = True
    """The last attempt was abandoned or had its one retry granted."""
    retries: int = 0


@dataclass
class _Cell:
    attempt: int = -1
    begun: int = -1
    """Seq of its last start."""
    stopped: int = 0
    """Attempts that an orderly stop of the run ended: not of those that the study allows."""
    ended: str = ""
    turns: dict[int, _Turn] = field(default_factory=dict)


class RetryAudit:
    """Follows the attempts of every turn, and of every cell."""

    NAME: ClassVar[str] = "retries"
    QUESTION: ClassVar[str] = (
        "Does every repeated turn and every rerun cell have a recorded reason that permits it?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        StudyFrozen,
        AmendmentRecorded,
        CellStarted,
        TurnStarted,
        TurnAnswered,
        TurnFailed,
        TurnAbandoned,
        CellFinished,
        CaseFinished,
        RunStopped,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._cells: dict[str, _Cell] = {}
        self._cell_attempts: int | None = None
        self._stopped_at = -1
        self._turns = self._repeated = self._reruns = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, StudyFrozen | AmendmentRecorded):
            attempts = parse_study(self._read(event.study)).max_attempts
            self._cell_attempts = attempts
            return
        if isinstance(event, RunStopped):
            if event.reason == "interrupted":
                self._stopped_at = fact.seq
            return
        name = fact.stream.removeprefix("cell/")
        cell = self._cells.setdefault(name, _Cell())
        for problem in self._problems(event, cell):
            self._findings.violation(fact.seq, f"{name}: {problem}")
        match event:
            case TurnFailed(retry=True):
                self._findings.note(
                    fact.seq, f"{name} turn {event.turn} is asked again: {event.detail}"
                )
            case TurnAbandoned():
                self._findings.note(
                    fact.seq, f"{name} turn {event.turn} is asked again: {event.reason}"
                )
            case CellStarted():
                cell.begun = fact.seq
                if event.attempt == 0:
                    return
                stopped = f"; a stop of the run ended {cell.stopped} before it" * bool(cell.stopped)
                self._findings.note(
                    fact.seq, f"{name} runs a time more (attempt {event.attempt}{stopped})"
                )

    def _problems(self, event: Event, cell: _Cell) -> Iterator[str]:
        match event:
            case CellStarted():
                self._reruns += event.attempt > 0
                if event.attempt > 0 and cell.ended not in ("infrastructure", "void"):
                    yield f"runs again after it ended as {cell.ended or 'nothing'}"
                allowed = self._cell_attempts
                if allowed is not None and event.attempt - cell.stopped >= allowed:
                    yield f"attempt {event.attempt}; the study allows {allowed}"
                cell.attempt, cell.ended, cell.turns = event.attempt, "", {}
            case CellFinished() | CaseFinished():
                cell.ended, cell.turns = event.ended, {}
                if isinstance(event, CaseFinished) and event.stopped:
                    cell.stopped += 1
                    if event.ended != "void" or self._stopped_at < cell.begun:
                        yield f"attempt {event.attempt} was ended by a stop that nobody recorded"
            case TurnStarted():
                turn = cell.turns.setdefault(event.turn, _Turn())
                self._turns += turn.attempts == 0
                self._repeated += turn.attempts > 0
                if event.attempt != turn.attempts:
                    yield f"turn {event.turn}: attempt {event.attempt} is number {turn.attempts}"
                if turn.open:
                    yield f"turn {event.turn} was asked again while its answer was awaited"
                elif not turn.may_go_on:
                    yield f"turn {event.turn} was asked again without a reason"
                turn.attempts += 1
                turn.open, turn.may_go_on = True, False
            case TurnAnswered() | TurnFailed() | TurnAbandoned():
                turn = cell.turns.setdefault(event.turn, _Turn())
                if not turn.open:
                    yield f"turn {event.turn}: {event.TYPE} without a request"
                turn.open = False
                turn.may_go_on = isinstance(event, TurnAbandoned)
                if isinstance(event, TurnFailed) and event.retry:
                    turn.may_go_on = True
                    turn.retries += 1
                    if event.kind != "transport":
                        yield f"turn {event.turn} is retried after {event.kind}"
                    if turn.retries > 1:
                        yield f"turn {event.turn} is retried {turn.retries} times"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=bool(self._cells),
            turns=self._turns,
            repeated_turns=self._repeated,
            cell_reruns=self._reruns,
        )
