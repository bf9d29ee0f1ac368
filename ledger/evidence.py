"""What has been gathered when every record was read: what the checks of the whole look at."""

from typing import Literal

import msgspec

from ledger.checkpoint import Checkpoint
from ledger.signing_keys import VerifierKey


class Note(msgspec.Struct):
    """A signed note and what is known about it."""

    note: bytes
    where: str
    seq: int | None
    checkpoint: Checkpoint | None
    signature: Literal["valid", "bad", "unknown", "unchecked", "unreadable"]
    """``unchecked``: no key is configured; ``unreadable``: not a note at all."""
    key_ids: str = ""

    @property
    def size(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.size


class Evidence(msgspec.Struct):
    """Everything that the checks of the whole look at."""

    key: VerifierKey | None
    notes: list[Note]
    rows: list[tuple[int, bytes]]
    seen: int
    """Size that was seen before under this key; 0 for none."""
    events: int
    following: int
    """One more than the largest position."""
    complete: bool

    @property
    def largest_signed(self) -> int:
        """The most records that a note, or this user's verifier, says there were."""
        sizes = [
            note.checkpoint.size
            for note in self.notes
            if note.checkpoint is not None and note.signature in ("valid", "unchecked")
        ]
        return max([self.seen, *sizes])
