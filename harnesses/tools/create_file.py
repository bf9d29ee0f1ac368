"""``create_file``: add a new production file."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.snapshot import display_path
from harnesses.workspace import ToolError, Workspace
from schemas.base import Value


class CreateFileArguments(Value):
    path: Annotated[str, Meta(description="the new file, from the root of the repository")]
    content: Annotated[str, Meta(description="its whole content")]


def create_file(workspace: Workspace, arguments: CreateFileArguments, room: int) -> ToolResult:
    if "\0" in arguments.content:
        raise ToolError("content holds a NUL character; nothing was created")
    try:
        content = arguments.content.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("content is not valid Unicode text; nothing was created") from None
    path = display_path(workspace.create(arguments.path, content).path)
    return ToolResult(
        ok=True,
        text=f"Created {path} ({len(content)} bytes).",
        shown=(path,),
        edited=(path,),
    )


CREATE_FILE = ToolSpec(
    name="create_file",
    description="Add a new production file. It must not exist yet.",
    arguments=CreateFileArguments,
    perform=create_file,
)
