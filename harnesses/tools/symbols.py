"""The specialised tools: where a name is defined, used and called, what a file imports, which tests
use it, and which files are one hop away."""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval import graph, names
from harnesses.retrieval.exact import QueryError, find
from harnesses.retrieval.facts import blob_facts
from harnesses.retrieval.index import CommitIndex
from harnesses.retrieval.snapshot import FILE_CLASSES, SnapshotFile, display_path
from harnesses.retrieval.syntax import Symbol, Syntax
from harnesses.tools.output import (
    BLOCK_TOKENS,
    MIN_ROOM,
    NO_ROOM,
    cut_line,
    estimate_tokens,
    fenced,
)
from harnesses.tools.ranked import opened_index
from harnesses.workspace import ToolError, Workspace, short_path
from schemas.base import Value

MAX_LINES = 40
LINE_CHARACTERS = 200
RESERVED_TOKENS = 120
NEAR_NAMES = 5


class NameArguments(Value):
    name: Annotated[
        str, Meta(description="a name as in the code: `parse`, `Client` or `Client.parse`")
    ]


class PathArguments(Value):
    path: Annotated[str, Meta(description="a file, from the root of the repository")]


class _Line(NamedTuple):
    file: SnapshotFile
    number: int
    note: str
    """What stands there, in our words; empty: nothing to add."""


def definitions(workspace: Workspace, arguments: NameArguments, room: int) -> ToolResult:
    index = opened_index(workspace)
    lines = [
        _Line(file, symbol.first, f"{symbol.kind} {symbol.qualified}, to line {symbol.last}")
        for file, symbol in _defined(workspace, index, arguments.name)
    ]
    return _show(index, lines, "definitions", arguments.name, room)


DEFINITIONS = ToolSpec(
    name="definitions",
    description="Where a function, method, type or module-level variable of this name is defined "
    "(Python, Go).",
    arguments=NameArguments,
    perform=definitions,
)


def references(workspace: Workspace, arguments: NameArguments, room: int) -> ToolResult:
    index = opened_index(workspace)
    defined = {
        (file.path, symbol.first) for file, symbol in _defined(workspace, index, arguments.name)
    }
    try:
        found = find(workspace.files, _last_part(arguments.name), "exact", MAX_LINES)
    except QueryError as error:
        raise ToolError(str(error)) from None
    lines = [
        _Line(hit.file, line.number, "")
        for hit in found.files
        for line in hit.first
        if (hit.file.path, line.number) not in defined
    ]
    return _show(index, lines, "references", arguments.name, room)


REFERENCES = ToolSpec(
    name="references",
    description="The lines on which a name stands as a whole word, except its definitions.",
    arguments=NameArguments,
    perform=references,
)


def callers(workspace: Workspace, arguments: NameArguments, room: int) -> ToolResult:
    """Calls are told by the last part of the name: what an object is, the syntax does not say."""
    index = opened_index(workspace)
    name = _last_part(arguments.name)
    lines = []
    for file, syntax in _files_with(workspace, index, name):
        for use in syntax.uses:
            if use.call and use.name == name:
                around = _enclosing(syntax.symbols, use.line)
                note = f"in {around.qualified}" if around else "at module level"
                lines.append(_Line(file, use.line, note))
    return _show(index, lines, "callers", arguments.name, room)


CALLERS = ToolSpec(
    name="callers",
    description="The functions that call a name, with the line of the call.",
    arguments=NameArguments,
    perform=callers,
)


def imports(workspace: Workspace, arguments: PathArguments, room: int) -> ToolResult:
    index = opened_index(workspace)
    file = workspace.file(arguments.path)
    syntax = _syntax(workspace, index, file)
    lines = []
    for one in syntax.imports:
        names = f": {', '.join(one.names)}" if one.names else ""
        lines.append(f"{one.module}{names}"[:LINE_CHARACTERS])
    number = index.number_of.get(file.path)
    used = [] if number is None else index.tables.edges[number]
    order = [other for other, _ in sorted(used, key=lambda edge: (-edge[1], edge[0]))]
    said = f"{display_path(file.path)} imports {len(lines)} modules"
    return _show_files(index, order, f"{said} and uses {len(order)} files", room, lines)


IMPORTS = ToolSpec(
    name="imports",
    description="What a file imports, and the files of the repository that it uses.",
    arguments=PathArguments,
    perform=imports,
)


def tests_of(workspace: Workspace, arguments: PathArguments, room: int) -> ToolResult:
    index, number = _indexed(workspace, arguments.path)
    users = graph.users(index.tables.edges, number)
    tests = [user for user in users if index.files[user].file_class == "test"]
    said = f"{len(tests)} test files use {display_path(index.files[number].path)}"
    return _show_files(index, tests, said, room)


TESTS_OF = ToolSpec(
    name="tests_of",
    description="The test files that use a file, nearest first.",
    arguments=PathArguments,
    perform=tests_of,
)


def neighbours(workspace: Workspace, arguments: PathArguments, room: int) -> ToolResult:
    index, number = _indexed(workspace, arguments.path)
    around = graph.neighbours(index.tables.edges, number)
    said = f"{len(around)} files are one hop from {display_path(index.files[number].path)}"
    return _show_files(index, around, said, room)


