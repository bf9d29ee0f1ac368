"""Did every planned cell end exactly once, in the planned order, after the freeze?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import CellFinished, CellStarted, CellVoided
from schemas.events.grading import CellGraded
from schemas.events.run import StudyCompleted
from schemas.events.study import AmendmentRecorded, PlanPrepared, StudyFrozen
from schemas.events.transfer import CaseFinished
from schemas.plan import Plan
from schemas.study_file import parse_study


@dataclass
class _Cell:
    position: int
    attempt: int = -1
    stopped: int = 0
    """Attempts that an orderly stop of the run ended."""
    running: bool = False
    ended: str = ""
    """Class of the last end; empty while there is none."""
    graded: bool = False
    void: bool = False

    @property
    def observed(self) -> bool:
        """True once the cell has an end that no new attempt may replace."""
        return self.ended not in ("", "infrastructure", "void")


class CompletenessAudit:
    """Holds the state of every planned cell."""

    NAME: ClassVar[str] = "completeness"
    QUESTION: ClassVar[str] = (
        "Did every planned cell reach exactly one terminal state, in plan order, after the freeze?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        PlanPrepared,
        StudyFrozen,
        AmendmentRecorded,
        CellStarted,
        CellFinished,
        CaseFinished,
        CellGraded,
        CellVoided,
        StudyCompleted,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._plan: PlanPrepared | None = None
        self._frozen = False
        self._cells: dict[str, _Cell] = {}
        self._attempts_allowed = 1
        self._last_started = -1
        self._completed = False
        self._graded_apart = True
        """Whether a grader gives verdicts; else projections do."""

    def apply(self, fact: Fact) -> None:
        if isinstance(fact.event, CellGraded) and fact.event.verdict == "infrastructure":
            cell = fact.stream.removeprefix("cell/")
            self._findings.note(fact.seq, f"{cell} could not be graded: it is no observation")
        for problem in self._problems(fact.event, fact.stream):
            self._findings.violation(fact.seq, problem)

    def _problems(self, event: Event, stream: str) -> Iterator[str]:
        match event:
            case PlanPrepared():
                self._plan = event
            case StudyFrozen():
                yield from self._freeze(event)
            case StudyCompleted():
                yield from self._complete(event)
            case AmendmentRecorded():
                yield from self._amend(event)
            case _:
                name = stream.removeprefix("cell/")
                cell = self._cells.get(name)
                if cell is not None:
                    yield from self._cell_problems(cell, name, event)
                elif self._frozen:
                    yield f"{event.TYPE} of {name}, which is not in the plan"
                else:
                    yield f"{event.TYPE} of {name} before the study was frozen"

    def _freeze(self, event: StudyFrozen) -> Iterator[str]:
        if self._frozen:
            yield "the study was frozen a second time"
        self._frozen = True
        if self._plan is None or self._plan.plan.digest != event.plan:
            yield "the frozen plan is not the plan that was prepared last"
            return
        plan = msgspec.json.decode(self._read(self._plan.plan), type=Plan)
        study = parse_study(self._read(event.study))
        self._attempts_allowed = study.max_attempts
        self._graded_apart = study.GRADED
        self._cells = {str(planned.cell): _Cell(planned.position) for planned in plan.cells}

    def _amend(self, event: AmendmentRecorded) -> Iterator[str]:
        """The plan as it is from now on: what has begun, and all that stands beside it, stays."""
        if event.plan is None:
            return
        plan = msgspec.json.decode(self._read(event.plan), type=Plan)
        before, begun = self._cells, self._last_started >= 0
        self._cells = {
            str(planned.cell): before.get(str(planned.cell), _Cell(planned.position))
            for planned in plan.cells
        }
        if not begun:
            for planned in plan.cells:
                self._cells[str(planned.cell)].position = planned.position
        gone = [name for name in before if name not in self._cells]
        if gone and begun:
            yield f"takes {len(gone)} planned cells away after the first cell (first: {gone[0]})"
            self._cells = {**before, **self._cells}
        if self._cells.keys() - before.keys():
            self._completed = False

    def _cell_problems(self, cell: _Cell, name: str, event: Event) -> Iterator[str]:
        match event:
            case CellStarted():
                if cell.running:
                    yield f"{name} began again before it had ended"
                if cell.observed:
                    yield f"{name} began again after it had ended as {cell.ended}"
                if event.attempt != cell.attempt + 1:
                    yield f"{name}: attempt {event.attempt} follows attempt {cell.attempt}"
                if event.attempt == 0:
                    if cell.position < self._last_started:
                        yield f"{name} began after a cell that comes later in the plan"
                    self._last_started = max(self._last_started, cell.position)
                cell.attempt, cell.running = event.attempt, True
            case CellFinished() | CaseFinished():
                if not cell.running:
                    yield f"{name} ended and was not running"
                if event.attempt != cell.attempt:
                    yield f"{name}: attempt {event.attempt} ended, running was {cell.attempt}"
                cell.running, cell.ended = False, event.ended
                cell.stopped += isinstance(event, CaseFinished) and event.stopped
            case CellGraded():
                if cell.graded:
                    yield f"{name} was graded a second time"
                if cell.running or not cell.ended:
                    yield f"{name} was graded before it had ended"
                cell.graded = True
            case CellVoided():
                if cell.void:
                    yield f"{name} was voided a second time"
                cell.void = True

    def _complete(self, event: StudyCompleted) -> Iterator[str]:
        if self._completed:
            yield "the study was completed a second time"
        self._completed = True
        if event.cells != len(self._cells):
            yield f"the end counts {event.cells} cells, planned were {len(self._cells)}"
        for name, cell in self._cells.items():
            if cell.running or not cell.ended:
                yield f"the study is called complete and {name} has not ended"
            elif self._graded_apart and not cell.graded and not cell.void:
                yield f"the study is called complete and {name} is neither graded nor void"
            again = cell.attempt + 1 - cell.stopped < self._attempts_allowed
            if again and cell.ended in ("infrastructure", "void"):
                yield f"{name} ended without an observation and was not run again"

    def verdict(self) -> Verdict:
        cells = self._cells.values()
        ended = sum(bool(cell.ended) and not cell.running for cell in cells)
        if self._frozen and not self._completed:
            self._findings.note(
                None, f"the study is not complete: {len(cells) - ended} cells have not ended"
            )
        return self._findings.verdict(
            applicable=self._frozen,
            planned=len(cells),
            ended=ended,
            **self._seen(),
        )

    def _seen(self) -> dict[str, int]:
        """Cells are graded, or runs observed; either void."""
        cells = self._cells.values()
        if self._graded_apart:
            graded, void = sum(cell.graded for cell in cells), sum(cell.void for cell in cells)
            return {"graded": graded, "void": void}
        observed = sum(cell.observed for cell in cells)
        return {"observed": observed, "void": sum(cell.ended == "void" for cell in cells)}
