"""From history to tasks. None of these events knows an agent's outcome."""

from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.base import ArtifactRef, Count, Event, GitOid, Nanoseconds
from schemas.identifiers import Identifier


class RepositoryMined(Event):
    """The static funnel of one repository: a function of repository, head, rules and platform."""

    TYPE: ClassVar[str] = "repository.mined.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("repository",)
    repository: Identifier
    head: GitOid
    walked: Annotated[int, Meta(ge=0, description="first-parent commits looked at")]
    candidates: Annotated[int, Meta(ge=0, description="commits that pass every static criterion")]
    rejected: Annotated[
        dict[str, Count], Meta(description="commits by the first criterion that they fail")
    ]
    audit: Annotated[ArtifactRef, Meta(description="JSON lines: one row for every walked commit")]
    settings: Annotated[
        dict[str, str],
        Meta(
            description="JSON by key of study.toml: all that mining and validation depend on; "
            "empty: recorded before this was"
        ),
    ] = {}


class EnvironmentBuilt(Event):
    """A test environment exists: the base's own pins, or a declared fall-back."""

    TYPE: ClassVar[str] = "environment.built.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("repository",)
    identity: Annotated[str, Meta(description="digest over Python, requirement files, fall-back")]
    repository: Identifier
    fallback: Annotated[str, Meta(description="which declared fall-back was needed; empty: none")]
    inputs: Annotated[
        ArtifactRef,
        Meta(description="JSON of schemas.repair.task.EnvironmentInputs: what it is built of"),
    ]
    packages: Annotated[tuple[str, ...], Meta(description="name==version of all that is in it")]
    log: Annotated[ArtifactRef, Meta(description="what the build printed")]


class SandboxProbed(Event):
    """What the sandbox of this host enforces, found by trying."""

    TYPE: ClassVar[str] = "sandbox.probed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("repository", "runs")
    kind: Annotated[str, Meta(description="rung of the ladder; `none` where nothing works")]
    enforced: Annotated[
        dict[str, str], Meta(description="isolation matrix: enforced, not enforced or unknown")
    ]
    accepted_unsafe: Annotated[
        bool, Meta(description="true: somebody chose to go on without a sandbox")
    ]


class CandidateValidated(Event):
    """The three arms were run on a candidate and the first failed criterion is named, or none."""

    TYPE: ClassVar[str] = "candidate.validated.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("repository",)
    repository: Identifier
    commit: GitOid
    valid: Annotated[bool, Meta(description="true where every executed criterion holds")]
    criterion: Annotated[str, Meta(description="first failed executed criterion; empty: valid")]
    reason: Annotated[str, Meta(description="the numbers or words that decided it")]
    arms: Annotated[ArtifactRef, Meta(description="JSON: every arm's results by test id")]
    task: Annotated[
        ArtifactRef | None, Meta(description="JSON of schemas.repair.task.Task where valid")
    ] = None
    environment: Annotated[
        str, Meta(description="identity of the environment that the arms ran in")
    ]
    sandbox: Annotated[str, Meta(description="kind of sandbox; graded in the same kind")]
    settings: Annotated[
        str,
        Meta(
            description="digest of the settings that the repository was mined under; empty: "
            "recorded before this was"
        ),
    ] = ""
    duration_ns: Nanoseconds


class LeakProbed(Event):
    """Objects and files of a task's workspace were searched for lines that only gold has."""

    TYPE: ClassVar[str] = "leak.probed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("repository",)
    repository: Identifier
    tasks: Annotated[Count, Meta(description="tasks whose workspaces were searched")]
    objects: Annotated[int, Meta(ge=0, description="git objects searched")]
    findings: Annotated[tuple[str, ...], Meta(description="where gold-only lines were seen")]
