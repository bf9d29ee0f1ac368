"""The checks that see the ledger as a whole, after every record has been read.

Each function finds the codes that its docstring names.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Literal

import msgspec

from ledger.checkpoint import Checkpoint, parse_checkpoint
from ledger.errors import Integrity
from ledger.signing_keys import VerifierKey
from ledger.sqlite.log import APPLICATION_ID, SCHEMA_VERSION
from ledger.verify.record_checks import COLUMN_NAMES, Finding, read_record, shown
from ledger.verify.untrusted_records import (
    EXPECTED_SCHEMA,
    BackgroundChecks,
    RecordSource,
    SqliteRecords,
    wal_of,
)


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

    source: RecordSource
    key: VerifierKey | None
    notes: list[Note]
    rows: list[tuple[int, bytes]]
    seen: int
    """Size that was seen before under this key; 0 for none."""
    events: int
    following: int
    """One more than the largest position."""
    complete: bool
    background: BackgroundChecks | None


def check_triggers(evidence: Evidence) -> Iterator[Finding]:
    """TRIGGER_MISSING: the guard rails against UPDATE, DELETE and INSERT are there."""
    if isinstance(evidence.source, SqliteRecords):
        found = evidence.source.schema
        for name, (kind, _) in EXPECTED_SCHEMA.items():
            if kind == "trigger" and name not in found:
                yield Finding("TRIGGER_MISSING", None, name, "no such trigger")


def check_schema(evidence: Evidence) -> Iterator[Finding]:
    """SCHEMA_DRIFT: the database is laid out exactly as this program does it."""
    if isinstance(evidence.source, SqliteRecords):
        source = evidence.source
        found = source.schema
        missing_triggers = {
            name: entry
            for name, entry in EXPECTED_SCHEMA.items()
            if entry[0] == "trigger" and name not in found
        }
        complete = {**found, **missing_triggers}
        if complete != EXPECTED_SCHEMA:
            names = {*complete, *EXPECTED_SCHEMA}
            differ = sorted(n for n in names if complete.get(n) != EXPECTED_SCHEMA.get(n))
            yield Finding(
                "SCHEMA_DRIFT",
                None,
                f"schema {_schema_digest(EXPECTED_SCHEMA)}",
                f"schema {_schema_digest(complete)}: {shown(', '.join(differ))}",
            )
        identity = source.identity
        if identity != (APPLICATION_ID, SCHEMA_VERSION):
            yield Finding(
                "SCHEMA_DRIFT",
                None,
                f"application_id {APPLICATION_ID}, user_version {SCHEMA_VERSION}",
                f"application_id {identity[0]}, user_version {identity[1]}",
            )


def _schema_digest(schema: dict[str, tuple[str, str]]) -> str:
    return sha256(msgspec.json.encode(sorted(schema.items()))).hexdigest()


def check_integrity(evidence: Evidence) -> Iterator[Finding]:
    """DB_CORRUPT: SQLite's own check of pages, indices and constraints."""
    if evidence.background is not None:
        messages = evidence.background.messages()
        if messages:
            got = shown("; ".join(messages))
            yield Finding("DB_CORRUPT", None, "PRAGMA integrity_check: ok", got)


def check_columns(evidence: Evidence) -> Iterator[Finding]:
    """COLUMN_MISMATCH: what SQL sees is what the record says."""
    if evidence.background is None or not isinstance(evidence.source, SqliteRecords):
        return
    for start, stop in evidence.background.suspects():
        for seq, record, columns in evidence.source.columns(start, stop):
            fields = read_record(record)[0] if isinstance(record, bytes) else None
            if fields is None:
                continue
            wanted = {"seq": fields.seq, **{name: getattr(fields, name) for name in COLUMN_NAMES}}
            found = {"seq": seq, **dict(zip(COLUMN_NAMES, columns, strict=False))}
            differ = [name for name in wanted if wanted[name] != found.get(name, ...)]
            if differ:
                yield Finding(
                    "COLUMN_MISMATCH",
                    seq,
                    shown(", ".join(f"{name}={_in_sql(wanted[name])}" for name in differ)),
                    shown(", ".join(f"{name}={_in_sql(found.get(name, '?'))}" for name in differ)),
                )


def _in_sql(value: object) -> str:
    return "NULL" if value is None else repr(value)


def check_missing_wal(evidence: Evidence) -> Iterator[Finding]:
    """WAL_MISSING_SUSPECTED (warning): the main file alone was copied, or its WAL deleted."""
    if isinstance(evidence.source, SqliteRecords) and evidence.source.in_wal_mode():
        path = evidence.source.path
        if wal_of(path).exists():
            return
        if path.with_name(f"{path.name}-shm").exists():
            yield Finding("WAL_MISSING_SUSPECTED", None, f"{path.name}-wal", "only the -shm file")
        elif evidence.complete and _largest(evidence) > evidence.following:
            got = "no such file, and records are missing at the end"
            yield Finding("WAL_MISSING_SUSPECTED", None, f"{path.name}-wal", got)


def check_signatures(evidence: Evidence) -> Iterator[Finding]:
    """SIG_BAD, KEY_UNKNOWN: every note is one, and signed by the configured key."""
    for note in evidence.notes:
        if note.signature == "unreadable":
            yield Finding("SIG_BAD", note.seq, f"a signed note ({note.where})", shown_note(note))
        elif note.signature == "bad":
            yield Finding("SIG_BAD", note.seq, f"a signature by {evidence.key}", shown_note(note))
        elif note.signature == "unknown":
            yield Finding("KEY_UNKNOWN", note.seq, f"key {evidence.key}", shown(note.key_ids))


def check_checkpoint_rows(evidence: Evidence) -> Iterator[Finding]:
    """COLUMN_MISMATCH: the size beside a note is the size in it."""
    for size, note in evidence.rows:
        try:
            signed = parse_checkpoint(note).checkpoint
        except Integrity:
            continue
        if signed.size != size:
            got = f"checkpoints.size={size}"
            yield Finding("COLUMN_MISMATCH", signed.size - 1, f"size={signed.size}", got)


def check_forks(evidence: Evidence) -> Iterator[Finding]:
    """FORK: two notes of one key for one size with different roots: two histories were signed."""
    first: dict[int, Checkpoint] = {}
    for note in evidence.notes:
        if note.signature == "valid" and note.checkpoint is not None:
            known = first.setdefault(note.checkpoint.size, note.checkpoint)
            if known.root != note.checkpoint.root:
                expected = f"root {known.root.hex()}, signed too"
                got = f"root {note.checkpoint.root.hex()} ({note.where})"
                yield Finding("FORK", known.size - 1, expected, got)


def check_length(evidence: Evidence) -> Iterator[Finding]:
    """TRUNCATED_BELOW_CHECKPOINT: no record is missing under a checkpoint, or since this user's
    verifier looked last."""
    largest = _largest(evidence)
    if evidence.complete and largest > evidence.following:
        source = "last seen by this user" if evidence.seen == largest else "checkpoint"
        yield Finding(
            "TRUNCATED_BELOW_CHECKPOINT",
            largest - 1,
            f"{largest} records ({source})",
            f"{evidence.following} records",
        )


def _largest(evidence: Evidence) -> int:
    sizes = [
        note.checkpoint.size
        for note in evidence.notes
        if note.checkpoint is not None and note.signature in ("valid", "unchecked")
    ]
    return max([evidence.seen, *sizes])


def shown_note(note: Note) -> str:
    return shown(note.note[:80].decode("utf-8", "replace"))
