"""Residency: which model was loaded when, and how that was checked."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Event, Nanoseconds, Value
from schemas.identifiers import Identifier


class Evidence(Value):
    """Raw bytes of one answer, kept before anything was read out of them."""

    label: Annotated[str, Meta(description="which view or route answered")]
    content: Annotated[ArtifactRef, Meta(description="the bytes as they came")]


Residency = Annotated[
    Literal["checked", "unobserved"],
    Meta(
        description="`unobserved`: the server shows no memory, so only its listing was looked at, "
        "and instance is the name that turns are addressed to"
    ),
]


class ServerChecked(Event):
    """Preflight: the server is up, nothing is resident, just-in-time loading is off, the
    catalogue shows the frozen models."""

    TYPE: ClassVar[str] = "server.checked.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    server: Annotated[str, Meta(description="name of the server in the study")]
    simulated: Annotated[bool, Meta(description="true where a stand-in answered: never evidence")]
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the answers that were looked at")]


class ModelLoadStarted(Event):
    """A load was about to be sent; without a following loaded or failed event it is unknown."""

    TYPE: ClassVar[str] = "model.load_started.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    model: Identifier


class ModelLoaded(Event):
    """Exactly this model is resident with the frozen identity; every view agreed."""

    TYPE: ClassVar[str] = "model.loaded.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    model: Identifier
    instance: Annotated[str, Meta(description="instance id that turns are addressed to")]
    duration_ns: Nanoseconds
    simulated: Annotated[bool, Meta(description="true where a stand-in answered: never evidence")]
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the three views, in order")]
    residency: Residency = "checked"


class ModelUnloaded(Event):
    """The instance is gone and every view agreed on zero residents."""

    TYPE: ClassVar[str] = "model.unloaded.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    model: Identifier
    instance: Annotated[str, Meta(description="instance id that was resident")]
    duration_ns: Nanoseconds
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the three views, in order")]
    residency: Residency = "checked"


class ModelLost(Event):
    """A model that the log calls resident is not there any more (the server was restarted)."""

    TYPE: ClassVar[str] = "model.lost.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    model: Identifier
    instance: Annotated[str, Meta(description="instance id that the log calls resident")]
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the views that do not show it")]


class ServerMismatched(Event):
    """Something is not as frozen. Fatal for the run; the message says what a person must do."""

    TYPE: ClassVar[str] = "server.mismatched.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("server",)
    model: Annotated[str, Meta(description="model concerned; empty for the server as a whole")]
    problem: Annotated[str, Meta(description="what differs, and what to do")]
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the answers that show it")]
