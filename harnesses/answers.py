"""Reading a model's reply: one set of rules for every arm.

Calls come, in this order of preference, from the server's own tool calls (``native``) or from the
visible text (``recovered``) in one of these forms:

    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
    <tool_call>{"name": NAME, "arguments": {…}}</tool_call>
    <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>
    ```json {"name": NAME, "arguments": {…}} ```
    {"name": NAME, "arguments": {…}}, from the start of a line to the end of one

``"tool"`` may stand for ``"name"``, and ``"parameters"`` for ``"arguments"``.

The text's calls are recovered all together or not at all: where one cannot be read, none is carried
out, because a passage inside its arguments could pass for the next one. Nothing inside reasoning is
ever a call, cut-off JSON is never completed, and an answer that hit its token limit has no calls:
servers close half-written arguments themselves, so even a call that looks whole may be a guess.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from harnesses.contract import Answer, RejectedCall, Salvage, ToolCall, ToolSpec, Violation

MAX_ARGUMENTS = 1_000_000
"""Characters of one call's arguments."""
MAX_CONTENT = 4_000_000
"""Characters of text in which calls are looked for."""
MAX_DEPTH = 32

CUT_ANSWER = (
    "Your answer was cut off at the token limit. Nothing in it was carried out. "
    "Answer again, shorter, and call one tool."
)
NO_CALL = "Your answer called no tool. Call a tool or submit."
UNREADABLE_CALL = (
    "Your answer holds a tool call that cannot be read. Nothing in it was carried out. "
    "Call the tool again with complete JSON arguments."
)
SECOND_CALL = (
    "Error (second_call): one call an answer is allowed, and none of these was carried out. "
    "Make one call."
)

_Claim = tuple[str | None, str, Any]
"""(id or None, name, decoded arguments or a :class:`_Malformed`)."""


class _Malformed(ValueError):
    """Text that cannot be read as the JSON of a call; the message completes `arguments …`."""


def parse_answer(
    content: str | None,
    reasoning: str | None,
    native_calls: Sequence[tuple[str | None, str | None, str | None]],
    finish_reason: str | None,
    tools: Sequence[ToolSpec],
    one_action: bool = False,
) -> Answer:
    """Read one reply. Never raises: whatever a model says is an observation.

    ``native_calls``: (id, name, arguments as JSON text) in order. ``one_action``: two calls are
    both refused.
    """
    violations: list[Violation] = []
    visible, thought = _without_thinking(_valid_text(content))
    if thought:
        violations.append("reasoning_in_content")
    claims: list[_Claim] = []
    salvage: Salvage = "none"
    # The markup is taken out of the text whatever becomes of the calls in it.
    harmony_calls: list[tuple[str, str]] = []
    if "<|channel|>" in visible or "<|message|>" in visible:
        visible, analysis, harmony_calls = _split_harmony(visible)
        violations.append("reasoning_in_content" if analysis else "harmony_in_content")
        thought = f"{thought}\n{analysis}" if thought and analysis else thought or analysis
    reasoning = _valid_text(reasoning)
    if thought:
        reasoning = f"{reasoning}\n{thought}" if reasoning else thought

    if finish_reason == "length":
        return Answer(content=visible, reasoning=reasoning, cut=True, violations=tuple(violations))

    if native_calls:
        for call_id, name, arguments in native_calls:
            claims.append((call_id, _valid_text(name), _decoded(arguments or "")))
        readable = any(not isinstance(claim[2], _Malformed) for claim in claims)
        salvage = "native" if readable else "failed"
    else:
        try:
            recovered, rest = _recover(visible, harmony_calls, tools)
        except _Malformed:
            salvage = "failed"
            violations.append("malformed_call")
        else:
            if recovered:
                salvage = "recovered"
                visible = rest
                claims = [(None, name, _decoded_once_more(value)) for name, value in recovered]

    ids = _unique_ids([claim[0] for claim in claims])
    if one_action and len(claims) > 1:
        violations.append("second_call")
        calls: tuple[ToolCall | RejectedCall, ...] = tuple(
            RejectedCall(call_id, _printable_name(name), SECOND_CALL, _object_or_empty(value))
            for call_id, (_, name, value) in zip(ids, claims, strict=True)
        )
    else:
        checked = [
            _check(call_id, name, value, tools)
            for call_id, (_, name, value) in zip(ids, claims, strict=True)
        ]
        calls = tuple(call for call, _ in checked)
        violations += [violation for _, violation in checked if violation is not None]
    return Answer(
        content=visible,
        reasoning=reasoning,
        calls=calls,
        salvage=salvage,
        violations=tuple(violations),
    )


# --- one call -------------------------------------------------------------------------------------


