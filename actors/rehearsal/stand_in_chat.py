"""Chat completions and embeddings as the stand-in LM Studio sends them, faults included.

A turn is rendered as OpenAI's ``chat.completion`` object or as a stream of
``chat.completion.chunk`` events. The same request to the same instance gives the same bytes, except
for ``created``, which is the virtual clock in seconds.
"""

import hashlib
import math
import re
from typing import Any

import msgspec

from actors.rehearsal.stand_in_state import CatalogueModel, StandInState

CHAT_KEYS = frozenset(
    [
        *("model", "messages", "tools", "tool_choice", "temperature", "top_p", "top_k", "seed"),
        *("max_tokens", "stop", "stream", "stream_options", "reasoning_effort", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "repeat_penalty", "response_format"),
    ]
)
"""Documented keys. `max_completion_tokens` is not one of them."""

EMBEDDING_DIMENSION = 256
PIECES = 8
"""A text comes in at most about so many chunks."""


class Call(msgspec.Struct):
    name: str
    arguments: str
    id: str | None = None


class Turn(msgspec.Struct):
    """What the back end answers; ``finish_reason`` follows from the calls where it is None."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = []
    finish_reason: str | None = None


def estimate_tokens(*texts: str) -> int:
    """About four bytes a token; no text is no token."""
    return sum(-(-len(text.encode()) // 4) for text in texts)


class Completion:
    """One turn on its way out: faults applied, then rendered."""

    def __init__(
        self,
        state: StandInState,
        model: CatalogueModel,
        instance_id: str,
        request: dict[str, Any],
        turn: Turn,
        prompt_tokens: int,
    ) -> None:
        body = msgspec.json.encode(request)
        self.id = "chatcmpl-" + hashlib.sha256(body).hexdigest()[:20]
        self.created = state.virtual_ms // 1000
        self.streams_arguments = model.stand_in.streams_arguments
        self.reasoning_field: str = model.stand_in.reasoning_field
        self.content = turn.content
        self.reasoning = turn.reasoning
        self.calls = [
            Call(
                name=call.name,
                arguments=call.arguments,
                id=f"{index + 1:09d}" if call.id is None else call.id,
            )
            for index, call in enumerate(turn.calls)
        ]
        self.finish_reason = turn.finish_reason or ("tool_calls" if self.calls else "stop")

        can_reason = (model.capabilities or {}).get("reasoning") is not None
        if not can_reason or request.get("reasoning_effort") == "none":
            self.reasoning = ""
        max_tokens = request.get("max_tokens", -1)
        if state.fault("finish_length") is not None:
            max_tokens = max(1, self._completion_tokens() // 2)
        if 0 <= max_tokens < self._completion_tokens():
            self._cut(max_tokens)
        self._apply_faults(state)

        wrong = state.fault("wrong_model_echo")
        self.model = wrong.get("model", "decoy/no-reasoning") if wrong else instance_id
        self.completion_tokens = self._completion_tokens()
        self.usage: dict[str, Any] | None = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": prompt_tokens + self.completion_tokens,
            "completion_tokens_details": {"reasoning_tokens": estimate_tokens(self.reasoning)},
        }
        if state.fault("usage_missing") is not None:
            self.usage = None
        if state.fault("usage_zero") is not None:
            self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    def _completion_tokens(self) -> int:
        return estimate_tokens(
            self.reasoning, self.content, *(call.arguments for call in self.calls)
        )

    def _cut(self, max_tokens: int) -> None:
        """Keep the first tokens: of the reasoning, then the content, then the calls."""
        left = 4 * max_tokens
        self.finish_reason = "length"
        self.reasoning = self.reasoning[:left]
        left -= len(self.reasoning)
        self.content = self.content[:left]
        left -= len(self.content)
        kept = []
        for call in self.calls:
            if left > 0:
                call.arguments = call.arguments[:left]
                left -= len(call.arguments)
                kept.append(call)
        self.calls = kept

    def _apply_faults(self, state: StandInState) -> None:
        if state.fault("reasoning_ignored") is not None:
            self.reasoning = ""
        if state.fault("reasoning_wrong_field") is not None:
            fields = ["reasoning", "reasoning_content"]
            fields.remove(self.reasoning_field)
            (self.reasoning_field,) = fields
        if state.fault("reasoning_in_content") is not None:
            self.content = f"<think>{self.reasoning}</think>{self.content}"
            self.reasoning = ""
        if state.fault("harmony_leak") is not None:
            for call in self.calls:
                self.content += (
                    f"<|channel|>commentary to=functions.{call.name} "
                    f"<|constrain|>json<|message|>{call.arguments}<|call|>"
                )
            self.calls, self.finish_reason = [], "stop"
        if state.fault("truncated_json_arguments") is not None:
            for call in self.calls:
                call.arguments = call.arguments[: max(1, len(call.arguments) // 2)]
        if state.fault("empty_call_ids") is not None:
            for call in self.calls:
                call.id = ""
        if state.fault("duplicate_call_ids") is not None:
            for call in self.calls:
                call.id = "000000001"
        if state.fault("wrong_finish_reason") is not None:
            self.finish_reason = "stop"

    def as_json(self) -> dict[str, Any]:
        """The answer to a request without ``stream``."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message[self.reasoning_field] = self.reasoning
        if self.calls:
            message["tool_calls"] = [_wire(call, call.arguments) for call in self.calls]
        answer: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": self.finish_reason,
                }
            ],
            "system_fingerprint": self.model,
        }
        if self.usage is not None:
            answer["usage"] = self.usage
        return answer

    def as_events(self, include_usage: bool) -> list[bytes]:
        """The events of a stream, ``[DONE]`` included."""
        deltas: list[dict[str, Any]] = []
        deltas += [{self.reasoning_field: piece} for piece in _pieces(self.reasoning)]
        deltas += [{"content": piece} for piece in _pieces(self.content)]
        for index, call in enumerate(self.calls):
            first, pieces = call.arguments, []
            if self.streams_arguments:
                first, pieces = "", _pieces(call.arguments)
            deltas.append({"tool_calls": [{"index": index} | _wire(call, first)]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in pieces
            ]
        if deltas:
            deltas[0] = {"role": "assistant"} | deltas[0]
        chunks = [self._chunk([self._choice(delta, None)]) for delta in deltas]
        chunks.append(self._chunk([self._choice({}, self.finish_reason)]))
        if include_usage and self.usage is not None:
            chunks.append(self._chunk([]) | {"usage": self.usage})
        return [event(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]

    def _choice(self, delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.model,
            "choices": choices,
        }


def _wire(call: Call, arguments: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def error_event(message: str) -> bytes:
    """An error inside a stream whose status was 200 already."""
    return b"event: error\n" + event({"error": {"message": message}, "message": message})


def _pieces(text: str) -> list[str]:
    size = max(24, -(-len(text) // PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def embed(text: str) -> list[float]:
    """A unit vector of hashed words (feature hashing): texts that share words are near."""
    vector = [0.0] * EMBEDDING_DIMENSION
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(word.encode()).digest()
        index = int.from_bytes(digest[:4], "big") % EMBEDDING_DIMENSION
        vector[index] += 1.0 if digest[4] % 2 else -1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]
