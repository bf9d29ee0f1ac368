"""Runs of the program over a frozen plan."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Digest, Event


class RunStarted(Event):
    """`ledger run` began or went on."""

    TYPE: ClassVar[str] = "run.started.v2"
    STREAMS: ClassVar[tuple[str, ...]] = ("runs",)
    study: Annotated[Digest, Meta(description="digest of the frozen study")]
    python: Annotated[str, Meta(description="version of Python")]
    platform: Annotated[str, Meta(description="operating system and machine")]
    program: Annotated[
        ArtifactRef | None,
        Meta(
            description="JSON: digest of every file of the packages, version of every installed "
            "distribution; evidence that gates nothing. null: an earlier version did not record it"
        ),
    ]
    commit: Annotated[str, Meta(description="revision of the checkout; empty: there is none")]
    dirty: Annotated[bool, Meta(description="true where the checkout had uncommitted changes")]
    waiting: Annotated[
        tuple[str, ...],
        Meta(description="components that are not as frozen: their cells wait for an amendment"),
    ] = ()
    resumed: Annotated[bool, Meta(description="true where an earlier run had begun the plan")]


class RunStopped(Event):
    """`ledger run` ended in order. A killed run leaves no such event."""

    TYPE: ClassVar[str] = "run.stopped.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("runs",)
    reason: Annotated[
        Literal["complete", "interrupted", "safety", "failed"],
        Meta(description="`safety`: a declared condition; everything but complete is resumable"),
    ]
    detail: Annotated[str, Meta(description="what exactly happened; empty: nothing to add")]
    cells_finished: Annotated[Count, Meta(description="cells that have ended so far")]


class StudyCompleted(Event):
    """Every planned cell has ended and, where a grader judges them, is graded."""

    TYPE: ClassVar[str] = "study.completed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    cells: Annotated[Count, Meta(description="cells of the plan")]
    graded: Annotated[Count, Meta(description="cells with a verdict; transfer: observed ones")]
