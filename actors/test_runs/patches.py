"""The candidate's patch: checked against the policy, made by us as bytes, applied by one method.

The candidate gives whole files (an overlay on the base tree). The diff is ours: binary, full index,
no renames. It is applied to a private index with a private object directory whose alternate is the
base store, so no candidate object ever reaches the store, and the resulting tree id must be the one
that the overlay gives. ``git apply`` can return 0 and do nothing; its exit status decides nothing.

Whatever a model can cause is a value of :class:`CandidatePatch`; exceptions mean that the machine
or the store is broken.
"""

import os
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.test_runs.git import Git, GitError
from actors.test_runs.git_trees import SnapshotFile, blob_id, read_snapshot
from actors.test_runs.overlays import folders_of, unsafe_reason
from harnesses.retrieval.snapshot import FileClass
from schemas.repair.overlay import Changes

ViolationKind = Literal[
    "empty",
    "too_large",
    "unsafe_path",
    "hidden_path",
    "test_path",
    "infrastructure_path",
    "dependency_path",
    "not_production",
    "symlink",
    "submodule",
    "mode_change",
    "case_collision",
    "file_and_folder",
]
_NO_TREE_HAS_IT = ("unsafe_path", "file_and_folder")


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One reason why the policy refuses a patch, with what was attempted."""

    kind: ViolationKind
    path: str
    """Empty where the whole patch is meant."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path!r}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class CandidatePatch:
    """A candidate's changes as a patch. It may be graded when ``paths`` is not empty, there are no
    ``violations`` and it ``applies``."""

    diff: bytes
    """Also of a patch that the policy refuses, for the record; empty where no tree can hold it."""
    tree: str
    """Tree id of base + patch; empty where there is none."""
    paths: tuple[str, ...]
    """What differs from the base, sorted; empty: an empty patch."""
    violations: tuple[Violation, ...]
    applies: bool
    problem: str
    """Why it does not apply; empty where it does."""


def make_patch(
    store: Path,
    base_tree: str,
    changes: Changes,
    *,
    classify: Callable[[str, bytes], FileClass],
    protected_paths: Collection[str],
    hidden_paths: Collection[str] = (),
    max_bytes: int,
    snapshot: Collection[SnapshotFile] | None = None,
) -> CandidatePatch:
    """Check an overlay against the policy, make its diff and prove that it gives the same tree.

    ``store`` is a base-only object store. ``classify(path, content)`` is the recipe's rule for any
    path; ``protected_paths`` are the test, infrastructure and dependency paths of base or gold,
    ``hidden_paths`` the files of the hidden patch. ``snapshot`` saves reading the base tree again.
    Raises GitError where the store is damaged.
    """
    if snapshot is None:
        snapshot = read_snapshot(store, base_tree)
    changes = without_unchanged(changes, snapshot)
    paths = tuple(sorted({*(file.path for file in changes.write), *changes.delete}))
    if not paths:
        return CandidatePatch(
            diff=b"", tree=base_tree, paths=(), violations=(), applies=True, problem=""
        )
    violations = check_policy(
        changes,
        snapshot,
        classify=classify,
        protected_paths=protected_paths,
        hidden_paths=hidden_paths,
    )
    if any(violation.kind in _NO_TREE_HAS_IT for violation in violations):
        return CandidatePatch(
            diff=b"", tree="", paths=paths, violations=violations, applies=False,
            problem="no tree can hold these paths",
        )  # fmt: skip
    diff, tree = diff_of(store, base_tree, changes)
    if len(diff) > max_bytes:
        detail = f"{len(diff)} bytes, allowed are {max_bytes}"
        violations = (*violations, Violation(kind="too_large", path="", detail=detail))
    applied, problem = apply_patch(store, base_tree, diff)
    if applied and applied != tree:
        problem = f"the patch gives tree {applied}, the edits give {tree}"
    return CandidatePatch(
        diff=diff,
        tree="" if problem else tree,
        paths=paths,
        violations=violations,
        applies=not problem,
        problem=problem,
    )


def without_unchanged(changes: Changes, snapshot: Collection[SnapshotFile]) -> Changes:
    """Drop writes of what is there already and deletions of what is not; sorted by path. A path
    that is both deleted and written counts as written, the last write of a path counts."""
    base = _by_path(snapshot)
    written = {file.path: file for file in changes.write}
    write = [
        file
        for path, file in sorted(written.items())
        if path not in base or (base[path].mode, base[path].content) != (file.mode, file.content)
    ]
    delete = sorted(path for path in set(changes.delete) if path in base and path not in written)
    return Changes(write=tuple(write), delete=tuple(delete))


