"""Commands as records: what was asked for, and how it ended."""

from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.base import Event
from schemas.commands import AnyCommand


class CommandRequested(Event):
    """Somebody (a person or an actor) asked a role to do something. The record's id is the
    command's id. Every command ends in exactly one completed, refused or abandoned record."""

    TYPE: ClassVar[str] = "command.requested.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("role",)
    role: Annotated[str, Meta(description="role whose process takes the command")]
    command: Annotated[AnyCommand, Meta(description="what to do, by its tag `do`")]


class CommandCompleted(Event):
    """The command was carried out; its events stand in the same commit."""

    TYPE: ClassVar[str] = "command.completed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("command",)
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ()
    command: Annotated[str, Meta(description="id of the command record")]


class CommandRefused(Event):
    """A rule forbade the command; nothing else was done."""

    TYPE: ClassVar[str] = "command.refused.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("command",)
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ()
    command: Annotated[str, Meta(description="id of the command record")]
    reason: Annotated[str, Meta(description="the rule, and what to do")]
    exit_status: Annotated[int, Meta(ge=1, le=130, description="status of the refusing program")]


class CommandAbandoned(Event):
    """The process that worked on the command is gone and nobody will carry it on."""

    TYPE: ClassVar[str] = "command.abandoned.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("command",)
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = ()
    command: Annotated[str, Meta(description="id of the command record")]
    reason: Annotated[str, Meta(description="how that was established")]
