"""A projection is a fold: a state, and ``apply(fact)`` for the event types that it names.

States are plain objects that a newcomer can print. They may read artifacts (content-addressed, so
the same bytes for ever) and nothing else: no clock, no randomness, no network, no file of ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from ledger.log import EventLog, Fact, StoredRecord, fact_of
from schemas.base import ArtifactRef, Event

ReadArtifact = Callable[[ArtifactRef], bytes]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """What a table of a projection looks like, also while it is empty.

    ``columns`` gives name and type in order: ``str``, ``int``, ``float``, or one of them ``| None``
    where the value may be missing. No two rows share ``key``.
    """

    key: tuple[str, ...]
    columns: Mapping[str, Any]


class FoldState(Protocol):
    """A state and the event types that it reads; audits are such states too."""

    FOLDS: ClassVar[tuple[type[Event], ...]]

    def apply(self, fact: Fact) -> None: ...


class Projection(FoldState, Protocol):
    """A state that shows what it found in tables.

    ``GUARDED`` says that the tables show outcomes and lie behind the inspection gate. ``TABLES``
    declares them; ``tables`` gives their rows, every declared column in each, in a defined order.
    """

    NAME: ClassVar[str]
    GUARDED: ClassVar[bool]
    TABLES: ClassVar[Mapping[str, Table]]

    def tables(self) -> Mapping[str, Sequence[Row]]: ...


S = TypeVar("S", bound=FoldState)


def fold(state: S, facts: Iterable[Fact]) -> S:
    """Apply the facts that the state names, in order; returns ``state``."""
    for fact in facts:
        if isinstance(fact.event, state.FOLDS):
            state.apply(fact)
    return state


class Follower:
    """Keeps states up to date with a log: each call reads only what is new.

    Only the types that some state folds are decoded beyond their envelope.
    """

    def __init__(self, log: EventLog, *states: FoldState) -> None:
        self.position = 0
        """Seq of the next record that will be read."""
        self._log = log
        self._states: dict[str, list[FoldState]] = {}
        for state in states:
            for event in state.FOLDS:
                self._states.setdefault(event.TYPE, []).append(state)

    def catch_up(self, stop: int | None = None) -> None:
        """Read what is new, up to but not including seq ``stop``."""
        for stored in self._log.read(self.position, stop):
            self.see(stored)

    def see(self, stored: StoredRecord) -> None:
        """Apply one record, the next one in order."""
        envelope = stored.envelope()
        interested = self._states.get(envelope.type)
        if interested:
            fact = fact_of(envelope)
            for state in interested:
                state.apply(fact)
        self.position = stored.seq + 1
