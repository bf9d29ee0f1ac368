"""Folders that untrusted code may have written: opening them again, and removing them."""

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path


def open_again(directory: Path) -> None:
    """Make readable what untrusted code has closed to us; no link is followed."""
    command = ["chmod", "-R", "u+rwX", "--", str(directory)]
    subprocess.run(command, check=False, capture_output=True)


def remove_tree(directory: Path) -> None:
    """Remove what untrusted code may have written, also folders that it closed to us. Raises
    OSError where something is left.

    ``shutil.rmtree`` calls itself and opens a file for every level, and code under test can nest
    folders deeper than that goes: then by the system's own program.
    """
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(directory)
        return
    remove = ["rm", "-r", "-f", "--", str(directory)]
    if subprocess.run(remove, check=False, capture_output=True).returncode:
        open_again(directory)
        done = subprocess.run(remove, check=False, capture_output=True)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[:300]
            raise OSError(errno.EACCES, said or os.strerror(errno.EACCES), str(directory))
