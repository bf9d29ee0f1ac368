"""Did every command end in exactly one record?"""

from collections.abc import Iterator
from typing import ClassVar

from ledger.log import FINISHES_COMMAND, Fact
from projections.audits.finding import Findings, Verdict
from schemas.base import Event
from schemas.events import ALL_EVENTS
from schemas.events.command import CommandAbandoned, CommandRefused, CommandRequested


class CommandAudit:
    """Holds the commands that are pending, and the ids of those that have ended."""

    NAME: ClassVar[str] = "commands"
    QUESTION: ClassVar[str] = (
        "Did every command end in exactly one record, and does every event belong to a command?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = ALL_EVENTS

    def __init__(self) -> None:
        self._findings = Findings(self.NAME)
        self._pending: dict[str, int] = {}
        """Seq of the request by id."""
        self._ended: set[str] = set()
        self._refused = self._abandoned = 0

    def apply(self, fact: Fact) -> None:
        for problem in self._problems(fact):
            self._findings.violation(fact.seq, problem)
        match fact.event:
            case CommandRequested():
                self._pending[fact.id] = fact.seq
            case CommandRefused() as event:
                self._refused += 1
                self._findings.note(
                    fact.seq, f"refused (status {event.exit_status}): {event.reason}"
                )
            case CommandAbandoned() as event:
                self._abandoned += 1
                self._findings.note(fact.seq, f"abandoned: {event.reason}")

    def _problems(self, fact: Fact) -> Iterator[str]:
        event, cause = fact.event, fact.cause
        if cause is not None and cause not in self._pending and cause not in self._ended:
            yield f"{event.TYPE} names a cause that is no command before it ({cause})"
        # The next commands stand behind the end of the one that asks for them, in the same commit.
        if cause in self._ended and not isinstance(event, (CommandRequested, *FINISHES_COMMAND)):
            yield f"{event.TYPE} belongs to a command that had ended ({cause})"
        if isinstance(event, FINISHES_COMMAND):
            if event.command in self._ended:
                yield f"the command {event.command} ended a second time"
            elif self._pending.pop(event.command, None) is None:
                yield f"the command {event.command} ended and was never requested"
            self._ended.add(event.command)

    def verdict(self) -> Verdict:
        for command, seq in self._pending.items():
            self._findings.note(seq, f"the command {command} is still pending")
        return self._findings.verdict(
            applicable=bool(self._pending or self._ended),
            ended=len(self._ended),
            refused=self._refused,
            abandoned=self._abandoned,
            pending=len(self._pending),
        )
