"""What comes next in a repair study:

gold at the start → cells in plan order, one at a time → models released → grading → gold at
the end → study.completed
"""

from collections.abc import Sequence

from actors.loop import Done
from actors.study.scheduler import refuse_to_end
from ledger.errors import SafetyStop
from ledger.log import NewEvent
from projections.progress import CellProgress, Progress
from schemas.commands import CheckGold, Command, EnsureResident, GradeCell, ReleaseModels
from schemas.events.cell import CellVoided
from schemas.events.run import StudyCompleted
from schemas.identifiers import STUDY_STREAM

GOLD_AT_START = 0


def next_step(progress: Progress, pending: Sequence[Command]) -> Done:
    """What to request now, given what was recorded and which commands are still at work. Pure."""
    assert progress.study is not None
    study = progress.study
    gold = _gold_requests(progress, GOLD_AT_START, pending)
    if gold is not None:
        return gold

    # One cell at a time: its chain of commands ends by asking the scheduler again.
    working = [c for c in pending if not isinstance(c, GradeCell | CheckGold)]
    cell = progress.next_cell()
    requests: list[Command] = []
    if cell is not None and not working:
        fresh = cell.status == "planned" and starts_task(progress, cell)
        requests.append(EnsureResident(model=cell.cell.agent, cell=str(cell.cell), fresh=fresh))
    if study.grading.when == "beside":
        requests += _grading(progress, pending)
    if cell is not None:
        return Done(requests=requests)

    if progress.resident and not working:
        return Done(requests=[*requests, ReleaseModels()])
    if working:
        return Done(requests=requests)
    refuse_to_end(progress)
    if progress.ungraded():
        return Done(requests=requests or _grading(progress, pending))
    gold = _gold_requests(progress, _rounds_due(progress) + 1, pending)
    return gold if gold is not None else _complete(progress)


def _grading(progress: Progress, pending: Sequence[Command]) -> list[Command]:
    """Cells to grade now. With `gold_every_cells` they come in portions, with a round of gold
    checks between two portions."""
    assert progress.study is not None
    portion = progress.study.grading.gold_every_cells
    asked = {c.cell for c in pending if isinstance(c, GradeCell)}
    waiting = [c for c in progress.ungraded() if str(c.cell) not in asked]
    if portion:
        rounds = _rounds_due(progress)
        if rounds:
            gold = _gold_requests(progress, rounds, pending)
            if gold is not None:
                return list(gold.requests)
        waiting = waiting[: (rounds + 1) * portion - progress.graded() - len(asked)]
    return [GradeCell(cell=str(cell.cell)) for cell in waiting]


def _rounds_due(progress: Progress) -> int:
    """Rounds of gold checks between the first and the last, by the number of graded cells."""
    assert progress.study is not None
    portion = progress.study.grading.gold_every_cells
    return progress.graded() // portion if portion else 0


def _complete(progress: Progress) -> Done:
    drifted = {task for (task, number), passed in progress.gold.items() if number and not passed}
    voided = [
        NewEvent(
            cell.cell.stream,
            CellVoided(
                cell=cell.cell,
                reason="the task's gold patch no longer passes: its test environment has drifted",
            ),
        )
        for cell in progress.cells.values()
        if cell.status != "void" and cell.cell.unit in drifted
    ]
    completed = StudyCompleted(
        cells=len(progress.cells),
        graded=sum(
            cell.status == "graded" and cell.cell.unit not in drifted
            for cell in progress.cells.values()
        ),
    )
    return Done(events=[*voided, NewEvent(STUDY_STREAM, completed)])


def starts_task(progress: Progress, cell: CellProgress) -> bool:
    """True for the first cell of a task's block in the plan."""
    planned = progress.prepared_plan
    if planned is None or cell.planned.position == 0:
        return True
    before = planned.cells[cell.planned.position - 1]
    return (before.cell.unit, before.block) != (cell.cell.unit, cell.planned.block)


def _gold_requests(progress: Progress, number: int, pending: Sequence[Command]) -> Done | None:
    """What is still to be done for one round of gold checks; None when the round is over.

    Raises SafetyStop where gold does not pass before the first cell: nothing could be graded.
    """
    tasks = sorted({cell.cell.unit for cell in progress.cells.values()})
    missing = [task for task in tasks if (task, number) not in progress.gold]
    if missing:
        asked = {(c.task, c.number) for c in pending if isinstance(c, CheckGold)}
        return Done(
            requests=[
                CheckGold(task=task, number=number)
                for task in missing
                if (task, number) not in asked
            ]
        )
    broken = [task for task in tasks if not progress.gold[task, number]]
    if broken and number == GOLD_AT_START:
        raise SafetyStop(
            f"the gold patch of {', '.join(broken)} does not pass in this test environment: "
            "repair it (`ledger doctor`), or amend the study"
        )
    return None
