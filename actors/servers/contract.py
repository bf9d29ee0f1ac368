"""What every model server adapter offers, what it returns and how it fails.

Each result and each error carries ``evidence``: the bytes that came from outside, in the order in
which they came, labelled ``GET /api/v1/models 200`` and the like. The caller stores them before it
believes anything parsed from them; an error never loses what was received before it.

    ModelServerError               kind                     what the caller may do
      ServerUnreachable            server_unreachable       stop; a person starts the server
      UnexpectedAnswer             unexpected_answer        stop; the body is not what is documented
      ResidencyDisagreement        residency_disagreement   stop; never read as "nothing loaded"
      ForeignResident              foreign_resident         stop; a person unloads it
      JustInTimeLoading            just_in_time_loading     stop; a person switches it off
      IdentityMismatch             identity_mismatch        stop; fatal for the study
      LoadFailed                   load_failed              stop
      UnloadFailed                 unload_failed            stop; nothing else may be loaded
      ChatError
        TransportFailure           transport                the one failure that may be retried once
        StreamBroken               broken_stream            observed; never retried
        TurnTimeout                timeout                  observed; never retried
        BackPressure               back_pressure            wait and send again; not a retry
        ContextOverflow            overflow                 observed
        RequestRefused             server_error             observed; never retried

The chat classes follow interpretations 8 of the shipped study: no valid assistant response was
observed exactly where no token has been seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from schemas.base import Nanoseconds, Value
from schemas.study import Model

Capability = Literal[
    "residency_control", "tool_calls", "reasoning_effort", "streaming", "embeddings"
]
Reasoning = Literal["on", "off", "low", "medium", "high"]


class Evidence(NamedTuple):
    """Bytes from outside, unparsed."""

    label: str
    content: bytes


class Identity(Value):
    """What the inventory says of one model; compared with the frozen model field by field."""

    key: str
    variant: str
    """The selected variant (``key@variant``), or the key itself where a model has no variants."""
    format: str | None
    quantization: str | None
    max_context_length: int | None
    """None where the server does not say."""
    reasoning: tuple[str, ...]
    """Allowed reasoning settings; empty where the server exposes none."""


class Inventory(Value):
    """Every model that the server could load, in the server's order."""

    models: tuple[Identity, ...]
    simulated: bool
    evidence: tuple[Evidence, ...]


class Resident(Value):
    """One instance that occupies memory."""

    instance_id: str
    key: str
    context_lengths: tuple[tuple[str, int], ...]
    """(view, tokens) for each view that reports a context length."""


class Residents(Value):
    """Instances in memory, on which every view of the server agreed; sorted by instance id."""

    instances: tuple[Resident, ...]
    simulated: bool
    evidence: tuple[Evidence, ...]


class Checked(Value):
    """A model whose identity equals the frozen one (result of ``identity`` and ``preflight``)."""

    identity: Identity
    simulated: bool
    evidence: tuple[Evidence, ...]


class Loaded(Value):
    """The one resident instance after a load that passed every check."""

    instance_id: str
    identity: Identity
    context_length: int
    duration_ns: Nanoseconds
    simulated: bool
    evidence: tuple[Evidence, ...]


class Unloaded(Value):
    """Every view agreed on zero residents after this unload."""

    instance_id: str
    duration_ns: Nanoseconds
    simulated: bool
    evidence: tuple[Evidence, ...]


class ChatRequest(Value):
    """One turn. ``messages`` and ``tools`` are in the chat completions form and sent unchanged."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int
    reasoning: Reasoning
    answer_schema: Mapping[str, Any] | None = None
    """JSON schema that a server which can do so constrains the answer to."""


class ToolCall(Value):
    """A native tool call exactly as sent: ``arguments`` is unparsed text, perhaps cut off, and
    ``id`` is empty where the server gave none."""

    id: str
    name: str
    arguments: str


class Usage(Value):
    """Token counts as the server reported them."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None


class ChatReply(Value):
    """What the bytes of one streamed answer say; see ``chat_stream.read_chat_stream``."""

    content: str
    reasoning: str
    reasoning_field: Literal["reasoning", "reasoning_content"] | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage | None
    """None where the server sent no usage or only zeros: unknown, never 0."""
    echoed_model: str | None
    leaked_markup: bool
    """``<think>`` or ``<|channel|>`` inside ``content``: a defect of the server, to be recorded."""


class ChatAnswer(Value):
    """A complete answer. Times run from the moment the request is sent."""

    reply: ChatReply
    request: bytes
    stream: bytes
    first_token_ns: Nanoseconds | None
    """None for an answer without a single token."""
    total_ns: Nanoseconds
    simulated: bool
    evidence: tuple[Evidence, ...]


class Embeddings(Value):
    """One vector a text, in the order of the texts."""

    vectors: tuple[tuple[float, ...], ...]
    simulated: bool
    evidence: tuple[Evidence, ...]


