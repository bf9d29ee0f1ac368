"""One cell of a transfer study: seeding, snapshot, session, calls, decision, surface.

Stream ``cell/<case>.d<n>/<memory>/<driver>/<trial>``. It begins with ``cell.started`` as every cell
and ends with one ``case.finished``. What is absent was not observed; nothing here is inferred.
Counts beside the records (calls in the journal, retrievals of a session) say that none is missing:
what was not done can be judged only where everything that was done is there.

What a system did is its outcome: who reads its calls, its decision or its last words knows how it
fared. So all of a cell but what is fixed before the system does anything lies behind the inspection
gate, a model's turns included, which other studies show (``ledger/cli/inspection_gate.py``).
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Digest, Event, Value
from schemas.identifiers import CellId, Identifier
from schemas.transfer.correction import Session
from schemas.transfer.family import Effect, Grade, Layer, Verdict

CaseClass = Literal["completed", "crashed", "timed_out", "flooded", "malformed", "void"]
"""`void`: our own fault (fixture, harness, a killed worker): run again under the same identity. All
others are observed (scoring rule 8)."""


class FamiliesFrozen(Event):
    """The families of a suite are fixed: prompts, fixtures, predicates, stages and waivers."""

    TYPE: ClassVar[str] = "families.frozen.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    suite: Annotated[ArtifactRef, Meta(description="JSON of schemas.transfer.family.FrozenSuite")]
    version: Annotated[str, Meta(description="version of the suite")]
    families: Annotated[Count, Meta(description="number of families")]
    cases: Annotated[Count, Meta(description="number of cases")]
    position: Annotated[
        int, Meta(ge=-1, description="corrections were read up to this seq; -1: none stood there")
    ]
    programs: Annotated[
        ArtifactRef | None,
        Meta(
            description="JSON: memory → file → digest, of all that its command brings; null: none "
            "has a command"
        ),
    ] = None


class Capabilities(Value):
    """What a system says that it can show. What is not declared is unobserved."""

    trace: Annotated[
        Literal["retrieval", "admitted", "used", "none"], Meta(description="which records it shows")
    ] = "none"
    plan: Annotated[
        Literal["before_action", "final", "none"], Meta(description="when it shows its decision")
    ] = "none"
    store: Annotated[
        Literal["readable", "opaque"], Meta(description="whether its store can be read")
    ] = "opaque"
    clock: Annotated[
        Literal["settable", "faked", "system", "none"],
        Meta(description="how its clock can be controlled"),
    ] = "none"
    write_path: Annotated[bool, Meta(description="whether it can be taught in a session")] = False
    deterministic: Annotated[bool, Meta(description="the same inputs give the same answers")] = (
        False
    )


class SystemDescribed(Event):
    """The identity and the declared capabilities of the system under test in this cell."""

    TYPE: ClassVar[str] = "system.described.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    memory: Annotated[ArtifactRef, Meta(description="JSON of the memory's manifest")]
    driver: Annotated[ArtifactRef, Meta(description="JSON of the driver's manifest")]
    capabilities: Annotated[Capabilities, Meta(description="what it declares")]
    clock_control: Annotated[
        Literal["settable", "faked", "system", "none"],
        Meta(description="how the system's clock was controlled in this cell"),
    ]


class MemorySeeded(Event):
    """Records were put into the system's store through its own write path, distractors included."""

    TYPE: ClassVar[str] = "memory.seeded.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    ids: Annotated[
        dict[str, tuple[str, ...]], Meta(description="store ids by correction id, seeded ones")
    ]
    distractors: Annotated[tuple[str, ...], Meta(description="store ids of unrelated records")] = ()
    renderings: Annotated[
        ArtifactRef, Meta(description="JSON: correction id → text that was given to the store")
    ]


class StoreSnapshotted(Event):
    """The store was read. Without items or a path retention is unobserved."""

    TYPE: ClassVar[str] = "store.snapshotted.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    when: Annotated[
        Literal["before_write", "after_write", "before_session", "after_session"],
        Meta(description="before or after which session"),
    ]
    digest: Annotated[str, Meta(description="of the store's content; empty: it cannot be read")]
    grade: Grade
    items: Annotated[
        ArtifactRef | None, Meta(description="JSON list of {id, text}; null: not readable")
    ] = None
    whole: Annotated[
        bool, Meta(description="the items are everything in the store, as far as we see ourselves")
    ] = False


