"""A projection is a fold: a state, and ``apply(fact)`` for the event types that it names.

States are plain objects that a newcomer can print. They may read artifacts (content-addressed, so
the same bytes for ever) and nothing else: no clock, no randomness, no network, no file of ours.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Protocol, Self, TypeVar

import msgspec

from ledger.log import EventLog, Fact, StoredRecord, fact_of
from schemas.base import ArtifactRef, Event, Value
from schemas.events import tags_of

ReadArtifact = Callable[[ArtifactRef], bytes]


class Row(Value):
    """One row of a table, and by its fields the table's columns, in order: ``str``, ``int``,
    ``float``, or one of them ``| None`` where the value may be missing.

    ``TABLE`` is the table's name. No two of its rows share the values of the columns ``KEY``.
    """

    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]

    @classmethod
    def of(cls, source: object, **given: Any) -> Self:
        """A row of the values given and, for every other column, of the attribute of ``source``
        with its name; false and true are 0 and 1."""
        for field in msgspec.structs.fields(cls):
            if field.name not in given:
                given[field.name] = getattr(source, field.name)
        return cls(
            **{
                name: int(value) if value is True or value is False else value
                for name, value in given.items()
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Value by column, in order."""
        return dict(zip(columns_of(type(self)), msgspec.structs.astuple(self), strict=True))


@cache
def columns_of(table: type[Row]) -> Mapping[str, Any]:
    """Type by column, in order."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(table)}


class FoldState(Protocol):
    """A state and the event types that it reads; audits are such states too."""

    FOLDS: ClassVar[tuple[type[Event], ...]]

    def apply(self, fact: Fact) -> None: ...


class Projection(FoldState, Protocol):
    """A state that shows what it found in tables.

    ``GUARDED`` says that the tables show outcomes and lie behind the inspection gate. ``TABLES``
    lists them; ``rows`` gives the rows of all of them, those of one table in a defined order.
    """

    NAME: ClassVar[str]
    GUARDED: ClassVar[bool]
    TABLES: ClassVar[tuple[type[Row], ...]]

    def rows(self) -> Iterable[Row]: ...


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
                for tag in tags_of(event):
                    self._states.setdefault(tag, []).append(state)

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
