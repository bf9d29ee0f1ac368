"""The scheduler: looks at what has happened and requests what is next.

It decides from the progress fold alone, so a lost or doubled wake-up changes nothing: asked twice
it requests once, because work that is pending is not requested again.

    gold at the start → cells in plan order, one at a time → models released → grading → gold at
    the end → study.completed
"""

import shutil

from actors.loop import Done, Work
from ledger.errors import Refused, SafetyStop
from ledger.log import NewEvent
from projections.fold import Follower
from projections.pending_commands import PendingCommands
from projections.progress import CellProgress, Progress
from schemas.commands import (
    CheckGold,
    Command,
    ContinueStudy,
    EnsureResident,
    GradeCell,
    ReleaseModels,
)
from schemas.events.cell import CellVoided
from schemas.events.run import StudyCompleted
from schemas.identifiers import STUDY_STREAM

GOLD_AT_START = 0
WORKING_ROLES = ("model_server", "cell", "test_run", "grader")


class Scheduler:
    """One per process; its fold follows the log between commands."""

    def __init__(self) -> None:
        self._follower: Follower | None = None
        self._progress: Progress
        self._commands: PendingCommands

    def continue_study(self, work: Work) -> Done:
        if self._follower is None:
            self._progress = Progress(work.artifacts.get)
            self._commands = PendingCommands()
            self._follower = Follower(work.log, self._progress, self._commands)
        self._follower.catch_up()
        progress = self._progress
        if progress.frozen is None or progress.study is None:
            raise Refused("the study is not frozen: `ledger freeze` first")
        if progress.completed:
            return Done()
        _check_disk(work, progress.study.stopping.min_free_disk_bytes)
        return _next(progress, self._commands.of_roles(WORKING_ROLES))


def _check_disk(work: Work, needed: int) -> None:
    free = shutil.disk_usage(work.context.directory.var).free
    if free < needed:
        raise SafetyStop(
            f"{free} bytes of disk are free and the study declares a stop below {needed} "
            "(stopping.min_free_disk_bytes): free space, then `ledger run` goes on"
        )


def _next(progress: Progress, pending: list[Command]) -> Done:
    study = progress.study
    assert study is not None
    tasks = sorted({cell.cell.unit for cell in progress.cells.values()})

    gold = _gold_requests(progress, tasks, GOLD_AT_START, pending)
    if gold is not None:
        return gold

    # One cell at a time: its chain of commands ends by asking the scheduler again.
    cells_pending = [c for c in pending if not isinstance(c, GradeCell | CheckGold)]
    requests: list[Command] = []
    cell = progress.next_cell()
    if cell is not None and not cells_pending:
        requests.append(
            EnsureResident(
                model=cell.cell.agent,
                cell=str(cell.cell),
                fresh=cell.status == "planned" and starts_task(progress, cell),
            )
        )
    if study.grading.when == "beside":
        requests += _grading_requests(progress.ungraded(), pending)
    if cell is not None:
        return Done(requests=requests)

    if progress.resident and not any(isinstance(c, ReleaseModels) for c in pending):
        return Done(requests=[*requests, ReleaseModels()])
    if cells_pending:
        return Done()
    ungraded = progress.ungraded()
    if ungraded:
        return Done(requests=_grading_requests(ungraded, pending))

    number = GOLD_AT_START + 1
    gold = _gold_requests(progress, tasks, number, pending)
    if gold is not None:
        return gold
    voided = [
        NewEvent(
            cell.cell.stream,
            CellVoided(
                cell=cell.cell,
                reason="the task's gold patch no longer passes: its test environment has drifted",
            ),
        )
        for cell in progress.cells.values()
        if cell.status != "void" and not progress.gold[cell.cell.unit, number]
    ]
    completed = StudyCompleted(
        cells=len(progress.cells),
        graded=sum(cell.status == "graded" for cell in progress.cells.values()) - len(voided),
    )
    return Done(events=[*voided, NewEvent(STUDY_STREAM, completed)])


def starts_task(progress: Progress, cell: CellProgress) -> bool:
    """True for the first cell of a task's block in the plan."""
    planned = progress.prepared_plan
    if planned is None or cell.planned.position == 0:
        return True
    before = planned.cells[cell.planned.position - 1]
    return (before.cell.unit, before.block) != (cell.cell.unit, cell.planned.block)


def _gold_requests(
    progress: Progress, tasks: list[str], number: int, pending: list[Command]
) -> Done | None:
    """What is still to be done for one round of gold checks; None when the round is over."""
    open_tasks = [task for task in tasks if (task, number) not in progress.gold]
    if not open_tasks:
        if number == GOLD_AT_START:
            broken = [task for task in tasks if not progress.gold[task, number]]
            if broken:
                raise SafetyStop(
                    f"the gold patch of {', '.join(broken)} does not pass in this test "
                    "environment: repair it (`ledger doctor`), or amend the study"
                )
        return None
    asked = {c.task for c in pending if isinstance(c, CheckGold)}
    return Done(
        requests=[CheckGold(task=task, number=number) for task in open_tasks if task not in asked]
    )


def _grading_requests(cells: list[CellProgress], pending: list[Command]) -> list[Command]:
    asked = {c.cell for c in pending if isinstance(c, GradeCell)}
    return [GradeCell(cell=str(cell.cell)) for cell in cells if str(cell.cell) not in asked]


HANDLES = (ContinueStudy,)
EMITS = (CellVoided, StudyCompleted)
