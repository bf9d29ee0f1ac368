"""Files that are complete under their name or not there at all, and durable when a call returns.

The order is always: temporary name in the same directory, write, sync, rename, sync the directory
(a rename is durable only when the directory is).
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
    temporary = path.with_name(temporary_name())
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            sync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def temporary_name() -> str:
    """A name that no other process uses and that clean-up recognises."""
    return TEMPORARY_PREFIX + new_id()


def sync(descriptor: int) -> None:
    """Bring a file or directory to the disk itself: fsync on macOS stops at the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_directory(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
