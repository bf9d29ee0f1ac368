"""A model as the driver: what the memory delivered stands before the prompt, tools by their schema.

Two ways of acting are read alike: the server's own tool calls, and one JSON object an answer
(``{"tool": …, "arguments": {…}}``), to whose schema a server that can do so constrains the model.
The first user message is the prompt byte for byte; delivered texts stand in the system message,
which is the memory channel. What is no action gets a fixed typed error, and the third one in a row
ends the session with what was said as its last words.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from harnesses.contract import Message
from harnesses.drivers.contract import (
    AskModel,
    Claimed,
    ClaimKind,
    Driver,
    Effect,
    Finish,
    ModelAnswer,
    ModelCall,
    Remembered,
    Result,
    SessionInput,
    Steps,
    ask,
    call,
    recall,
    remember,
)
from schemas.json_nesting import nesting
from schemas.transfer.offered_tool import OfferedTool

MALFORMED_IN_A_ROW = 3
MAX_NESTING = 64
"""An answer that nests deeper is no action: nothing of ours goes that deep after it."""
NOT_AN_ACTION = (
    'Error: answer with one JSON object {"tool": "NAME", "arguments": {…}} and nothing else.'
)
FINISH = OfferedTool(
    name="finish",
    description="Ends the task with your last words and what you did.",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "kind": {
                            "type": "string",
                            "enum": ["recalled", "saved", "checked", "done"],
                        },
                        "about": {"type": "string"},
                    },
                    "required": ["kind", "about"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["text", "claims"],
        "additionalProperties": False,
    },
)
REMEMBER = OfferedTool(
    name="remember",
    description="Keeps a text for other sessions.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)


class _Claim(msgspec.Struct, frozen=True):
    kind: ClaimKind
    about: str = ""


def run(given: SessionInput) -> Steps:
    """One conversation. A write session offers ``remember`` instead of the fixture's tools."""
    tools = (REMEMBER, FINISH) if given.purpose == "write" else (*given.tools, FINISH)
    system = given.system_prompt
    if given.purpose == "task":
        system += _delivered((yield from recall(given.turns[0])))
    messages = [Message("system", system)]
    turns_left = given.max_turns
    finish = Finish("")
    for turn in given.turns:
        messages.append(Message("user", turn))
        malformed = 0
        while True:
            if turns_left == 0:
                yield Finish("")
                return
            turns_left -= 1
            answer = yield from ask(AskModel(tuple(messages), tools, action_schema(tools)))
            if answer.failed:
                yield Finish("")
                return
            action = read_action(answer)
            messages.append(Message("assistant", answer.content or json.dumps(action)))
            if action is None:
                malformed += 1
                if malformed == MALFORMED_IN_A_ROW:
                    finish = Finish(answer.content, ended="malformed")
                    break
                messages.append(Message("user", NOT_AN_ACTION))
                continue
            malformed = 0
            name, arguments = action
            if name == FINISH.name:
                finish = _finish(arguments)
                break
            messages.append(Message("user", (yield from _perform(given, name, arguments))))
    yield finish


def _perform(given: SessionInput, name: str, arguments: Any) -> Generator[Effect, Result, str]:
    """Carry an action out; returns what the model is shown of it."""
    if given.purpose == "write":
        text = arguments.get("text") if isinstance(arguments, dict) else None
        if name != REMEMBER.name or not isinstance(text, str):
            return "Error: there is only `remember` with a `text`, and `finish`."
        kept = yield from remember(text)
        return "Kept." if kept.acknowledged else f"Not kept: {kept.text}"
    shown = yield from call(name, arguments)
    return f"Result of {name}: {shown.text}"


def action_schema(tools: Sequence[OfferedTool]) -> dict[str, Any]:
    """JSON schema of one action: exactly one of the tools with its own arguments."""
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "arguments": tool.parameters},
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools
        ]
    }


def read_action(answer: ModelAnswer) -> tuple[str, Any] | None:
    """(tool, arguments) of an answer; None where it is no action. The first of several calls."""
    if answer.calls:
        first: ModelCall = answer.calls[0]
        if _too_deep(first.arguments):
            return None
        return first.name, _decoded(first.arguments)
    if _too_deep(answer.content):
        return None
    found = _decoded(answer.content.strip().removeprefix("```json").removesuffix("```"))
    if isinstance(found, dict) and isinstance(found.get("tool"), str):
        return found["tool"], found.get("arguments", {})
    return None


def _too_deep(text: str) -> bool:
    return nesting(text.encode("utf-8", "surrogatepass")) > MAX_NESTING


def _decoded(text: str) -> Any:
    """The JSON value of a text; the text where it is none (the fixture refuses it, typed)."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except ValueError:
        return text


def _finish(arguments: Any) -> Finish:
    """Last words; claims that are not of the known form are not claims."""
    if not isinstance(arguments, dict):
        return Finish(str(arguments))
    claims = []
    given = arguments.get("claims")
    for claim in given if isinstance(given, list) else []:
        try:
            read = msgspec.convert(claim, _Claim)
        except msgspec.ValidationError:
            continue
        claims.append(Claimed(read.kind, read.about))
    return Finish(str(arguments.get("text", "")), tuple(claims))


def _delivered(found: Remembered) -> str:
    """What the memory delivered, as the model is shown it; empty where it delivered nothing."""
    lines = [item.text for item in found.delivered if item.admitted]
    for notice in found.notices:
        said = {
            "conflict": "These records disagree, and nobody has decided",
            "lapsed": "These records have lapsed",
            "not_yet_valid": "These records do not hold yet",
        }[notice.kind]
        lines.append(f"{said}: {', '.join(notice.records)}.")
    return "\n\nFrom your memory:\n\n" + "\n\n".join(lines) if lines else ""


DRIVER = Driver(
    kind="chat",
    title="a model",
    run=run,
    prompt_files=("drivers/prompts/chat_system.md",),
)
