"""What a memory policy gets and gives. Policies are pure functions of a store's items.

A store holds texts under ids and nothing else: scope, validity and what replaces what are read out
of the texts (``schemas.transfer.rendering``). So every policy works from what a snapshot of the
store shows, and a text that says nothing of them has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from schemas.transfer.correction import Session


@dataclass(frozen=True)
class StoredItem:
    """One text in a store."""

    id: str
    text: str


NoticeKind = Literal["conflict", "lapsed", "not_yet_valid"]


@dataclass(frozen=True)
class Notice:
    """What a memory says about records beside delivering them; delivered with them.

    ``conflict``: the named ones disagree and none replaces the other. ``lapsed``,
    ``not_yet_valid``: they would have applied at another time, and are not delivered.
    """

    kind: NoticeKind
    records: tuple[str, ...]


@dataclass(frozen=True)
class Recalled:
    """What was delivered, in order, and which of it was let through to the decision."""

    delivered: tuple[StoredItem, ...] = ()
    admitted: tuple[str, ...] | None = ()
    """Ids of items; None: the memory does not show it."""
    notices: tuple[Notice, ...] = ()


class Policy(Protocol):
    """``results``: how many items at most. An empty ``query`` asks for everything."""

    def __call__(
        self, items: Sequence[StoredItem], query: str, session: Session, results: int
    ) -> Recalled: ...
