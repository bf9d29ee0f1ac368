"""``read_file``: numbered lines of one file."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import SnapshotFile, count_lines, display_path
from harnesses.tools.output import (
    MIN_ROOM,
    NO_ROOM,
    READ_LINES,
    READ_TOKENS,
    cut_line,
    estimate_tokens,
    fenced,
)
from harnesses.workspace import ToolError, Workspace
from schemas.base import Value

LINE_CHARACTERS = 2_000
RESERVED_TOKENS = 80


class ReadFileArguments(Value):
    path: Annotated[str, Meta(description="the file, from the root of the repository")]
    start_line: Annotated[int, Meta(ge=1, description="first line to show, from 1")] = 1
    end_line: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="last line to show; default: the end")
    ] = None


def read_file(workspace: Workspace, arguments: ReadFileArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    file = workspace.file(arguments.path)
    path = display_path(file.path)
    if file.text is None:
        raise ToolError(f"{path} is a binary file of {len(file.content)} bytes; it cannot be read")
    total = count_lines(file.text)
    if total == 0:
        return ToolResult(ok=True, text=f"{path}: empty file", shown=(path,), opened=(path,))
    first, last = arguments.start_line, arguments.end_line or total
    if first > total:
        raise ToolError(f"{path} has {total} lines; start_line={first} is behind the end")
    if last < first:
        raise ToolError(f"end_line={last} is before start_line={first}")
    lines = numbered_lines(
        file.text, first, min(last, total), min(READ_TOKENS, room) - RESERVED_TOKENS
    )
    shown_to = first + len(lines) - 1
    header = f"{path}: lines {first}-{shown_to} of {total}{_peculiarities(file)}"
    left_out = []
    if first > 1:
        left_out.append(f"lines 1-{first - 1}")
    if shown_to < total:
        left_out.append(f"lines {shown_to + 1}-{total}")
    last_line = "Nothing was left out."
    if left_out:
        last_line = f"Left out: {' and '.join(left_out)}."
        if shown_to < min(last, total):
            last_line += f" Go on with start_line={shown_to + 1}."
    return ToolResult(
        ok=True,
        text=f"{header}\n{fenced(lines)}\n{last_line}",
        shown=(path,),
        opened=(path,),
    )


READ_FILE = ToolSpec(
    name="read_file",
    description=f"Show lines of a file, numbered, at most {READ_LINES} at once. The number and the "
    "tab after it do not belong to the file.",
    arguments=ReadFileArguments,
    perform=read_file,
)


def numbered_lines(text: bytes, first: int, last: int, max_tokens: int) -> list[str]:
    """Lines ``first`` to ``last`` (from 1, at most 400) as ``    12\\ttext`` while they fit.

    There is always at least one: a line of more than 2,000 characters is cut.
    """
    shown: list[str] = []
    for number, line in enumerate(text.split(b"\n")[first - 1 : last], start=first):
        numbered = f"{number:>6}\t{cut_line(line, 0, LINE_CHARACTERS)}"
        max_tokens -= estimate_tokens(numbered + "\n")
        if shown and (max_tokens < 0 or len(shown) == READ_LINES):
            break
        shown.append(numbered)
    return shown


def _peculiarities(file: SnapshotFile) -> str:
    """What the shown lines do not say about the file's bytes."""
    notes: list[str] = []
    if file.encoding != "utf-8":
        notes.append(file.encoding)
    if b"\r\n" in file.content:
        notes.append("CRLF line ends")
    if file.text is not None and not file.text.endswith(b"\n"):
        notes.append("no newline at the end")
    return f" ({', '.join(notes)})" if notes else ""
