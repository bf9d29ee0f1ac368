"""``edit_file``: replace one passage of a file."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import count_lines, display_path
from harnesses.tools.output import fenced
from harnesses.tools.read_file import numbered_lines
from harnesses.workspace import ToolError, Workspace
from schemas.base import Value

CONTEXT_LINES = 3
SHOWN_LINES = 30
SHOWN_TOKENS = 600


class EditFileArguments(Value):
    path: Annotated[str, Meta(description="the file, from the root of the repository")]
    old: Annotated[
        str,
        Meta(
            description="text to replace, exactly as in the file (without line numbers); it must "
            "occur once, so take in enough lines around it"
        ),
    ]
    new: Annotated[str, Meta(description="text that takes its place")]


def edit_file(workspace: Workspace, arguments: EditFileArguments, room: int) -> ToolResult:
    """An edit is always carried out; ``room`` only decides whether the new lines are shown."""
    file = workspace.file(arguments.path)
    path = display_path(file.path)
    if arguments.old == arguments.new:
        raise ToolError("old and new are the same; nothing was changed")
    if "\0" in arguments.new:
        raise ToolError("new holds a NUL character; nothing was changed")
    if file.text is None or file.encoding == "utf-16 with BOM":
        raise ToolError(f"{path} is not a UTF-8 text file; it cannot be edited")
    try:
        old, new = arguments.old.encode("utf-8"), arguments.new.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("old or new is not valid Unicode text; nothing was changed") from None
    begin, end = _only_occurrence(file.content, old, path)
    if _ends_with_crlf(file.content, begin, end):
        new = new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    edited = workspace.write(file, file.content[:begin] + new + file.content[end:])

    assert edited.text is not None  # no NUL was added to text
    first = file.content.count(b"\n", 0, begin) + 1
    last = first + new.count(b"\n")
    result = f"Edited {path}: lines {first}-{last} are new."
    total = count_lines(edited.text)
    if total and room > SHOWN_TOKENS:
        start = min(max(1, first - CONTEXT_LINES), total)
        stop = min(total, last + CONTEXT_LINES, start + SHOWN_LINES - 1)
        result += f"\n{fenced(numbered_lines(edited.text, start, stop, SHOWN_TOKENS))}"
    return ToolResult(ok=True, text=result, shown=(path,), edited=(path,))


EDIT_FILE = ToolSpec(
    name="edit_file",
    description="Replace a passage of a production file. `old` must occur exactly once in it.",
    arguments=EditFileArguments,
    perform=edit_file,
)


def _only_occurrence(content: bytes, old: bytes, path: str) -> tuple[int, int]:
    """Where ``old`` stands in ``content``. Raises :class:`ToolError` unless exactly once.

    Line ends are shown without their ``\\r``, so ``old`` may have ``\\n`` where the file has
    ``\\r\\n``.
    """
    if not old:
        if not content:
            return 0, 0
        raise ToolError("old is empty; give the text to replace, once in the file")
    matches = _occurrences(content, old)
    if not matches and b"\r\n" in content:
        # Search where line ends are alike, then walk back to offsets in the file's own bytes.
        plain = content.replace(b"\r\n", b"\n")
        matches = [
            (_original_offset(content, begin), _original_offset(content, end))
            for begin, end in _occurrences(plain, old.replace(b"\r\n", b"\n"))
        ]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ToolError(
            f"old occurs 0 times in {path}; nothing was changed. Read the file again and copy the "
            "lines exactly, with their indentation and without line numbers"
        )
    lines = ", ".join(str(content.count(b"\n", 0, begin) + 1) for begin, _ in matches[:10])
    raise ToolError(
        f"old occurs {len(matches)} times in {path} (lines {lines}); nothing was changed. "
        "Take in more lines around the one to replace"
    )


def _occurrences(content: bytes, old: bytes) -> list[tuple[int, int]]:
    """All occurrences, overlapping ones too: `aa` stands twice in `aaa` and is ambiguous."""
    found: list[tuple[int, int]] = []
    begin = content.find(old)
    while begin >= 0 and len(found) < 1_000:
        found.append((begin, begin + len(old)))
        begin = content.find(old, begin + 1)
    return found


def _original_offset(content: bytes, offset: int) -> int:
    """The offset in ``content`` of an offset in the same bytes with LF for every CRLF."""
    original = plain = 0
    while True:
        line_end = content.find(b"\r\n", original)
        if line_end < 0 or plain + (line_end - original) >= offset:
            return original + (offset - plain)
        plain += line_end - original + 1
        original = line_end + 2


def _ends_with_crlf(content: bytes, begin: int, end: int) -> bool:
    """Do the lines of the replaced passage end with CRLF? Without a line end in it, the file's
    first line decides."""
    passage = content[begin:end]
    sample = passage if b"\n" in passage else content
    return sample[: sample.find(b"\n") + 1].endswith(b"\r\n")
