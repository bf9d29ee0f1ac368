"""Tests run on candidates: public ones for the agent, hidden ones for the verdict."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Event, Nanoseconds, Value
from schemas.identifiers import CellId, Identifier


class TestRunFinished(Event):
    """Public tests ran on a candidate; `text` is what the agent was shown."""

    TYPE: ClassVar[str] = "test_run.finished.v1"
    number: Annotated[int, Meta(ge=0, description="which public run of the cell, from 0")]
    verdict: Literal["finished", "timeout", "infrastructure"]
    passed: Count
    failed: Count
    text: Annotated[ArtifactRef, Meta(description="summary given to the agent")]
    output: Annotated[ArtifactRef, Meta(description="captured output, capped")]
    sandbox: str
    duration_ns: Nanoseconds


class GradingRun(Value):
    """One process of the two that must agree."""

    verdict: Literal["finished", "timeout", "infrastructure"]
    reason: str
    results: Annotated[ArtifactRef, Meta(description="JSON: outcome by test id")]
    output: ArtifactRef
    duration_ns: Nanoseconds


class CellGraded(Event):
    """The hidden tests' verdict on a finished cell. `resolved` is submitted, applies, every
    fail-to-pass and every pass-to-pass test passes, in both processes."""

    TYPE: ClassVar[str] = "cell.graded.v1"
    CARRIES_OUTCOME: ClassVar[bool] = True
    cell: CellId
    verdict: Annotated[
        Literal["resolved", "failed", "timeout", "not_graded", "infrastructure"],
        Meta(description="`not_graded`: nothing to grade (no patch or no submission possible)"),
    ]
    resolved: bool
    resolved_if_submitted: Annotated[
        bool, Meta(description="declared sensitivity: the overlay graded as if submitted")
    ]
    fail_to_pass_passed: Count
    fail_to_pass_total: Count
    pass_to_pass_passed: Count
    pass_to_pass_total: Count
    flagged: Annotated[tuple[str, ...], Meta(description="spoofing patterns in the patch")]
    runs: tuple[GradingRun, ...]
    sandbox: str


class GoldChecked(Event):
    """The gold patch was graded again: a control of the test environment, not an outcome."""

    TYPE: ClassVar[str] = "gold.checked.v1"
    task: Identifier
    number: Count
    passed: bool
    reason: str
    runs: tuple[GradingRun, ...]
