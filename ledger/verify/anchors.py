"""Receipts of anchored checkpoints, checked without a network.

``checkpoint.anchored.v1`` records a note and what came back when it was put outside:

    kind    where                          receipt
    copy    full path of a file            SHA-256 of the note, hexadecimal
    git     URL or path of a remote        id of the pushed commit; its tree's blob ``checkpoint``
                                           is the note
    time    name of the authority          base64 of the RFC 3161 response over the note's bytes

A receipt that cannot be checked here and now does not count, and verification says why.
"""

import base64
import binascii
import os
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from ledger.regular_file import open_regular
from schemas.events.ledger import CheckpointAnchored

MAX_COPY_BYTES = 64 << 20
VAR_FOLDER = "var"
ANCHOR_BLOB = "checkpoint"
TIME_LIMIT_SECONDS = 30


def check_receipt(
    event: CheckpointAnchored,
    ledger: Path,
    time_authority: Path | None = None,
    git_clone: Path | None = None,
) -> tuple[bool, str]:
    """(does it count, why or why not). ``ledger`` is the verified file, ``time_authority`` the PEM
    certificate of a time-stamping authority that the caller trusts, ``git_clone`` a clone that the
    caller has fetched from a remote that is not on this machine."""
    if "\0" in event.where:
        return False, "it names no place"
    if event.kind != "time" and _leads_elsewhere(event.where):
        return (
            False,
            "its path leads through a link; give what is there with --against or --git-clone",
        )
    if event.kind == "copy":
        return _check_copy(event, ledger)
    if event.kind == "git":
        return _check_git(event, ledger, git_clone)
    return _check_time(event, time_authority)


def _leads_elsewhere(where: str) -> bool:
    """True for a path that is not the place itself, as it is recorded: who sends a ledger could
    name, by ``/proc/self/cwd``, what was sent along with it."""
    return os.path.isabs(where) and os.path.realpath(where) != where


def _check_copy(event: CheckpointAnchored, ledger: Path) -> tuple[bool, str]:
    note = event.note.encode()
    if event.receipt != sha256(note).hexdigest():
        return False, "the receipt is not the digest of the note"
    if not os.path.isabs(event.where) or lies_beside(event.where, ledger):
        return False, "the copy lies in the study's own folder"
    try:
        # The path comes from the ledger, and may name a pipe or a device.
        with open_regular(os.path.realpath(event.where)) as file:
            content = file.read(MAX_COPY_BYTES)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False, "the copy is not on this machine; fetch it and give it with --against"
    except OSError as error:
        return False, f"the copy cannot be read: {error.strerror}"
    return (True, "the copy holds the note") if note in content else (False, "it is not the note")


def _check_git(event: CheckpointAnchored, ledger: Path, git_clone: Path | None) -> tuple[bool, str]:
    import pygit2

    place = event.where
    if not os.path.isabs(place) or not Path(place).is_dir():
        if git_clone is None:
            return False, "the remote is not on this machine; clone it and give it with --git-clone"
        place = str(git_clone)
    if lies_beside(place, ledger):
        return False, "the remote lies in the study's own folder"
    try:
        repository = pygit2.Repository(place, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        commit = repository[event.receipt]
        if not isinstance(commit, pygit2.Commit):
            return False, "the receipt is not a commit"
        tips = [reference.peel(pygit2.Commit).id for reference in repository.references.iterator()]
        reachable = any(
            tip == commit.id or repository.descendant_of(tip, commit.id) for tip in tips
        )
        blob = commit.tree[ANCHOR_BLOB]
    except (KeyError, ValueError, pygit2.GitError) as error:
        return False, f"the commit cannot be read: {error}"
    if not isinstance(blob, pygit2.Blob) or blob.data != event.note.encode():
        return False, "the commit does not hold the note"
    if not reachable:
        return False, "no branch or tag of the remote holds the commit any more"
    return True, "the remote holds the commit with the note"


def _check_time(event: CheckpointAnchored, time_authority: Path | None) -> tuple[bool, str]:
    if time_authority is None:
        return False, "its token is checked with the authority's certificate: --time-authority"
    try:
        response = base64.b64decode(event.receipt, validate=True)
    except binascii.Error:
        return False, "the receipt is not base64"
    with tempfile.TemporaryDirectory() as folder:
        note_file, response_file = Path(folder, "note"), Path(folder, "response")
        note_file.write_bytes(event.note.encode())
        response_file.write_bytes(response)
        command = ["openssl", "ts", "-verify", "-data", str(note_file), "-in", str(response_file)]
        try:
            done = subprocess.run(
                [*command, "-CAfile", str(time_authority.absolute())],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIME_LIMIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return False, f"openssl cannot be run: {error}"
    if done.returncode != 0 or b"Verification: OK" not in done.stdout:
        return False, "the authority did not sign this note"
    return True, "the authority signed the note"


def lies_beside(where: str | Path, ledger: Path) -> bool:
    """An anchor that whoever changes the ledger changes with it is none: nothing in the study's
    folder, nor in the folder of an export, is one."""
    folder = ledger.resolve().parent
    root = folder.parent if folder.name == VAR_FOLDER else folder
    return Path(where).resolve().is_relative_to(root)