def _check(
    call_id: str, name: str, value: Any, tools: Sequence[ToolSpec]
) -> tuple[ToolCall | RejectedCall, Violation | None]:
    """Accept a call or say, in a text of fixed form, what is wrong with it."""

    def reject(kind: Violation, why: str) -> tuple[RejectedCall, Violation]:
        error = f"Error ({kind}): {why}. The call was not carried out."
        rejected = RejectedCall(call_id, _printable_name(name), error, _object_or_empty(value))
        return rejected, kind

    spec = next((tool for tool in tools if tool.name == name), None)
    if spec is None:
        known = ", ".join(tool.name for tool in tools) or "none"
        return reject("unknown_tool", f"there is no tool of this name; the tools are: {known}")
    if isinstance(value, _Malformed):
        return reject("malformed_call", f"the arguments of {spec.name} {value}")
    if not isinstance(value, dict):
        return reject("malformed_call", f"the arguments of {spec.name} are not a JSON object")
    fields = msgspec.structs.fields(spec.arguments)
    missing = [field.name for field in fields if field.required and field.name not in value]
    if missing:
        return reject("invalid_arguments", f"{spec.name} needs {', '.join(missing)}")
    known_names = [field.name for field in fields]
    if any(key not in known_names for key in value):
        allowed = ", ".join(known_names) or "no arguments"
        return reject("invalid_arguments", f"{spec.name} takes only: {allowed}")
    for field in fields:
        if field.name in value:
            try:
                msgspec.convert(value[field.name], field.type, strict=True)
            except msgspec.ValidationError as error:
                return reject("invalid_arguments", f"{spec.name}: {field.name}: {error}")
    return ToolCall(call_id, spec.name, value), None


def _object_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _printable_name(name: str) -> str:
    """The name as the model said it, less what some chat template cannot print again: a word of
    ours in its place would be copied by small models to the end of the cell."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:64] or "_"


def _unique_ids(given: Sequence[str | None]) -> list[str]:
    """Keep usable ids; replace missing, repeated and odd ones by ``call_0``, ``call_1`` …"""
    usable = [
        call_id
        if isinstance(call_id, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", call_id)
        else None
        for call_id in given
    ]
    ids: list[str] = []
    for index, call_id in enumerate(usable):
        if call_id is None or call_id in ids:
            number = index
            while f"call_{number}" in ids or f"call_{number}" in usable:
                number += 1
            call_id = f"call_{number}"
        ids.append(call_id)
    return ids


# --- JSON -----------------------------------------------------------------------------------------


def _decoded(text: str) -> Any:
    """The value of a native call's arguments, or the :class:`_Malformed` that it is.

    No text at all is an empty object: some servers send nothing for a tool without arguments.
    """
    if not text.strip():
        return {}
    if len(text) > MAX_ARGUMENTS:
        return _Malformed(f"have more than {MAX_ARGUMENTS} characters")
    try:
        return _decoded_once_more(_strict_json(text))
    except _Malformed as malformed:
        return malformed


def _decoded_once_more(value: Any) -> Any:
    """Arguments that are JSON inside a JSON string are decoded, once."""
    if not isinstance(value, str):
        return value
    try:
        return _strict_json(value)
    except _Malformed as malformed:
        return malformed


def _strict_json(text: str) -> Any:
    """Decode the whole of ``text``. Raises :class:`_Malformed`."""
    value, end = _strict_json_at(text, 0)
    if text[end:].strip():
        raise _Malformed("are followed by other text")
    return value


def _strict_json_at(text: str, start: int) -> tuple[Any, int]:
    """Decode the JSON value at ``start``; returns it and where it ends.

    Raises :class:`_Malformed` for everything that RFC 8259 forbids, that two parsers read
    differently (repeated keys, NaN, infinite numbers, integers beyond 64 bits) or that cannot be
    sent on (lone surrogates, NUL, more than 32 levels, more than 1,000,000 characters).
    """
    space = _JSON_SPACE.match(text, start)
    start = space.end() if space is not None else start
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise _Malformed("are nested too deeply") from None
    except _Malformed:
        raise
    except ValueError:  # not JSON, cut off, or an integer of thousands of digits
        raise _Malformed("are not complete, valid JSON") from None
    if end - start > MAX_ARGUMENTS:
        raise _Malformed(f"have more than {MAX_ARGUMENTS} characters")
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper += [*item, *item.values()]
            elif isinstance(item, list):
                deeper += item
            elif isinstance(item, str) and (item != _valid_text(item) or "\0" in item):
                raise _Malformed("hold a NUL character or half a surrogate pair")
        level = deeper
    if level:
        raise _Malformed("are nested too deeply")
    return value, end


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Malformed("name a key twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise _Malformed(f"hold {name}, which is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Malformed("hold a number that is too large")
    return number


def _in_64_bits(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise _Malformed("hold a number that is too large")
    return int(digits)


_JSON_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_repeated_keys,
    parse_constant=_no_constant,
    parse_float=_finite,
    parse_int=_in_64_bits,
)


def _valid_text(text: object) -> str:
    """Text that can be encoded: half a surrogate pair becomes ``?``; no text is empty text."""
    if not isinstance(text, str):
        return ""
    return text.encode("utf-8", "replace").decode("utf-8")


# --- reasoning ------------------------------------------------------------------------------------

_THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)


def _without_thinking(text: str) -> tuple[str, str]:
    """Split off ``<think>…</think>``: (visible, thought).

    Tags nest. Without its end tag thinking goes on to the end of the text; without its start tag
    (templates put it into the prompt) everything before the end tag was thinking.
    """
    visible: list[str] = []
    thought: list[str] = []
    depth, position = 0, 0
    for tag in _THINK_TAG.finditer(text):
        (thought if depth else visible).append(text[position : tag.start()])
        position = tag.end()
        if not tag.group(1):
            depth += 1
        elif depth:
            depth -= 1
        else:
            thought = visible + thought
            visible = []
    (thought if depth else visible).append(text[position:])
    return "".join(visible).strip(), "".join(thought).strip()


_HARMONY_TOKEN = re.compile(r"<\|(start|channel|constrain|message|end|call|return)\|>")
_HARMONY_RECIPIENT = re.compile(r"\bto=functions\.([A-Za-z0-9_.-]+)")


def _split_harmony(text: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Split leaked harmony markup: (visible text, analysis, calls as (name, JSON text)).

    A message is ``<|start|>role to=… <|channel|>name to=… <|constrain|>json<|message|>body`` up to
    the next token; the recipient may stand in either header.
    """
    visible: list[str] = []
    analysis: list[str] = []
    calls: list[tuple[str, str]] = []
    header, channel, state = "", "", "text"
    position = 0
    ends = [(token.start(), token.end(), token.group(1)) for token in _HARMONY_TOKEN.finditer(text)]
    for start, end, token in [*ends, (len(text), len(text), "end")]:
        part = text[position:start]
        position = end
        if state == "body":
            recipient = _HARMONY_RECIPIENT.search(header)
            if channel == "analysis":
                analysis.append(part)
            elif channel == "commentary" and recipient is not None:
                calls.append((recipient.group(1), part))
            else:
                visible.append(part)
        elif state in ("start", "channel", "constrain"):
            header += f" {part}"
            if state == "channel":
                channel = part.strip().partition(" ")[0]
        else:
            visible.append(part)
        if token == "message":
            state = "body"
        elif token in ("start", "channel", "constrain"):
            if token == "start" or state in ("body", "text"):
                header, channel = "", ""
            state = token
        else:
            state = "text"
    return (
        "\n".join(part.strip() for part in visible if part.strip()),
        "\n".join(part.strip() for part in analysis if part.strip()),
        calls,
    )


