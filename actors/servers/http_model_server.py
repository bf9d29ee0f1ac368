"""What every model server reached over HTTP shares: exchanges that leave evidence, and turns.

A turn goes through ``/v1/chat/completions`` of OpenAI's form, which LM Studio, Ollama, vLLM and
llama.cpp serve alike. Nothing is sent twice, and nothing received is lost: an error carries it.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from actors.servers.chat_stream import ChatStream, ChatStreamError, error_message
from actors.servers.contract import (
    BackPressure,
    ChatAnswer,
    ChatError,
    ChatRequest,
    ContextOverflow,
    Difference,
    Embeddings,
    Evidence,
    IdentityMismatch,
    ModelServerError,
    RequestRefused,
    ServerUnreachable,
    StreamBroken,
    TransportFailure,
    TurnTimeout,
    UnexpectedAnswer,
)
from actors.servers.http_exchange import Deadline, TooLong, exchange, new_client, read_body
from schemas.base import Value
from schemas.credentials import REMOVED, without_credentials

SIMULATED_HEADER = "x-simulated"

# How an overflow is worded differs by engine and version (bug-tracker#546, #1024, #2256, #2339).
OVERFLOW = re.compile(
    r"context (length|size|window)|context the overflows|context overflow|n_ctx|tokens to keep",
    re.IGNORECASE,
)

# There is no "on": for a model that reasons by default, saying nothing keeps it on.
REASONING_EFFORT = {"off": "none", "low": "low", "medium": "medium", "high": "high"}


class Limits(Value):
    """How long and how much is waited for. Seconds may be fractions; tests use small ones."""

    answer_s: float = 60.0
    """A listing or an unload request."""
    load_s: float = 1800.0
    first_token_s: float = 900.0
    """Interpretations 8: no first token within 15 minutes is an observed time-out."""
    progress_s: float = 120.0
    """Interpretations 8: no progress for 2 minutes after the first token likewise."""
    embed_s: float = 600.0
    unload_s: float = 60.0
    """How long the views may take to agree on zero after an unload."""
    poll_s: float = 0.25
    lms_s: float = 60.0
    max_body_bytes: int = 64 << 20
    max_stream_bytes: int = 64 << 20


class Remedies(NamedTuple):
    """What a person does about a failure; ``{port}`` is the server's."""

    unreachable: str
    unexpected: str
    wrong_model: str


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    model: str


_T = TypeVar("_T")


