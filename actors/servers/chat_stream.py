"""Reading a streamed chat completion: server-sent events of ``chat.completion.chunk`` objects.

The form is that of OpenAI-compatible servers (WHATWG HTML section 9.2 for the events; LM Studio
sends ``data: {...}`` lines and ends with ``data: [DONE]``):

    data: {"model":"key","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}

    data: [DONE]

Everything here is a function of the bytes, so a stored stream can be read again at any time. What a
server says is bounded here, before it becomes an event: an absurd count is no count.
"""

from dataclasses import dataclass, field
from typing import Any, TypeGuard

import msgspec

from actors.servers.contract import ChatReply, ToolCall, Usage

MAX_EVENT_BYTES = 8 << 20
MAX_TOKENS = 1_000_000_000
"""A larger count is a counter that wrapped around (2^64 - 1 is seen), and says nothing."""
MAX_FINISH_REASON = 64
"""Characters of a finish reason that are kept; the words in use have at most 14."""
LEAKED_MARKUP = ("<think>", "</think>", "<|channel|>")


class ChatStreamError(ValueError):
    """The bytes are not a chat completion stream."""


@dataclass
class _Call:
    """A tool call as far as it has been received."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ChatStream:
    """Incremental reader. ``feed`` it blocks of any size; ``reply`` is what they say so far."""

    def __init__(self) -> None:
        self.progress = 0
        """Number of chunks that carried something. Keep-alives and empty deltas do not count."""
        self.tokens = 0
        """Number of chunks with text of the model: content, reasoning or a tool call."""
        self.ended = False
        """A finish reason or ``[DONE]`` was seen."""
        self.done = False
        """``[DONE]`` was seen; nothing follows."""
        self.error: str | None = None
        """Message of an error that the server sent inside the stream."""
        self._rest = b""
        self._data: list[bytes] = []
        self._content: list[str] = []
        self._reasoning: dict[str, list[str]] = {"reasoning": [], "reasoning_content": []}
        self._calls: list[_Call] = []
        self._call_at: dict[int, _Call] = {}  # the call that a delta of that index continues
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model: str | None = None

    def feed(self, block: bytes) -> None:
        """Take the next bytes. Raises ChatStreamError for an event that cannot be read."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                self._event(data)
            # Other fields (`event:`, `id:`) add nothing to their data, and a line that begins
            # with a colon is a comment that keeps the connection open.
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ChatStreamError(f"an event is longer than {MAX_EVENT_BYTES} bytes")

    def finish(self) -> None:
        """The connection has ended: an event without its closing blank line still counts."""
        self.feed(b"\n\n")

    def _event(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.done = self.ended = True
            return
        try:
            chunk = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ChatStreamError(f"an event is not JSON ({error}): {data[:80]!r}") from None
        if not isinstance(chunk, dict):
            raise ChatStreamError(f"an event is not an object: {data[:80]!r}")
        message = error_message(chunk)
        if message is not None:
            self.error = message
            return
        model = chunk.get("model")
        if isinstance(model, str) and model and self._model is None:
            self._model = model
        usage = _usage(chunk.get("usage"))
        if usage is not None:
            self._usage = usage
            self.progress += 1
        choices = chunk.get("choices", [])
        if not isinstance(choices, list):
            raise ChatStreamError(f"`choices` is not a list: {data[:80]!r}")
        for choice in choices:
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                raise ChatStreamError(f"not the one choice that was asked for: {data[:80]!r}")
            delta = choice.get("delta") or {}
            if not isinstance(delta, dict):
                raise ChatStreamError(f"`delta` is not an object: {data[:80]!r}")
            if self._delta(delta, data):
                self.tokens += 1
                self.progress += 1
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:  # "" in every chunk says as little as null
                self._finish_reason = reason[:MAX_FINISH_REASON]
                self.ended = True
                self.progress += 1

    def _delta(self, delta: dict[str, Any], data: bytes) -> bool:
        """Add one delta; true where it carried text or a call."""
        carried = False
        for name, parts in (("content", self._content), *self._reasoning.items()):
            text = delta.get(name)
            if text is None or text == "":
                continue
            if not isinstance(text, str):
                raise ChatStreamError(f"`{name}` is not text: {data[:80]!r}")
            parts.append(text)
            carried = True
        calls = delta.get("tool_calls")
        if calls is None:
            calls = []
        if not isinstance(calls, list):
            raise ChatStreamError(f"`tool_calls` is not a list: {data[:80]!r}")
        for call in calls:
            function = call.get("function") or {} if isinstance(call, dict) else None
            index = call.get("index", len(self._calls)) if isinstance(call, dict) else None
            if not isinstance(function, dict) or not isinstance(index, int):
                raise ChatStreamError(f"a tool call cannot be read: {data[:80]!r}")
            texts = [call.get("id"), function.get("name"), function.get("arguments")]
            if any(text is not None and not isinstance(text, str) for text in texts):
                raise ChatStreamError(f"a tool call cannot be read: {data[:80]!r}")
            new_id, new_name, more = (text or "" for text in texts)
            known = self._call_at.get(index)
            # Some servers give every call of an answer index 0: another id and a name are another
            # call. An id alone is not, since some make a new one up for every delta.
            if known is None or (new_name and new_id and known.id and new_id != known.id):
                known = self._call_at[index] = _Call(index)
                self._calls.append(known)
            # Ids and names come whole, once; some servers repeat them or send "" afterwards.
            known.id = known.id or new_id
            known.name = known.name or new_name
            known.arguments.append(more)
            carried = True
        return carried

    def reply(self) -> ChatReply:
        content = "".join(self._content)
        reasoned_in = next((name for name, parts in self._reasoning.items() if parts), None)
        return ChatReply(
            content=content,
            reasoning="".join(part for parts in self._reasoning.values() for part in parts),
            reasoning_field=reasoned_in,  # type: ignore[arg-type]  # a key of the dictionary above
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.name, arguments="".join(call.arguments))
                for call in sorted(self._calls, key=lambda call: call.index)
            ),
            finish_reason=self._finish_reason,
            usage=self._usage,
            echoed_model=self._model,
            leaked_markup=any(markup in content for markup in LEAKED_MARKUP),
        )


