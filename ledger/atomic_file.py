"""Files that are complete under their name or not there at all, and durable when a call returns.

The order is always: temporary name in the same directory, write, sync, rename, sync the directory
(a rename is durable only when its directory is).
"""

import fcntl
import os
import sys
from pathlib import Path

from ledger.clock import new_id

TEMPORARY_PREFIX = ".unfinished-"


def write_file(path: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Put ``content`` under ``path``, replacing what is there. Costs two syncs.

    Raises OSError; then ``path`` is as it was.
    """
    path = Path(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        temporary = write_temporary(directory, content, mode)
        try:
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        sync(directory)
    finally:
        os.close(directory)


def write_temporary(directory: int, content: bytes, mode: int = 0o600) -> str:
    """Write and sync a new file in an open directory; return its name, ready to be renamed.

    A crash leaves at most a file whose name begins with ``TEMPORARY_PREFIX``.
    """
    name = TEMPORARY_PREFIX + new_id()
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=directory)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]
            sync(file.fileno())
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise
    return name


def make_folder(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Make a folder and those above it that are missing, durably: what is synced in a folder is
    lost with it if its own name was not. Raises OSError."""
    path = Path(path).absolute()
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode, parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_directory(folder.parent)


def sync(descriptor: int) -> None:
    """Bring an open file or directory to the disk itself.

    On macOS fsync stops at the drive's cache; F_FULLFSYNC does not, where the file system has it.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError:
            pass
    os.fsync(descriptor)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make renames and new names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
