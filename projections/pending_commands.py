"""Commands that were requested and have not ended: what the delivery table is rebuilt from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ledger.log import FINISHES_COMMAND, Fact
from projections.fold import Row
from schemas.base import Event
from schemas.commands import Command
from schemas.events.command import CommandRequested


class PendingCommandRow(Row):
    TABLE: ClassVar[str] = "pending_commands"
    KEY: ClassVar[tuple[str, ...]] = ("command",)
    command: str
    role: str


@dataclass
class PendingCommands:
    """By command id, in the order in which they were requested."""

    NAME: ClassVar[str] = "pending_commands"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (CommandRequested, *FINISHES_COMMAND)
    TABLES: ClassVar[tuple[type[Row], ...]] = (PendingCommandRow,)

    commands: dict[str, CommandRequested] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        if isinstance(fact.event, CommandRequested):
            self.commands[fact.id] = fact.event
        elif isinstance(fact.event, FINISHES_COMMAND):
            self.commands.pop(fact.event.command, None)

    def of_roles(self, roles: Sequence[str]) -> list[Command]:
        return [
            requested.command for requested in self.commands.values() if requested.role in roles
        ]

    def rows(self) -> Iterator[PendingCommandRow]:
        for command, requested in self.commands.items():
            yield PendingCommandRow(command=command, role=requested.role)
