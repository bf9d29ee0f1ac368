"""Opening files that somebody else may have put in their place.

A ledger that came from elsewhere may hold a pipe, a device or a link where a file belongs: reading
would wait for ever, never end, or show what lies outside. Whatever is read from a ledger's folder
and is not a database goes through here, and every database is looked at here before SQLite opens
it.
"""

import errno
import os
import stat
from collections import Counter
from pathlib import Path
from threading import Lock
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BESIDE = ("", "-wal", "-journal")

Identity = tuple[int, int]
_open_here: Counter[Identity] = Counter()
_counting = Lock()


def database_opened(path: Path) -> Identity:
    """Say that this process has a connection to a database, until ``database_closed``.

    Meanwhile it must not be opened in any other way: closing any descriptor of a file takes away
    every lock that the process holds on it (POSIX, ``fcntl``), and without them another process
    that ends deletes the WAL that we are writing to.
    """
    about = os.stat(path)
    identity = (about.st_dev, about.st_ino)
    with _counting:
        _open_here[identity] += 1
    return identity


def database_closed(identity: Identity) -> None:
    with _counting:
        _open_here[identity] -= 1
        if not _open_here[identity]:
            del _open_here[identity]


def is_open_here(path: str | os.PathLike[str], directory: int | None = None) -> bool:
    """True for a database that this process has a connection to."""
    if not _open_here:
        return False
    try:
        about = os.stat(path, dir_fd=directory)
    except (OSError, ValueError):
        return False
    return (about.st_dev, about.st_ino) in _open_here


def open_regular(path: str | os.PathLike[str], directory: int | None = None) -> BinaryIO:
    """Open a regular file for reading, without waiting and without following a link.

    ``directory`` is an open folder that ``path`` is a name in. Raises OSError; where something else
    stands in the file's place ``is_no_file`` holds for it and ``strerror`` says what.
    """
    if is_open_here(path, directory):
        raise RuntimeError(f"{os.fspath(path)} is a database that this process has open")
    try:
        descriptor = os.open(path, _FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ENXIO or (error.errno == errno.ELOOP and _is_link(path, directory)):
            what = "a link" if error.errno == errno.ELOOP else "a socket or a device"
            raise _instead_of_a_file(path, what) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _instead_of_a_file(path, _kind(mode))
    return open(descriptor, "rb")


def open_lock(path: str | os.PathLike[str], create: bool = True) -> BinaryIO:
    """Open a file to lock it (``flock``), for this user alone where it is made.

    No link is followed, and no pipe in its place waited for. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "rb", buffering=0)


def read_regular(path: str | os.PathLike[str], at_most: int) -> bytes:
    """The whole content of a regular file. Raises OSError, also where it is longer."""
    with open_regular(path) as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"longer than {at_most} bytes", os.fspath(path))
    return content


def check_database(path: Path) -> None:
    """Raises OSError where a database or a file that SQLite opens beside it is no regular file, or
    where a rollback journal lies beside it: a ledger has a WAL and never leaves one, and who opens
    the database next for writing would have it played in, behind what was verified.

    Nothing is opened (``database_opened`` says why).
    """
    for suffix in _BESIDE:
        try:
            length = check_regular(f"{path}{suffix}")
        except FileNotFoundError:
            if not suffix:
                raise
            continue
        if suffix == "-journal" and length:
            raise OSError(
                errno.EINVAL,
                "a rollback journal, which a ledger never has: another program switched the "
                "database out of WAL mode and was stopped in a commit, or somebody put it here. "
                "Copy the whole folder; in the copy `sqlite3 ledger.db 'PRAGMA journal_mode=WAL'` "
                "undoes that commit, and `ledger verify-chain` says what the result is worth",
                f"{path}{suffix}",
            )


def check_one_name(*paths: Path) -> None:
    """Raises OSError where a file that is to be written has a second name (a hard link): whatever
    has that name would change too. SQLite's "How to corrupt", section 2.5. Opens nothing."""
    for path in paths:
        try:
            names = os.stat(path, follow_symlinks=False).st_nlink
        except FileNotFoundError:
            continue
        if names > 1:
            raise OSError(errno.EINVAL, "a hard link, not a file of its own", os.fspath(path))


def check_regular(path: str | os.PathLike[str]) -> int:
    """How long a file is. Raises OSError, like ``open_regular``, where no regular file stands.
    Opens nothing."""
    about = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(about.st_mode):
        raise _instead_of_a_file(path, _kind(about.st_mode))
    return about.st_size


def is_no_file(error: OSError) -> bool:
    """True for the error of ``open_regular`` that something else stands in a file's place: a fault
    of the ledger, where any other error may be one of the machine."""
    return error.errno == errno.EINVAL


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFDIR: "a folder",
        stat.S_IFSOCK: "a socket or a device",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def _instead_of_a_file(path: str | os.PathLike[str], what: str) -> OSError:
    return OSError(errno.EINVAL, f"{what}, not a file", os.fspath(path))


def _is_link(path: str | os.PathLike[str], directory: int | None) -> bool:
    """Not a folder on the way to it."""
    try:
        return stat.S_ISLNK(os.stat(path, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
