"""The two halves of a change: the gold production patch and the hidden test patch.

A half is the difference between the base tree and the base tree with that half's files of the gold
tree. It is written as a diff (for the audit) and as full files with a delete list (what is laid
over a workspace). Whether a diff applies is decided by the id of the tree it produces: `git apply`
exits with 0 while applying nothing when it finds itself inside another repository.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from actors.mining.history import IsolatedRepository
from actors.mining.trees import Entry, TreeStore
from actors.test_runs.git import Git, GitError
from schemas.repair.overlay import Changes, WrittenFile

# Everything that user, system or repository configuration could change is pinned.
_DIFF = (
    "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--diff-algorithm=myers",
    "--no-indent-heuristic",
)  # fmt: skip


def full_files(trees: TreeStore, updates: Mapping[str, Entry | None]) -> Changes:
    """The bytes of ``updates`` (path → state in the gold tree; None: deleted), sorted by path."""
    write = [
        {"path": path, "mode": entry.mode, "content": trees.blob(entry.oid)}
        for path, entry in sorted(updates.items())
        if entry is not None
    ]
    delete = tuple(path for path, entry in sorted(updates.items()) if entry is None)
    return Changes(
        write=msgspec.convert(write, tuple[WrittenFile, ...], builtin_types=(bytes,)),
        delete=delete,
    )


@dataclass(frozen=True)
class LineCount:
    """One entry of a diff with rename detection; a pure rename has no lines."""

    old_path: str
    new_path: str
    lines: int
    """Added + deleted; 0 for a binary file."""


def count_lines(room: IsolatedRepository, base_tree: str, gold_tree: str) -> tuple[LineCount, ...]:
    """Files and lines of a change, renames found at 50 % similarity."""
    output = room.git.run(
        "diff-tree", *_DIFF, "-M50%", "-l2000", "--numstat", "-z", base_tree, gold_tree
    ).decode("utf-8", "surrogateescape")
    fields = iter(output.split("\0"))
    counted = []
    for field in fields:
        if not field:
            continue
        added, deleted, path = field.split("\t", 2)
        # A rename has an empty path here and its two paths in the next two fields.
        old_path, new_path = (path, path) if path else (next(fields), next(fields))
        lines = 0 if added == "-" else int(added) + int(deleted)
        counted.append(LineCount(old_path, new_path, lines))
    return tuple(counted)


def make_patch(room: IsolatedRepository, before: str, after: str) -> bytes:
    """The diff between two trees: bytes, binary, full index, no renames."""
    return room.git.run(
        "diff-tree", *_DIFF, "-p", "--binary", "--full-index", "--no-renames", "-U3",
        "--src-prefix=a/", "--dst-prefix=b/", before, after,
    )  # fmt: skip


def patch_identity(patch: bytes) -> str:
    """Identity of a patch whatever its line numbers and white space, as ``git patch-id --stable``
    sees it (which differs between versions of git for binary files): equal for a cherry-pick."""
    files = re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)
    digests = []
    for file in files:
        kept = [
            re.sub(rb"\s+", b"", line)
            for line in file.split(b"\n")
            if not line.startswith((b"@@ ", b"index "))
        ]
        digests.append(hashlib.sha256(b"\n".join(kept)).digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def application_fault(
    room: IsolatedRepository,
    base_tree: str,
    gold_patch: bytes,
    hidden_patch: bytes,
    expected: tuple[str, str, str],
) -> str:
    """Why the halves do not apply at the base; empty where they do.

    ``expected`` are the ids of the base tree with the gold half, with the hidden half, and with
    both: each patch alone and both in turn must produce exactly these trees.
    """
    index = room.directory / "mining-index"
    saved = room.directory / "mining-index-base"
    git = Git(room.directory, {"GIT_INDEX_FILE": str(index)})
    gold_tree, hidden_tree, both_tree = expected

    def apply(patch: bytes) -> str:
        git.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        return git.text("write-tree")

    # git's own words name the private folder and differ between versions: the audit keeps the step.
    step = "the base tree into an index"
    try:
        git.run("read-tree", base_tree)
        shutil.copyfile(index, saved)
        step = "the gold patch"
        if apply(gold_patch) != gold_tree:
            return "the gold patch gives another tree"
        step = "the hidden patch after the gold patch"
        if apply(hidden_patch) != both_tree:
            return "the hidden patch gives another tree after the gold patch"
        shutil.copyfile(saved, index)
        step = "the hidden patch"
        if apply(hidden_patch) != hidden_tree:
            return "the hidden patch gives another tree"
    except GitError:
        return f"git refuses {step}"
    return ""
