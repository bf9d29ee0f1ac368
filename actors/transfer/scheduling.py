"""What comes next in a transfer study: one case at a time, in the order of the plan."""

from collections.abc import Sequence

from actors.loop import Done
from actors.study.scheduler import refuse_to_end
from ledger.log import NewEvent
from projections.progress import Progress
from schemas.commands import AdvanceSession, Command, EnsureResident, ReleaseModels
from schemas.events.run import StudyCompleted
from schemas.identifiers import STUDY_STREAM


def next_step(progress: Progress, pending: Sequence[Command]) -> Done:
    """The next case, given what was recorded and which commands are still at work. Pure."""
    assert progress.study is not None
    # A run that ended before its first cell may have left a command of a cell that is planned no
    # more: an amendment took it away.
    if any(_is_planned(command, progress) for command in pending):
        return Done()
    cell = progress.next_cell()
    if cell is not None:
        model = progress.study.model_of(cell.cell.agent)
        name = str(cell.cell)
        return Done(
            requests=[
                EnsureResident(model=model, cell=name) if model else AdvanceSession(cell=name)
            ]
        )
    if progress.resident:
        return Done(requests=[ReleaseModels()])
    refuse_to_end(progress)
    ended = [cell for cell in progress.cells.values() if cell.status == "ended"]
    observed = sum(cell.ended != "void" for cell in ended)
    completed = StudyCompleted(cells=len(progress.cells), graded=observed)
    return Done(events=[NewEvent(STUDY_STREAM, completed)])


def _is_planned(command: Command, progress: Progress) -> bool:
    if isinstance(command, EnsureResident | AdvanceSession):
        return command.cell in progress.cells
    return True
