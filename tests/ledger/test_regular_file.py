"""Opening what somebody else may have put in a file's place: never waiting, never following."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.regular_file import (
    check_database,
    is_no_file,
    open_lock,
    open_regular,
    read_regular,
)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


INSTEAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "a pipe, not a file"),
    "folder": (Path.mkdir, "a folder, not a file"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "a link, not a file"),
    "link to nowhere": (lambda path: path.symlink_to("nowhere"), "a link, not a file"),
    "link to a file": (lambda path: path.symlink_to(__file__), "a link, not a file"),
    "socket": (make_socket, "a socket or a device, not a file"),
}


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = INSTEAD[name]
    monkeypatch.chdir(tmp_path)  # the name of a socket may not be long
    path = Path("place")
    make(path)
    for read in (open_regular, check_database, lambda path: read_regular(path, 10)):
        with pytest.raises(OSError) as raised:
            read(path)
        assert is_no_file(raised.value)
        assert (raised.value.strerror, raised.value.filename) == (says, "place")


def test_a_device_is_no_file() -> None:
    with pytest.raises(OSError) as raised:
        read_regular("/dev/zero", 10)
    assert is_no_file(raised.value) and raised.value.strerror == "a device, not a file"


def test_a_fault_of_the_machine_is_another_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as absent:
        open_regular(tmp_path / "absent")
    assert not is_no_file(absent.value)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError) as loop:
        open_regular(tmp_path / "loop" / "place")
    assert loop.value.errno == errno.ELOOP and not is_no_file(loop.value)


@pytest.mark.parametrize("create", [True, False])
def test_a_lock_waits_for_no_pipe_and_follows_no_link(tmp_path: Path, create: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open_lock(tmp_path / "pipe", create) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError), open_lock(tmp_path / "pipe", create) as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(tmp_path / "link", create)
    assert not (tmp_path / "elsewhere").exists()


def test_no_more_than_asked_for_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert read_regular(path, 10) == b"0123456789"
    with pytest.raises(OSError, match="longer than 9 bytes"):
        read_regular(path, 9)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_sqlite_opens_beside_a_database(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"")
    check_database(path)
    Path(f"{path}{suffix}").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="a link, not a file"):
        check_database(path)


def test_a_journal_is_no_file_of_a_ledger(tmp_path: Path) -> None:
    """An empty one is: SQLite plays nothing of it, and other programs leave it behind."""
    path = tmp_path / "a.db"
    path.write_bytes(b"")
    journal = Path(f"{path}-journal")
    journal.write_bytes(b"")
    check_database(path)
    journal.write_bytes(b"\xd9")
    with pytest.raises(OSError, match="rollback journal, which a ledger never has") as raised:
        check_database(path)
    assert is_no_file(raised.value) and raised.value.filename == str(journal)
