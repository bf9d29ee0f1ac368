"""Reading records that cannot be trusted: what every source of them offers.

Verification, export and backup read through this. A source never writes (not even the side files
that SQLite makes when it opens a WAL database for reading), goes on behind what is damaged, holds
at most one page in memory, and hands out bytes without judging them. ``stores.open_records`` opens
one.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ledger.checkpoint import split_notes
from ledger.errors import Unfinished
from ledger.evidence import Evidence
from ledger.finding import Finding
from ledger.regular_file import is_no_file, read_regular

PAGE_RECORDS = 256
PAGE_BYTES = 4 << 20
MAX_CHECKPOINT_LOG_BYTES = 64 << 20
MAX_FOUND_BYTES = 64 << 20
"""Of all notes, and of all records of one type, that are held at once."""

RECORDS_FILE = "records.jsonl"
CHECKPOINTS_FILE = "checkpoints.log"
ARTIFACTS_FOLDER = "artifacts"
DATABASE_FILE = "ledger.db"

Row = tuple[Any, ...]
"""(position, record, leaf column) of a database, whatever its types; (position, record) of a line,
with None for a position where the line does not begin like a record."""


class Unreadable(msgspec.Struct, frozen=True):
    """Positions start <= seq < stop that could not be read."""

    start: int
    stop: int
    reason: str
    too_large: bool = False


class Stretch(msgspec.Struct, frozen=True):
    """What one step of reading gave: rows in order, then perhaps damage."""

    rows: list[Row]
    unreadable: Unreadable | None = None


class Damaged(Exception):
    """Reading cannot go on at all; the message says why."""


class ForeignTable(Damaged):
    """A table is not the one that this program makes. No value of it is read: a view or a
    generated column can compute without end, and says whatever its author likes."""


class RecordSource(Protocol):
    """Where records, notes and artifacts are read from."""

    path: Path
    artifacts: Path | None
    """Folder of the artifacts; None where there are none to check."""
    imported: bool

    def first(self) -> bytes | None:
        """Record 0, or None where it cannot be read."""
        ...

    def end(self) -> int | None:
        """One more than the last position, or None where only reading to the end tells. What is
        appended later is not read."""
        ...

    def stretches(self, end: int | None) -> Iterator[Stretch]:
        """Everything up to ``end``. Raises Damaged."""
        ...

    def published(self) -> bytes:
        """Content of checkpoints.log. Raises Damaged where something else stands in its place.

        To be read before ``checkpoint_rows`` and before the records: a note is committed before it
        is published, so a note that was read is never ahead of what is read afterwards.
        """
        ...

    def checkpoint_rows(self) -> list[tuple[int, bytes]]:
        """(size, note) of every checkpoint that a database holds."""
        ...

    def find(self, event_type: str) -> list[bytes]:
        """Records of one type on the ledger's own stream."""
        ...

    def changed_at_rest(self) -> bool:
        """True when a writer came while this was read without locks: what was read proves nothing,
        and it is to be read once more with ``live``."""
        ...

    def begin_own_checks(self, end: int | None) -> None:
        """Start what can be checked beside reading, up to ``end``."""
        ...

    def own_checks(self) -> "Iterable[OwnCheck]":
        """The checks that only a store of this kind has; asked when every record was read."""
        ...

    def copy_to(self, target: Path) -> None:
        """Write a snapshot of the whole store to a new file. Raises Refused where there is none to
        be copied, Unfinished."""
        ...

    def close(self) -> None:
        """Ends what runs beside reading."""
        ...


OwnCheck = Callable[[Any, Evidence], Iterator[Finding]]
"""A function of the source and of what was read from it."""


def read_checkpoint_log(path: Path) -> bytes:
    """The whole file; empty where there is none. Raises Damaged for what is no regular file."""
    try:
        return read_regular(path, MAX_CHECKPOINT_LOG_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise not_to_be_read(path, error) from None


def not_to_be_read(path: Path, error: OSError) -> Damaged | Unfinished:
    """What stands in the place of a file is a fault of the ledger; a file that may not be read is
    none."""
    if is_no_file(error):
        return Damaged(f"{os.path.basename(error.filename or path)}: {error.strerror}")
    return Unfinished(f"{path}: {error.strerror}")


def held_in_memory(
    rows: Iterable[tuple[Any, ...]], what: str, value: Callable[[tuple[Any, ...]], Any]
) -> list[tuple[Any, ...]]:
    """Rows in memory. Raises Unfinished where they are more than fit."""
    kept, size = [], 0
    for row in rows:
        kept.append(row)
        size += len(value(row)) if isinstance(value(row), bytes | str) else 0
        if size > MAX_FOUND_BYTES:
            raise Unfinished(f"more than {MAX_FOUND_BYTES} bytes of {what}")
    return kept


def all_notes(rows: Iterable[tuple[int, bytes]], published: bytes) -> list[bytes]:
    """Every different note of rows and file, by size and bytes."""
    notes = {note for _, note in rows} | set(split_notes(published)[0])
    return sorted(notes, key=lambda note: (_claimed_size(note), note))


def _claimed_size(note: bytes) -> int:
    lines = note.split(b"\n", 2)
    return int(lines[1]) if len(lines) == 3 and lines[1].isdigit() else -1
