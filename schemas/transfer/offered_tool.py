"""A tool as an agent learns of it: name, description, parameters, and nothing else."""

from typing import Any

from schemas.base import Value
from schemas.transfer.family import DECLARE_DECISION, Tool

_JSON_TYPES = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "list": {"type": "array"},
}


class OfferedTool(Value):
    """What a fixture shows of a tool. Its effect and its operation are not shown."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of an object; arguments that it does not name are refused."""


def offer(tool: Tool) -> OfferedTool:
    """What an agent is told about one of the fixture's own tools."""
    return OfferedTool(
        name=tool.name,
        description=tool.description,
        parameters={
            "type": "object",
            "properties": {name: dict(_JSON_TYPES[kind]) for name, kind in tool.parameters.items()},
            "required": [name for name in tool.parameters if name not in tool.optional],
            "additionalProperties": False,
        },
    )


def decision_tool(options: tuple[str, ...]) -> OfferedTool:
    """The tool that every fixture offers. Options are sorted, so that their order says nothing."""
    return OfferedTool(
        name=DECLARE_DECISION,
        description="Declare which option you choose, and the ids of the records that you used. "
        "Declare before you change anything.",
        parameters={
            "type": "object",
            "properties": {
                "option": {"type": "string", "enum": sorted(options)},
                "basis": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["option", "basis"],
            "additionalProperties": False,
        },
    )
