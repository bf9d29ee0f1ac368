"""The scheduler: looks at what has happened and requests what is next.

What that is, its kind of study says (``actors/repair/scheduling.py``,
``actors/transfer/scheduling.py``), from the progress fold alone; so a lost or doubled wake-up
changes nothing: asked twice it requests once, because work that is pending is not requested again.
"""

from collections.abc import Callable, Mapping, Sequence

from actors.loop import Done, Work
from actors.test_runs.task_runs import require_room
from ledger.errors import Refused, SafetyStop
from projections.fold import Follower
from projections.pending_commands import PendingCommands
from projections.progress import Progress
from schemas.commands import Command, Role
from schemas.counted import counted

NextStep = Callable[[Progress, Sequence[Command]], Done]
"""What to request now, given what was recorded and which commands are still at work. Pure."""


def refuse_to_end(progress: Progress) -> None:
    """Raises SafetyStop where nothing is left to run but cells that wait for an amendment."""
    if waiting := progress.waiting_cells():
        raise SafetyStop(
            f"all other cells have ended: {'; '.join(cells_that_wait(waiting))}. Put back what "
            'was frozen, or record the change with `ledger amend --reason "…"`; then `ledger run`'
        )


def cells_that_wait(waiting: Mapping[str, int]) -> list[str]:
    """``12 cells waiting for arm H018, which is not as frozen``, one per component."""
    return [
        f"{counted(count, 'cell')} waiting for {name}, which is not as frozen"
        for name, count in waiting.items()
    ]


class Scheduler:
    """One per process; its fold follows the log between commands. ``roles``: those whose pending
    commands are work of the study."""

    def __init__(self, next_step: NextStep, roles: Sequence[Role]) -> None:
        self._next_step = next_step
        self._roles = roles
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
        require_room(work.context.directory.var, progress.study.stopping.min_free_disk_bytes)
        return self._next_step(progress, self._commands.of_roles(self._roles))
