"""Wake-ups in a folder where other users may write: nobody else is trusted, nothing is left."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import wakeup
from actors.wakeup import Waiter, clean_up, clean_up_abandoned, is_ours_alone, wake
from ledger.study_directory import StudyDirectory

LISTEN = """
import sys
from pathlib import Path
from actors.wakeup import Waiter
waiter = Waiter(Path(sys.argv[1]), ["cell"])
print("listening", flush=True)
while True:
    waiter.wait()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as names of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="lw-") as place:
        yield Path(place) / "ledger"


def woken(waiter: Waiter) -> bool:
    try:
        return waiter._socket.recv(1) == b"!"
    except TimeoutError:
        return False


def start_listening(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"listening\n"
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_only_the_wanted_roles_are_woken(folder: Path) -> None:
    cell = Waiter(folder, ["cell"])
    both = Waiter(folder, ["test_run", "grader"])
    wake(folder, ["grader"])
    assert (woken(cell), woken(both)) == (False, True)
    cell.close()
    both.close()


def test_the_folder_is_private_and_goes_with_the_last(folder: Path) -> None:
    before = os.umask(0)
    first = Waiter(folder, ["cell"])
    os.umask(before)
    second = Waiter(folder, ["grader"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    first.close()
    assert [path.name for path in folder.iterdir()] == [f"grader-{os.getpid()}.sock"]
    second.close()
    assert not folder.exists()


def test_what_killed_workers_left_goes_too(folder: Path) -> None:
    waiter = Waiter(folder, ["grader"])
    killed = start_listening(folder)
    end(killed)
    assert len(list(folder.iterdir())) == 2
    waiter.close()
    assert not folder.exists()
    end(start_listening(folder))
    wake(folder, ["cell"])
    assert list(folder.iterdir()) == []
    clean_up(folder)
    assert not folder.exists()


def test_a_living_worker_is_not_cleaned_up(folder: Path) -> None:
    living = start_listening(folder)
    clean_up(folder)
    assert len(list(folder.iterdir())) == 1
    end(living)


def test_folders_of_studies_that_were_killed_go_with_those_of_others(folder: Path) -> None:
    folders = [folder.with_name(f"ledger-{os.getuid()}-{name}") for name in ("a", "b", "c")]
    stranger = folder.with_name(f"ledger-{os.getuid() + 1}-d")
    stranger.mkdir(mode=0o700)
    living = [start_listening(place) for place in folders]
    end(living[1])
    clean_up_abandoned(folders[2])
    assert [place.exists() for place in (*folders, stranger)] == [True, False, True, True]
    end(living[0])
    end(living[2])
    clean_up_abandoned(folders[2])
    assert not any(place.exists() for place in folders)


@pytest.mark.parametrize("made", ["writable by all", "readable by all", "a link", "a file"])
def test_a_folder_that_was_there_first_is_not_used(
    folder: Path, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody could have made it: nothing is put into it or removed from it, and workers poll."""
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    if made == "a link":
        folder.symlink_to(elsewhere)
    elif made == "a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        folder.chmod(0o777 if "writable" in made else 0o755)
    trap = (elsewhere if made == "a link" else folder) / "cell-1.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if made != "a file":
        listening.bind(str(trap))
    listening.setblocking(False)
    assert not is_ours_alone(folder)
    waiter = Waiter(folder, ["cell"])
    assert "polling" in capsys.readouterr().err
    waiter.wait()  # returns after the interval
    wake(folder, ["cell"])
    with pytest.raises(BlockingIOError):
        listening.recv(1)
    waiter.close()
    clean_up(folder)
    assert made == "a file" or [path.name for path in trap.parent.iterdir()] == ["cell-1.sock"]
    listening.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else's")
def test_the_folder_of_another_user_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    waiter = Waiter(folder, ["cell"])
    wake(folder, ["cell"])
    waiter.close()
    assert folder.exists() and list(folder.iterdir()) == []


def test_a_folder_that_vanishes_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last worker removed it between its making and the binding."""
    vanishes = iter([True, False])

    def look(directory: Path) -> bool:
        if next(vanishes):
            directory.rmdir()
        return True

    monkeypatch.setattr(wakeup, "is_ours_alone", look)
    waiter = Waiter(folder, ["cell"])
    monkeypatch.undo()
    assert len(list(folder.iterdir())) == 1
    waiter.close()


def test_every_study_and_user_has_a_folder_of_its_own(tmp_path: Path) -> None:
    one, other = StudyDirectory(tmp_path / "one").sockets, StudyDirectory(tmp_path / "two").sockets
    assert one != other and str(os.getuid()) in one.name
    assert len(os.fspath(one)) < 80, "the name of a socket has at most about 100 bytes"
