"""Tests run on candidates: public ones for the agent, hidden ones for the verdict."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Event, Nanoseconds, Value
from schemas.identifiers import CellId, Identifier


class TestRunFinished(Event):
    """Public tests ran on a candidate; `text` is what the agent was shown."""

    TYPE: ClassVar[str] = "test_run.finished.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    number: Annotated[int, Meta(ge=0, description="which public run of the cell, from 0")]
    verdict: Annotated[
        Literal["finished", "timeout", "infrastructure"], Meta(description="how the process ended")
    ]
    passed: Annotated[Count, Meta(description="tests that passed")]
    failed: Annotated[Count, Meta(description="tests that did not")]
    text: Annotated[ArtifactRef, Meta(description="summary given to the agent")]
    output: Annotated[ArtifactRef, Meta(description="captured output, capped")]
    sandbox: Annotated[str, Meta(description="kind of sandbox it ran in")]
    duration_ns: Nanoseconds


class GradingRun(Value):
    """One process of the two that must agree."""

    verdict: Annotated[
        Literal["finished", "timeout", "infrastructure"], Meta(description="how the process ended")
    ]
    reason: Annotated[str, Meta(description="why it is not finished; empty: it is")]
    results: Annotated[ArtifactRef, Meta(description="JSON: outcome by test id")]
    output: Annotated[ArtifactRef, Meta(description="captured output, capped")]
    duration_ns: Nanoseconds


class CellGraded(Event):
    """The hidden tests' verdict on a finished cell. `resolved` is submitted, applies, every
    fail-to-pass and every pass-to-pass test passes, in both processes."""

    TYPE: ClassVar[str] = "cell.graded.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ()
    cell: Annotated[CellId, Meta(description="the finished cell")]
    verdict: Annotated[
        Literal["resolved", "failed", "timeout", "not_graded", "infrastructure"],
        Meta(description="`not_graded`: nothing to grade (no patch or no submission possible)"),
    ]
    resolved: Annotated[
        bool, Meta(description="true where both processes agree that everything passes")
    ]
    resolved_if_submitted: Annotated[
        bool, Meta(description="declared sensitivity: the overlay graded as if submitted")
    ]
    fail_to_pass_passed: Annotated[Count, Meta(description="fail-to-pass tests that passed")]
    fail_to_pass_total: Annotated[Count, Meta(description="fail-to-pass tests of the task")]
    pass_to_pass_passed: Annotated[Count, Meta(description="pass-to-pass tests that passed")]
    pass_to_pass_total: Annotated[Count, Meta(description="pass-to-pass tests of the task")]
    flagged: Annotated[
        tuple[str, ...],
        Meta(description="spoofing patterns in the patch, and meddling that the processes showed"),
    ]
    runs: Annotated[tuple[GradingRun, ...], Meta(description="the two processes")]
    sandbox: Annotated[str, Meta(description="kind of sandbox they ran in")]


class GoldChecked(Event):
    """The gold patch was graded again: a control of the test environment, not an outcome."""

    TYPE: ClassVar[str] = "gold.checked.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("task",)
    task: Identifier
    number: Annotated[Count, Meta(description="0 at the start, counts up")]
    passed: Annotated[bool, Meta(description="true where gold still passes everything")]
    reason: Annotated[str, Meta(description="what failed; empty: nothing")]
    runs: Annotated[tuple[GradingRun, ...], Meta(description="the two processes")]