NEIGHBOURS = ToolSpec(
    name="neighbours",
    description="The files one hop away: those that a file uses and those that use it, by imports "
    f"and names, at most {graph.MAX_NEIGHBOURS}.",
    arguments=PathArguments,
    perform=neighbours,
)


# --- looking up -----------------------------------------------------------------------------------


def _last_part(name: str) -> str:
    return name.strip().rpartition(".")[2]


def _indexed(workspace: Workspace, path: str) -> tuple[CommitIndex, int]:
    index = opened_index(workspace)
    file = workspace.file(path)
    if file.path not in index.number_of:
        raise ToolError(f"{short_path(path)} is new; edges exist between the files of the base")
    return index, index.number_of[file.path]


def _files_with(
    workspace: Workspace, index: CommitIndex, name: str
) -> Iterator[tuple[SnapshotFile, Syntax]]:
    """Files as they are now that hold the name, production first, with their syntax."""
    needle = name.encode("utf-8", "replace")
    if not needle:
        raise ToolError("the name is empty; give one as it stands in the code")
    in_order = sorted(workspace.files, key=lambda file: FILE_CLASSES.index(file.file_class))
    for file in in_order:
        if file.text is not None and needle in file.text:
            yield file, _syntax(workspace, index, file)


def _syntax(workspace: Workspace, index: CommitIndex, file: SnapshotFile) -> Syntax:
    """From the index, or from the file itself where the cell has changed it."""
    number = index.number_of.get(file.path)
    if number is not None and not workspace.is_changed(file.path):
        return index.facts_of(number).syntax
    return blob_facts(file).syntax


def _defined(
    workspace: Workspace, index: CommitIndex, name: str
) -> list[tuple[SnapshotFile, Symbol]]:
    """Definitions of ``name``: of every one so called, or of the one in that parent."""
    qualifier, _, last = name.strip().rpartition(".")
    return [
        (file, symbol)
        for file, syntax in _files_with(workspace, index, last)
        for symbol in syntax.symbols
        if symbol.name == last and (not qualifier or f".{symbol.parent}".endswith(f".{qualifier}"))
    ]


def _enclosing(symbols: Sequence[Symbol], line: int) -> Symbol | None:
    """The innermost function or type around a line."""
    around = [
        symbol
        for symbol in symbols
        if symbol.kind != "variable" and symbol.first <= line <= symbol.last
    ]
    return max(around, key=lambda symbol: (symbol.first, -symbol.last), default=None)


# --- showing --------------------------------------------------------------------------------------


def _show(
    index: CommitIndex, found: Sequence[_Line], what: str, name: str, room: int
) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    asked = short_path(name)
    if not found:
        near = [near for near, _ in names.near(index, _last_part(name), NEAR_NAMES)]
        hint = f" Near names that are defined: {', '.join(near)}." if near else ""
        return ToolResult(ok=True, text=f"0 {what} of {asked} in Python and Go files.{hint}")
    first_line = f"{len(found)} {what} of {asked} in {len({one.file.path for one in found})} files"
    left = min(BLOCK_TOKENS, room) - RESERVED_TOKENS - estimate_tokens(first_line)
    lines: list[str] = []
    shown: list[str] = []
    group = ""
    for one in found[:MAX_LINES]:
        path = display_path(one.file.path)
        text = (one.file.text or b"").split(b"\n")[one.number - 1]
        new = [] if one.file.file_class == group else [f"[{one.file.file_class}]"]
        new.append(f"{path}:{one.number}: {cut_line(text, 0, LINE_CHARACTERS)}")
        if one.note:
            new.append(f"    {one.note}")
        left -= sum(estimate_tokens(line) + 1 for line in new)
        if left < 0:
            break
        lines += new
        group = one.file.file_class
        if path not in shown:
            shown.append(path)
    places = sum(not line.startswith(("[", "    ")) for line in lines)
    last_line = "Nothing was left out."
    if places < len(found):
        last_line = f"Left out: {len(found) - places} more. To narrow: search with path=."
    return ToolResult(
        ok=True, text=f"{first_line}\n{fenced(lines)}\n{last_line}", shown=tuple(shown)
    )


def _show_files(
    index: CommitIndex, files: Sequence[int], said: str, room: int, before: Sequence[str] = ()
) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    left = min(BLOCK_TOKENS, room) - RESERVED_TOKENS - estimate_tokens(said)
    lines: list[str] = []
    shown: list[str] = []
    for line in before:
        left -= estimate_tokens(line) + 1
        if left >= 0:
            lines.append(line)
    for number in files:
        path = display_path(index.files[number].path)
        line = f"{path} ({index.files[number].file_class})"
        left -= estimate_tokens(line) + 1
        if left < 0:
            break
        lines.append(line)
        shown.append(path)
    hidden = len(before) + len(files) - len(lines)
    last_line = f"Left out: {hidden} lines." if hidden else "Nothing was left out."
    body = f"\n{fenced(lines)}" if lines else ""
    return ToolResult(ok=True, text=f"{said}{body}\n{last_line}", shown=tuple(shown))
