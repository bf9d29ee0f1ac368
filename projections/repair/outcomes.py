"""Outcomes: what became of every graded cell. Guarded: its tables lie behind the inspection gate.

`resolved_at_1` is the primary endpoint; everything else is a prespecified secondary outcome
(preregistration, "Outcomes"), all of it derived from events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact, Row
from schemas.base import Event
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellFinished,
    CellStarted,
    CellVoided,
    ProtocolViolated,
    ToolCalled,
    TurnAnswered,
)
from schemas.events.grading import CellGraded
from schemas.events.study import PlanPrepared, StudyFrozen, TasksFrozen
from schemas.plan import Plan
from schemas.repair.task import Task


@dataclass
class CellOutcome:
    """One cell's numbers. ``resolved`` is None while it is not graded or when it is void."""

    block: str
    began: int | None = None
    """Record at which the last attempt began; None before the first one."""
    resolved: bool | None = None
    verdict: str = ""
    resolved_if_submitted: bool | None = None
    void: bool = False
    ended: str = ""
    fail_to_pass_passed: int = 0
    fail_to_pass_total: int = 0
    pass_to_pass_passed: int = 0
    pass_to_pass_total: int = 0
    turns: int = 0
    tool_calls: int = 0
    test_runs: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usage_unknown: int = 0
    model_ns: int = 0
    cut_answers: int = 0
    answers_without_call: int = 0
    violations: int = 0
    flagged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    shown: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)


class OutcomeRow(Row):
    TABLE: ClassVar[str] = "outcomes"
    KEY: ClassVar[tuple[str, ...]] = ("cell",)
    cell: str
    task: str
    treatment: str
    model: str
    repeat: int
    block: str
    repository: str
    needs_gold_symbol: int
    resolved: int | None
    resolved_if_submitted: int | None
    verdict: str
    void: int
    ended: str
    fail_to_pass_passed: int
    fail_to_pass_total: int
    pass_to_pass_passed: int
    pass_to_pass_total: int
    gold_files: int
    gold_shown: int
    gold_opened: int
    gold_edited: int
    exact_files: int
    empty_patch: int
    turns: int
    tool_calls: int
    test_runs: int
    prompt_tokens: int
    completion_tokens: int
    usage_unknown: int
    model_ns: int
    cut_answers: int
    answers_without_call: int
    violations: int
    flagged: str


@dataclass
class Outcomes:
    NAME: ClassVar[str] = "outcomes"
    GUARDED: ClassVar[bool] = True
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        PlanPrepared,
        StudyFrozen,
        CellStarted,
        BudgetCharged,
        TurnAnswered,
        AnswerParsed,
        ProtocolViolated,
        ToolCalled,
        CellFinished,
        CellGraded,
        CellVoided,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (OutcomeRow,)

    read: ReadArtifact
    tasks: dict[str, Task] = field(default_factory=dict)
    cells: dict[str, CellOutcome] = field(default_factory=dict)
    simulated: bool = False
    """Whether the study was frozen as a rehearsal, or a stand-in answered in any cell."""
    _plan: Plan | None = None

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, StudyFrozen | CellStarted | TurnAnswered):
            self.simulated |= event.simulated is True
        match event:
            case TasksFrozen():
                listed = msgspec.json.decode(self.read(event.tasks), type=list[Task])
                self.tasks = {task.id: task for task in listed}
            case PlanPrepared():
                self._plan = msgspec.json.decode(self.read(event.plan), type=Plan)
            case StudyFrozen():
                # A transfer study has no tasks; its outcomes are stage scores.
                planned = self._plan.cells if self._plan and self.tasks else ()
                self.cells = {str(cell.cell): CellOutcome(cell.block) for cell in planned}
            case _:
                cell = self.cells.get(fact.stream.removeprefix("cell/"))
                if cell is not None:
                    self._apply_to_cell(fact, cell, event)

    def _apply_to_cell(self, fact: Fact, cell: CellOutcome, event: Event) -> None:
        match event:
            case CellStarted():
                # A new attempt after an infrastructure failure: nothing had been observed.
                self.cells[fact.stream.removeprefix("cell/")] = CellOutcome(
                    cell.block, began=fact.seq
                )
            case BudgetCharged(kind="turn"):
                cell.turns = event.used
            case BudgetCharged(kind="tool_call"):
                cell.tool_calls = event.used
            case BudgetCharged(kind="test_run"):
                cell.test_runs = event.used
            case TurnAnswered():
                cell.usage_unknown += event.prompt_tokens is None
                cell.prompt_tokens += event.prompt_tokens or 0
                cell.completion_tokens += event.completion_tokens or 0
                cell.model_ns += event.duration_ns
            case AnswerParsed():
                cell.cut_answers += event.cut
                cell.answers_without_call += not (event.cut or event.calls or event.rejected)
            case ProtocolViolated():
                cell.violations += 1
            case ToolCalled():
                cell.shown.update(event.shown)
                cell.opened.update(event.opened)
                cell.edited.update(event.edited)
            case CellFinished():
                cell.ended = event.ended
                cell.changed = event.changed_paths
            case CellGraded():
                cell.verdict = event.verdict
                cell.flagged = event.flagged
                cell.resolved = None if event.verdict == "infrastructure" else event.resolved
                cell.resolved_if_submitted = event.resolved_if_submitted
                cell.fail_to_pass_passed = event.fail_to_pass_passed
                cell.fail_to_pass_total = event.fail_to_pass_total
                cell.pass_to_pass_passed = event.pass_to_pass_passed
                cell.pass_to_pass_total = event.pass_to_pass_total
            case CellVoided():
                cell.void = True
                cell.resolved = None

    def rows(self) -> Iterator[OutcomeRow]:
        """One row a cell, in plan order. Gold recall is in files of the gold production patch."""
        for name, cell in self.cells.items():
            unit, arm, agent, repeat = name.split("/")
            task = self.tasks[unit]
            gold = set(task.production_paths)
            yield OutcomeRow.of(
                cell,
                cell=name,
                task=unit,
                treatment=arm,
                model=agent,
                repeat=int(repeat),
                repository=task.repository,
                needs_gold_symbol=task.needs_gold_symbol,
                gold_files=len(gold),
                gold_shown=len(gold & cell.shown),
                gold_opened=len(gold & cell.opened),
                gold_edited=len(gold & cell.edited),
                exact_files=set(cell.changed) == gold,
                empty_patch=not cell.changed,
                flagged="; ".join(cell.flagged),
            )