# --- calls in the text ----------------------------------------------------------------------------


def _recover(
    text: str, harmony_calls: list[tuple[str, str]], tools: Sequence[ToolSpec]
) -> tuple[list[tuple[str, Any]], str]:
    """Calls in ``text`` as (name, arguments) and the text without them.

    Only the first form that occurs counts. Raises :class:`_Malformed` where one cannot be read.
    """
    if harmony_calls:
        return [(name, _strict_json(body)) for name, body in harmony_calls], text
    if len(text) > MAX_CONTENT:
        raise _Malformed("stand in too long a text")
    calls, rest = _recover_tagged(text, tools)
    if calls:
        return calls, rest
    return _recover_fenced(text) if "```" in text else _recover_bare(text)


_TAG = re.compile(r"<tool_call>\s*|<function=")
_FUNCTION = re.compile(r"<function=([^<>\s]{1,64})>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\s]{1,64})>(.*?)</parameter>\s*", re.DOTALL)
_END_FUNCTION = re.compile(r"</function>\s*")
_END_TAG = re.compile(r"\s*</tool_call>")


def _recover_tagged(text: str, tools: Sequence[ToolSpec]) -> tuple[list[tuple[str, Any]], str]:
    calls: list[tuple[str, Any]] = []
    rest: list[str] = []
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        rest.append(text[position : tag.start()])
        tagged = tag.group().startswith("<tool_call>")
        inside = tag.end() if tagged else tag.start()
        if text.startswith("<function=", inside):
            call, position = _xml_call(text, inside, tools)
        else:
            value, position = _strict_json_at(text, inside)
            # Only here, where the tag says that it is a call, may the arguments be missing.
            if isinstance(value, dict) and set(value) == {"name"}:
                value = {**value, "arguments": {}}
            call = _as_call(value)
        calls.append(call)
        end_tag = _END_TAG.match(text, position)
        if end_tag is not None:
            position = end_tag.end()
        elif tagged and text[position:].strip():
            raise _Malformed("are followed by other text")
    rest.append(text[position:])
    left = "".join(rest).strip()
    # Pieces of markup that belong to no call: a value held an end tag, so the calls are not what
    # was meant.
    if calls and re.search(r"</?(tool_call|function|parameter)[=>]", left):
        raise _Malformed("hold markup of their own form")
    return calls, left


