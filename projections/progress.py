"""Progress: the frozen study, its plan, and how far every cell has come. Shows no outcome.

This is what the scheduler decides from and what ``ledger status`` prints. Whether a graded cell was
resolved is not in here: the view stays blind.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact, Row
from schemas.base import Event
from schemas.counted import counted
from schemas.events.cell import (
    BudgetCharged,
    CellFinished,
    CellStarted,
    CellVoided,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
)
from schemas.events.grading import CellGraded, GoldChecked
from schemas.events.run import RunStarted, RunStopped, StudyCompleted
from schemas.events.server import ModelLoaded, ModelLost, ModelUnloaded
from schemas.events.study import AmendmentRecorded, PlanPrepared, StudyFrozen, TasksFrozen
from schemas.events.transfer import CaseFinished, FamiliesFrozen
from schemas.identifiers import CellId
from schemas.plan import Plan, PlannedCell
from schemas.repair.task import Task
from schemas.study import Study
from schemas.study_file import parse_study
from schemas.transfer.family import FrozenSuite


@dataclass
class CellProgress:
    """One planned cell. ``status`` is planned, running, ended, graded or void."""

    planned: PlannedCell
    status: str = "planned"
    attempt: int = 0
    stopped: int = 0
    """Attempts that an orderly stop of the run ended."""
    ended: str = ""
    turns: int = 0
    tool_calls: int = 0
    test_runs: int = 0
    turn_attempts: int = 0
    abandoned: int = 0
    transport_retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_ns: int = 0

    @property
    def cell(self) -> CellId:
        return self.planned.cell


class CellRow(Row):
    TABLE: ClassVar[str] = "cells"
    KEY: ClassVar[tuple[str, ...]] = ("cell",)
    position: int
    cell: str
    unit: str
    arm: str
    agent: str
    repeat: int
    block: str
    status: str
    attempt: int
    ended: str
    turns: int
    tool_calls: int
    test_runs: int
    turn_attempts: int
    abandoned: int
    transport_retries: int
    prompt_tokens: int
    completion_tokens: int
    model_ns: int


class GoldCheckRow(Row):
    TABLE: ClassVar[str] = "gold_checks"
    KEY: ClassVar[tuple[str, ...]] = ("task", "number")
    task: str
    number: int
    passed: int


@dataclass
class Progress:
    """The fold's state."""

    NAME: ClassVar[str] = "progress"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        FamiliesFrozen,
        PlanPrepared,
        StudyFrozen,
        AmendmentRecorded,
        RunStarted,
        RunStopped,
        StudyCompleted,
        CellStarted,
        BudgetCharged,
        TurnAnswered,
        TurnFailed,
        TurnAbandoned,
        CellFinished,
        CaseFinished,
        CellGraded,
        CellVoided,
        GoldChecked,
        ModelLoaded,
        ModelUnloaded,
        ModelLost,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (
        CellRow,
        GoldCheckRow,
    )

    read: ReadArtifact
    frozen: StudyFrozen | None = None
    simulated: bool = False
    """Once true it stays so: no amendment makes evidence of what a stand-in answered."""
    study: Study | None = None
    tasks: dict[str, Task] = field(default_factory=dict)
    suite: FrozenSuite | None = None
    prepared_plan: Plan | None = None
    cells: dict[str, CellProgress] = field(default_factory=dict)
    gold: dict[tuple[str, int], bool] = field(default_factory=dict)
    resident: str = ""
    model_switches: int = 0
    runs: int = 0
    stopped: str = ""
    stopped_because: str = ""
    """What the last run said when it stopped; empty where it had nothing to add."""
    completed: bool = False
    waiting: frozenset[str] = frozenset()
    """Components that were not as frozen when the last run began: their cells wait."""

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, StudyFrozen | CellStarted | ModelLoaded | TurnAnswered):
            self.simulated |= event.simulated is True
        match event:
            case TasksFrozen():
                listed = msgspec.json.decode(self.read(event.tasks), type=list[Task])
                self.tasks = {task.id: task for task in listed}
            case PlanPrepared():
                self.prepared_plan = msgspec.json.decode(self.read(event.plan), type=Plan)
            case StudyFrozen():
                self.frozen = event
                self.study = parse_study(self.read(event.study))
                if self.prepared_plan is not None:
                    self.cells = {
                        str(planned.cell): CellProgress(planned)
                        for planned in self.prepared_plan.cells
                    }
            case FamiliesFrozen():
                self.suite = msgspec.json.decode(self.read(event.suite), type=FrozenSuite)
            case AmendmentRecorded():
                self.study = parse_study(self.read(event.study))
                self.waiting = frozenset()
                if event.plan is not None:
                    self.prepared_plan = msgspec.json.decode(self.read(event.plan), type=Plan)
                    self._replan(self.prepared_plan)
                    self.completed = self.next_cell() is None
            case RunStarted():
                self.runs += 1
                self.stopped = self.stopped_because = ""
                self.waiting = frozenset(event.waiting)
                # A gold check that failed stopped the run at its start: it is made again.
                failed = [key for key, passed in self.gold.items() if not passed and key[1] == 0]
                for key in failed:
                    del self.gold[key]
            case RunStopped():
                self.stopped, self.stopped_because = event.reason, event.detail
            case StudyCompleted():
                self.completed = True
            case GoldChecked():
                self.gold[event.task, event.number] = event.passed
            case ModelLoaded():
                self.resident = event.model
                self.model_switches += 1
            case ModelUnloaded() | ModelLost():
                self.resident = ""
            case _:
                self._apply_to_cell(fact, event)

    def _replan(self, plan: Plan) -> None:
        """The cells of an amended plan, in its order. One that has begun is never dropped."""
        before, self.cells = self.cells, {}
        for planned in plan.cells:
            cell = before.pop(str(planned.cell), None) or CellProgress(planned)
            cell.planned = planned
            self.cells[str(planned.cell)] = cell
        self.cells |= {name: cell for name, cell in before.items() if cell.status != "planned"}

    def _apply_to_cell(self, fact: Fact, event: Event) -> None:
        cell = self.cells.get(fact.stream.removeprefix("cell/"))
        if cell is None:
            return
        match event:
            case CellStarted():
                cell.status, cell.attempt, cell.ended = "running", event.attempt, ""
                cell.turns = cell.tool_calls = cell.test_runs = 0
            case BudgetCharged(kind="turn"):
                cell.turns = event.used
            case BudgetCharged(kind="tool_call"):
                cell.tool_calls = event.used
            case BudgetCharged(kind="test_run"):
                cell.test_runs = event.used
            case TurnAnswered():
                # A session of a transfer study is charged nothing: there its answers are its turns.
                cell.turns = max(cell.turns, event.turn + 1)
                cell.turn_attempts += 1
                cell.prompt_tokens += event.prompt_tokens or 0
                cell.completion_tokens += event.completion_tokens or 0
                cell.model_ns += event.duration_ns
            case TurnFailed():
                cell.turn_attempts += 1
                cell.transport_retries += event.retry
            case TurnAbandoned():
                cell.turn_attempts += 1
                cell.abandoned += 1
            case CellFinished() | CaseFinished():
                cell.status, cell.ended = "ended", event.ended
                cell.stopped += isinstance(event, CaseFinished) and event.stopped
            case CellGraded():
                cell.status = "graded" if cell.status != "void" else "void"
            case CellVoided():
                cell.status = "void"

    @property
    def begun(self) -> bool:
        """A planned cell has been started."""
        return any(cell.status != "planned" for cell in self.cells.values())

    @property
    def is_graded(self) -> bool:
        """Whether cells get a verdict of their own (:attr:`schemas.study.Study.GRADED`)."""
        return self.study is None or self.study.GRADED

    def needs_run(self, cell: CellProgress) -> bool:
        """Not ended yet, or ended by an infrastructure failure with attempts left. What an orderly
        stop ended was no failure."""
        if cell.status in ("planned", "running"):
            return True
        limit = self.study.max_attempts if self.study else 0
        return cell.ended in ("infrastructure", "void") and cell.attempt + 1 - cell.stopped < limit

    def next_cell(self) -> CellProgress | None:
        """First cell in plan order that is not done and does not wait for an amendment of one of
        its components; None when there is none."""
        return next(
            (
                cell
                for cell in self.cells.values()
                if self.needs_run(cell) and not self.waits_for(cell, self.waiting)
            ),
            None,
        )

    def waits_for(self, cell: CellProgress, changed: Collection[str]) -> tuple[str, ...]:
        """Of the ``changed`` components those that run this cell and not every other one."""
        if not changed or self.study is None:
            return ()
        return tuple(n for n in self.study.cell_components(cell.cell) if n in changed)

    def waiting_cells(self) -> dict[str, int]:
        """By component that is not as frozen, how many cells wait for its amendment."""
        return dict(
            Counter(
                name
                for cell in self.cells.values()
                if self.needs_run(cell)
                for name in self.waits_for(cell, self.waiting)
            )
        )

    def ungraded(self) -> list[CellProgress]:
        """Ended cells without a verdict, in plan order. A transfer study has none: its surfaces are
        read while it runs, and its verdicts are projections."""
        if not self.is_graded:
            return []
        return [
            cell
            for cell in self.cells.values()
            if cell.status == "ended" and not self.needs_run(cell)
        ]

    def graded(self) -> int:
        return sum(cell.status in ("graded", "void") for cell in self.cells.values())

    def with_outcome(self) -> int:
        """Cells whose outcome there is to see: graded ones; of a transfer study, whose verdicts are
        projections, runs that ended and are not void."""
        if self.is_graded:
            return sum(cell.status == "graded" for cell in self.cells.values())
        return sum(cell.status == "ended" and cell.ended != "void" for cell in self.cells.values())

    def done_cells(self) -> int:
        return sum(not self.needs_run(cell) for cell in self.cells.values())

    def void_cells(self) -> int:
        """Of the cells that are done, those that nobody observed: their last allowed attempt is
        void."""
        return sum(
            not self.needs_run(cell) and "void" in (cell.status, cell.ended)
            for cell in self.cells.values()
        )

    def cells_in_words(self) -> str:
        """``7 of 9 cells, 2 of them void``."""
        void = f", {self.void_cells()} of them void" if self.void_cells() else ""
        return f"{self.done_cells()} of {counted(len(self.cells), 'cell')}{void}"

    def _shown_end(self, cell: CellProgress) -> str:
        """How a cell ended. A run of a transfer study that crashed or timed out has failed: there
        it is only said whether it was observed."""
        if self.is_graded or cell.ended in ("", "void"):
            return cell.ended
        return "observed"

    def cell_rows(self) -> list[CellRow]:
        return [
            CellRow.of(
                cell,
                position=cell.planned.position,
                cell=str(cell.cell),
                unit=cell.cell.unit,
                arm=cell.cell.arm,
                agent=cell.cell.agent,
                repeat=cell.cell.repeat,
                block=cell.planned.block,
                ended=self._shown_end(cell),
            )
            for cell in self.cells.values()
        ]

    def rows(self) -> Iterator[Row]:
        yield from self.cell_rows()
        for (task, number), passed in sorted(self.gold.items()):
            yield GoldCheckRow(task=task, number=number, passed=int(passed))
