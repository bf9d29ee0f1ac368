"""A folder of instruction files: a tree with one file at the top and one a project.

The layout that coding assistants read: ``CLAUDE.md`` (or ``AGENTS.md``) at the top of a tree and in
folders below it. A session works in its project's folder, and every file from the top down to there
is loaded whole. So a project's rules stay in the project; principal, task class, validity and
supersession are nobody's concern here.

A file is sections under ``## `` headings, one for each thing that was written down; what is loaded
is recorded section by section. Which of it a model heeds cannot be seen: *admitted* is not shown.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from actors.memory_systems.contract import (
    DIGEST,
    Acknowledgement,
    Delivery,
    Manifest,
    Opening,
    Snapshot,
    layer_digest,
)
from actors.memory_systems.store import source_digest
from harnesses.memory.contract import StoredItem
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import ANY, Session
from schemas.transfer.rendering import read_record, render_note
from schemas.transfer.study import Memory

MAX_FOLDER_NAME = 200
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_SECTION = re.compile(r"^## (\d+)\n", re.MULTILINE)


def folder_name(project: str, layout: str) -> str:
    """The folder of a project: no two projects share one, none is a path, hidden, or named like the
    file at the top. Characters other than letters, digits and ``._-`` are ``%XX`` of their UTF-8 as
    in RFC 3986; a name that is too long ends in ``%%`` and its SHA-256."""
    name = "".join(
        chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}"
        for byte in project.encode("utf-8", "surrogatepass")
    )
    if name.startswith(".") or name == layout:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > MAX_FOLDER_NAME:
        name = f"{name[:100]}%%{sha256(name.encode()).hexdigest()}"
    return name or "%"


class FolderMemory:
    """Loads the files of the session's project; writes to them by appending sections."""

    def __init__(self, memory: Memory, opening: Opening) -> None:
        self._memory = memory
        self._tree = opening.folders.store / "tree"
        self._copies = opening.folders.store / "snapshots"
        self._tree.mkdir(exist_ok=True)
        self._copies.mkdir(exist_ok=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trace="retrieval",
            plan="before_action",
            store="readable",
            clock="none",
            write_path=True,
            deterministic=True,
        )

    def manifest(self) -> Manifest:
        layout = self._memory.layout
        return Manifest(
            kind="folder",
            id=self._memory.id,
            settings={"layout": layout, "query": "all loaded files"},
            sources={"folder.py": source_digest("actors", "memory_systems/folder.py")},
            layers={
                "representation": layer_digest(
                    "sections", layout, source_digest("schemas", "transfer/rendering.py")
                ),
                "indexing": layer_digest("a folder a project"),
                "query": layer_digest("all loaded files"),
                "relevance_filter": layer_digest("none"),
                "conflict_policy": layer_digest("none"),
            },
        )

    def snapshot(self) -> Snapshot:
        digest = self._tree_digest()
        copy = self._copies / digest
        if not copy.exists():
            shutil.copytree(self._tree, copy)
        items = tuple(item for path in self._files() for item in self._sections(path))
        return Snapshot(digest, "captured", items, whole=True)

    def restore(self, digest: str) -> None:
        copy = self._copies / digest
        if not re.fullmatch(DIGEST, digest) or not copy.is_dir():
            raise LookupError(f"no snapshot {digest} of this tree was taken")
        shutil.rmtree(self._tree)
        shutil.copytree(copy, self._tree)

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        ids: dict[str, tuple[str, ...]] = {}
        for key, text in texts.items():
            record = read_record(text)
            project = record.scope.project if record is not None else ANY
            ids[key] = (self._write(project, text),)
        return ids

    def recall(self, query: str, session: Session) -> Delivery:
        loaded = [self._file(ANY), self._file(session.project)]
        items = tuple(item for path in loaded for item in self._sections(path))
        return Delivery("all loaded files", items, None)

    def remember(self, text: str, session: Session) -> Acknowledgement:
        where = self._write(session.project, render_note(text, session))
        return Acknowledgement(True, f"written to {where}")

    def close(self) -> None:
        pass  # no process, and every write is on disk when it returns

    def _file(self, project: str) -> Path:
        """The file of a project; the top one for what holds everywhere. A project's name is text
        that somebody wrote, so it is no path until its unusual characters are escaped."""
        if project == ANY:
            return self._tree / self._memory.layout
        return self._tree / folder_name(project, self._memory.layout) / self._memory.layout

    def _write(self, project: str, text: str) -> str:
        path = self._file(project)
        path.parent.mkdir(exist_ok=True)
        number = len(list(self._sections(path)))
        with path.open("a", encoding="utf-8") as file:
            file.write(f"## {number}\n{text}\n\n")
        return f"{path.relative_to(self._tree).as_posix()}#{number}"

    def _files(self) -> list[Path]:
        return sorted(path for path in self._tree.rglob(self._memory.layout) if path.is_file())

    def _sections(self, path: Path) -> Iterator[StoredItem]:
        if not path.is_file():
            return
        name = path.relative_to(self._tree).as_posix()
        pieces = _SECTION.split(path.read_text("utf-8"))
        for number, text in zip(pieces[1::2], pieces[2::2], strict=True):
            yield StoredItem(f"{name}#{number}", text.strip())

    def _tree_digest(self) -> str:
        """SHA-256 over lines ``<digest>  <path>``, sorted by path."""
        lines = [
            f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(self._tree).as_posix()}\n"
            for path in self._files()
        ]
        return sha256("".join(lines).encode()).hexdigest()
