"""``delete_file``: remove a production file."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import display_path
from harnesses.workspace import Workspace
from schemas.base import Value


class DeleteFileArguments(Value):
    path: Annotated[str, Meta(description="the file, from the root of the repository")]


def delete_file(workspace: Workspace, arguments: DeleteFileArguments, room: int) -> ToolResult:
    file = workspace.file(arguments.path)
    workspace.delete(file)
    path = display_path(file.path)
    return ToolResult(ok=True, text=f"Deleted {path}.", shown=(path,), edited=(path,))


DELETE_FILE = ToolSpec(
    name="delete_file",
    description="Remove a production file.",
    arguments=DeleteFileArguments,
    perform=delete_file,
)
