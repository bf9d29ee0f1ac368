"""What a study declares, freezes, changes and shows."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Digest, Event, Position, Value


class FrozenFile(Value):
    """One bound file: its name (never a path of a machine) and its digest."""

    name: Annotated[str, Meta(description="path from the study directory or from the packages")]
    digest: Digest


class FrozenComponent(Value):
    """A part of the program that decides results, with all that makes it the one it is."""

    name: Annotated[str, Meta(description="`kernel`, `grader`, `arm H000`, `memory full` …")]
    digest: Annotated[
        Digest, Meta(description="over the lines `digest  file` and `library==version`, sorted")
    ]
    files: Annotated[
        ArtifactRef | None,
        Meta(
            description="JSON: digest by file, of its import closure in our packages and the data "
            "that it reads; null: an earlier version recorded the digest alone"
        ),
    ]
    libraries: Annotated[
        dict[str, str], Meta(description="version by distribution that the closure imports")
    ]


class ComponentChange(Value):
    """A component that is not what it was at the freeze or the amendment before."""

    name: Annotated[str, Meta(description="the component")]
    before: Annotated[Digest | None, Meta(description="its digest until now; null: it is new")]
    after: Annotated[FrozenComponent | None, Meta(description="what it is now; null: it is gone")]
    differences: Annotated[
        tuple[str, ...], Meta(description="its files and libraries that differ, in words")
    ]
    reexecuted: Annotated[
        tuple[str, ...],
        Meta(
            description="every finished cell of it, where all executed again to the same bytes: "
            "the change decides nothing; empty: that was not shown"
        ),
    ] = ()


class TasksFrozen(Event):
    """The split is fixed: which commits are tasks, with every file that grading needs."""

    TYPE: ClassVar[str] = "tasks.frozen.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    tasks: Annotated[ArtifactRef, Meta(description="JSON list of schemas.repair.task.Task")]
    count: Annotated[Count, Meta(description="number of tasks")]
    packs: Annotated[
        dict[str, ArtifactRef],
        Meta(description="by repository: git pack with the base trees and nothing else"),
    ]


class PlanPrepared(Event):
    """The order of all cells was computed from the study and the frozen tasks."""

    TYPE: ClassVar[str] = "plan.prepared.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    plan: Annotated[ArtifactRef, Meta(description="JSON of schemas.plan.Plan")]
    cells: Annotated[Count, Meta(description="number of planned cells")]


class StudyFrozen(Event):
    """Everything the study rests on, bound by digest. No cell can start before this event."""

    TYPE: ClassVar[str] = "study.frozen.v2"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    study: Annotated[ArtifactRef, Meta(description="study.toml, byte for byte")]
    digest: Annotated[Digest, Meta(description="digest over all other fields: the study's name")]
    documents: Annotated[
        tuple[FrozenFile, ...], Meta(description="documents that the study names, by digest")
    ]
    document_contents: Annotated[
        tuple[ArtifactRef, ...], Meta(description="their bytes, in the same order")
    ]
    tasks: Annotated[Digest, Meta(description="digest of the frozen tasks or families")]
    plan: Annotated[Digest, Meta(description="digest of the plan")]
    components: Annotated[
        tuple[FrozenComponent, ...], Meta(description="every part that decides results, by name")
    ]
    commit: Annotated[str, Meta(description="revision of the checkout, empty where there is none")]
    dirty: Annotated[bool, Meta(description="true where the checkout had uncommitted changes")]
    simulated: Annotated[
        bool, Meta(description="true where a stand-in answers instead of models: never evidence")
    ]


class StudyRegistered(Event):
    """The card of the frozen study was put into a registry that its owner cannot change."""

    TYPE: ClassVar[str] = "study.registered.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    study: Annotated[Digest, Meta(description="digest of the study as it was frozen")]
    card: Annotated[ArtifactRef, Meta(description="the card, as it was deposited")]
    where: Annotated[str, Meta(min_length=1, description="registry and entry, as the user gave it")]
    receipt: Annotated[
        ArtifactRef, Meta(description="what the registry gave back: a page, a mail, a token")
    ]


class AmendmentRecorded(Event):
    """Something frozen was changed. Its class is the ledger's finding, never the author's word."""

    TYPE: ClassVar[str] = "amendment.recorded.v2"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    reason: Annotated[str, Meta(description="why, in the words of who amends")]
    changes_claim: Annotated[
        bool, Meta(description="what the author says; the finding does not depend on it")
    ]
    finding: Annotated[
        Literal["before_first_cell", "after_first_cell", "after_inspection"],
        Meta(description="where it stands; the latter two make it exploratory"),
    ]
    inspections: Annotated[
        tuple[Position, ...], Meta(description="seq of every inspection that came before")
    ]
    changed: Annotated[
        tuple[FrozenFile, ...], Meta(description="study.toml and documents with new digests")
    ]
    removed: Annotated[tuple[str, ...], Meta(description="documents that are bound no more")] = ()
    components: Annotated[
        tuple[ComponentChange, ...], Meta(description="components that changed, by name")
    ] = ()
    study: Annotated[ArtifactRef, Meta(description="study.toml as it is from now on")]
    plan: Annotated[
        ArtifactRef | None,
        Meta(
            description="the plan as it is from now on, after the first cell with cells added at "
            "its end; null: it stays"
        ),
    ] = None
    programs: Annotated[
        ArtifactRef | None,
        Meta(
            description="of a transfer study, JSON: memory → file → digest, of all that its "
            "command brings; null: none has a command"
        ),
    ] = None


class OutcomesInspected(Event):
    """Outcome tables were about to be shown by this program. Written before they are."""

    TYPE: ClassVar[str] = "outcomes.inspected.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    reason: Annotated[str, Meta(description="why, in the words of who asked")]
    graded: Annotated[
        int,
        Meta(
            ge=0,
            description="cells with an outcome at that moment: graded; of a transfer study "
            "observed, since its verdicts are projections",
        ),
    ]


class AnalysisCompleted(Event):
    """The declared analyses were computed from the records up to a position."""

    TYPE: ClassVar[str] = "analysis.completed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    head: Annotated[Position, Meta(description="seq of the last record that was read")]
    leaf: Annotated[Digest, Meta(description="leaf of that record")]
    results: Annotated[ArtifactRef, Meta(description="JSON of the results")]


class ReportWritten(Event):
    """A report was rendered."""

    TYPE: ClassVar[str] = "report.written.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    head: Position
    html: Annotated[ArtifactRef, Meta(description="the report as one HTML file")]
    markdown: Annotated[ArtifactRef, Meta(description="the report as Markdown")]


class CellReexecuted(Event):
    """A recorded cell was executed again from the log, without any model."""

    TYPE: ClassVar[str] = "cell.reexecuted.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    identical: Annotated[bool, Meta(description="true where every result had the same bytes")]
    compared: Annotated[int, Meta(ge=0, description="results compared by digest")]
    first_difference: Annotated[
        int | None, Meta(description="seq of the first event that diverges")
    ] = None
