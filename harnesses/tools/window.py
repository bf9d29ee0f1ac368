"""The window of A002: an open file seen 100 lines at a time, and searches that refuse to flood.

After the published interface of SWE-agent 0.7 (Yang et al., 2024, §3 and appendix A): ``open``,
``goto``, ``scroll``, ``find_file``, ``search_file``, ``search_dir``, ``create``, and an ``edit`` of
a range of lines with a syntax guard that takes back what adds an error. Written anew, without the
originals' known defects: a replacement adds no blank line, line ends stay what they are, and the
guard looks at the whole file before and after.
"""

import warnings
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import SnapshotFile, count_lines, display_path
from harnesses.retrieval.syntax import count_errors, language_of
from harnesses.tools.output import MIN_ROOM, NO_ROOM, cut_line, fenced
from harnesses.workspace import ToolError, Window, Workspace, short_path
from schemas.base import Value

WINDOW = 100
OVERLAP = 2
"""Lines that two windows have in common when the window is scrolled."""
MAX_HITS = 100
"""A search with more is refused: it says nothing."""
LINE_CHARACTERS = 500


class OpenArguments(Value):
    path: Annotated[str, Meta(description="the file, from the root of the repository")]
    line_number: Annotated[int, Meta(ge=1, description="a line that the window shows")] = 1


class GotoArguments(Value):
    line_number: Annotated[int, Meta(ge=1, description="a line that the window shows")]


class NoArguments(Value):
    pass


class FindFileArguments(Value):
    file_name: Annotated[str, Meta(description="name or shell pattern, such as *_client.py")]
    dir: Annotated[str, Meta(description="a directory; empty: the whole repository")] = ""


class SearchFileArguments(Value):
    search_term: Annotated[str, Meta(description="text on one line, case-sensitive")]
    file: Annotated[str, Meta(description="a file; empty: the open one")] = ""


class SearchDirArguments(Value):
    search_term: Annotated[str, Meta(description="text on one line, case-sensitive")]
    dir: Annotated[str, Meta(description="a directory; empty: the whole repository")] = ""


class EditArguments(Value):
    start_line: Annotated[int, Meta(ge=1, description="first line to replace")]
    end_line: Annotated[int, Meta(ge=1, description="last line to replace")]
    replacement_text: Annotated[str, Meta(description="the lines that take their place")]


class CreateArguments(Value):
    filename: Annotated[str, Meta(description="the new file, from the root of the repository")]


def open_file(workspace: Workspace, arguments: OpenArguments, room: int) -> ToolResult:
    file = _readable(workspace, arguments.path)
    total = count_lines(file.text or b"")
    if arguments.line_number > max(total, 1):
        raise ToolError(f"{display_path(file.path)} has {total} lines")
    return _show(workspace, file, _around(arguments.line_number, total), room, opened=True)


def goto(workspace: Workspace, arguments: GotoArguments, room: int) -> ToolResult:
    file, _ = _open(workspace)
    total = count_lines(file.text or b"")
    if arguments.line_number > max(total, 1):
        raise ToolError(f"{display_path(file.path)} has {total} lines")
    return _show(workspace, file, _around(arguments.line_number, total), room, opened=True)


def scroll_down(workspace: Workspace, arguments: NoArguments, room: int) -> ToolResult:
    file, first = _open(workspace)
    return _show(workspace, file, first + WINDOW - OVERLAP, room, opened=True)


def scroll_up(workspace: Workspace, arguments: NoArguments, room: int) -> ToolResult:
    file, first = _open(workspace)
    return _show(workspace, file, first - WINDOW + OVERLAP, room, opened=True)


def find_file(workspace: Workspace, arguments: FindFileArguments, room: int) -> ToolResult:
    folder, where = _directory(workspace, arguments.dir)
    found = [
        display_path(file.path)
        for file in workspace.files
        if file.path.startswith(folder)
        and fnmatchcase(file.path.rpartition("/")[2], arguments.file_name)
    ]
    asked = f'"{short_path(arguments.file_name)}" {where}'
    if not found:
        return ToolResult(ok=True, text=f"No matches found for {asked}")
    if len(found) > MAX_HITS:
        raise ToolError(f"more than {MAX_HITS} files match {asked}; narrow the search")
    return _listed(f"Found {len(found)} matches for {asked}:", found, tuple(found), room)


