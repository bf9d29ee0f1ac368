"""The tools of the interactive arms: pure functions of a workspace and the model's arguments.

``workspace`` decides what may be read and written, ``output`` how results are cut and fenced; every
other module is one tool, its arguments and its description.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harnesses.contract import ToolResult, ToolSpec
from harnesses.tools.create_file import CREATE_FILE, create_file
from harnesses.tools.edit_file import EDIT_FILE, edit_file
from harnesses.tools.list_files import LIST_FILES, list_files
from harnesses.tools.output import TURN_TOKENS
from harnesses.tools.read_file import READ_FILE, read_file
from harnesses.tools.search import SEARCH, search
from harnesses.workspace import Refused, ToolError, Workspace

_TOOLS: Mapping[str, tuple[ToolSpec, Callable[[Workspace, Any, int], ToolResult]]] = {
    "search": (SEARCH, search),
    "list_files": (LIST_FILES, list_files),
    "read_file": (READ_FILE, read_file),
    "edit_file": (EDIT_FILE, edit_file),
    "create_file": (CREATE_FILE, create_file),
}


def dispatch(
    workspace: Workspace, name: str, arguments: dict[str, Any], room: int = TURN_TOKENS
) -> ToolResult:
    """Perform one tool call. ``room``: estimated tokens that its text may have at most.

    Everything that goes wrong is a result with ``ok=False``: the text begins with ``Error:``, says
    what to do, and nothing has changed.
    """
    if name not in _TOOLS:
        return ToolResult(ok=False, text=f"Error: there is no tool {name[:64]!r}.")
    spec, perform = _TOOLS[name]
    try:
        return perform(workspace, msgspec.convert(arguments, spec.arguments), room)
    except msgspec.ValidationError as error:
        return ToolResult(ok=False, text=f"Error: {name}: {error}.")
    except Refused as refusal:
        return ToolResult(ok=False, text=f"Error: {refusal}.", refused=refusal.kind)
    except ToolError as error:
        return ToolResult(ok=False, text=f"Error: {error}.")
