"""Git trees read whole: every file of a tree with its bytes."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from actors.test_runs.git import Git
from ledger.errors import Unfinished


class WorkspaceError(Unfinished):
    """A workspace could not be made as asked. The message says what differs."""


class SnapshotFile(NamedTuple):
    """One entry of a tree. A symbolic link's content is its target, a submodule's is empty."""

    path: bytes
    mode: str
    blob: str
    content: bytes


def read_snapshot(git_dir: Path, tree: str) -> list[SnapshotFile]:
    """Every file of ``tree`` (a tree or commit id), sorted by the bytes of its path."""
    git = Git(git_dir)
    entries = []
    for line in git.run("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, kind, blob = about.decode("ascii").split()
            entries.append((path, mode, kind, blob))
    wanted = [blob for _, _, kind, blob in entries if kind == "blob"]
    contents = dict(zip(wanted, read_blobs(git, wanted), strict=True))
    return sorted(
        SnapshotFile(path, mode, blob, contents.get(blob, b"")) for path, mode, _, blob in entries
    )


def read_blobs(git: Git, ids: Sequence[str]) -> list[bytes]:
    answer = git.run("cat-file", "--batch", stdin="".join(f"{id}\n" for id in ids).encode())
    contents, at = [], 0
    for id in ids:
        end = answer.index(b"\n", at)
        header = answer[at:end].split()
        if len(header) != 3:
            raise WorkspaceError(f"{git.directory}: object {id} is missing")
        size = int(header[2])
        contents.append(answer[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return contents


def blob_id(content: bytes) -> str:
    """The git object id (SHA-1 format) of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def shown_path(path: bytes) -> str:
    """A path for messages and records: what is not UTF-8 becomes escapes."""
    return path.decode("utf-8", "backslashreplace")