def search_file(workspace: Workspace, arguments: SearchFileArguments, room: int) -> ToolResult:
    needle = _needle(arguments.search_term)
    file = _readable(workspace, arguments.file) if arguments.file else _open(workspace)[0]
    lines = (file.text or b"").split(b"\n")
    hits = [(number, line) for number, line in enumerate(lines, 1) if needle in line]
    path = display_path(file.path)
    asked = f'"{short_path(arguments.search_term)}" in {path}'
    if not hits:
        return ToolResult(ok=True, text=f"No matches found for {asked}")
    if len(hits) > MAX_HITS:
        raise ToolError(f"more than {MAX_HITS} lines match {asked}; narrow the search")
    shown = [f"{path}:{number}: {cut_line(line, line.find(needle), 200)}" for number, line in hits]
    return _listed(f"Found {len(hits)} matches for {asked}:", shown, (path,), room)


def search_dir(workspace: Workspace, arguments: SearchDirArguments, room: int) -> ToolResult:
    needle = _needle(arguments.search_term)
    folder, where = _directory(workspace, arguments.dir)
    counts = {
        display_path(file.path): sum(needle in line for line in file.text.split(b"\n"))
        for file in workspace.files
        if file.path.startswith(folder)
        and file.text is not None
        and needle in file.text
        and not any(part.startswith(".") for part in file.path.split("/"))
    }
    asked = f'"{short_path(arguments.search_term)}" {where}'
    if not counts:
        return ToolResult(ok=True, text=f"No matches found for {asked}")
    if len(counts) > MAX_HITS:
        raise ToolError(f"more than {MAX_HITS} files match {asked}; narrow the search")
    shown = [f"{path} ({count} matches)" for path, count in counts.items()]
    head = f"Found {sum(counts.values())} matches for {asked}:"
    return _listed(head, shown, tuple(counts), room)


def edit(workspace: Workspace, arguments: EditArguments, room: int) -> ToolResult:
    file, _ = _open(workspace)
    path = display_path(file.path)
    if file.encoding == "utf-16 with BOM":
        raise ToolError(f"{path} is not a UTF-8 text file; it cannot be edited")
    first, last = arguments.start_line, arguments.end_line
    total = count_lines(file.content)
    if last < first:
        raise ToolError(f"end_line={last} is before start_line={first}; nothing was changed")
    if last > max(total, 1):
        raise ToolError(f"{path} has {total} lines; nothing was changed")
    if "\0" in arguments.replacement_text:
        raise ToolError("the replacement holds a NUL character; nothing was changed")
    try:
        new = arguments.replacement_text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("the replacement is not valid Unicode text; nothing was changed") from None
    content = _replaced(file.content, first, last, new)
    problem = _new_error(file, content)
    if problem:
        raise ToolError(
            f"the edit would add a syntax error ({problem}) and was taken back; the file is as "
            "before. Give the whole of the lines that change, with their indentation"
        )
    edited = workspace.write(file, content)
    total = count_lines(edited.text or b"")
    result = _show(workspace, edited, _around(min(first, max(total, 1)), total), room)
    said = "The file is changed. Look whether indentation and neighbouring lines are right:"
    return ToolResult(ok=True, text=f"{said}\n{result.text}", shown=result.shown, edited=(path,))


def create(workspace: Workspace, arguments: CreateArguments, room: int) -> ToolResult:
    file = workspace.create(arguments.filename, b"")
    result = _show(workspace, file, 1, room)
    return ToolResult(ok=True, text=result.text, shown=result.shown, edited=result.shown)


# --- the window -----------------------------------------------------------------------------------


