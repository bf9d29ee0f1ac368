"""What a module imports of our packages, and which libraries: found in the source, without running
it.

Imports inside functions count, those under ``if TYPE_CHECKING:`` do not. A package's ``__init__``
counts with every module of it, because importing the module runs it.
"""

import ast
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from actors.study.digests import PACKAGES, ROOT

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a statement, a handler or a case that hold further statements."""


class Closure(NamedTuple):
    modules: frozenset[str]
    """Dotted names of our modules and packages."""
    libraries: frozenset[str]
    """Top-level names of what is neither ours nor of Python's standard library."""


def closure(entry_points: Iterable[str], outside: Collection[str] = ()) -> Closure:
    """Everything that the modules ``entry_points`` import, directly or not.

    outside: modules that are neither counted nor followed. Raises LookupError for an entry point
    that does not exist.
    """
    modules: set[str] = set()
    libraries: set[str] = set()
    waiting = list(entry_points)
    for name in waiting:
        if source_file(name) is None:
            raise LookupError(f"there is no module {name}")
    while waiting:
        module = waiting.pop()
        if module in modules or module in outside:
            continue
        modules.add(module)
        ours, others = _imports(module)
        waiting += ours
        libraries |= others
    return Closure(frozenset(modules), frozenset(libraries))


@cache
def source_file(module: str) -> Path | None:
    """The file of one of our modules or packages; None where there is no such module."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@cache
def _imports(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """(our modules, names of libraries) that a module imports itself, its own package included."""
    file = source_file(module)
    assert file is not None
    found = {module.rpartition(".")[0]} - {""}
    libraries: set[str] = set()
    for name in _imported(ast.parse(file.read_bytes()), module, file.name == "__init__.py"):
        top = name.partition(".")[0]
        if top in PACKAGES:
            # ``from package import name``: the name is a module or something in the package.
            found.add(name if source_file(name) else name.rpartition(".")[0])
        elif top not in sys.stdlib_module_names:
            libraries.add(top)
    return frozenset(found), frozenset(libraries)


def _imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names in import statements; relative ones made absolute."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                package = module.split(".")
                above = node.level - is_package
                base = ".".join(package[: len(package) - above]) if node.level else ""
                source = ".".join(filter(None, (base, node.module)))
                yield from (f"{source}.{alias.name}" for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting += node.orelse
            case _:  # imports are statements: no expression is walked
                for block in _BLOCKS:
                    waiting += getattr(node, block, ())
