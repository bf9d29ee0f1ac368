"""The tools of the arms: pure functions of a workspace and the model's arguments.

``workspace`` decides what may be read and written, ``output`` how results are cut and fenced; every
other module is a tool or a few that belong together: arguments, function and description.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harnesses.contract import ToolResult, ToolSpec
from harnesses.tools.output import TURN_TOKENS
from harnesses.workspace import Refused, ToolError, Workspace


def dispatch(
    workspace: Workspace,
    tools: Sequence[ToolSpec],
    name: str,
    arguments: dict[str, Any],
    room: int = TURN_TOKENS,
) -> ToolResult:
    """Perform one tool call. ``room``: estimated tokens that its text may have at most.

    Everything that goes wrong is a result with ``ok=False``: the text begins with ``Error:``, says
    what to do, and nothing has changed.
    """
    spec = next((tool for tool in tools if tool.name == name), None)
    if spec is None or spec.perform is None:
        return ToolResult(ok=False, text=f"Error: there is no tool {name[:64]!r}.")
    try:
        return spec.perform(workspace, msgspec.convert(arguments, spec.arguments), room)
    except msgspec.ValidationError as error:
        return ToolResult(ok=False, text=f"Error: {name}: {error}.")
    except Refused as refusal:
        return ToolResult(ok=False, text=f"Error: {refusal}.", refused=refusal.kind)
    except ToolError as error:
        return ToolResult(ok=False, text=f"Error: {error}.")
