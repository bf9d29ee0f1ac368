"""``list_files``: what lies in a directory, the whole subtree where that fits."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import SnapshotFile, display_path
from harnesses.tools.output import BLOCK_TOKENS, MIN_ROOM, NO_ROOM, estimate_tokens, fenced
from harnesses.workspace import ToolError, Workspace, short_path
from schemas.base import Value

RESERVED_TOKENS = 80


class ListFilesArguments(Value):
    path: Annotated[str, Meta(description="a directory; empty: the root of the repository")] = ""


def list_files(workspace: Workspace, arguments: ListFilesArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    directory = workspace.resolve(arguments.path)
    if not workspace.is_directory(directory):
        if workspace.get(directory) is not None:
            raise ToolError(f"{display_path(directory)} is a file; use read_file")
        raise ToolError(
            f"there is no directory {short_path(directory)}{workspace.same_name(directory)}"
        )
    prefix = f"{directory}/" if directory else ""
    files = [file for file in workspace.files if file.path.startswith(prefix)]
    where = display_path(directory) if directory else "the root"
    if not files:
        return ToolResult(ok=True, text=f"0 files below {where}")
    limit = min(BLOCK_TOKENS, room) - RESERVED_TOKENS

    lines = [_describe(file) for file in files]
    if sum(estimate_tokens(line) + 1 for line in lines) <= limit:
        return ToolResult(
            ok=True,
            text=f"{len(files)} files below {where}\n{fenced(lines)}\nNothing was left out.",
            shown=tuple(display_path(file.path) for file in files),
        )

    # Only this level: files as they are, every subdirectory as one line.
    entries: list[tuple[str, SnapshotFile | None]] = []
    below: dict[str, int] = {}
    for file in files:
        name, slash, _ = file.path[len(prefix) :].partition("/")
        if not slash:
            entries.append((_describe(file), file))
        elif name in below:
            below[name] += 1
        else:
            below[name] = 1
            entries.append((name, None))
    lines = []
    shown = []
    for text, entry in entries:
        line = text if entry else f"{display_path(prefix + text)}/ ({below[text]} files)"
        limit -= estimate_tokens(line) + 1
        if limit < 0:
            break
        lines.append(line)
        if entry:
            shown.append(display_path(entry.path))
    last_line = "Files in subdirectories were left out; list a subdirectory to see them."
    if len(lines) < len(entries):
        last_line = (
            f"Left out: the last {len(entries) - len(lines)} of {len(entries)} entries; "
            "list a subdirectory, or search with path= to look into them."
        )
    return ToolResult(
        ok=True,
        text=f"{len(files)} files below {where}\n{fenced(lines)}\n{last_line}",
        shown=tuple(shown),
    )


LIST_FILES = ToolSpec(
    name="list_files",
    description="List a directory: every file below it where that fits, else its own files and its "
    "subdirectories with how many files they hold.",
    arguments=ListFilesArguments,
    perform=list_files,
)


def _describe(file: SnapshotFile) -> str:
    path = display_path(file.path)
    if file.mode == "160000":
        return f"{path} (submodule, not followed)"
    if file.mode == "120000":
        return f"{path} (symlink, not followed)"
    kind = "binary" if file.text is None else file.file_class
    return f"{path} ({kind}, {len(file.content)} bytes)"
