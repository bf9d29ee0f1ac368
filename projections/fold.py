"""A projection is a fold: a state, and ``apply(fact)`` for the event types that it names.

States are plain objects that a newcomer can print. They may read artifacts (content-addressed, so
the same bytes for ever) and nothing else: no clock, no randomness, no network, no file of ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from ledger.log import EventLog, Fact, decode
from schemas.base import ArtifactRef, Event

ReadArtifact = Callable[[ArtifactRef], bytes]
Row = Mapping[str, Any]


class Projection(Protocol):
    """What every projection offers.

    ``FOLDS`` names the event types that it reads; ``GUARDED`` says that its tables show outcomes
    and lie behind the inspection gate; ``tables`` gives rows in a defined order.
    """

    NAME: ClassVar[str]
    FOLDS: ClassVar[tuple[type[Event], ...]]
    GUARDED: ClassVar[bool]

    def apply(self, fact: Fact) -> None: ...

    def tables(self) -> Mapping[str, Sequence[Row]]: ...


P = TypeVar("P", bound=Projection)


def fold(state: P, facts: Iterable[Fact]) -> P:
    """Apply the facts that the projection names, in order; returns ``state``."""
    for fact in facts:
        if isinstance(fact.event, state.FOLDS):
            state.apply(fact)
    return state


class Follower:
    """Keeps states up to date with a log: each call reads only what is new.

    Only the types that some state folds are decoded beyond their envelope.
    """

    def __init__(self, log: EventLog, *states: Projection) -> None:
        self.position = 0
        """Seq of the next record that will be read."""
        self._log = log
        self._states = states
        self._types = {event.TYPE for state in states for event in state.FOLDS}

    def catch_up(self) -> None:
        for stored in self._log.read(self.position):
            if stored.envelope().type in self._types:
                fact = decode(stored)
                for state in self._states:
                    if isinstance(fact.event, state.FOLDS):
                        state.apply(fact)
            self.position = stored.seq + 1
