"""What crashes leave behind: artifacts that no record names, and files that never got their name.

A crash between an artifact and its record leaves a whole file that nobody names; one during a write
leaves a temporary file. Both cost space and nothing else. Removing them beside a running writer is
safe because of an order in time:

- whoever puts an artifact does so while it works on a command, and names it before that command
  ends; so a file that is older than every unfinished command will never be named by one;
- content that is there already is put again by touching it (``Artifacts.put``), under a lock of its
  folder that removal takes too, so it is young again before it is removed, or written again after.

Every record is read before anything is removed, what artifacts name is followed, and a ledger that
is not verified, or that has records of an unknown type, loses nothing.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from ledger.artifacts import Artifacts
from ledger.atomic_file import TEMPORARY_PREFIX, sync_directory
from ledger.clock import now_us
from ledger.errors import Refused
from ledger.log import EventLog, decode
from ledger.named_artifacts import artifacts_in_content, named_artifacts
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import Options, verify

CLOCK_MARGIN_US = 60_000_000
"""Time stamps of files may lag behind the clock, and the clock may be set."""

Kind = Literal["unnamed artifact", "unfinished file"]


class Leftover(msgspec.Struct, frozen=True):
    """A file that nobody needs."""

    path: Path
    kind: Kind
    bytes: int
    modified_us: int
    old: bool
    """No unfinished command can still name it, and it is older than the grace."""


def find_leftovers(
    directory: StudyDirectory, log: EventLog, grace_seconds: float
) -> list[Leftover]:
    """Everything in ``var/`` that a crash, or a program that is at work, has left unnamed.

    Raises Integrity where a record or an artifact that names others cannot be read.
    """
    before_us = min(now_us() - int(grace_seconds * 1_000_000), _oldest_unfinished(log))
    before_us -= CLOCK_MARGIN_US
    artifacts = Artifacts(directory.artifacts)
    named = named_digests(log, artifacts)
    files: list[tuple[Path, Kind]] = [
        (artifacts.path(digest), "unnamed artifact")
        for digest in artifacts.list_digests()
        if bytes.fromhex(digest) not in named
    ]
    files += [(path, "unfinished file") for path in artifacts.list_unfinished()]
    files += [(path, "unfinished file") for path in _unfinished_beside(directory)]
    found = []
    for path, kind in files:
        with suppress(FileNotFoundError):  # it has just got its name
            about = path.lstat()
            modified_us = about.st_mtime_ns // 1000
            old = modified_us < before_us and stat.S_ISREG(about.st_mode)
            found.append(Leftover(path, kind, about.st_size, modified_us, old))
    return found


def remove_leftovers(directory: StudyDirectory, found: list[Leftover]) -> list[Leftover]:
    """Remove what is old, unless somebody has touched it meanwhile; returns what is gone.

    Raises Refused for an imported ledger and for one that is not verified: a record that is missing
    from it may name what looks unnamed.
    """
    if directory.is_imported:
        raise Refused(f"{directory.ledger} was imported: nothing of it is ever removed")
    report = verify(directory.root, options=Options(check_artifacts=False))
    if report.status != "verified":
        raise Refused(
            f"verification ends with {report.status!r}, and what looks unnamed may be evidence: "
            "nothing was removed; run `ledger verify-chain`"
        )
    removed = []
    for leftover in found:
        if leftover.old and _remove_untouched(leftover):
            removed.append(leftover)
    return removed


def named_digests(log: EventLog, artifacts: Artifacts) -> set[bytes]:
    """The digest (32 bytes) of every artifact that a record names, or an artifact of a record."""
    named: set[bytes] = set()
    for stored in log.read():
        for ref, content_type in named_artifacts(decode(stored).event):
            digest = bytes.fromhex(ref.digest)
            if digest not in named and content_type is not None:
                for inner in artifacts_in_content(artifacts.get(ref), content_type):
                    named.add(bytes.fromhex(inner.digest))
            named.add(digest)
    return named


def _remove_untouched(leftover: Leftover) -> bool:
    """Remove a file if it is still as old as it was when it was found."""
    folder = os.open(leftover.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # Whoever puts the same content now waits, and then writes it again.
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            about = os.stat(leftover.path.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if about.st_mtime_ns // 1000 != leftover.modified_us:
            return False
        os.unlink(leftover.path.name, dir_fd=folder)
    finally:
        os.close(folder)
    sync_directory(leftover.path.parent)
    return True


def _oldest_unfinished(log: EventLog) -> int:
    """When the oldest command that is not finished was requested; now, where there is none."""
    now = now_us()
    for command in log.pending():
        stored = log.find(command)
        if stored is not None:
            at = datetime.fromisoformat(stored.envelope().at)
            return min(now, int(at.timestamp() * 1_000_000))
    return now


def _unfinished_beside(directory: StudyDirectory) -> Iterator[Path]:
    """Temporary files beside the ledger: of a creation, of the frontier, of an atomic write."""
    creation = directory.ledger.name + ".new"
    frontier = directory.checkpoints.stem + "."
    for path in sorted(directory.var.iterdir()):
        temporary = path.name.startswith((TEMPORARY_PREFIX, creation))
        of_frontier = path.name.startswith(frontier) and path.name.removeprefix(frontier).isdigit()
        if temporary or of_frontier:
            yield path