class SessionOpened(Event):
    """A fresh session: a new process or message list, without a copy of the correction."""

    TYPE: ClassVar[str] = "session.opened.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    purpose: Annotated[Literal["write", "task"], Meta(description="teaching, or the scored task")]
    session: Annotated[Session, Meta(description="who asks for what, and when")]
    prompt: Annotated[ArtifactRef, Meta(description="first user message, byte for byte")]
    system_prompt: Annotated[ArtifactRef, Meta(description="what stands before it, canaries none")]
    tools: Annotated[ArtifactRef, Meta(description="JSON of the tools that are offered")]
    freshness: Annotated[
        dict[str, str],
        Meta(description="what proves it: process id, message list, HOME, directory; by name"),
    ]
    fixture: Annotated[Digest, Meta(description="digest of the fixture's first state")]


class RetrievedItem(Value):
    """One thing that a memory delivered."""

    id: Annotated[str, Meta(description="id in the store")]
    digest: Annotated[Digest, Meta(description="SHA-256 of its text")]


class MemoryNotice(Value):
    """What a memory says of records beside delivering them."""

    kind: Annotated[
        Literal["conflict", "lapsed", "not_yet_valid"],
        Meta(description="they disagree and none replaces the other; or hold at another time only"),
    ]
    records: Annotated[tuple[str, ...], Meta(description="the records, as the memory names them")]


class MemoryRetrieved(Event):
    """Something was delivered from the memory to the driver."""

    TYPE: ClassVar[str] = "memory.retrieved.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    query: Annotated[str, Meta(description="as asked, bounded")]
    delivered: Annotated[
        tuple[RetrievedItem, ...], Meta(description="what was delivered, in order")
    ]
    admitted: Annotated[
        tuple[str, ...] | None,
        Meta(description="store ids that were let through to the decision; null: not shown"),
    ] = None
    notices: Annotated[
        tuple[MemoryNotice, ...], Meta(description="what was said of records with the delivery")
    ] = ()
    grade: Grade
    content: Annotated[ArtifactRef, Meta(description="JSON of what was delivered")]


class MemoryWritten(Event):
    """The system was told something, or wrote to its memory."""

    TYPE: ClassVar[str] = "memory.written.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    acknowledged: Annotated[bool, Meta(description="the system says that it was kept")]
    text: Annotated[ArtifactRef, Meta(description="what it said")]
    grade: Grade


class FixtureCalled(Event):
    """A tool of the fixture was called; kept by the fixture, whoever called."""

    TYPE: ClassVar[str] = "fixture.called.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    number: Annotated[int, Meta(ge=0, description="call of the session, from 0")]
    tool: Annotated[str, Meta(description="name, as called")]
    effect: Annotated[Effect | Literal["none"], Meta(description="`none`: refused, no such tool")]
    arguments: Annotated[ArtifactRef, Meta(description="JSON of the arguments, as sent")]
    ok: Annotated[bool, Meta(description="false: refused with a typed error")]
    result: Annotated[ArtifactRef, Meta(description="what the system was shown")]
    state: Annotated[Digest, Meta(description="digest of the state after the call")]


class DecisionDeclared(Event):
    """The system named its choice. The last one before the first state-changing call counts."""

    TYPE: ClassVar[str] = "decision.declared.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    option: Annotated[str, Meta(description="the named option")]
    basis: Annotated[tuple[str, ...], Meta(description="records that it says it used")]
    call: Annotated[int, Meta(ge=-1, description="number of the call; -1: in the final text")]
    before_write: Annotated[bool, Meta(description="no state-changing call had been made")]
    grade: Grade


class Claim(Value):
    """Something that a system says it did; judged against what was seen."""

    kind: Annotated[
        Literal["recalled", "saved", "checked", "done"], Meta(description="what it says it did")
    ]
    about: Annotated[str, Meta(description="record, or surface")] = ""


class SessionClosed(Event):
    """The session ended."""

    TYPE: ClassVar[str] = "session.closed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    purpose: Annotated[Literal["write", "task"], Meta(description="teaching, or the scored task")]
    text: Annotated[ArtifactRef, Meta(description="last words of the system")]
    claims: Annotated[tuple[Claim, ...], Meta(description="what it says it did")] = ()
    claims_grade: Annotated[Grade, Meta(description="whose word the reading of the claims is")] = (
        "none"
    )
    retrievals: Annotated[
        Count, Meta(description="deliveries from the memory in this session: all are recorded")
    ]
    leaked: Annotated[
        tuple[str, ...],
        Meta(description="where a canary was seen outside the memory channel; none: fresh"),
    ] = ()


