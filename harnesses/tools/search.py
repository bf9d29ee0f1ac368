"""``search``: exact, substring and regular-expression search with results in typed groups."""

import json
from collections import Counter
from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.exact import FileMatches, Found, Mode, QueryError, find
from harnesses.retrieval.snapshot import FILE_CLASSES, display_path
from harnesses.tools.output import (
    BLOCK_TOKENS,
    MIN_ROOM,
    NO_ROOM,
    cut_line,
    estimate_tokens,
    fenced,
)
from harnesses.workspace import ToolError, Workspace, short_path
from schemas.base import Value

MAX_FILES = 20
LINES_PER_FILE = 3
LINE_CHARACTERS = 200
RESERVED_TOKENS = 120
"""Kept for the last line, which says what was left out."""


class SearchArguments(Value):
    query: Annotated[str, Meta(description="the word, text or pattern to search for, one line")]
    mode: Annotated[
        Mode,
        Meta(
            description="exact: case-sensitive whole words; substring: case-insensitive text; "
            "regex: RE2 pattern, case-sensitive, without look-around and back-references"
        ),
    ] = "exact"
    path: Annotated[
        str, Meta(description="a directory or file to search in; empty: everywhere")
    ] = ""


def search(workspace: Workspace, arguments: SearchArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    below = workspace.resolve(arguments.path)
    scope = [
        file
        for file in workspace.files
        if below == "" or file.path == below or file.path.startswith(f"{below}/")
    ]
    if not scope and below:
        raise ToolError(
            f"there is no file or directory {short_path(below)}{workspace.same_name(below)}"
        )
    try:
        found = find(scope, arguments.query, arguments.mode, LINES_PER_FILE)
    except QueryError as error:
        raise ToolError(str(error)) from None

    total = sum(hit.count for hit in found.files)
    first_line = f"{total} matches in {len(found.files)} files"
    if not found.files:
        return ToolResult(ok=True, text=f"{first_line}\n{_what_was_searched(arguments, found)}")
    first_line += f" ({_by_class(found.files)})"

    lines: list[str] = []
    shown: list[str] = []
    lines_shown = 0
    left = min(BLOCK_TOKENS, room) - RESERVED_TOKENS - estimate_tokens(first_line)
    group = ""
    candidates = [(hit, line) for hit in found.files[:MAX_FILES] for line in hit.first]
    for hit, line in candidates:
        path = display_path(hit.file.path)
        new = [f"{path}:{line.number}: {cut_line(line.text, line.start, LINE_CHARACTERS)}"]
        if hit.file.file_class != group:
            new.insert(0, f"[{hit.file.file_class}]")
        left -= sum(estimate_tokens(text) + 1 for text in new)
        if left < 0:
            break
        lines += new
        lines_shown += 1
        group = hit.file.file_class
        if path not in shown:
            shown.append(path)
    last_line = _what_was_left_out(arguments, found, len(shown), total - lines_shown)
    return ToolResult(
        ok=True, text=f"{first_line}\n{fenced(lines)}\n{last_line}", shown=tuple(shown)
    )


SEARCH = ToolSpec(
    name="search",
    description="Search the repository's text files line by line. Shows up to "
    f"{MAX_FILES} files with up to {LINES_PER_FILE} lines each as path:line: text, production code "
    "first. Matches are counted once a line.",
    arguments=SearchArguments,
    perform=search,
)


def _by_class(files: tuple[FileMatches, ...]) -> str:
    counts = Counter(hit.file.file_class for hit in files)
    return ", ".join(f"{name} {counts[name]}" for name in FILE_CLASSES if counts[name])


def _what_was_left_out(
    arguments: SearchArguments, found: Found, shown_files: int, lines: int
) -> str:
    """The last line of a result. ``lines``: matching lines that are not shown."""
    said = []
    if lines:
        said.append(f"{lines} matching lines")
    hidden = found.files[shown_files:]
    if hidden:
        said.append(f"{len(hidden)} of the files ({_by_class(hidden)})")
    if found.at_limit:
        said.append("all further matches (limit of work reached)")
    if found.stopped:
        said.append(f"{found.stopped} files not searched (limit of work reached)")
    if not said:
        return "Nothing was left out."
    ways = ["a longer query", "path=a directory or file"]
    if arguments.mode != "exact":
        ways.append("mode=exact")
    return f"Left out: {', '.join(said)}. To narrow: {', '.join(ways)}."


def _what_was_searched(arguments: SearchArguments, found: Found) -> str:
    how = {
        "exact": "case-sensitive whole words",
        "substring": "case-insensitive text",
        "regex": "a case-sensitive RE2 pattern",
    }[arguments.mode]
    where = f"below {short_path(arguments.path)}" if arguments.path else "everywhere"
    text = (
        f"Searched {found.searched_files} text files ({found.searched_bytes} bytes) {where} for "
        f"{json.dumps(arguments.query[:100], ensure_ascii=False)} as {how}."
    )
    if found.not_text:
        text += f" {found.not_text} binary files and links are not searched."
    if found.stopped:
        text += f" {found.stopped} files were left out (limit of work reached); give a path."
    if arguments.mode == "exact":
        text += " mode=substring also finds parts of words and other case."
    return text
