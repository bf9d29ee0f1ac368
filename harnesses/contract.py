"""What an arm is, and everything that passes between an arm and the engine that runs it.

An arm is a sans-I/O state machine: a generator function ``run(cell)`` that yields an :data:`Effect`
and is sent an :data:`EffectResult`. The engine performs and records what it yields:

    effect                what comes back
    AskModel              Answer      (``harnesses.answers.parse_answer`` of the model's reply)
    CallTool              ToolResult  (``harnesses.tools.dispatch`` on the cell's workspace)
    RunPublicTests        ToolResult  (the sandboxed run's report; the arm fences and cuts it)
    Submit                nothing: the cell ends, the generator is closed

The engine, never the arm, enforces budgets: a turn is charged before its answer is parsed; a
``CallTool`` or ``RunPublicTests`` costs a tool call, the latter also a test run. A used-up budget
answers the effect with :data:`TOOL_CALLS_USED_UP` or :data:`TEST_RUNS_USED_UP`; used-up turns close
the generator at its next ``AskModel``. An arm that returns without ``Submit`` has not submitted.
The same inputs give the same effects, so a recorded cell can be driven again.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from harnesses.workspace import Refusal, Workspace
from schemas.transfer.offered_tool import OfferedTool

ReasoningHistory = Literal["omit", "tool_chain", "keep"]

Salvage = Literal["native", "recovered", "failed", "none"]
"""How the calls were found: as the server's own tool calls; in the text; there was something that
looks like a call and cannot be read; there was none."""

Violation = Literal[
    "malformed_call",  # not JSON, cut off, duplicate keys, NaN, too deep, too large
    "unknown_tool",
    "invalid_arguments",  # missing, extra or of the wrong type
    "second_call",  # two calls where the arm allows one
    "reasoning_in_content",  # <think> or a harmony analysis channel in the visible text
    "harmony_in_content",  # any other <|channel|> markup there
]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as the model sees it. ``arguments`` is a strict msgspec struct: both the check of
    what the model sends and, through :attr:`parameters`, what it is told."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    perform: Callable[[Workspace, Any, int], "ToolResult"] | None = None
    """What it does, given its arguments and the room that its text may take; None for a tool that
    the arm turns into an effect of its own."""

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments, flat (no ``$ref``, no ``anyOf`` with null): chat templates
        print it into the prompt, and small models read the plain form best."""
        _, components = msgspec.json.schema_components([self.arguments])
        schema = components[self.arguments.__name__]
        properties = {}
        for name, declared in schema["properties"].items():
            alternatives = [form for form in declared.get("anyOf", ()) if form != {"type": "null"}]
            merged = {**declared, **alternatives[0]} if alternatives else dict(declared)
            properties[name] = {
                key: value
                for key, value in merged.items()
                if key != "anyOf" and not (key == "default" and value is None)
            }
        return {
            "type": "object",
            "properties": properties,
            "required": schema.get("required", []),
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that its tool's schema accepts. ``arguments`` has only what the model sent."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that is not executed. ``error`` is a fixed typed text that goes back to the model.

    ``name`` and ``arguments`` are what the history repeats: the name if it could be one, and the
    arguments if they were a JSON object, else empty. Chat templates fail on anything else.
    """

    id: str
    name: str
    error: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's reply, read by the same rules for every arm.

    ``content`` is the visible text without reasoning and without calls recovered from it.
    ``cut`` is true for ``finish_reason = length``; then ``calls`` is empty.
    """

    content: str
    reasoning: str = ""
    calls: tuple[ToolCall | RejectedCall, ...] = ()
    salvage: Salvage = "none"
    cut: bool = False
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool did. The model sees ``text`` and nothing else.

    ``shown``, ``opened`` and ``edited`` are paths for the mechanism funnel: whose lines or name the
    text shows, whose content was read, whose content was changed by this call.
    """

    ok: bool
    text: str
    shown: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. ``reasoning`` is sent only where the study keeps it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall | RejectedCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class CellInput:
    """Everything that an arm may know about its cell."""

    statement: str
    workspace: Workspace
    prompts: Mapping[str, str]
    """Contents of the arm's prompt files by file name (``harnesses.prompts.read_prompts``)."""
    turns: int
    tool_calls: int
    test_runs: int
    context_length: int
    reasoning_history: ReasoningHistory = "omit"
    oracle_files: tuple[str, ...] = ()
    """Gold production paths; empty unless the arm declares ``needs_oracle_files``."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """One turn."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    one_action: bool = False
    """At most one call an answer; passed to ``parse_answer``."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """``room`` is how many estimated tokens the results of this turn may still take."""

    name: str
    arguments: dict[str, Any]
    room: int


@dataclass(frozen=True, slots=True)
class RunPublicTests:
    """Run the public tests on the workspace as it is now."""


@dataclass(frozen=True, slots=True)
class Submit:
    """The workspace as it is now is the arm's patch."""


Effect = AskModel | CallTool | RunPublicTests | Submit
EffectResult = Answer | ToolResult


@dataclass(frozen=True, slots=True)
class Harness:
    """One registered arm. Paths are relative to the ``harnesses`` package, ``/`` between parts."""

    id: str
    title: str
    run: Callable[[CellInput], Generator[Effect, EffectResult, None]]
    prompt_files: tuple[str, ...]
    tools: tuple[ToolSpec, ...]
    """Every tool that it calls or offers."""
    needs_oracle_files: bool = False
    needs_index: bool = False
    """Its tools look things up in the index of the base tree (``Workspace.index``)."""


TOOL_CALLS_USED_UP = ToolResult(
    ok=False,
    text="Error: no tool call is left. It was not executed. "
    "Call submit to hand in the workspace as it is.",
)
TEST_RUNS_USED_UP = ToolResult(
    ok=False,
    text="Error: no test run is left. The tests were not run. "
    "Go on without them, or call submit to hand in the workspace as it is.",
)


def ask(
    messages: Sequence[Message], tools: tuple[ToolSpec, ...] = (), *, one_action: bool = False
) -> Generator[Effect, EffectResult, Answer]:
    """``answer = yield from ask(...)``: :class:`AskModel` with a result type that is checked."""
    answer = yield AskModel(tuple(messages), tools, one_action)
    if not isinstance(answer, Answer):
        raise TypeError(f"AskModel was answered with {type(answer).__name__}, not Answer")
    return answer


def perform(
    effect: CallTool | RunPublicTests,
) -> Generator[Effect, EffectResult, ToolResult]:
    """``result = yield from perform(CallTool(...))``: the same for effects of the tools."""
    result = yield effect
    if not isinstance(result, ToolResult):
        raise TypeError(f"{type(effect).__name__} was answered with {type(result).__name__}")
    return result


def with_reasoning(messages: Sequence[Message], history: ReasoningHistory) -> tuple[Message, ...]:
    """Keep the reasoning that ``history`` allows in a prompt (interpretations 5).

    ``tool_chain`` keeps it in the assistant messages after the last user message: the unbroken
    chain of tool calls that the model is in.
    """
    if history == "keep":
        return tuple(messages)
    last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    keep_from = last_user if history == "tool_chain" else len(messages)
    return tuple(
        message if index > keep_from or not message.reasoning else replace(message, reasoning="")
        for index, message in enumerate(messages)
    )


def wire(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the form of OpenAI's chat completions request (``messages``)."""
    wired: list[dict[str, Any]] = []
    for message in messages:
        item: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.reasoning:
            item["reasoning_content"] = message.reasoning
        if message.tool_calls:
            item["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            item["tool_call_id"] = message.tool_call_id
        wired.append(item)
    return wired


def wire_tools(tools: Sequence[ToolSpec | OfferedTool]) -> list[dict[str, Any]]:
    """Tools in the form of OpenAI's chat completions request (``tools``)."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]