def _around(line: int, total: int) -> int:
    """First line of a window that has ``line`` a sixth from its top."""
    return min(max(1, line - WINDOW // 6), max(1, total - WINDOW + 1))


def _open(workspace: Workspace) -> tuple[SnapshotFile, int]:
    """The open file and the first line of the window."""
    if workspace.window is None:
        raise ToolError("no file is open; use open first")
    file = workspace.get(workspace.window.path)
    if file is None:
        raise ToolError("the open file is gone; open another one")
    return file, workspace.window.first


def _readable(workspace: Workspace, path: str) -> SnapshotFile:
    file = workspace.file(path)
    if file.text is None:
        raise ToolError(f"{display_path(file.path)} is a binary file; it cannot be opened")
    return file


def _show(
    workspace: Workspace, file: SnapshotFile, first: int, room: int, opened: bool = False
) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    lines = (file.text or b"").split(b"\n")
    total = count_lines(file.text or b"")
    first = min(max(1, first), max(1, total - WINDOW + 1))
    workspace.window = Window(file.path, first)
    last = min(total, first + WINDOW - 1)
    path = display_path(file.path)
    shown = [
        f"{number}:{cut_line(lines[number - 1], 0, LINE_CHARACTERS)}"
        for number in range(first, last + 1)
    ]
    head = f"[File: {path} ({total} lines total)]"
    if first > 1:
        head += f"\n({first - 1} more lines above)"
    tail = f"\n({total - last} more lines below)" if last < total else ""
    return ToolResult(
        ok=True,
        text=f"{head}\n{fenced(shown)}{tail}",
        shown=(path,),
        opened=(path,) if opened else (),
    )


def _listed(head: str, lines: list[str], shown: tuple[str, ...], room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    return ToolResult(ok=True, text=f"{head}\n{fenced(lines)}", shown=shown)


def _directory(workspace: Workspace, path: str) -> tuple[str, str]:
    """(prefix of the paths below it, it in words)."""
    folder = workspace.resolve(path)
    if not workspace.is_directory(folder):
        raise ToolError(f"there is no directory {short_path(path)}")
    if not folder:
        return "", "in the repository"
    return f"{folder}/", f"in {display_path(folder)}"


def _needle(term: str) -> bytes:
    if not term or "\n" in term:
        raise ToolError("search_term must be text on one line")
    return term.encode("utf-8", "replace")


# --- editing --------------------------------------------------------------------------------------


def _replaced(content: bytes, first: int, last: int, new: bytes) -> bytes:
    """Lines ``first`` to ``last`` become ``new``: with the line ends of the file, and with a line
    end behind the last line exactly where there was one. An empty ``new`` deletes the lines."""
    lines = content.split(b"\n")
    without_end = lines[-1] != b""
    if not without_end:
        lines.pop()
    crlf = bool(lines) and lines[min(first, len(lines)) - 1].endswith(b"\r")
    replacement = new.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n") if new else []
    if crlf:
        replacement = [line + b"\r" for line in replacement]
    if without_end and last >= len(lines) and replacement:
        replacement[-1] = replacement[-1].removesuffix(b"\r")
    lines[first - 1 : last] = replacement
    joined = b"\n".join(lines)
    return joined if without_end or not lines else joined + b"\n"


def _new_error(file: SnapshotFile, content: bytes) -> str:
    """What the edit breaks that was whole before; empty: nothing. Python by its compiler, Go by the
    number of errors of its grammar."""
    language = language_of(file.path)
    if language == "go":
        before, after = (count_errors(text, "go") for text in (file.content, content))
        return f"{after} errors instead of {before}" if after > before else ""
    if language == "python" and not _python_error(file.content, file.path):
        return _python_error(content, file.path)
    return ""


def _python_error(content: bytes, path: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(content, display_path(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            return type(error).__name__
    return ""


OPEN = ToolSpec(
    name="open",
    description=f"Open a file in a window of {WINDOW} lines around a line.",
    arguments=OpenArguments,
    perform=open_file,
)
GOTO = ToolSpec(
    name="goto",
    description="Move the window of the open file to a line.",
    arguments=GotoArguments,
    perform=goto,
)
SCROLL_DOWN = ToolSpec(
    name="scroll_down",
    description=f"Move the window down; {OVERLAP} lines stay in sight.",
    arguments=NoArguments,
    perform=scroll_down,
)
SCROLL_UP = ToolSpec(
    name="scroll_up",
    description=f"Move the window up; {OVERLAP} lines stay in sight.",
    arguments=NoArguments,
    perform=scroll_up,
)
FIND_FILE = ToolSpec(
    name="find_file",
    description=f"Files by name or shell pattern. More than {MAX_HITS} are refused.",
    arguments=FindFileArguments,
    perform=find_file,
)
SEARCH_FILE = ToolSpec(
    name="search_file",
    description=f"Lines of a file that hold a text. More than {MAX_HITS} are refused.",
    arguments=SearchFileArguments,
    perform=search_file,
)
SEARCH_DIR = ToolSpec(
    name="search_dir",
    description="Files that hold a text, with how many lines do. More than "
    f"{MAX_HITS} files are refused.",
    arguments=SearchDirArguments,
    perform=search_dir,
)
EDIT = ToolSpec(
    name="edit",
    description="Replace a range of lines of the open file, both ends included. An edit that adds "
    "a syntax error is taken back.",
    arguments=EditArguments,
    perform=edit,
)
CREATE = ToolSpec(
    name="create",
    description="Create an empty production file and open it.",
    arguments=CreateArguments,
    perform=create,
)
