"""Events of earlier forms: what old ledgers hold, and what it means today.

A changed meaning is a new tag and a pure function from the old form to the new one. Nothing writes
these any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Digest, Event, Position, Value
from schemas.events.run import RunStarted
from schemas.events.study import (
    AmendmentRecorded,
    ComponentChange,
    FrozenComponent,
    FrozenFile,
    StudyFrozen,
)
from schemas.identifiers import Identifier
from schemas.study import WHOLE_PROGRAM


class TreatmentIdentity(Value):
    """What makes an arm the arm it is."""

    id: Identifier
    source: Annotated[Digest, Meta(description="digest over its code and what it imports")]
    prompts: Annotated[Digest, Meta(description="digest over its prompt files")]


class StudyFrozenV1(Event):
    """Everything the study rests on, bound by digest. No cell can start before this event."""

    TYPE: ClassVar[str] = "study.frozen.v1"
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
    treatments: Annotated[
        tuple[TreatmentIdentity, ...],
        Meta(
            description="every arm with what makes it that arm; of a transfer study memories and "
            "drivers, as `memory.ID` and `driver.ID`"
        ),
    ]
    code: Annotated[tuple[FrozenFile, ...], Meta(description="every file of the five packages")]
    grader: Annotated[Digest, Meta(description="digest over the files that run and judge tests")]
    lock: Annotated[Digest, Meta(description="digest over installed library versions")]
    commit: Annotated[str, Meta(description="revision of the checkout, empty where there is none")]
    dirty: Annotated[bool, Meta(description="true where the checkout had uncommitted changes")]
    simulated: Annotated[
        bool, Meta(description="true where a stand-in answers instead of models: never evidence")
    ]


class AmendmentRecordedV1(Event):
    """Something frozen was changed. Its class is the ledger's finding, never the author's word."""

    TYPE: ClassVar[str] = "amendment.recorded.v1"
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
    changed: Annotated[tuple[FrozenFile, ...], Meta(description="new digests of what changed")]
    removed: Annotated[tuple[str, ...], Meta(description="names that no longer exist")] = ()
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


class RunStartedV1(Event):
    """`ledger run` began or went on."""

    TYPE: ClassVar[str] = "run.started.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("runs",)
    study: Annotated[Digest, Meta(description="digest of the frozen study")]
    python: Annotated[str, Meta(description="version of Python")]
    platform: Annotated[str, Meta(description="operating system and machine")]
    libraries: Annotated[dict[str, str], Meta(description="versions that can change a result")]
    commit: Annotated[str, Meta(description="revision of the checkout; empty: there is none")]
    dirty: Annotated[bool, Meta(description="true where the checkout had uncommitted changes")]
    resumed: Annotated[bool, Meta(description="true where an earlier run had begun the plan")]


def _study_frozen(old: Any) -> StudyFrozen:
    return StudyFrozen(
        study=old.study,
        digest=old.digest,
        documents=old.documents,
        document_contents=old.document_contents,
        tasks=old.tasks,
        plan=old.plan,
        components=(
            _by_digest(WHOLE_PROGRAM, _digest_of([*old.code, _libraries(old.lock)])),
            *(_by_digest(_name(each.id), each.source) for each in old.treatments),
        ),
        commit=old.commit,
        dirty=old.dirty,
        simulated=old.simulated,
    )


def _amendment_recorded(old: Any) -> AmendmentRecorded:
    def is_program(name: str) -> bool:
        return name.startswith("code/") or name == "libraries"

    changed = [file for file in old.changed if is_program(file.name)]
    removed = [name for name in old.removed if is_program(name)]
    now = _digest_of([*changed, *(FrozenFile(name=name, digest="0" * 64) for name in removed)])
    differences = [
        *(f"{file.name.removeprefix('code/')} differs" for file in changed),
        *(f"{name.removeprefix('code/')} is gone" for name in removed),
    ]
    return AmendmentRecorded(
        reason=old.reason,
        changes_claim=old.changes_claim,
        finding=old.finding,
        inspections=old.inspections,
        changed=tuple(file for file in old.changed if not is_program(file.name)),
        removed=tuple(name for name in old.removed if not is_program(name)),
        components=(
            ComponentChange(
                name=WHOLE_PROGRAM,
                before=None,
                after=_by_digest(WHOLE_PROGRAM, now),
                differences=tuple(differences),
            ),
        )
        if differences
        else (),
        study=old.study,
        plan=old.plan,
        programs=old.programs,
    )


def _run_started(old: Any) -> RunStarted:
    return RunStarted(
        study=old.study,
        python=old.python,
        platform=old.platform,
        program=None,
        commit=old.commit,
        dirty=old.dirty,
        resumed=old.resumed,
    )


def _by_digest(name: str, digest: str) -> FrozenComponent:
    return FrozenComponent(name=name, digest=digest, files=None, libraries={})


def _libraries(lock: str) -> FrozenFile:
    return FrozenFile(name="libraries", digest=lock)


def _name(treatment: str) -> str:
    """``memory.full`` was a memory, ``H000`` an arm."""
    part, dot, rest = treatment.partition(".")
    return f"{part} {rest}" if dot else f"arm {treatment}"


def _digest_of(files: list[FrozenFile]) -> str:
    lines = sorted(f"{file.digest}  {file.name}\n" for file in files)
    return sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class EarlierForm:
    """``form``: how it was recorded; ``today``: its type now; ``upcast``: from the one to the
    other."""

    form: type[Event]
    today: type[Event]
    upcast: Callable[[Any], Event]


EARLIER_FORMS: dict[str, EarlierForm] = {
    earlier.form.TYPE: earlier
    for earlier in (
        EarlierForm(StudyFrozenV1, StudyFrozen, _study_frozen),
        EarlierForm(AmendmentRecordedV1, AmendmentRecorded, _amendment_recorded),
        EarlierForm(RunStartedV1, RunStarted, _run_started),
    )
}