class HttpModelServer:
    """The half of an adapter that talks. Not thread-safe: its actor makes one call at a time."""

    def __init__(
        self, base_url: str, limits: Limits | None, api_token: str | None, remedies: Remedies
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.username:
            shown = without_credentials(base_url)
            raise ValueError(f"{shown!r} is not like http://127.0.0.1:1234 (host and port)")
        self._url = f"http://{parts.netloc}"
        self._port = parts.port
        self._limits = limits or Limits()
        self._remedies = remedies
        self._headers = {"authorization": f"Bearer {api_token}"} if api_token else {}
        self._token = (api_token or "").encode()
        self._client = new_client()
        self._collectors: list[list[Evidence]] = []
        self._simulated = False  # whether an answer of the present operation said so of itself

    def close(self) -> None:
        self._client.close()

    def encode_chat(self, instance_id: str, request: ChatRequest) -> bytes:
        """The body of a turn."""
        return encode_chat_request(instance_id, request)

    # ---- turns and vectors -------------------------------------------------------------------

    def chat(self, instance_id: str, request: ChatRequest) -> ChatAnswer:
        """Send one streamed turn to an instance and read it to its end.

        The bytes of the request, of the response head and of the stream are evidence. Raises a
        ChatError, or IdentityMismatch where another model answered (a wrong ``model`` may be
        served by the only loaded one: bug-tracker#619); nothing is sent twice.
        """
        label = "POST /v1/chat/completions"
        body = self.encode_chat(instance_id, request)
        evidence = [Evidence(f"{label} request", body)]
        raw = bytearray()
        stream = ChatStream()
        status = 0
        retry_after: str | None = None
        broken: str | None = None  # why reading ended early
        refused: str | None = None  # the server's own error message, before any token
        simulated: bool | None = None
        first_token_ns: int | None = None
        started = time.monotonic_ns()

        with Deadline(self._limits.first_token_s) as deadline:
            try:
                with exchange(
                    self._client,
                    "POST",
                    self._url + "/v1/chat/completions",
                    deadline=deadline,
                    body=body,
                    headers=self._headers,
                ) as response:
                    status = response.status_code
                    retry_after = response.headers.get("retry-after")
                    simulated = response.headers.get(SIMULATED_HEADER) == "true"
                    evidence.append(Evidence(f"{label} head", _head(response)))
                    media_type = response.headers.get("content-type", "").split(";")[0].strip()
                    if status != 200 or media_type != "text/event-stream":
                        raw += self._cleared(read_body(response, self._limits.max_body_bytes))
                        refused = _error_text(bytes(raw)) or f"not a stream but {media_type!r}"
                    else:
                        for block in map(self._cleared, response.iter_raw()):
                            raw += block
                            seen = stream.progress
                            stream.feed(block)
                            if stream.tokens and first_token_ns is None:
                                first_token_ns = time.monotonic_ns() - started
                            if stream.tokens and stream.progress > seen:
                                deadline.move(self._limits.progress_s)
                            if stream.done or stream.error is not None:
                                break
                            limit = self._limits.max_stream_bytes
                            if len(raw) > limit:
                                raise TooLong(f"the stream is longer than {limit} bytes")
                        else:
                            stream.finish()
            except (httpx.HTTPError, TooLong, ChatStreamError) as error:
                broken = f"{type(error).__name__}: {error}"
        total_ns = time.monotonic_ns() - started
        if stream.tokens and first_token_ns is None:
            first_token_ns = total_ns
        evidence.append(Evidence(f"{label} {status or 'no status'}", bytes(raw)))
        reply = stream.reply()

        def failure(kind: type[ChatError], message: str, remedy: str, **more: Any) -> ChatError:
            return kind(
                message,
                remedy=remedy,
                evidence=evidence,
                partial=reply if first_token_ns is not None else None,
                first_token_ns=first_token_ns,
                total_ns=total_ns,
                simulated=simulated,
                **more,
            )

        observed = "This is an observation; it is not sent again."
        if stream.error is not None and first_token_ns is None:
            refused = stream.error
        if stream.ended and stream.error is None:
            pass  # complete, even where what should follow the finish reason did not come
        elif deadline.expired and first_token_ns is None:
            waited = f"{self._limits.first_token_s:g} s"
            raise failure(TurnTimeout, f"no first token within {waited}", observed)
        elif deadline.expired:
            waited = f"{self._limits.progress_s:g} s"
            raise failure(TurnTimeout, f"no progress for {waited} after a token", observed)
        elif first_token_ns is not None:
            why = broken or stream.error or "it ended without a finish reason"
            raise failure(StreamBroken, f"the stream broke after the first token: {why}", observed)
        elif refused is not None and OVERFLOW.search(refused):
            raise failure(ContextOverflow, f"the context is too small: {refused}", observed)
        elif status == 429 or (status == 503 and retry_after is not None):
            raise failure(
                BackPressure,
                f"the server asks to wait (status {status}): {refused}",
                "Send the same request again after Retry-After.",
                retry_after=retry_after,
            )
        elif status >= 500 or refused is None:
            why = refused or broken or "the stream ended without a token or a finish reason"
            raise failure(
                TransportFailure,
                f"no token was seen (status {status or 'none'}): {why}",
                "The request may be sent once more.",
            )
        else:
            raise failure(
                RequestRefused,
                f"the server refused the turn (status {status}): {refused}",
                "Read the message; the request is not sent again.",
            )

        if reply.echoed_model != instance_id:
            raise IdentityMismatch(
                f"{reply.echoed_model!r} answered a turn that was sent to {instance_id!r}",
                remedy=self._remedies.wrong_model,
                differences=[Difference("model", instance_id, reply.echoed_model)],
                evidence=evidence,
            )
        return ChatAnswer(
            reply=reply,
            request=body,
            stream=bytes(raw),
            first_token_ns=first_token_ns,
            total_ns=total_ns,
            simulated=simulated is True,
            evidence=tuple(evidence),
        )

    def embed(self, instance_id: str, texts: Sequence[str]) -> Embeddings:
        """One vector a text. Raises UnexpectedAnswer for another number, order or dimension."""
        with self._collect() as evidence:
            answer = self._post(
                "/v1/embeddings",
                {"model": instance_id, "input": list(texts)},
                _Vectors,
                self._limits.embed_s,
            )
            # The documented example echoes the variant behind the key.
            if answer.model.split("@")[0] != instance_id:
                raise IdentityMismatch(
                    f"{answer.model!r} answered a request that was sent to {instance_id!r}",
                    remedy=self._remedies.wrong_model,
                    differences=[Difference("model", instance_id, answer.model)],
                )
            dimensions = {len(vector.embedding) for vector in answer.data}
            indexes = [vector.index for vector in answer.data]
            if indexes != list(range(len(texts))) or len(dimensions) > 1 or 0 in dimensions:
                raise UnexpectedAnswer(
                    f"{len(indexes)} vectors of dimensions {sorted(dimensions)} came for "
                    f"{len(texts)} texts",
                    remedy="Check the embedding model in the server.",
                )
            return Embeddings(
                vectors=tuple(tuple(vector.embedding) for vector in answer.data),
                simulated=self._simulated,
                evidence=tuple(evidence),
            )

    # ---- one exchange ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _collect(self) -> Iterator[list[Evidence]]:
        """Everything received inside the block, which an error takes with it. Blocks nest."""
        evidence: list[Evidence] = []
        if not self._collectors:
            self._simulated = False
        self._collectors.append(evidence)
        try:
            yield evidence
        except ModelServerError as error:
            error.evidence = tuple(evidence)
            raise
        finally:
            self._collectors.pop()

    def _cleared(self, content: bytes) -> bytes:
        """What a server repeats is recorded, and the token must not be."""
        return content.replace(self._token, REMOVED.encode()) if self._token else content

    def _received(self, label: str, content: bytes) -> None:
        for evidence in self._collectors:
            evidence.append(Evidence(label, content))

    def _get(self, path: str, kind: type[_T]) -> _T:
        return self._exchange("GET", path, None, kind, self._limits.answer_s)

    def _post(self, path: str, body: Mapping[str, object], kind: type[_T], seconds: float) -> _T:
        return self._exchange("POST", path, msgspec.json.encode(body), kind, seconds)

    def _exchange(
        self, method: str, path: str, body: bytes | None, kind: type[_T], seconds: float
    ) -> _T:
        """One answer as ``kind``. Raises ServerUnreachable, or UnexpectedAnswer with the server's
        message where the body is an error, whatever its status: unknown paths answer 200
        (bug-tracker#1680)."""
        label = f"{method} {path}"
        with Deadline(seconds) as deadline:
            try:
                with exchange(
                    self._client,
                    method,
                    self._url + path,
                    deadline=deadline,
                    body=body,
                    headers=self._headers,
                ) as response:
                    content = self._cleared(read_body(response, self._limits.max_body_bytes))
            except httpx.HTTPError as error:
                why = f"no answer within {seconds:g} s" if deadline.expired else str(error)
                raise ServerUnreachable(
                    f"{label} at {self._url} failed: {why or type(error).__name__}",
                    remedy=self._remedies.unreachable.format(port=self._port),
                ) from error
            except TooLong as error:
                raise UnexpectedAnswer(
                    f"{label}: {error}", remedy="Check what listens on that port."
                ) from error
        self._received(f"{label} {response.status_code}", content)
        self._simulated |= response.headers.get(SIMULATED_HEADER) == "true"
        message = _error_text(content)
        if response.status_code == 200 and message is None:
            try:
                return msgspec.json.decode(content, type=kind)
            except (msgspec.DecodeError, RecursionError) as error:
                message = f"the body is not as documented ({error})"
        raise UnexpectedAnswer(
            f"{label} answered {response.status_code}: {message or 'no error message'}",
            remedy=self._remedies.unexpected,
        )


def encode_chat_request(
    instance_id: str, request: ChatRequest, *, constrain: bool = False
) -> bytes:
    """The body of a turn; ``constrain``: with the answer's JSON schema, where the request has one.
    The same request gives the same bytes."""
    body: dict[str, object] = {
        "model": instance_id,
        "messages": request.messages,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = request.tools
    if request.reasoning in REASONING_EFFORT:
        body["reasoning_effort"] = REASONING_EFFORT[request.reasoning]
    if constrain and request.answer_schema is not None:
        schema = {"name": "action", "schema": request.answer_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return msgspec.json.encode(body)


def _error_text(body: bytes) -> str | None:
    try:
        return error_message(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return None


def _head(response: httpx.Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status_code}".encode()]
    lines += [name + b": " + value for name, value in response.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"
