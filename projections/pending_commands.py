"""Commands that were requested and have not ended: what the delivery table is rebuilt from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ledger.log import FINISHES_COMMAND, Fact
from projections.fold import Row, Table
from schemas.base import Event
from schemas.commands import Command
from schemas.events.command import CommandRequested


@dataclass
class PendingCommands:
    """By command id, in the order in which they were requested."""

    NAME: ClassVar[str] = "pending_commands"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (CommandRequested, *FINISHES_COMMAND)
    TABLES: ClassVar[Mapping[str, Table]] = {
        "pending_commands": Table(key=("command",), columns={"command": str, "role": str})
    }

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

    def tables(self) -> Mapping[str, Sequence[Row]]:
        return {
            "pending_commands": [
                {"command": command, "role": requested.role}
                for command, requested in self.commands.items()
            ]
        }