def read_chat_stream(stream: bytes) -> ChatReply:
    """Read a whole stored stream. Raises ChatStreamError where it is not one."""
    reader = ChatStream()
    reader.feed(stream)
    reader.finish()
    return reader.reply()


def error_message(body: object) -> str | None:
    """The message of an error body, or None where ``body`` is not one.

    Seen are ``{"error": "text"}``, ``{"error": {"message": "text", ...}}``, the latter with more
    keys beside it, ``{"object": "error", "message": "text", ...}`` (vLLM) and FastAPI's
    ``{"detail": "text"}`` and ``{"detail": [{"msg": "text", ...}, ...]}``.
    """
    if not isinstance(body, dict):
        return None
    error = body if body.get("object") == "error" else body.get("error")
    if isinstance(error, dict):
        details = [_text(error[key]) for key in ("code", "type") if error.get(key)]
        message = _text(error.get("message", "no message"))
        return f"{message} ({', '.join(details)})" if details else message
    if error is not None:
        return _text(error)
    detail = body.get("detail")
    if isinstance(detail, list):
        return "; ".join(_text(one["msg"] if _has_msg(one) else one) for one in detail)
    return None if detail is None else _text(detail)


def _has_msg(detail: object) -> bool:
    return isinstance(detail, dict) and "msg" in detail


def _text(value: object) -> str:
    try:
        return str(value)
    except RecursionError:
        return "a value nested without end"


def _usage(usage: object) -> Usage | None:
    """None where the counts are missing, absurd, or zero for a prompt that cannot be empty."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion) or prompt == 0:
        return None
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        reasoning_tokens=reasoning if _is_count(reasoning) else None,
    )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