class SurfaceRead(Event):
    """The authoritative surfaces, read by the fixture after the session, never by the system."""

    TYPE: ClassVar[str] = "surface.read.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    before: Annotated[ArtifactRef, Meta(description="JSON of the first state")]
    after: Annotated[ArtifactRef, Meta(description="JSON of the last state")]
    calls: Annotated[Count, Meta(description="calls in the journal")]
    side_effects: Annotated[
        tuple[str, ...],
        Meta(description="paths that changed outside what the fixture's tools changed"),
    ] = ()


class CaseFinished(Event):
    """The cell ended, in exactly one class. All but `void` are observed outcomes."""

    TYPE: ClassVar[str] = "case.finished.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("cell",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ("attempt",)
    cell: Annotated[CellId, Meta(description="the planned cell")]
    attempt: Annotated[Count, Meta(description="attempt that ended, from 0")]
    ended: Annotated[CaseClass, Meta(description="the class it ended in")]
    detail: Annotated[str, Meta(description="what exactly happened; empty: nothing to add")] = ""
    uncertainty: Annotated[
        tuple[str, ...], Meta(description="what could not be determined, and why")
    ] = ()
    stopped: Annotated[
        bool,
        Meta(
            description="void since the run was stopped in order (`run.stopped`) while the case "
            "ran: it is none of the attempts that the study allows"
        ),
    ] = False


class StageScore(Value):
    """One stage of one cell: the verdict, its grade, and the records that it rests on."""

    verdict: Annotated[Verdict, Meta(description="of the stage")]
    grade: Annotated[Grade, Meta(description="of its evidence")]
    evidence: Annotated[tuple[int, ...], Meta(description="seq of the events it rests on")]
    why: Annotated[str, Meta(description="one sentence")]


class TransferScored(Event):
    """Scores as the scorer found them; a later one never turns `unobserved` into `pass`."""

    TYPE: ClassVar[str] = "transfer.scored.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("study",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    scorer: Annotated[Digest, Meta(description="digest of the scorer's code")]
    head: Annotated[int, Meta(ge=0, description="seq of the last record that was read")]
    scores: Annotated[
        ArtifactRef, Meta(description="JSON list of projections.transfer.scores.RunScore")
    ]


# --- remediation loop ---------------------------------------------------------------------------


class RemediationOpened(Event):
    """A failure was assigned to the earliest evidenced failing stage.

    Stream ``remediation/<id>``."""

    TYPE: ClassVar[str] = "remediation.opened.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("remediation",)
    CARRIES_OUTCOME: ClassVar[bool] = True
    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    cell: Annotated[str, Meta(description="the failing run: CASE/MEMORY/DRIVER/TRIAL")]
    stage: Annotated[str, Meta(description="earliest evidenced failing stage")]
    layer: Annotated[Layer, Meta(description="`unknown`: the team cannot see eight layers")]
    manifest: Annotated[dict[str, str], Meta(description="layer → digest before")]


class RemediationChanged(Event):
    """One layer was changed; recorded as unattributed where layers cannot be seen."""

    TYPE: ClassVar[str] = "remediation.changed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("remediation",)
    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    layer: Annotated[Layer, Meta(description="the one that was changed")]
    before: Annotated[dict[str, str], Meta(description="layer → digest")]
    after: Annotated[dict[str, str], Meta(description="layer → digest")]
    attributed: Annotated[bool, Meta(description="false: the layers cannot be seen")]
    new_memory: Annotated[str, Meta(description="id of the system's new memory, by amendment")]
    new_driver: Annotated[str, Meta(description="id of the system's new driver, by amendment")]


class RemediationRerun(Event):
    """The failing case, its controls and a bounded sample were run again."""

    TYPE: ClassVar[str] = "remediation.rerun.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("remediation",)
    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    cells: Annotated[tuple[str, ...], Meta(description="every rerun cell")]
    sample_seed: Annotated[str, Meta(description="named stream of the sample")]


class RemediationClosed(Event):
    """The remediation is documented: reruns exist with unchanged prompts, fixtures and
    predicates."""

    TYPE: ClassVar[str] = "remediation.closed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("remediation",)
    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    suite_version: Annotated[str, Meta(description="version of the suite")]
    limitation: Annotated[str, Meta(description="what is unresolved; empty is not allowed")]


class RemediationAbandoned(Event):
    """The remediation is given up, at whatever step. Nothing follows it; its name stays used."""

    TYPE: ClassVar[str] = "remediation.abandoned.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("remediation",)
    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    reason: Annotated[str, Meta(description="why, in words")]
