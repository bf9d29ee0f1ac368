"""When did outcomes exist, when were they shown by this program, and what came afterwards?"""

from collections.abc import Iterator
from typing import ClassVar

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import CellStarted, CellVoided, TurnStarted
from schemas.events.grading import CellGraded
from schemas.events.run import StudyCompleted
from schemas.events.study import (
    AnalysisCompleted,
    OutcomesInspected,
    PlanPrepared,
    ReportWritten,
    StudyFrozen,
    TasksFrozen,
)
from schemas.events.transfer import CaseFinished
from schemas.study_file import parse_study


class InspectionAudit:
    """Knows that a cell is graded, or a run of a transfer study observed, never how."""

    NAME: ClassVar[str] = "inspections"
    QUESTION: ClassVar[str] = (
        "Were outcomes shown only after the gate, and did no cell run or plan change once they "
        "existed?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        PlanPrepared,
        StudyFrozen,
        CellStarted,
        TurnStarted,
        CellGraded,
        CellVoided,
        CaseFinished,
        StudyCompleted,
        OutcomesInspected,
        AnalysisCompleted,
        ReportWritten,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._frozen = False
        self._grades_at_end = False
        self._completed = False
        self._first_grade: int | None = None
        self._graded: set[str] = set()
        self._is_graded = True
        self._observed: set[str] = set()
        self._inspections = self._shown = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        for problem in self._problems(event, fact.stream):
            self._findings.violation(fact.seq, problem)
        match event:
            case CellGraded():
                if self._first_grade is None:
                    self._first_grade = fact.seq
                self._graded.add(fact.stream)
            case CellVoided():
                self._graded.discard(fact.stream)
            case CaseFinished(ended=ended) if ended != "void":
                self._observed.add(fact.stream)
            case OutcomesInspected():
                self._inspections += 1
                self._findings.note(fact.seq, f"{event.graded} {self._cells}: {event.reason}")
            case AnalysisCompleted() | ReportWritten():
                self._shown += 1

    def _with_outcome(self) -> int:
        return len(self._graded if self._is_graded else self._observed)

    @property
    def _cells(self) -> str:
        return "graded cells" if self._is_graded else "observed runs"

    def _problems(self, event: Event, stream: str) -> Iterator[str]:
        match event:
            case TasksFrozen() | PlanPrepared() | StudyFrozen():
                if isinstance(event, StudyFrozen):
                    self._frozen = True
                    study = parse_study(self._read(event.study))
                    self._is_graded = study.GRADED
                    self._grades_at_end = study.grading.when == "end"
                if self._first_grade is not None:
                    yield f"{event.TYPE} after outcomes existed (record {self._first_grade})"
            case CellStarted() | TurnStarted():
                if self._grades_at_end and self._first_grade is not None:
                    yield f"{stream} ran after outcomes existed (record {self._first_grade})"
            case StudyCompleted():
                self._completed = True
            case OutcomesInspected():
                if not self._frozen:
                    yield "outcomes were inspected before the study was frozen"
                elif self._grades_at_end and not self._completed:
                    yield "outcomes were inspected before the study was complete"
                known = self._with_outcome()
                if event.graded != known:
                    yield f"counts {event.graded} {self._cells}; there were {known}"
            case AnalysisCompleted() | ReportWritten():
                if not self._inspections:
                    yield f"{event.TYPE} without an inspection before it"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._frozen,
            **{"graded" if self._is_graded else "observed": self._with_outcome()},
            inspections=self._inspections,
            analyses_and_reports=self._shown,
        )
