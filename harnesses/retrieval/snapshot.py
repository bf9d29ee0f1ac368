"""A tree of files as the arms see it: immutable, sorted, handed in, never read from a disk.

A path is text in which bytes that are not UTF-8 stand as surrogate escapes (PEP 383), so that it
maps one to one to git's bytes; :func:`display_path` makes the form that may go into a prompt.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

FileClass = Literal[
    "production", "test", "infrastructure", "docs", "config", "dependency", "other", "generated"
]
"""What a file is for, in the order in which results show them. The miner decides it by recipe."""

FILE_CLASSES: tuple[FileClass, ...] = get_args(FileClass)

FileMode = Literal["100644", "100755", "120000", "160000"]

Encoding = Literal["utf-8", "utf-8 with BOM", "utf-16 with BOM", "not valid utf-8"]

MAX_INDEXED_BYTES = 1_000_000
MAX_MEAN_LINE = 500


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One entry of a tree. Build it with :func:`snapshot_file`, which fills in what follows from
    the bytes."""

    path: str
    mode: FileMode
    content: bytes
    """The blob; the target of a symlink; empty for a submodule."""
    file_class: FileClass
    text: bytes | None
    """What is searched and shown: UTF-8 as far as the file is, without BOM, lines ended by ``\\n``
    alone. None for what is not text: binary files, symlinks, submodules."""
    encoding: Encoding
    too_large: bool
    """More than 1 MB: exact search only."""
    long_lines: bool
    """Mean line of more than 500 characters (minified, data): exact search only."""

    @property
    def is_link(self) -> bool:
        """A symlink or submodule: never followed, searched or edited."""
        return self.mode in ("120000", "160000")


def snapshot_file(path: str, mode: FileMode, content: bytes, file_class: FileClass) -> SnapshotFile:
    """Describe one file.

    A NUL anywhere means binary. UTF-16 is recognised only by its BOM and decoded; invalid UTF-8
    stays as bytes. A line ends at ``\\n`` only; one ``\\r`` before it is not part of the line.
    """
    text: bytes | None = None
    encoding: Encoding = "utf-8"
    characters = 0
    if mode not in ("120000", "160000"):
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            encoding = "utf-16 with BOM"
            try:
                text = content.decode("utf-16").encode("utf-8")
            except UnicodeDecodeError:
                text = None
        elif content.startswith(b"\xef\xbb\xbf"):
            encoding = "utf-8 with BOM"
            text = content[3:]
        else:
            text = content
        if text is not None and b"\0" in text:
            text = None
    if text is not None:
        try:
            characters = len(text.decode("utf-8"))
        except UnicodeDecodeError:
            encoding = "not valid utf-8"
            characters = len(text)
        if b"\r\n" in text:
            text = text.replace(b"\r\n", b"\n")
    lines = count_lines(text or b"")
    return SnapshotFile(
        path=path,
        mode=mode,
        content=content,
        file_class=file_class,
        text=text,
        encoding=encoding,
        too_large=len(content) > MAX_INDEXED_BYTES,
        long_lines=characters > MAX_MEAN_LINE * max(lines, 1),
    )


def count_lines(text: bytes) -> int:
    """Lines of ``text``; what stands after the last ``\\n`` is a line unless it is empty."""
    return text.count(b"\n") + (not text.endswith(b"\n") and text != b"")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All files of one tree, sorted by path bytes. Build it with :func:`snapshot`."""

    files: tuple[SnapshotFile, ...]
    by_path: Mapping[str, SnapshotFile]


def snapshot(files: Iterable[SnapshotFile]) -> Snapshot:
    """Sort ``files`` by path bytes; the order in which they come does not matter.

    Raises ValueError where a tree could not be so: the same path twice.
    """
    ordered = tuple(sorted(files, key=lambda file: path_bytes(file.path)))
    by_path = {file.path: file for file in ordered}
    if len(by_path) != len(ordered):
        twice = next(
            after.path
            for before, after in zip(ordered, ordered[1:], strict=False)
            if before.path == after.path
        )
        raise ValueError(f"duplicate path {display_path(twice)!r} in the tree")
    return Snapshot(files=ordered, by_path=MappingProxyType(by_path))


def path_bytes(path: str) -> bytes:
    """The path as git stores it; the sort key of everything that is ordered by path."""
    return path.encode("utf-8", "surrogateescape")


def display_path(path: str) -> str:
    """The path as text for a prompt: valid UTF-8 on one line.

    Other bytes and control or format characters (newline, bidirectional overrides) become
    ``\\xNN`` or ``\\uNNNN``; every other path is its own display form.
    """
    text = path_bytes(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if unicodedata.category(char).startswith(("C", "Zl", "Zp"))
        else char
        for char in text
    )
