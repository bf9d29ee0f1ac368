"""Which file uses which: edges of one hop, from imports and names (Python and Go).

A name that could be defined in several files gives each of them that part of its weight; a name
defined in more than :data:`MAX_CANDIDATES` files says nothing and gives none. Weights are integers
in millionths, so sums do not depend on their order.
"""

import re
from collections.abc import Iterator, Sequence

from harnesses.retrieval.facts import BlobFacts
from harnesses.retrieval.snapshot import Snapshot
from harnesses.retrieval.syntax import language_of

VERSION = 1

MAX_CANDIDATES = 3
MAX_NEIGHBOURS = 15
ONE = 1_000_000

Edges = tuple[tuple[tuple[int, int], ...], ...]
"""For each file: (file that it uses, weight), by file number."""

_GO_MODULE = re.compile(rb"^module[ \t]+(\S+)", re.MULTILINE)


def edges(snapshot: Snapshot, described: Sequence[BlobFacts]) -> Edges:
    """The files that each file uses."""
    resolver = _Resolver(snapshot, described)
    found: list[tuple[tuple[int, int], ...]] = []
    for number in range(len(snapshot.files)):
        weights: dict[int, int] = {}
        for candidates in resolver.candidates(number):
            others = sorted(set(candidates) - {number})
            for other in others:
                weights[other] = weights.get(other, 0) + ONE // len(others)
        found.append(tuple(sorted(weights.items())))
    return tuple(found)


def neighbours(edges: Edges, file: int) -> list[int]:
    """Files that ``file`` uses or that use it, heaviest first, ties by path; at most
    :data:`MAX_NEIGHBOURS`."""
    weights = dict(edges[file])
    for other, used in enumerate(edges):
        for target, weight in used:
            if target == file:
                weights[other] = weights.get(other, 0) + weight
    weights.pop(file, None)
    return sorted(weights, key=lambda other: (-weights[other], other))[:MAX_NEIGHBOURS]


def users(edges: Edges, file: int) -> list[int]:
    """Files that use ``file``, heaviest first, ties by path."""
    weights = {
        other: weight
        for other, used in enumerate(edges)
        for target, weight in used
        if target == file and other != file
    }
    return sorted(weights, key=lambda other: (-weights[other], other))


class _Resolver:
    """What names and imports may stand for in a tree."""

    def __init__(self, snapshot: Snapshot, described: Sequence[BlobFacts]) -> None:
        self._snapshot = snapshot
        self._described = described
        self._by_name: dict[str, list[int]] = {}
        self._by_folder: dict[str, dict[str, list[int]]] = {}
        self._modules: dict[str, int] = {}
        self._go_module = ""
        for number, (file, known) in enumerate(zip(snapshot.files, described, strict=True)):
            if file.path == "go.mod":
                match = _GO_MODULE.search(file.content)
                self._go_module = match.group(1).decode("utf-8", "replace") if match else ""
            language = language_of(file.path)
            if language is None:
                continue
            if language == "python":
                for module in _module_names(file.path):
                    self._modules.setdefault(module, number)
            folder = self._by_folder.setdefault(file.path.rpartition("/")[0], {})
            for name in {symbol.name for symbol in known.syntax.symbols}:
                self._by_name.setdefault(name, []).append(number)
                if language == "go":
                    folder.setdefault(name, []).append(number)

    def candidates(self, number: int) -> Iterator[Sequence[int]]:
        """For every import and every name that the file uses: the files that may be meant."""
        path = self._snapshot.files[number].path
        language = language_of(path)
        known = self._described[number].syntax
        if language == "python":
            for imported in known.imports:
                yield from self._python_import(path, imported.module, imported.names)
        folders = self._go_folders(number) if language == "go" else {}
        here = self._by_folder.get(path.rpartition("/")[0], {})
        own = {symbol.name for symbol in known.symbols}
        for name, qualifier in sorted({(use.name, use.qualifier) for use in known.uses}):
            if qualifier in folders:
                found = self._by_folder.get(folders[qualifier], {}).get(name, [])
            elif language == "go" and not qualifier and name in here:
                found = here[name]
            elif name in own:
                continue
            else:
                found = self._by_name.get(name, [])
                if len(found) > MAX_CANDIDATES:
                    continue
            yield found

    def _go_folders(self, number: int) -> dict[str, str]:
        """Folder of each imported package of this module by its name in the file."""
        prefix = f"{self._go_module}/"
        return {
            imported.alias: imported.module.removeprefix(prefix)
            for imported in self._described[number].syntax.imports
            if self._go_module and imported.module.startswith(prefix)
        }

    def _python_import(
        self, path: str, module: str, names: Sequence[str]
    ) -> Iterator[Sequence[int]]:
        dots = len(module) - len(module.lstrip("."))
        if dots:
            package = path.split("/")[:-dots]
            if len(path.split("/")) < dots:
                return
            module = ".".join([*package, *filter(None, [module[dots:]])])
        targets = [f"{module}.{name}" if module else name for name in names] or [module]
        for target in targets:
            number = self._modules.get(target, self._modules.get(module))
            if number is not None:
                yield [number]


def _module_names(path: str) -> list[str]:
    """Dotted names under which a file may be imported: from the root, and from a folder ``src``."""
    parts = path.rpartition(".")[0].split("/")
    if parts[-1] == "__init__":
        parts = parts[:-1]
    names = [".".join(parts)]
    if parts and parts[0] in ("src", "lib"):
        names.append(".".join(parts[1:]))
    return [name for name in names if name]
