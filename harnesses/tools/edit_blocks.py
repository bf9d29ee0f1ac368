"""SEARCH/REPLACE blocks, as Agentless' repair stage writes them (Xia et al., 2024, §3.2):

    ### path/to/file.py
    <<<<<<< SEARCH
    lines as they are
    =======
    lines as they become
    >>>>>>> REPLACE

The search text must stand exactly once in the lines that were shown; the original replaced every
match. Fences around blocks may name any language. A body may hold ``=======`` itself: the
divider is the last one whose search text stands in the shown lines.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import count_lines, display_path
from harnesses.workspace import ToolError, Workspace, short_path
from schemas.base import Value

MAX_BLOCKS = 32

_PATH = re.compile(r"^#{1,6}[ \t]+`?([^`\n]+?)`?[ \t]*$")
_SEARCH = re.compile(r"^<{5,9} SEARCH[ \t]*$")
_DIVIDER = re.compile(r"^={5,9}[ \t]*$")
_REPLACE = re.compile(r"^>{5,9} REPLACE[ \t]*$")


class Block(NamedTuple):
    """``lines``: everything between the SEARCH and the REPLACE marker, dividers included."""

    path: str
    lines: tuple[str, ...]


class ReplaceArguments(Value):
    path: str
    blocks: tuple[tuple[str, ...], ...]
    """The lines of every block for this file, in their order."""
    intervals: tuple[tuple[int, int], ...]
    """Lines that were shown: an edit must lie in one of them."""


def parse_blocks(text: str) -> list[Block]:
    """The blocks of an answer, at most :data:`MAX_BLOCKS`. One that is cut off is not a block."""
    blocks: list[Block] = []
    path = ""
    body: list[str] | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        if body is None:
            named = _PATH.match(line)
            if named:
                path = named.group(1).strip()
            elif _SEARCH.match(line):
                body = []
        elif _REPLACE.match(line):
            blocks.append(Block(path, tuple(body)))
            body = None
        elif _SEARCH.match(line):
            body = []  # the block before was never finished
        else:
            body.append(line)
    return blocks[:MAX_BLOCKS]


def replace_blocks(workspace: Workspace, arguments: ReplaceArguments, room: int) -> ToolResult:
    """Every block is matched against the file as it was shown; those that fit are carried out
    together, from the last line to the first. What does not fit is said."""
    if not arguments.path:
        raise ToolError("a block names no file")
    tree_path = workspace.resolve(arguments.path)
    if workspace.get(tree_path) is None:
        return _create(workspace, arguments)
    file = workspace.file(arguments.path)
    path = display_path(file.path)
    if file.text is None or file.encoding == "utf-16 with BOM":
        raise ToolError(f"{path} is not a UTF-8 text file; it cannot be edited")
    edits: list[tuple[int, int, tuple[str, ...]]] = []
    problems: list[str] = []
    for number, lines in enumerate(arguments.blocks, start=1):
        found: list[tuple[int, int, tuple[str, ...]]] = []
        for search, replacement in _splits(lines):
            places = _places(file.content, search, arguments.intervals) if search else []
            if places:  # what begins with a longer search text begins with the shorter one too
                found = [(begin, end, replacement) for begin, end in places]
        if len(found) != 1:
            problems.append(f"block {number}: its search text stands {len(found)} times in the "
                            "lines that were shown")  # fmt: skip
        elif any(found[0][0] < end and begin < found[0][1] for begin, end, _ in edits):
            problems.append(f"block {number}: overlaps another block")
        else:
            edits.append(found[0])
    if not edits:
        raise ToolError(f"{path}: {'; '.join(problems)}; nothing was changed")
    content = file.content
    for begin, end, replacement in sorted(edits, reverse=True):
        content = _spliced(content, begin, end, replacement)
    workspace.write(file, content)
    text = "; ".join([f"Edited {path}: {len(edits)} blocks", *problems])
    return ToolResult(ok=not problems, text=text, shown=(path,), edited=(path,))


def _create(workspace: Workspace, arguments: ReplaceArguments) -> ToolResult:
    splits = _splits(arguments.blocks[0]) if len(arguments.blocks) == 1 else []
    if not splits or splits[0][0]:
        raise ToolError(f"there is no file {short_path(arguments.path)}")
    content = "\n".join([*splits[0][1], ""]).encode("utf-8", "replace")
    path = display_path(workspace.create(arguments.path, content).path)
    return ToolResult(ok=True, text=f"Created {path}.", shown=(path,), edited=(path,))


def _splits(lines: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(search, replacement) for every divider."""
    return [
        (tuple(lines[:at]), tuple(lines[at + 1 :]))
        for at, line in enumerate(lines)
        if _DIVIDER.match(line)
    ]


def _places(
    content: bytes, search: Sequence[str], intervals: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Where the search lines stand as whole lines inside of a shown interval: (first, end) indexes
    of lines. A ``\\r`` at the end of a line of the file is not part of the comparison."""
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    wanted = [line.encode("utf-8", "replace").removesuffix(b"\r") for line in search]
    total = count_lines(content)
    return [
        (at, at + len(wanted))
        for first, last in intervals
        for at in range(first - 1, min(last, total) - len(wanted) + 1)
        if lines[at : at + len(wanted)] == wanted
    ]


def _spliced(content: bytes, begin: int, end: int, replacement: Sequence[str]) -> bytes:
    """Lines ``begin`` to ``end`` (indexes) become ``replacement``, with the line ends of the lines
    that they take the place of and a missing last line end left missing."""
    lines = content.split(b"\n")
    carriage = b"\r" if lines[begin].endswith(b"\r") else b""
    new = [line.encode("utf-8", "replace") + carriage for line in replacement]
    if end == len(lines) and new:
        new[-1] = new[-1].removesuffix(b"\r")
    return b"\n".join([*lines[:begin], *new, *lines[end:]])


REPLACE_BLOCKS = ToolSpec(
    name="replace_blocks",
    description="Apply the SEARCH/REPLACE blocks of one file inside of the lines that were shown.",
    arguments=ReplaceArguments,
    perform=replace_blocks,
)
