"""Power fails at any moment: every state of the disk that may follow is opened, checked against
what had been acknowledged, and gone on with to the end."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import artifacts, atomic_file, checkpoint, creation
from ledger.sqlite import log as sqlite_log
from tests.faults.fault_points import count
from tests.faults.power_loss import RECORDED, STRACE_OPTIONS, Disk, State, build, losses, on_disk
from tests.faults.storage_work import Known, Place, check_interrupted, work
from tests.faults.system_calls import record, remove
from tests.faults.test_storage_faults import FEW, go_on, needs_strace

NewPlace = Callable[[], Place]


def recorded_losses(place: Place) -> list[State]:
    """Do the work and find out what a loss of power may leave of it."""
    ended = record(lambda tell: work(place, tell), RECORDED, STRACE_OPTIONS)
    disk = Disk(place.root)
    states = list(losses(ended.trace, disk))
    assert disk.live() == on_disk(place.root), "the model does not follow the disk"
    return states


def lose_power(place: Place, state: State) -> None:
    remove(place.root)
    place.root.mkdir()
    build(state.tree, place.root)


@needs_strace
@pytest.mark.parametrize("step", [FEW, pytest.param(1, marks=pytest.mark.slow)])
def test_every_state_that_a_loss_of_power_may_leave(new_place: NewPlace, step: int) -> None:
    place = new_place()
    points = []
    for state in recorded_losses(place)[::step]:
        lose_power(place, state)
        try:
            go_on(place, state.told)
        except Exception as error:
            where = f"power loss after call {state.after}, {state.loss}"
            raise AssertionError(f"{where}: {error!r}") from error
        points.append((state.after, state.loss))
    count("power loss", points, complete=step == 1)


# --- the model itself: a sync that is left out is found ------------------------------------------


def unsynced_log(patch: pytest.MonkeyPatch) -> None:
    connect = sqlite_log._connect

    def without_sync(path: Path, mode: str, synchronous: str) -> sqlite3.Connection:
        return connect(path, mode, "NORMAL")

    patch.setattr(sqlite_log, "_connect", without_sync)


def unsynced_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(atomic_file, "sync", lambda descriptor: None)


def unsynced_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(artifacts, "sync_directory", lambda path: None)


def unsynced_checkpoints(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint, "sync", lambda descriptor: None)


def unsynced_creation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(creation, "sync_directory", lambda path: None)
    patch.setattr(creation, "make_folder", lambda path, mode: path.mkdir(mode))


@needs_strace
@pytest.mark.parametrize(
    "leave_out",
    [
        unsynced_files,
        pytest.param(unsynced_log, marks=pytest.mark.slow),
        pytest.param(unsynced_names, marks=pytest.mark.slow),
        pytest.param(unsynced_checkpoints, marks=pytest.mark.slow),
        pytest.param(unsynced_creation, marks=pytest.mark.slow),
    ],
)
def test_a_sync_that_is_left_out_is_found(
    new_place: NewPlace, leave_out: Callable[[pytest.MonkeyPatch], None]
) -> None:
    place = new_place()
    with pytest.MonkeyPatch.context() as patch:
        leave_out(patch)
        states = recorded_losses(place)
    for state in states:
        lose_power(place, state)
        try:
            check_interrupted(place, Known().hear(state.told))
        except Exception:
            return
    pytest.fail("nothing was lost")
