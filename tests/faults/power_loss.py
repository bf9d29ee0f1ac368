"""What a disk may hold after a loss of power, from the system calls that led there.

A call that was synced stays. Of what was not, POSIX promises nothing: contents and names are lost
or kept independently of each other, a file may have its new length and zeros in it, the last write
may be torn, an earlier one missing. Every such state of the recorded work is built here.

The model is strict about names: a file, however well it was synced itself, is reachable after the
loss only if the folder that names it was synced since, and so on upwards.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from tests.faults.storage_work import Message
from tests.faults.system_calls import CHANGES, FOLDERS

RECORDED = (*CHANGES, *FOLDERS, "open", "openat", "creat", "sendto")
BURSTS = ("write", "pwrite64", "open", "openat", "mkdir")
"""Calls of which several follow each other with nothing in between that relied on one of them."""
STRACE_OPTIONS = ("-y", "-xx", "-s", "4000000")
SECTOR = 512

_HEX = r"(?:\\x[0-9a-f]{2})*"
_LINE = re.compile(r"(?P<call>[a-z0-9_]+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+|\?)")
_DESCRIPTOR = re.compile(rf"(?:AT_FDCWD|\d+)<({_HEX})>(\(deleted\))?")
_TEXT = re.compile(rf'"({_HEX})"')
_NUMBERS = re.compile(r"(?<=, )\d+")

Write = tuple[int, bytes] | int
"""Bytes at an offset, or a new length."""


@dataclass
class File:
    """``synced`` is sure to survive; ``writes`` came after it."""

    synced: bytes = b""
    writes: list[Write] = field(default_factory=list)

    def live(self) -> bytes:
        return applied(self.synced, self.writes)


@dataclass
class Folder:
    """``synced`` names are sure to survive; ``changes`` (each of them atomic) came after them."""

    synced: dict[str, "Node"] = field(default_factory=dict)
    changes: list[dict[str, "Node | None"]] = field(default_factory=list)

    def names(self, changes: int | None = None) -> dict[str, "Node"]:
        """The names with the first so many unsynced changes, or with all of them."""
        found: dict[str, Node | None] = dict(self.synced)
        for change in self.changes[:changes]:
            found |= change
        return {name: node for name, node in found.items() if node is not None}


Node = File | Folder
Tree = dict[str, bytes | None]
"""By path from the root: contents of files, None for folders."""


def applied(content: bytes, writes: list[Write]) -> bytes:
    now = bytearray(content)
    for write in writes:
        if isinstance(write, int):
            del now[write:]
            now.extend(bytes(write - len(now)))
        else:
            offset, data = write
            now.extend(bytes(max(0, offset - len(now))))
            now[offset : offset + len(data)] = data
    return bytes(now)


def zeroed(file: File) -> bytes:
    """The length is kept and what was written into it is not."""
    blank: list[Write] = [
        w if isinstance(w, int) else (w[0], bytes(len(w[1]))) for w in file.writes
    ]
    return applied(file.synced, blank)


def torn(file: File) -> bytes:
    """Of the last write, half of its sectors are kept; a sector is written whole or not."""
    if not file.writes or isinstance(file.writes[-1], int):
        return file.live()
    offset, data = file.writes[-1]
    half = len(data) // 2 // SECTOR * SECTOR
    return applied(file.synced, [*file.writes[:-1], (offset, data[:half])])


def without_first(file: File) -> bytes:
    """The first write is lost, the later ones are not."""
    return applied(file.synced, file.writes[1:])


def all_but_one(folder: Folder) -> dict[str, Node]:
    return folder.names(max(0, len(folder.changes) - 1))


LOSSES: Mapping[str, tuple[Callable[[Folder], dict[str, Node]], Callable[[File], bytes]]] = {
    "everything unsynced is lost": (lambda f: f.synced, lambda f: f.synced),
    "names are kept, contents lost": (Folder.names, lambda f: f.synced),
    "names and lengths are kept": (Folder.names, zeroed),
    "contents are kept, names lost": (lambda f: f.synced, File.live),
    "nothing is lost": (Folder.names, File.live),
    "the last write is torn": (Folder.names, torn),
    "the first write is lost": (Folder.names, without_first),
    "the last change of names is lost": (all_but_one, File.live),
}


@dataclass(frozen=True)
class State:
    """A disk after a loss of power, and what had been told by then."""

    after: int
    """Number of recorded calls before the loss."""
    loss: str
    tree: Tree
    told: list[Message]


class Disk:
    """Follows the recorded calls below ``root``, which are those of one process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.top = Folder(synced={"study": Folder()})

    def apply(
        self,
        call: str,
        descriptors: list[str],
        texts: list[bytes],
        numbers: list[int],
        arguments: str,
    ) -> None:
        paths = self._paths(descriptors, texts, call)
        match call:
            case "open" | "openat" | "creat":
                self._opened(paths[0], arguments)
            case "mkdir" | "mkdirat":
                self._change({paths[0]: Folder()})
            case "write":
                if (file := self._file(descriptors)) is not None:
                    file.writes.append((len(file.live()), texts[0]))
            case "pwrite64":
                if (file := self._file(descriptors)) is not None:
                    file.writes.append((numbers[-1], texts[0]))
            case "ftruncate":
                if (file := self._file(descriptors)) is not None:
                    file.writes.append(numbers[-1])
            case "fsync" | "fdatasync":
                self._synced(self._find(descriptors[0]))
            case "rename" | "renameat" | "renameat2":
                self._change({paths[0]: None, paths[1]: self._find(paths[0])})
            case "link" | "linkat":
                self._change({paths[1]: self._find(paths[0])})
            case "unlink" | "unlinkat" | "rmdir":
                self._change({paths[0]: None})
            case _:
                raise AssertionError(f"the model does not know {call}")

    def states(self, after: int, told: list[Message]) -> Iterator[State]:
        for loss, (names, content) in LOSSES.items():
            tree: Tree = {}
            _walk(self.top, names, content, "", tree)
            yield State(after, loss, tree, list(told))

    def live(self) -> Tree:
        tree: Tree = {}
        _walk(self.top, Folder.names, File.live, "", tree)
        return tree

    def _opened(self, path: str, arguments: str) -> None:
        node = self._find(path)
        if node is None and "O_CREAT" in arguments:
            self._change({path: File()})
        elif isinstance(node, File) and "O_TRUNC" in arguments:
            node.writes.append(0)

    def _change(self, change: dict[str, Node | None]) -> None:
        """Give or take names. All of them lie in one folder."""
        inside = {path for path in change if self._inside(path)}
        if not inside:
            return
        assert inside == set(change)
        (parent,) = {path.rpartition("/")[0] for path in change}
        folder = self._find(parent)
        assert isinstance(folder, Folder), parent
        folder.changes.append({path.rpartition("/")[2]: node for path, node in change.items()})

    def _synced(self, node: Node | None) -> None:
        if isinstance(node, File):
            node.synced = node.live()
            node.writes = []
        elif isinstance(node, Folder):
            node.synced = node.names()
            node.changes = []

    def _file(self, descriptors: list[str]) -> File | None:
        node = self._find(descriptors[0]) if descriptors else None
        assert not isinstance(node, Folder)
        return node

    def _find(self, path: str) -> Node | None:
        """The node under a path, by the names of now."""
        if path == str(self._root):
            return self.top
        if not self._inside(path):
            return None
        node: Node | None = self.top
        for name in path.removeprefix(f"{self._root}/").split("/"):
            node = node.names().get(name) if isinstance(node, Folder) else None
        return node

    def _inside(self, path: str) -> bool:
        return path.startswith(f"{self._root}/")

    def _paths(self, descriptors: list[str], texts: list[bytes], call: str) -> list[str]:
        """Full paths of the names among the arguments; ``…at`` calls name a folder for each."""
        if call in ("write", "pwrite64"):
            return []
        names = [text.decode() for text in texts]
        folders = descriptors if call.endswith(("at", "at2")) else [""] * len(names)
        return [
            name if name.startswith("/") else f"{folder}/{name}"
            for name, folder in zip(names, folders, strict=False)
        ]


