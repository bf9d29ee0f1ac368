"""What A001 shows of a repository, from coarse to fine: the tree of source files, outlines of
files, windows of lines around places. Called by the arm, not by the model."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import SnapshotFile, count_lines, display_path
from harnesses.retrieval.syntax import Symbol, analyse, language_of
from harnesses.tools.output import cut_line, estimate_tokens, fenced
from harnesses.workspace import ToolError, Workspace
from schemas.base import Value

CONTEXT_LINES = 10
"""Lines shown before and behind a place."""
LINE_CHARACTERS = 500

Intervals = tuple[tuple[int, int], ...]


class TreeArguments(Value):
    pass


class OutlineArguments(Value):
    path: str


class WindowsArguments(Value):
    path: str
    places: Annotated[
        tuple[str, ...], Meta(description="names of definitions, or numbers of lines")
    ]


def source_tree(workspace: Workspace, arguments: TreeArguments, room: int) -> ToolResult:
    """Production files that a grammar reads, indented by folder."""
    lines: list[str] = []
    above: list[str] = []
    left_out = 0
    for file in workspace.files:
        if file.file_class != "production" or language_of(file.path) is None:
            continue
        *folders, name = display_path(file.path).split("/")
        common = 0
        while common < min(len(folders), len(above)) and folders[common] == above[common]:
            common += 1
        new = [f"{'  ' * depth}{folders[depth]}/" for depth in range(common, len(folders))]
        new.append(f"{'  ' * len(folders)}{name}")
        room -= sum(estimate_tokens(line) + 1 for line in new)
        if room < 0:
            left_out += 1
            continue
        lines += new
        above = folders
    last_line = f"Left out: {left_out} files." if left_out else "Nothing was left out."
    return ToolResult(ok=True, text=f"{fenced(lines)}\n{last_line}")


def outline(workspace: Workspace, arguments: OutlineArguments, room: int) -> ToolResult:
    """Head lines of every definition, without bodies."""
    file = workspace.file(arguments.path)
    text = _text(file)
    lines = text.split(b"\n")
    path = display_path(file.path)
    shown: list[str] = []
    left_out = 0
    for symbol in _symbols(file):
        indent = "    " * (symbol.parent.count(".") + 1 if symbol.parent else 0)
        head = cut_line(lines[_head(lines, symbol) - 1].strip(), 0, 200)
        line = f"{symbol.first:>6}-{symbol.last}: {indent}{head}"
        room -= estimate_tokens(line) + 1
        if room < 0:
            left_out += 1
        else:
            shown.append(line)
    last_line = f"Left out: {left_out} definitions." if left_out else "Nothing was left out."
    total = count_lines(text)
    return ToolResult(
        ok=True,
        text=f"### {path} ({total} lines)\n{fenced(shown)}\n{last_line}",
        shown=(path,),
        opened=(path,),
    )


def windows(workspace: Workspace, arguments: WindowsArguments, room: int) -> ToolResult:
    """Numbered lines of every place with ten lines around it."""
    file = workspace.file(arguments.path)
    lines = _text(file).split(b"\n")
    path = display_path(file.path)
    shown: list[str] = []
    left_out = 0
    for first, last in intervals(file, arguments.places):
        block = [
            f"{number:>6}\t{cut_line(lines[number - 1], 0, LINE_CHARACTERS)}"
            for number in range(first, last + 1)
        ]
        room -= sum(estimate_tokens(line + "\n") for line in block)
        if room < 0:
            left_out += 1
            continue
        shown += [*(["   ..."] if shown else []), *block]
    last_line = f"Left out: {left_out} places." if left_out else "Nothing was left out."
    return ToolResult(
        ok=True,
        text=f"### {path}\n{fenced(shown)}\n{last_line}",
        shown=(path,),
        opened=(path,),
    )


def intervals(file: SnapshotFile, places: tuple[str, ...]) -> Intervals:
    """Lines (from 1, inclusive) that are shown for places: definitions and line numbers with ten
    lines around them, joined where they meet. Places that do not exist give nothing."""
    total = count_lines(file.text or b"")
    found: list[tuple[int, int]] = []
    for place in places:
        if place.isascii() and place.isdigit():
            number = int(place[:9])
            if 1 <= number <= total:
                found.append((number, number))
            continue
        found += [
            (symbol.first, symbol.last)
            for symbol in _symbols(file)
            if place in (symbol.name, symbol.qualified)
        ]
    joined: list[tuple[int, int]] = []
    for first, last in sorted(found):
        first, last = max(1, first - CONTEXT_LINES), min(total, last + CONTEXT_LINES)
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def _text(file: SnapshotFile) -> bytes:
    if file.text is None:
        raise ToolError(f"{display_path(file.path)} is a binary file")
    return file.text


def _symbols(file: SnapshotFile) -> tuple[Symbol, ...]:
    language = language_of(file.path)
    return () if language is None or file.text is None else analyse(file.text, language).symbols


def _head(lines: list[bytes], symbol: Symbol) -> int:
    """The line of the definition itself, behind its decorators."""
    needle = symbol.name.encode()
    for number in range(symbol.first, symbol.last + 1):
        line = lines[number - 1].lstrip()
        if needle in line and not line.startswith(b"@"):
            return number
    return symbol.first


SOURCE_TREE = ToolSpec(
    name="source_tree",
    description="The repository's production source files as a tree.",
    arguments=TreeArguments,
    perform=source_tree,
)
OUTLINE = ToolSpec(
    name="outline",
    description="The definitions of a file with their lines, without bodies.",
    arguments=OutlineArguments,
    perform=outline,
)
WINDOWS = ToolSpec(
    name="windows",
    description=f"Places of a file with {CONTEXT_LINES} lines around each.",
    arguments=WindowsArguments,
    perform=windows,
)