class ModelServer(Protocol):
    """One server, used by one actor, one call at a time.

    Every method raises :class:`ModelServerError`; none of them retries anything.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this adapter can do. A study that needs more refuses to start on it."""
        ...

    def inventory(self) -> Inventory: ...

    def residents(self) -> Residents: ...

    def identity(self, spec: Model) -> Checked:
        """Compare the server's model with ``spec``; any difference is IdentityMismatch."""
        ...

    def preflight(self, spec: Model) -> Checked:
        """The server is up, nothing is resident, nothing loads by itself, the identity holds."""
        ...

    def load(self, spec: Model) -> Loaded:
        """Load ``spec`` as the only resident (without ``residency_control``: look that it can be
        asked). A failure that leaves an instance behind names it
        in ``error.instance_id``."""
        ...

    def unload(self, instance_id: str) -> Unloaded: ...

    def chat(self, instance_id: str, request: ChatRequest) -> ChatAnswer:
        """Send one turn and read its whole answer. Raises ChatError or IdentityMismatch."""
        ...

    def embed(self, instance_id: str, texts: Sequence[str]) -> Embeddings: ...


MAX_MESSAGE = 2_000
"""Characters of an error's message. Everything that was received is its evidence."""


class ModelServerError(Exception):
    """Base of all failures: what happened, what a person must do, and what had been received."""

    kind: ClassVar[str]
    may_retry: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        remedy: str,
        evidence: Sequence[Evidence] = (),
        instance_id: str | None = None,
    ) -> None:
        # It may repeat what a server said, of any length, and goes into events.
        message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]} …"
        super().__init__(f"{message.rstrip('.')}. {remedy}")
        self.message = message
        self.remedy = remedy
        self.evidence = tuple(evidence)
        self.instance_id = instance_id
        """An instance that the failed call loaded and that is still in memory."""


class ServerUnreachable(ModelServerError):
    """Nothing answers, or something else than the expected server does."""

    kind = "server_unreachable"


class UnexpectedAnswer(ModelServerError):
    """An answer that is not documented: an error body under status 200, other fields, too long."""

    kind = "unexpected_answer"


class WrongKindOfServer(ModelServerError):
    """A stand-in answers where a study asks real models, or the other way round."""

    kind = "wrong_kind_of_server"


class ResidencyDisagreement(ModelServerError):
    """The server's views of its memory differ, so nobody knows what is loaded."""

    kind = "residency_disagreement"

    def __init__(
        self,
        message: str,
        *,
        remedy: str,
        views: Mapping[str, Sequence[str]],
        evidence: Sequence[Evidence] = (),
        instance_id: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, evidence=evidence, instance_id=instance_id)
        self.views = {view: tuple(ids) for view, ids in views.items()}


class ForeignResident(ModelServerError):
    """Every view agrees that something is in memory that this study did not put there."""

    kind = "foreign_resident"


class JustInTimeLoading(ModelServerError):
    """The server would load models by itself."""

    kind = "just_in_time_loading"


class Difference(NamedTuple):
    """One field in which the server's model is not the frozen one."""

    field: str
    frozen: object
    observed: object


class IdentityMismatch(ModelServerError):
    """The server's model is not the frozen one. Fatal for the study."""

    kind = "identity_mismatch"

    def __init__(
        self,
        message: str,
        *,
        remedy: str,
        differences: Sequence[Difference],
        evidence: Sequence[Evidence] = (),
        instance_id: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, evidence=evidence, instance_id=instance_id)
        self.differences = tuple(differences)


class LoadFailed(ModelServerError):
    kind = "load_failed"


class UnloadFailed(ModelServerError):
    kind = "unload_failed"


class ChatError(ModelServerError):
    """A turn without a complete answer. ``partial`` is what the received bytes say, ``simulated``
    what the answer's head says; None where no head arrived."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str,
        evidence: Sequence[Evidence] = (),
        partial: ChatReply | None = None,
        first_token_ns: int | None = None,
        total_ns: int,
        simulated: bool | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, evidence=evidence)
        self.simulated = simulated
        self.partial = partial
        self.first_token_ns = first_token_ns
        self.total_ns = total_ns


class TransportFailure(ChatError):
    """Refused or reset connection, 5xx or broken stream, before the first token."""

    kind = "transport"
    may_retry = True


class StreamBroken(ChatError):
    """The stream ended, failed or became unreadable after the first token."""

    kind = "broken_stream"


class TurnTimeout(ChatError):
    """No first token in time (``first_token_ns is None``), or no progress after it."""

    kind = "timeout"


class BackPressure(ChatError):
    """429, or 503 with Retry-After. ``retry_after`` is the header as sent."""

    kind = "back_pressure"

    def __init__(self, message: str, *, retry_after: str | None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.retry_after = retry_after

    @property
    def retry_after_s(self) -> int | None:
        """Whole seconds (RFC 9110 section 10.2.3), or None where the header is absent, absurd or a
        date."""
        text = (self.retry_after or "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class ContextOverflow(ChatError):
    """The server says that prompt or answer does not fit into the context."""

    kind = "overflow"


class RequestRefused(ChatError):
    """An error answer before the first token that is neither transport nor back-pressure."""

    kind = "server_error"
