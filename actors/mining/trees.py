"""Git trees and blobs, read as raw objects.

Trees of untrusted repositories may hold anything: names that are not UTF-8, the same name twice,
a ``.git`` folder, ten levels of ten equal subtrees. Raw objects are therefore parsed here, counted
before they are expanded, and never checked out. Names are surrogate-escaped text (PEP 383).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import pygit2

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_PATHS = 300_000
"""A tree with more paths is not read; the largest public monorepos mined so far have 100,000."""
MAX_DEPTH = 100

TREE_MODE, _LINK = "40000", "160000"


class UnreadableObject(Exception):
    """An object is absent, damaged, malformed or larger than the work limit."""


class Entry(NamedTuple):
    mode: str
    """As git writes it: 100644, 100755, 120000 (symlink), 160000 (submodule), 40000 (tree)."""
    oid: str


TreeChanges = dict[str, tuple[Entry | None, Entry | None]]
"""Path → state before and after; None where the path does not exist."""


class TreeStore:
    """Reads trees and blobs of one repository and writes trees into it."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._repository = repository
        self._objects = repository.odb
        self._cache: OrderedDict[str, dict[str, Entry]] = OrderedDict()
        self._paths: dict[str, int] = {}

    def entries(self, tree: str) -> dict[str, Entry]:
        """The entries of one tree object by name. Raises :class:`UnreadableObject`."""
        if tree in self._cache:
            self._cache.move_to_end(tree)
            return self._cache[tree]
        entries = {} if tree == EMPTY_TREE else _parse(self._read(tree, pygit2.GIT_OBJECT_TREE))
        self._cache[tree] = entries
        if len(self._cache) > 8_192:
            self._cache.popitem(last=False)
        return entries

    def blob(self, oid: str) -> bytes:
        """The bytes of a blob. Raises :class:`UnreadableObject`."""
        return self._read(oid, pygit2.GIT_OBJECT_BLOB)

    def count_paths(self, tree: str, depth: int = 0) -> int:
        """How many files lie beneath ``tree``, having seen that every object of it exists.

        Linear in the number of distinct subtrees, however often they repeat. Raises
        :class:`UnreadableObject` for what is absent, malformed or beyond the limits.
        """
        if tree in self._paths:
            return self._paths[tree]
        if depth > MAX_DEPTH:
            raise UnreadableObject(f"folders are nested more than {MAX_DEPTH} deep")
        total = 0
        for mode, oid in self.entries(tree).values():
            if mode == TREE_MODE:
                total += self.count_paths(oid, depth + 1)
            else:
                total += 1
                if mode != _LINK and pygit2.Oid(hex=oid) not in self._objects:
                    raise UnreadableObject(f"blob {oid[:12]} is absent")
        if total > MAX_PATHS:
            raise UnreadableObject(f"the tree holds more than {MAX_PATHS} files")
        self._paths[tree] = total
        return total

    def files(self, tree: str) -> dict[str, Entry]:
        """Every file, symlink and submodule beneath ``tree``, sorted by path bytes. Call
        :meth:`count_paths` first: a tree may expand without bound."""
        found: dict[str, Entry] = {}
        stack = [("", tree)]
        while stack:
            prefix, oid = stack.pop()
            for name, entry in self.entries(oid).items():
                if entry.mode == TREE_MODE:
                    stack.append((f"{prefix}{name}/", entry.oid))
                else:
                    found[prefix + name] = entry
        return {path: found[path] for path in sorted(found, key=_bytes)}

    def shallow_paths(self, tree: str, depth: int) -> list[str]:
        """Paths of at most ``depth`` components: what package roots are derived from."""
        found = []
        stack = [("", tree, 1)]
        while stack:
            prefix, oid, level = stack.pop()
            for name, entry in self.entries(oid).items():
                if entry.mode != TREE_MODE:
                    found.append(prefix + name)
                elif level < depth:
                    stack.append((f"{prefix}{name}/", entry.oid, level + 1))
        return sorted(found, key=_bytes)

    def changes(self, before: str, after: str) -> TreeChanges:
        """Paths whose entry differs, without rename detection, sorted by path bytes."""
        found: TreeChanges = {}
        stack = [("", before, after)]
        while stack:
            prefix, old_tree, new_tree = stack.pop()
            if old_tree == new_tree:
                continue
            old_entries, new_entries = self.entries(old_tree), self.entries(new_tree)
            for name in old_entries.keys() | new_entries.keys():
                old, new = old_entries.get(name), new_entries.get(name)
                if old == new:
                    continue
                old_below = old.oid if old and old.mode == TREE_MODE else EMPTY_TREE
                new_below = new.oid if new and new.mode == TREE_MODE else EMPTY_TREE
                stack.append((f"{prefix}{name}/", old_below, new_below))
                old_file = None if old is None or old.mode == TREE_MODE else old
                new_file = None if new is None or new.mode == TREE_MODE else new
                if old_file or new_file:
                    found[prefix + name] = (old_file, new_file)
        return {path: found[path] for path in sorted(found, key=_bytes)}

    def write(self, tree: str, updates: Mapping[str, Entry | None]) -> str:
        """Write the tree that ``tree`` becomes with ``updates`` (None removes); return its id."""
        return self._write(tree, dict(updates)) or self._store(b"")

    def _write(self, tree: str, updates: dict[str, Entry | None]) -> str | None:
        entries = dict(self.entries(tree))
        nested: dict[str, dict[str, Entry | None]] = {}
        written: dict[str, Entry] = {}
        for path, entry in updates.items():
            folder, slash, rest = path.partition("/")
            if slash:
                nested.setdefault(folder, {})[rest] = entry
            elif entry is None:
                entries.pop(folder, None)
            else:
                written[folder] = entry
        for folder, below in nested.items():
            existing = entries.get(folder)
            start = existing.oid if existing and existing.mode == TREE_MODE else EMPTY_TREE
            subtree = self._write(start, below)
            if subtree is not None:
                entries[folder] = Entry(TREE_MODE, subtree)
            elif existing and existing.mode == TREE_MODE:
                del entries[folder]
        entries |= written
        if not entries:
            return None
        # Git sorts a folder as if its name ended in a slash.
        ordered = sorted(
            (_bytes(name) + (b"/" if entry.mode == TREE_MODE else b""), name, entry)
            for name, entry in entries.items()
        )
        return self._store(
            b"".join(
                entry.mode.encode() + b" " + _bytes(name) + b"\0" + bytes.fromhex(entry.oid)
                for _, name, entry in ordered
            )
        )

    def _store(self, content: bytes) -> str:
        return str(self._repository.write(pygit2.GIT_OBJECT_TREE, content))

    def _read(self, oid: str, kind: int) -> bytes:
        try:
            found, content = self._repository.read(oid)[:2]
        except KeyError:
            raise UnreadableObject(f"object {oid[:12]} is absent") from None
        except (pygit2.GitError, ValueError, MemoryError) as error:
            raise UnreadableObject(f"object {oid[:12]} cannot be read: {error}") from None
        if found != kind:
            raise UnreadableObject(f"object {oid[:12]} has an unexpected type")
        return bytes(content)


def _parse(content: bytes) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    position = 0
    while position < len(content):
        space = content.find(b" ", position)
        end = content.find(b"\0", space)
        name = content[space + 1 : end]
        if space < 0 or end < 0 or end + 21 > len(content):
            raise UnreadableObject("a tree object is cut off")
        if name in (b"", b".", b"..") or b"/" in name:
            raise UnreadableObject("a tree object holds an impossible name")
        text = name.decode("utf-8", "surrogateescape")
        if text in entries:
            raise UnreadableObject("a tree object holds the same name twice")
        mode = content[position:space].decode("ascii", "replace").lstrip("0")
        if mode not in (TREE_MODE, _LINK, "120000", "100644", "100755"):
            # Old importers wrote 100664; git itself reads it as 100644.
            if not mode.startswith("100"):
                raise UnreadableObject("a tree object holds an unknown file mode")
            mode = "100755" if mode.endswith(("5", "7")) else "100644"
        entries[text] = Entry(mode, content[end + 1 : end + 21].hex())
        position = end + 21
    return entries


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
