"""A cell's files: the base snapshot and an overlay of bytes, changed through tools only.

Nothing here touches a disk; what an arm may write is decided here and in one place. A path that an
arm names is text from a model: it is checked before it is looked up.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple

from harnesses.retrieval.snapshot import (
    FileClass,
    Snapshot,
    SnapshotFile,
    display_path,
    path_bytes,
    snapshot_file,
)

MAX_FILE_BYTES = 1_000_000
MAX_OVERLAY_BYTES = 4_000_000
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1_024

PROTECTED_CLASSES = ("test", "infrastructure", "dependency")

_DRIVE = re.compile(r"^[A-Za-z]:([\\/]|$)")

Refusal = Literal[
    "invalid_path",  # empty, NUL or control character, not UTF-8, a name that is too long
    "outside_tree",  # absolute, drive letter, backslash, `..`
    "git_directory",
    "symlink",  # a symlink or submodule, or a path below one
    "protected_path",  # tests, test infrastructure, dependency files
    "not_production",  # any other file that is not production code
    "too_large",
]
"""Kinds of attempt against the patch policy. The attempt has no effect; the engine records it."""


class ToolError(Exception):
    """What was asked for cannot be done. The message goes to the model and says what to do."""


class Refused(ToolError):
    """An attempt against the patch policy; it has no effect and is recorded by its kind."""

    def __init__(self, kind: Refusal, message: str) -> None:
        super().__init__(message)
        self.kind: Refusal = kind


class Window(NamedTuple):
    """A file that is open, and the first line that its window shows."""

    path: str
    first: int


class Workspace:
    """Base files plus the cell's edits.

    ``classify(path, content)`` names the class of a file that does not exist at the base (the
    recipe's rules); ``protected_paths`` are closed to edits whatever their class.
    """

    def __init__(
        self,
        base: Snapshot,
        *,
        protected_paths: frozenset[str],
        classify: Callable[[str, bytes], FileClass],
        index: object = None,
    ) -> None:
        self.base = base
        self.index = index
        """What retrieval tools look things up in (a ``CommitIndex`` of the base); None where the
        arm needs none. Only they know its type, so that no other arm depends on it."""
        self.window: Window | None = None
        """What an arm with a window has open."""
        self._protected_paths = protected_paths
        self._classify = classify
        self._overlay: dict[str, SnapshotFile | None] = {}
        """What the cell has written; None: deleted."""
        self._files = base.files
        # Names that cannot be typed as they are: found by the form in which results show them.
        self._by_display = {
            display_path(path): path for path in base.by_path if not path.isprintable()
        }
        self._directories = {path[:end] for path in base.by_path for end in _slashes(path)}
        self._folded = {_fold(path): path for path in (*base.by_path, *self._directories)}

    @property
    def files(self) -> tuple[SnapshotFile, ...]:
        """All files as they are now, sorted by path bytes."""
        return self._files

    def changes(self) -> tuple[SnapshotFile, ...]:
        """The files whose bytes differ from the base, sorted by path bytes: the patch."""
        return tuple(
            file
            for file in self._files
            if file.path in self._overlay
            and (
                file.path not in self.base.by_path
                or self.base.by_path[file.path].content != file.content
            )
        )

    def deletions(self) -> tuple[str, ...]:
        """Paths of the base that the cell has deleted, sorted."""
        gone = (path for path, file in self._overlay.items() if file is None)
        return tuple(sorted(path for path in gone if path in self.base.by_path))

    def is_changed(self, tree_path: str) -> bool:
        """Whether the cell has written or deleted the file."""
        return tree_path in self._overlay

    def resolve(self, path: str) -> str:
        """The tree path that ``path`` names; ``""`` is the root. It need not exist.

        Raises :class:`Refused` for what leaves the tree, and for what goes through a link.
        """
        if "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
            raise Refused("invalid_path", "the path holds a NUL or is not valid Unicode text")
        if path.startswith("/") or _DRIVE.match(path):
            raise Refused(
                "outside_tree",
                f"{short_path(path)} is absolute; write it from the root of the repository, "
                "for example src/module.py",
            )
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise Refused("outside_tree", f"{short_path(path)}: `..` is not allowed")
        if any(_names_git_directory(part) for part in parts):
            raise Refused("git_directory", f"{short_path(path)}: .git is closed")
        tree_path = "/".join(parts)
        tree_path = self._by_display.get(tree_path, tree_path)
        for end in (*_slashes(tree_path), len(tree_path)):
            file = self.get(tree_path[:end])
            if file is not None and file.is_link:
                raise Refused(
                    "symlink",
                    f"{display_path(file.path)} is a link or submodule; links are not followed",
                )
        return tree_path

    def get(self, tree_path: str) -> SnapshotFile | None:
        if tree_path in self._overlay:
            return self._overlay[tree_path]
        return self.base.by_path.get(tree_path)

    def is_directory(self, tree_path: str) -> bool:
        return tree_path == "" or tree_path in self._directories

    def file(self, path: str) -> SnapshotFile:
        """The file that ``path`` names. Raises :class:`ToolError` with files of that name."""
        tree_path = self.resolve(path)
        found = self.get(tree_path)
        if found is not None:
            return found
        if self.is_directory(tree_path):
            raise ToolError(f"{short_path(path) or 'the root'} is a directory; use list_files")
        raise ToolError(f"there is no file {short_path(path)}{self.same_name(tree_path)}")

    def same_name(self, tree_path: str) -> str:
        """`; files of that name: …` (at most five), or nothing."""
        name = tree_path.rpartition("/")[2]
        same = [
            display_path(file.path)
            for file in self._files
            if name and file.path.rpartition("/")[2] == name
        ]
        return f"; files of that name: {', '.join(same[:5])}" if same else ""

    def write(self, file: SnapshotFile, content: bytes) -> SnapshotFile:
        """Give an existing file other bytes. Raises :class:`Refused`; then nothing has changed."""
        self._check_editable(file.path, file.file_class)
        return self._put(snapshot_file(file.path, file.mode, content, file.file_class))

    def create(self, path: str, content: bytes) -> SnapshotFile:
        """Add a file. Raises :class:`ToolError` or :class:`Refused`; then nothing has changed."""
        tree_path = self.resolve(path)
        if self.get(tree_path) is not None:
            raise ToolError(f"{display_path(tree_path)} exists; change it with edit_file")
        if self.is_directory(tree_path):
            raise ToolError(f"{short_path(path) or 'the root'} is a directory")
        for end in _slashes(tree_path):
            if self.get(tree_path[:end]) is not None:
                raise ToolError(f"{display_path(tree_path[:end])} is a file, not a directory")
        self._check_new_name(tree_path)
        self._check_case(tree_path)
        self._check_editable(tree_path, self._classify(tree_path, content))
        created = snapshot_file(tree_path, "100644", content, self._classify(tree_path, content))
        return self._put(created)

    def delete(self, file: SnapshotFile) -> None:
        """Remove an existing file. Raises :class:`Refused`; then nothing has changed."""
        self._check_editable(file.path, file.file_class)
        self._overlay[file.path] = None
        self._folded.pop(_fold(file.path), None)
        self._files = tuple(one for one in self._files if one.path != file.path)

    def _put(self, file: SnapshotFile) -> SnapshotFile:
        others = sum(
            len(one.content)
            for path, one in self._overlay.items()
            if one is not None and path != file.path
        )
        if len(file.content) > MAX_FILE_BYTES or others + len(file.content) > MAX_OVERLAY_BYTES:
            raise Refused(
                "too_large",
                f"{display_path(file.path)} would have {len(file.content)} bytes; a changed file "
                f"may have {MAX_FILE_BYTES}, all changed files together {MAX_OVERLAY_BYTES}",
            )
        self._overlay[file.path] = file
        above = [file.path[:end] for end in _slashes(file.path)]
        self._directories.update(above)
        self._folded |= {_fold(path): path for path in (*above, file.path)}
        merged = {**self.base.by_path, **self._overlay}
        present = (one for one in merged.values() if one is not None)
        self._files = tuple(sorted(present, key=lambda one: path_bytes(one.path)))
        return file

    def _check_editable(self, tree_path: str, file_class: FileClass) -> None:
        if tree_path in self._protected_paths or file_class in PROTECTED_CLASSES:
            raise Refused(
                "protected_path",
                f"{display_path(tree_path)} is closed: tests, test infrastructure and dependency "
                "files must stay as they are; change production code only",
            )
        if file_class != "production":
            raise Refused(
                "not_production",
                f"{display_path(tree_path)} is closed: it is not production code ({file_class}); "
                "change production code only",
            )

    def _check_case(self, tree_path: str) -> None:
        """Two paths that a case-insensitive file system takes for one would be one file there."""
        for end in (*_slashes(tree_path), len(tree_path)):
            part = tree_path[:end]
            existing = self._folded.get(_fold(part))
            if existing is not None and part not in self._directories:
                raise ToolError(
                    f"{display_path(tree_path)} differs from {display_path(existing)} only in how "
                    "letters are written; use the existing spelling or another name"
                )

    def _check_new_name(self, tree_path: str) -> None:
        parts = tree_path.split("/")
        if "\\" in tree_path or not tree_path.isprintable():
            why = "holds a backslash or a character that cannot be printed"
        elif len(tree_path.encode()) > MAX_PATH_BYTES:
            why = f"is longer than {MAX_PATH_BYTES} bytes"
        elif any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
            why = f"has a part longer than {MAX_NAME_BYTES} bytes"
        else:
            return
        raise Refused("invalid_path", f"the path {why}")


def _slashes(path: str) -> list[int]:
    """Ends of the directories above ``path``: ``a/b/c`` gives 1 and 3."""
    return [index for index, char in enumerate(path) if char == "/"]


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _names_git_directory(part: str) -> bool:
    """`.git` in every spelling that some file system takes for it (git's own rule, CVE-2014-9390:
    case, trailing dots and spaces, the short name, ignorable characters, NTFS streams)."""
    plain = "".join(char for char in part if char.isprintable()).casefold()
    return plain.partition(":")[0].rstrip(". ") in (".git", "git~1")


def short_path(path: str) -> str:
    """A path from a model, for a message: printable and of bounded length."""
    shown = display_path(path[:200])
    return f"{shown}…" if len(path) > 200 else shown
