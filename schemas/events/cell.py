"""One cell from start to end: turns, tool calls, edits, charges, violations."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Digest, Event, Nanoseconds
from schemas.identifiers import CellId

CellClass = Literal[
    "submitted",
    "budget_exhausted",
    "empty_patch",
    "policy_rejected",
    "apply_failed",
    "context_overflow",
    "model_stop",
    "timeout",
    "infrastructure",
]


FailureKind = Literal["transport", "broken_stream", "timeout", "server_error", "overflow"]


class CellStarted(Event):
    """A planned cell begins. `attempt` is above 0 only after an infrastructure failure."""

    TYPE: ClassVar[str] = "cell.started.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    cell: Annotated[CellId, Meta(description="the planned cell")]
    attempt: Annotated[Count, Meta(description="0, or how many attempts failed for infrastructure")]
    unit: Annotated[Digest, Meta(description="digest of the frozen task or case")]
    arm: Annotated[Digest, Meta(description="source digest of the treatment or memory")]
    agent: Annotated[Digest, Meta(description="digest of the model's or driver's identity")]
    simulated: Annotated[bool, Meta(description="true where a stand-in answers: never evidence")]


class TurnStarted(Event):
    """A request is about to be sent to the model. Charged before any answer is parsed."""

    TYPE: ClassVar[str] = "turn.started.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[int, Meta(ge=0, description="turn of the cell, from 0")]
    attempt: Annotated[int, Meta(ge=0, description="above 0: a recorded new attempt")]
    request: Annotated[ArtifactRef, Meta(description="JSON of what is sent")]
    instance: Annotated[str, Meta(description="resident instance that is asked")]


class TurnAnswered(Event):
    """The model's answer, raw first. Parsing happens afterwards and changes nothing here."""

    TYPE: ClassVar[str] = "turn.answered.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    attempt: Annotated[Count, Meta(description="attempt of the turn, from 0")]
    response: Annotated[ArtifactRef, Meta(description="the raw stream, byte for byte")]
    answer: Annotated[ArtifactRef, Meta(description="JSON: content, reasoning, calls, finish")]
    finish_reason: Annotated[str, Meta(description="as the server said it; empty: not said")]
    prompt_tokens: Annotated[Count | None, Meta(description="null: the server did not say")]
    completion_tokens: Annotated[Count | None, Meta(description="null: the server did not say")]
    first_token_ns: Nanoseconds
    duration_ns: Nanoseconds
    back_pressure: Annotated[int, Meta(ge=0, description="429 or 503 answers waited for")] = 0
    simulated: Annotated[
        bool | None,
        Meta(
            description="whether a stand-in says that it answered: never evidence; null: recorded "
            "before this was"
        ),
    ] = None


class TurnFailed(Event):
    """No complete answer was observed."""

    TYPE: ClassVar[str] = "turn.failed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    attempt: Annotated[Count, Meta(description="attempt of the turn, from 0")]
    kind: Annotated[
        FailureKind,
        Meta(description="only `transport` (no token seen) may be retried, once"),
    ]
    detail: Annotated[str, Meta(description="what was observed, bounded")]
    response: Annotated[ArtifactRef, Meta(description="raw bytes that did arrive")]
    retry: Annotated[bool, Meta(description="true where the one allowed retry follows")]


class TurnAbandoned(Event):
    """The process that waited for the answer was lost; the request is orphaned and the turn is
    asked again as a recorded new attempt."""

    TYPE: ClassVar[str] = "turn.abandoned.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    attempt: Annotated[Count, Meta(description="the attempt that is given up")]
    reason: Annotated[
        str, Meta(description="how it was established that nobody waits for the answer")
    ]


class BudgetCharged(Event):
    """Something that the budget limits was spent, by the one place that enforces it."""

    TYPE: ClassVar[str] = "budget.charged.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    kind: Annotated[Literal["turn", "tool_call", "test_run"], Meta(description="what was spent")]
    used: Annotated[int, Meta(ge=1, description="spent so far, this one included")]
    limit: Annotated[Count, Meta(description="what the study allows in a cell")]


class AnswerParsed(Event):
    """What was read out of a turn's answer, by the same rules for every treatment."""

    TYPE: ClassVar[str] = "answer.parsed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    calls: Annotated[int, Meta(ge=0, description="calls accepted")]
    rejected: Annotated[int, Meta(ge=0, description="calls refused by schema")]
    salvage: Annotated[
        Literal["native", "recovered", "failed", "none"],
        Meta(description="how calls were read: native, recovered from text, failed, or none there"),
    ]
    cut: Annotated[bool, Meta(description="finish_reason length: never parsed as complete")]


class ProtocolViolated(Event):
    """The model broke the protocol; it got a fixed typed error back."""

    TYPE: ClassVar[str] = "protocol.violated.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    kind: Annotated[str, Meta(description="which rule was broken")]
    detail: Annotated[str, Meta(description="bounded description, no model text beyond a name")]


class ToolCalled(Event):
    """A tool ran on snapshot and overlay. Re-execution must give the same result bytes."""

    TYPE: ClassVar[str] = "tool.called.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    turn: Annotated[Count, Meta(description="turn of the cell, from 0")]
    number: Annotated[int, Meta(ge=0, description="tool call of the cell, from 0")]
    tool: Annotated[str, Meta(description="name of the tool")]
    arguments: Annotated[ArtifactRef, Meta(description="JSON of the arguments")]
    result: Annotated[ArtifactRef, Meta(description="what the model is shown, byte for byte")]
    ok: Annotated[bool, Meta(description="false where the tool answered with a typed error")]
    shown: Annotated[tuple[str, ...], Meta(description="paths that the result shows")] = ()
    opened: Annotated[tuple[str, ...], Meta(description="files whose content was read")] = ()
    edited: Annotated[tuple[str, ...], Meta(description="files changed")] = ()


class CellFinished(Event):
    """The cell ended, in exactly one class. All but `infrastructure` are observed outcomes."""

    TYPE: ClassVar[str] = "cell.finished.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ("attempt",)
    cell: Annotated[CellId, Meta(description="the planned cell")]
    attempt: Annotated[Count, Meta(description="attempt that ended, from 0")]
    ended: Annotated[CellClass, Meta(description="the class it ended in")]
    detail: Annotated[str, Meta(description="what exactly happened; empty: nothing to add")]
    turns: Annotated[Count, Meta(description="turns charged")]
    tool_calls: Annotated[Count, Meta(description="tool calls charged")]
    test_runs: Annotated[Count, Meta(description="test runs charged")]
    overlay: Annotated[ArtifactRef, Meta(description="JSON: files written and deleted")]
    patch: Annotated[ArtifactRef, Meta(description="diff against the base tree, bytes")]
    tree: Annotated[str, Meta(description="tree id with the patch applied; empty: none")]
    changed_paths: Annotated[
        tuple[str, ...], Meta(description="paths that differ from the base tree, sorted")
    ]
    submitted: Annotated[bool, Meta(description="true where the agent submitted by itself")]


class CellVoided(Event):
    """A finished cell's observation does not count, for a reason written before outcomes."""

    TYPE: ClassVar[str] = "cell.voided.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    cell: Annotated[CellId, Meta(description="the planned cell")]
    reason: Annotated[str, Meta(description="why, written before outcomes")]
