"""Did any cell spend more than it may, or before it was charged?"""

from collections.abc import Iterator
from typing import ClassVar

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellFinished,
    CellStarted,
    ToolCalled,
    TurnAnswered,
    TurnStarted,
)
from schemas.events.grading import TestRunFinished
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.repair.study import Budgets, RepairStudy
from schemas.study_file import parse_study

Kind = str
KINDS: tuple[Kind, ...] = ("turn", "tool_call", "test_run")


class BudgetAudit:
    """Counts every charge of the attempt that is going on in each cell."""

    NAME: ClassVar[str] = "budgets"
    QUESTION: ClassVar[str] = (
        "Did every cell stay within its budget, with each charge before what it pays for?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        StudyFrozen,
        AmendmentRecorded,
        CellStarted,
        BudgetCharged,
        TurnStarted,
        TurnAnswered,
        AnswerParsed,
        ToolCalled,
        TestRunFinished,
        CellFinished,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._budgets: Budgets | None = None
        """What a cell may spend that begins now."""
        self._charged = True
        """False in a transfer study: a session ends by its own limits, in its own class."""
        self._used: dict[str, dict[Kind, int]] = {}
        """Charged so far, by stream of a cell that has not ended."""
        self._allowed: dict[str, dict[Kind, int]] = {}
        """What such a cell may spend: an amendment is for what begins after it."""
        self._cells = self._charges = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, StudyFrozen | AmendmentRecorded):
            study = parse_study(self._read(event.study))
            self._budgets = study.budgets if isinstance(study, RepairStudy) else None
            self._charged = isinstance(study, RepairStudy)
            return
        if not self._charged:
            return
        if isinstance(event, CellStarted):
            self._cells += 1
            self._used[fact.stream] = dict.fromkeys(KINDS, 0)
            self._allowed[fact.stream] = (
                {} if self._budgets is None else _limits(self._budgets.of(event.cell.arm))
            )
        used = self._used.get(fact.stream)
        if used is None:
            self._findings.violation(fact.seq, f"{event.TYPE} in a cell that is not running")
            return
        for problem in self._problems(event, used, self._allowed[fact.stream]):
            self._findings.violation(fact.seq, problem)
        if isinstance(event, CellFinished):
            del self._used[fact.stream], self._allowed[fact.stream]

    def _problems(
        self, event: Event, used: dict[Kind, int], allowed: dict[Kind, int]
    ) -> Iterator[str]:
        match event:
            case BudgetCharged():
                self._charges += 1
                limit = allowed.get(event.kind)
                if event.used != used[event.kind] + 1:
                    yield f"{event.kind} number {event.used} follows number {used[event.kind]}"
                if limit is not None and event.limit != limit:
                    yield f"{event.kind} charged against {event.limit}; the study allows {limit}"
                if event.used > event.limit:
                    yield f"{event.kind} number {event.used} of at most {event.limit}"
                used[event.kind] = event.used
            case TurnStarted() | TurnAnswered() | AnswerParsed():
                if event.turn >= used["turn"]:
                    yield f"turn {event.turn}: {event.TYPE} before the turn was charged"
            case ToolCalled():
                if event.number >= used["tool_call"]:
                    yield f"tool call {event.number} was made before it was charged"
            case TestRunFinished():
                if event.number >= used["test_run"]:
                    yield f"test run {event.number} was made before it was charged"
            case CellFinished():
                for kind, counted in zip(
                    KINDS, (event.turns, event.tool_calls, event.test_runs), strict=True
                ):
                    if counted != used[kind]:
                        yield f"the end counts {counted} {kind}s, charged were {used[kind]}"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._cells > 0 and self._charged,
            cell_attempts=self._cells,
            charges=self._charges,
        )


def _limits(budgets: Budgets) -> dict[Kind, int]:
    return dict(zip(KINDS, (budgets.turns, budgets.tool_calls, budgets.test_runs), strict=True))
