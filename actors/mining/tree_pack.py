"""Base trees as one pack: all that cells and test runs ever get of a repository's objects."""

from collections.abc import Iterable
from pathlib import Path

from actors.mining.borrowed_objects import borrowed_objects
from actors.test_runs.git import Git, GitError
from ledger.errors import Usage


def pack_trees(repository_path: Path, tree_ids: Iterable[str]) -> bytes:
    """A git pack of exactly the objects of these trees (trees and blobs; no commit, no history).

    Deltas are made anew with fixed window, depth and one thread, so the bytes do not depend on how
    the repository is packed; across versions of git and zlib only the objects are the same. Raises
    Usage where the repository cannot be read or an object is
    missing.
    """
    with borrowed_objects(repository_path) as directory:
        git = Git(directory)
        trees = sorted(set(tree_ids))
        try:
            listed = git.run(
                "rev-list", "--objects", "--no-object-names", "--stdin",
                stdin="".join(f"{tree}\n" for tree in trees).encode(),
            )  # fmt: skip
            objects = sorted(set(listed.split()) | {tree.encode() for tree in trees})
            return git.run(
                "-c", "core.compression=6", "-c", "pack.compression=6",
                "-c", "core.bigFileThreshold=512m",
                "pack-objects", "--stdout", "--quiet", "--threads=1", "--window=10", "--depth=50",
                "--window-memory=0", "--no-reuse-delta", "--no-reuse-object", "--delta-base-offset",
                stdin=b"".join(oid + b"\n" for oid in objects),
            )  # fmt: skip
        except GitError as error:
            raise Usage(f"{repository_path}: base trees cannot be packed: {error}") from None
