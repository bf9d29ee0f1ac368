"""The candidate's patch: checked against the policy, made by us as bytes, applied by one method.

The candidate gives whole files (an overlay on the base tree). The diff is ours: binary, full index,
no renames. It is applied to a private index with a private object directory whose alternate is the
base store, so no candidate object ever reaches the store, and the resulting tree id must be the one
that the overlay gives. ``git apply`` can return 0 and do nothing; its exit status decides nothing.

Whatever a model can cause is a value here (:class:`Rejected`, :class:`Violation`,
:class:`ApplyFailed`); exceptions mean that the machine or the store is broken.
"""

import tempfile
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.git import Git, GitError
from actors.workspaces import FileChanges, SnapshotFile, blob_id, unsafe_reason

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
PathClass = Literal["production", "test", "infrastructure", "dependency", "other"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One reason why the policy refuses a patch, with what was attempted."""

    kind: ViolationKind
    path: str
    """Empty where the whole patch is meant."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class PatchPolicy:
    """What a candidate may touch (``execution.md``, patch policy)."""

    classify: Callable[[str], PathClass]
    """Class of any path, also of one that the base does not have: the recipe's rules."""
    protected_paths: Collection[str]
    """Every test, infrastructure and dependency path of base or gold."""
    hidden_paths: Collection[str]
    """Files of the hidden patch."""
    max_patch_bytes: int


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A patch that the policy allows and that applies."""

    changes: FileChanges
    """Without what does not differ from the base."""
    patch: bytes
    tree: str
    """Tree id of base + patch."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """The terminal classes ``empty_patch`` and ``policy_rejected``."""

    violations: tuple[Violation, ...]
    patch: bytes
    """What was attempted, for the record; empty where a path cannot be in a tree."""

    @property
    def empty(self) -> bool:
        return all(violation.kind == "empty" for violation in self.violations)


@dataclass(frozen=True, kw_only=True)
class ApplyFailed:
    """The terminal class ``apply_failed``."""

    reason: str
    patch: bytes


def prepare_candidate(
    store: Path,
    base_tree: str,
    snapshot: Collection[SnapshotFile],
    changes: FileChanges,
    policy: PatchPolicy,
    scratch: Path,
) -> Candidate | Rejected | ApplyFailed:
    """From an overlay to a patch that is proven to give the overlay's tree.

    ``store`` is a base-only object store, ``snapshot`` its ``base_tree``, ``scratch`` an existing
    folder for the private index and objects.
    """
    changes = without_unchanged(changes, snapshot)
    violations = list(check_policy(changes, snapshot, policy))
    structural = {"empty", "unsafe_path", "file_and_folder"}
    if any(violation.kind in structural for violation in violations):
        return Rejected(violations=tuple(violations), patch=b"")
    patch, tree = make_patch(store, base_tree, changes, scratch)
    if len(patch) > policy.max_patch_bytes:
        detail = f"{len(patch)} bytes, allowed are {policy.max_patch_bytes}"
        violations.append(Violation(kind="too_large", path="", detail=detail))
    if violations:
        return Rejected(violations=tuple(violations), patch=patch)
    applied = apply_patch(store, base_tree, patch, scratch)
    if isinstance(applied, ApplyFailed):
        return applied
    if applied != tree:
        reason = f"the patch gives tree {applied}, the edits give {tree}"
        return ApplyFailed(reason=reason, patch=patch)
    return Candidate(changes=changes, patch=patch, tree=tree)


def without_unchanged(changes: FileChanges, snapshot: Collection[SnapshotFile]) -> FileChanges:
    """Drop writes of what is there already and deletions of what is not."""
    base = _by_path(snapshot)
    write = {
        path: (mode, content)
        for path, (mode, content) in sorted(changes.write.items())
        if path not in base or (base[path].mode, base[path].content) != (mode, content)
    }
    kept = set(changes.write)
    delete = sorted(path for path in set(changes.delete) if path in base and path not in kept)
    return FileChanges(write=write, delete=tuple(delete))


def check_policy(
    changes: FileChanges, snapshot: Collection[SnapshotFile], policy: PatchPolicy
) -> tuple[Violation, ...]:
    """Every violation, in the order of the paths; the patch's size is checked where it is made."""
    base = _by_path(snapshot)
    found: list[Violation] = []

    def refuse(kind: ViolationKind, path: str, detail: str) -> None:
        found.append(Violation(kind=kind, path=path, detail=detail))

    touched = sorted({*changes.write, *changes.delete})
    if not touched:
        refuse("empty", "", "nothing differs from the base")
    result = (set(base) - set(changes.delete)) | set(changes.write)
    folders = {folder for path in result for folder in _folders(path)}
    folded: dict[str, set[str]] = {}
    for path in (*result, *folders):
        folded.setdefault(_folded(path), set()).add(path)

    for path in touched:
        if reason := unsafe_reason(path):
            refuse("unsafe_path", path, reason)
            continue
        mode = changes.write[path][0] if path in changes.write else ""
        before = base[path].mode if path in base else ""
        path_class = policy.classify(path)
        if path in policy.hidden_paths:
            refuse("hidden_path", path, "belongs to the held-out tests")
        elif path_class == "test":
            refuse("test_path", path, "test files are closed to edits")
        elif path_class == "dependency":
            refuse("dependency_path", path, "dependency files are closed to edits")
        elif path_class == "infrastructure" or path in policy.protected_paths:
            refuse("infrastructure_path", path, "test infrastructure is closed to edits")
        elif path_class != "production":
            refuse("not_production", path, "only production files may change")
        if mode == "120000" or before == "120000":
            refuse("symlink", path, f"mode {before or 'absent'} -> {mode or 'absent'}")
        elif mode == "160000" or before == "160000":
            refuse("submodule", path, f"mode {before or 'absent'} -> {mode or 'absent'}")
        elif mode and mode not in ("100644", before):
            # A file of our own is not executable; an existing one keeps what it is.
            refuse("mode_change", path, f"mode {before or 'absent'} -> {mode}")
        elif mode and before and mode != before:
            refuse("mode_change", path, f"mode {before} -> {mode}")
        if mode:
            for folder in _folders(path):
                if folder in result:
                    refuse("file_and_folder", path, f"{folder} is a file")
            if path in folders:
                refuse("file_and_folder", path, "is a folder with files in it")
            for place in (path, *_folders(path)):
                others = sorted(folded[_folded(place)] - {place})
                if others:
                    refuse("case_collision", path, f"{place} and {others[0]} differ in case only")
    return tuple(found)


def make_patch(
    store: Path, base_tree: str, changes: FileChanges, scratch: Path
) -> tuple[bytes, str]:
    """The diff of ``changes`` against ``base_tree``, and the tree id that the changes give.

    Paths must have passed :func:`check_policy`. Raises GitError where the store is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="patch-", dir=scratch) as private:
        git = _private_git(store, Path(private))
        git.run("read-tree", base_tree)
        lines = [b"0 %s\t%s" % (b"0" * 40, path.encode()) for path in changes.delete]
        for path, (mode, content) in sorted(changes.write.items()):
            blob = git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=content)
            if blob != blob_id(content):
                raise GitError(f"git stored {path!r} as {blob}, not as its own bytes")
            lines.append(b"%s %s\t%s" % (mode.encode(), blob.encode(), path.encode()))
        git.run("update-index", "-z", "--index-info", stdin=b"".join(b"%s\0" % x for x in lines))
        tree = git.text("write-tree")
        patch = git.run(
            "-c", "diff.algorithm=myers", "-c", "diff.indentHeuristic=true",
            "-c", "core.quotePath=true",
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-textconv",
            "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", base_tree, tree,
        )  # fmt: skip
    return patch, tree


def apply_patch(store: Path, base_tree: str, patch: bytes, scratch: Path) -> str | ApplyFailed:
    """Apply a diff strictly (no fuzz, no rejects, all or nothing); the id of the tree it gives."""
    with tempfile.TemporaryDirectory(prefix="apply-", dir=scratch) as private:
        git = _private_git(store, Path(private))
        git.run("read-tree", base_tree)
        try:
            git.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        except GitError as error:
            return ApplyFailed(reason=str(error)[-800:], patch=patch)
        tree = git.text("write-tree")
    if tree == base_tree:
        return ApplyFailed(reason="the patch changed nothing", patch=patch)
    return tree


def _private_git(store: Path, private: Path) -> Git:
    objects = private / "objects"
    objects.mkdir()
    return Git(
        store,
        {
            "GIT_DIR": str(store),
            "GIT_INDEX_FILE": str(private / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(store / "objects"),
        },
    )


def _by_path(snapshot: Collection[SnapshotFile]) -> Mapping[str, SnapshotFile]:
    # A path that is not UTF-8 cannot be named by an overlay; the escape keeps it distinct.
    return {file.path.decode("utf-8", "surrogateescape"): file for file in snapshot}


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
