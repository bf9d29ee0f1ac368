"""Every system call by which the ledger writes is killed, fails, or finds no room, one at a time.

After each fault the disk is compared with what was acknowledged before it; then the same work is
given again, must come to its end, and everything must be there exactly once.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE
from tests.faults.fault_points import count
from tests.faults.storage_work import (
    Exported,
    Failed,
    Known,
    Message,
    Place,
    check_finished,
    check_interrupted,
    work,
)
from tests.faults.system_calls import (
    CHANGES,
    FOLDERS,
    NEED_ROOM,
    Ended,
    calls_of,
    in_child,
    inject,
    limit_file_size,
    record,
    remove,
    tracing_works,
)

needs_strace = pytest.mark.skipif(
    not tracing_works(), reason="faults at system calls need strace and the right to trace"
)
FEW = 90
"""Of how many points one is gone through outside the sweeps."""

OF_A_FULL_DISK = ("disk is full", "No space left", "look at the free space", "look at the disk")
"""SQLite calls it an I/O error where its index of the WAL finds no room."""

NewPlace = Callable[[], Place]


def go_on(place: Place, messages: list[Message]) -> None:
    """Check what the fault left, give the same work again, and check its end."""
    known = Known().hear(messages)
    check_interrupted(place, known)
    told: list[Message] = []
    work(place, told.append)
    check_finished(place, known.hear(told))


def explained(ended: Ended, words: Sequence[str]) -> None:
    """The child ended in order, with an error that names the condition, or did not need the call
    that failed."""
    assert ended.signal == 0
    last = ended.told[-1]
    assert isinstance(last, Failed | Exported)
    if isinstance(last, Failed):
        assert last.kind in ("Unfinished", "UnknownOutcome"), last
        assert any(word in last.text for word in words), last


def sweep(kind: str, new_place: NewPlace, calls: Sequence[str], fault: str, step: int) -> None:
    """Inject a fault at each ``step``-th of these calls, in turn."""
    place = new_place()
    made = calls_of(record(lambda tell: work(place, tell), calls).trace)
    points = range(1, len(made) + 1, step)
    for point in points:
        where = new_place()
        full = fault == "error=ENOSPC"  # and stays full
        ended = inject(lambda tell: work(where, tell), made[:point], fault, full)  # noqa: B023
        try:
            if fault == "signal=SIGKILL":
                assert ended.signal == 9
            elif fault == "error=ENOSPC":
                explained(ended, OF_A_FULL_DISK)
                assert isinstance(ended.told[-1], Failed)
            else:
                explained(ended, ["I/O error", "Input/output error"])
            go_on(where, ended.told)
        except AssertionError as error:
            raise AssertionError(f"{fault} at call {point}, {made[point - 1]}: {error}") from error
        remove(where.root)
    count(kind, points, complete=step == 1)


TELLS = "sendto"
"""Killed here, a process has done what it never says."""
SWEEPS = [
    ("kill -9 at a system call of the storage", (*CHANGES, TELLS), "signal=SIGKILL"),
    ("input/output error at a system call", CHANGES, "error=EIO"),
    ("full disk at a system call", NEED_ROOM, "error=ENOSPC"),
]


@needs_strace
@pytest.mark.parametrize(("kind", "calls", "fault"), SWEEPS)
@pytest.mark.parametrize("step", [FEW, pytest.param(1, marks=pytest.mark.slow)])
def test_each_call_that_writes(
    new_place: NewPlace, kind: str, calls: Sequence[str], fault: str, step: int
) -> None:
    sweep(kind, new_place, calls, fault, step)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=EIO", "error=ENOSPC"])
def test_folders_in_the_making(new_place: NewPlace, fault: str) -> None:
    """Those of the study and of its user, some of the 256 of the artifacts, those of the export."""
    place = new_place()
    made = calls_of(record(lambda tell: work(place, tell), FOLDERS).trace)
    for point in (*range(1, 8), 100, *range(255, len(made) + 1)):
        place = new_place()
        ended = inject(lambda tell: work(place, tell), made[:point], fault, False)  # noqa: B023
        if fault == "signal=SIGKILL":
            assert ended.signal == 9
        else:
            explained(ended, ["Input/output error", "No space left"])
        go_on(place, ended.told)


# --- file systems without room -------------------------------------------------------------------


@pytest.mark.parametrize("step", [64 << 10, pytest.param(4 << 10, marks=pytest.mark.slow)])
def test_a_file_may_not_grow(new_place: NewPlace, step: int) -> None:
    """EFBIG as the kernel itself gives it, at every size that a file of the ledger would have."""
    sizes = []
    for size in range(0, 1 << 20, step):
        place = new_place()
        ended = in_child(lambda tell: work(place, tell), before=limit_file_size(size))  # noqa: B023
        if isinstance(ended.told[-1], Exported):
            break
        explained(ended, ["File too large", "disk is full", "I/O error"])
        go_on(place, ended.told)
        remove(place.root)
        sizes.append(size)
    assert len(sizes) < (1 << 20) // step, "no limit was large enough"
    count("file size limit", sizes, complete=step == 4 << 10)


@contextmanager
def small_file_system(folder: Path, pages: int) -> Iterator[Path]:
    """A tmpfs with room for so many pages of 4 KiB."""
    folder.mkdir()
    options = f"size={pages * 4}k,nr_inodes=2000"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs the right to do so")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_a_file_system_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A real full disk, at each page that the work takes; then there is room again."""
    pages = []
    for number in range(1, 1000, step):
        with small_file_system(tmp_path / f"{number}", number) as folder:
            place = Place(folder)
            place.directory.root.mkdir()
            monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(place.home))
            ended = in_child(lambda tell: work(place, tell))  # noqa: B023
            if isinstance(ended.told[-1], Exported):
                break
            explained(ended, OF_A_FULL_DISK)
            subprocess.run(
                ["mount", "-o", "remount,size=16m", str(folder)], check=True, capture_output=True
            )
            go_on(place, ended.told)
        pages.append(number)
    count("full file system", pages, complete=step == 1)