def check_policy(
    changes: Changes,
    snapshot: Collection[SnapshotFile],
    *,
    classify: Callable[[str, bytes], FileClass],
    protected_paths: Collection[str],
    hidden_paths: Collection[str] = (),
) -> tuple[Violation, ...]:
    """Every violation, in the order of the paths; the patch's size is checked where it is made."""
    base = _by_path(snapshot)
    written = {file.path: file for file in changes.write}
    touched = sorted({*written, *changes.delete})
    result = (set(base) - set(changes.delete)) | set(written)
    folders = {folder for path in result for folder in folders_of(path)}
    folded: dict[str, set[str]] = {}
    for path in (*result, *folders):
        folded.setdefault(_folded(path), set()).add(path)
    found: list[Violation] = []
    hidden, protected = _Places(hidden_paths), _Places(protected_paths)

    def refuse(kind: ViolationKind, path: str, detail: str) -> None:
        found.append(Violation(kind=kind, path=path, detail=detail))

    if not touched:
        refuse("empty", "", "nothing differs from the base")
    for path in touched:
        if reason := unsafe_reason(path):
            refuse("unsafe_path", path, reason)
            continue
        file_class = classify(path, written[path].content if path in written else b"")
        if hidden.meets(path):
            refuse("hidden_path", path, "belongs to the held-out tests")
        elif file_class == "test":
            refuse("test_path", path, "test files are closed to edits")
        elif file_class == "dependency":
            refuse("dependency_path", path, "dependency files are closed to edits")
        elif file_class == "infrastructure" or protected.meets(path):
            refuse("infrastructure_path", path, "test infrastructure is closed to edits")
        elif file_class != "production":
            refuse("not_production", path, f"a file of class {file_class}")

        before = base[path].mode if path in base else ""
        after: str = written[path].mode if path in written else ""
        modes = f"mode {before or 'absent'} -> {after or 'absent'}"
        if "120000" in (before, after):
            refuse("symlink", path, modes)
        elif "160000" in (before, after):
            refuse("submodule", path, modes)
        elif after and after != (before or "100644"):
            refuse("mode_change", path, modes)
        if not after:
            continue
        for folder in folders_of(path):
            if folder in result:
                refuse("file_and_folder", path, f"{folder} is a file")
        if path in folders:
            refuse("file_and_folder", path, "is a folder with files in it")
        for place in (path, *folders_of(path)):
            if others := sorted(folded[_folded(place)] - {place}):
                refuse("case_collision", path, f"{place} and {others[0]} differ in case only")
    return tuple(found)


def diff_of(store: Path, base_tree: str, changes: Changes) -> tuple[bytes, str]:
    """The diff of ``changes`` against ``base_tree``, and the tree id that the changes give.

    Paths must have passed :func:`check_policy`. Raises GitError where the store is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="patch-") as private:
        git = _private_git(store, Path(private))
        git.run("read-tree", base_tree)
        lines = [f"0 {'0' * 40}\t{path}\0" for path in changes.delete]
        for file in changes.write:
            blob = git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=file.content)
            if blob != blob_id(file.content):
                raise GitError(f"git stored {file.path!r} as {blob}, not as its own bytes")
            lines.append(f"{file.mode} {blob}\t{file.path}\0")
        git.run("update-index", "-z", "--index-info", stdin="".join(lines).encode())
        tree = git.text("write-tree")
        diff = git.run(
            "-c", "diff.algorithm=myers", "-c", "diff.indentHeuristic=true",
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-textconv",
            "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", base_tree, tree,
        )  # fmt: skip
    return diff, tree


def apply_patch(store: Path, base_tree: str, patch: bytes) -> tuple[str, str]:
    """Apply a diff strictly (no fuzz, no rejects, all or nothing).

    Returns the id of the tree that it gives and an empty text, or an empty id and the problem.
    """
    with tempfile.TemporaryDirectory(prefix="apply-") as private:
        git = _private_git(store, Path(private))
        git.run("read-tree", base_tree)
        try:
            git.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        except GitError as error:
            return "", str(error)[-800:]
        tree = git.text("write-tree")
    return ("", "the patch changed nothing") if tree == base_tree else (tree, "")


def _private_git(store: Path, private: Path) -> Git:
    objects = private / "objects"
    (objects / "info").mkdir(parents=True)
    # A file, because the environment variable would split a path at its colons.
    (objects / "info" / "alternates").write_bytes(os.fsencode(store.absolute() / "objects") + b"\n")
    environment = {
        "GIT_DIR": str(store.absolute()),
        "GIT_INDEX_FILE": str(private / "index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
    }
    return Git(store, environment)


def _by_path(snapshot: Collection[SnapshotFile]) -> Mapping[str, SnapshotFile]:
    # A path that is not UTF-8 cannot be named by an overlay; the escape keeps it distinct.
    return {file.path.decode("utf-8", "surrogateescape"): file for file in snapshot}


class _Places:
    """Paths that are closed, with what lies above them as a file and whatever lies below them, in
    every spelling that some file system takes for the same."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = {_folded(path) for path in paths}
        self._folders = {folder for path in self._paths for folder in folders_of(path)}

    def meets(self, path: str) -> bool:
        path = _folded(path)
        return (
            path in self._paths
            or path in self._folders
            or any(folder in self._paths for folder in folders_of(path))
        )


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
