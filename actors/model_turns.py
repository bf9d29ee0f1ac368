"""What is asked of a model and what it answered, as artifacts that every kind of cell shares."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from schemas.base import Value

JSON = "application/json"


class ModelRequest(Value):
    """One turn's request, without the instance that it is sent to."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    temperature: float
    top_p: float
    seed: int
    max_tokens: int
    reasoning: Literal["on", "off", "low", "medium", "high"]
    answer_schema: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """JSON schema that the server constrains the answer to, where the driver gives one."""


class RecordedCall(Value):
    """A native tool call as the server sent it."""

    id: str
    name: str
    arguments: str


class RecordedAnswer(Value):
    """What the bytes of an answer say, before any reading of calls out of text."""

    content: str
    reasoning: str
    calls: tuple[RecordedCall, ...]
    finish_reason: str