def _xml_call(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[tuple[str, Any], int]:
    """``<function=NAME><parameter=KEY>value</parameter>…</function>``: (call, where it ends).

    One newline after the start tag and one before the end tag belong to the form. A value is text
    where the tool takes text, and JSON otherwise.
    """
    function = _FUNCTION.match(text, start)
    if function is None:
        raise _Malformed("have no name")
    types = {
        field.name: field.type
        for tool in tools
        if tool.name == function.group(1)
        for field in msgspec.structs.fields(tool.arguments)
    }
    arguments: dict[str, Any] = {}
    position = function.end()
    while (parameter := _PARAMETER.match(text, position)) is not None:
        key, value = parameter.groups()
        if key in arguments:
            raise _Malformed("name a key twice")
        if "\0" in value or len(value) > MAX_ARGUMENTS:
            raise _Malformed("hold a NUL character or too much text")
        arguments[key] = value.removeprefix("\n").removesuffix("\n")
        if key in types:
            try:
                msgspec.convert(arguments[key], types[key], strict=True)
            except msgspec.ValidationError:
                arguments[key] = _json_or_text(arguments[key])
        position = parameter.end()
    end = _END_FUNCTION.match(text, position)
    if end is None:
        raise _Malformed("are cut off")
    return (function.group(1), arguments), end.end()


def _json_or_text(text: str) -> Any:
    try:
        return _strict_json(text)
    except _Malformed:
        return text


def _as_call(value: Any) -> tuple[str, Any]:
    for name in ("name", "tool"):
        if isinstance(value, dict) and isinstance(value.get(name), str):
            for key in ("arguments", "parameters"):
                if set(value) == {name, key}:
                    return value[name], value[key]
    raise _Malformed('are not {"name": …, "arguments": {…}}')


_NAMES_A_CALL = re.compile(r'"(name|tool)"')
_OPEN_FENCE = re.compile(r"^[ \t]*```[ \t]*([A-Za-z_]*)[ \t]*$", re.MULTILINE)
_CLOSE_FENCE = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)


def _recover_fenced(text: str) -> tuple[list[tuple[str, Any]], str]:
    """Fenced JSON objects that have the form of a call; every other fenced block is just text."""
    calls: list[tuple[str, Any]] = []
    rest: list[str] = []
    position = 0
    while (opening := _OPEN_FENCE.search(text, position)) is not None:
        closing = _CLOSE_FENCE.search(text, opening.end())
        block = text[opening.end() : closing.start() if closing else len(text)].strip()
        after = closing.end() if closing else len(text)
        may_be_call = (
            opening.group(1).lower() in ("", "json", "tool_call")
            and block.startswith("{")
            and _NAMES_A_CALL.search(block) is not None
        )
        call = None
        if may_be_call:
            try:
                call = _as_call(_strict_json(block))
            except _Malformed:
                if '"arguments"' in block:
                    raise
        if call is None:
            rest.append(text[position:after])
        else:
            rest.append(text[position : opening.start()])
            calls.append(call)
        position = after
    rest.append(text[position:])
    return calls, "".join(rest).strip()


_OPEN_OBJECT = re.compile(r'^[ \t]*(?=\{\s*"(?:name|tool|arguments|parameters)"\s*:)', re.MULTILINE)
_END_OF_LINE = re.compile(r"[ \t]*(\n|\Z)")
_BEGINS_A_CALL = re.compile(r'\{\s*"(name|tool)"\s*:\s*"[^"]*"\s*,\s*"(arguments|parameters)"')


def _recover_bare(text: str) -> tuple[list[tuple[str, Any]], str]:
    """JSON objects on lines of their own that have the form of a call; all else is just text."""
    calls: list[tuple[str, Any]] = []
    rest: list[str] = []
    position = 0
    while (opening := _OPEN_OBJECT.search(text, position)) is not None:
        rest.append(text[position : opening.end()])
        position = opening.end()
        try:
            value, end = _strict_json_at(text, position)
            call = _as_call(value)
        except _Malformed:
            if _BEGINS_A_CALL.match(text, position):
                raise
        else:
            if _END_OF_LINE.match(text, end):
                calls.append(call)
                position = end
                continue
        # No call: the text goes on after its bracket.
        rest.append(text[position])
        position += 1
    rest.append(text[position:])
    return calls, "".join(rest).strip()