def _walk(
    folder: Folder,
    names: Callable[[Folder], dict[str, Node]],
    content: Callable[[File], bytes],
    prefix: str,
    tree: Tree,
) -> None:
    for name, node in names(folder).items():
        if name.endswith("-shm"):
            continue  # memory shared between processes; whoever opens the log first makes it anew
        if isinstance(node, File):
            tree[prefix + name] = content(node)
        else:
            tree[prefix + name] = None
            _walk(node, names, content, f"{prefix}{name}/", tree)


def losses(trace: str, disk: Disk) -> Iterator[State]:
    """Every state after a loss of power that may follow from the trace, each once, with what had
    been told at the latest. Between two writes of a burst nothing can have been promised: only its
    end is looked at."""
    told: list[Message] = []
    found: dict[str, State] = {}
    previous = ""
    for number, line in enumerate(trace.splitlines()):
        match = _LINE.match(line)
        if match is None or match["result"].startswith("-"):
            continue
        call, arguments = match["call"], match["arguments"]
        texts = [_bytes(text) for text in _TEXT.findall(arguments)]
        if call not in BURSTS or call != previous:
            _keep(found, disk.states(number, told))
        if call == "sendto":
            told.append(msgspec.json.decode(texts[0], type=Message))
        else:
            descriptors = [
                "" if deleted else _bytes(path).decode()
                for path, deleted in _DESCRIPTOR.findall(arguments)
            ]
            numbers = [int(digits) for digits in _NUMBERS.findall(_TEXT.sub('""', arguments))]
            disk.apply(call, descriptors, texts, numbers, arguments)
        previous = call
    _keep(found, disk.states(number + 1, told))
    return iter(found.values())


def _keep(found: dict[str, State], states: Iterator[State]) -> None:
    for state in states:
        digest = sha256()
        for path, content in sorted(state.tree.items()):
            digest.update(msgspec.json.encode([path, content is None]))
            digest.update(sha256(content or b"").digest())
        found[digest.hexdigest()] = state  # the later one has promised more


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def build(tree: Tree, root: Path) -> None:
    """Make the files and folders of a state below ``root``."""
    for path, content in tree.items():
        place = root / path
        if content is None:
            place.mkdir(mode=0o700)
        else:
            place.write_bytes(content)
            place.chmod(0o600)


def on_disk(root: Path) -> Tree:
    """What lies below ``root`` now, in the same form."""
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
        if not path.name.endswith("-shm")
    }
