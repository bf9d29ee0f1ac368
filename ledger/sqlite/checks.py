"""The checks of verification that only a database needs: its layout, its pages, its columns.

Each function finds the codes that its docstring names. Taking one out of ``DATABASE_CHECKS``
switches exactly that check off.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from ledger.evidence import Evidence
from ledger.finding import Finding, shown
from ledger.record_page import COLUMN_NAMES, read_record
from ledger.sqlite.schema import APPLICATION_ID, EXPECTED_SCHEMA, SCHEMA_VERSION


class Database(Protocol):
    """What the checks ask of a database that was read."""

    path: Path
    schema: dict[str, tuple[str, str]]
    """By name: (kind, SQL)."""
    identity: tuple[int, int]
    """(application id, version of the schema)"""

    def in_wal_mode(self) -> bool: ...

    def file_problems(self) -> list[str]: ...

    def suspect_columns(self) -> list[tuple[int, int]]: ...

    def columns(self, first: int, last: int) -> Iterator[tuple[int, bytes, tuple[object, ...]]]: ...


def check_triggers(database: Database, _: Evidence) -> Iterator[Finding]:
    """TRIGGER_MISSING: the guard rails against UPDATE, DELETE and INSERT are there."""
    for name, (kind, _sql) in EXPECTED_SCHEMA.items():
        if kind == "trigger" and name not in database.schema:
            yield Finding("TRIGGER_MISSING", None, name, "no such trigger")


def check_schema(database: Database, _: Evidence) -> Iterator[Finding]:
    """SCHEMA_DRIFT: the database is laid out exactly as this program does it."""
    missing_triggers = {
        name: entry
        for name, entry in EXPECTED_SCHEMA.items()
        if entry[0] == "trigger" and name not in database.schema
    }
    complete = {**database.schema, **missing_triggers}
    if complete != EXPECTED_SCHEMA:
        names = {*complete, *EXPECTED_SCHEMA}
        differ = sorted(n for n in names if complete.get(n) != EXPECTED_SCHEMA.get(n))
        yield Finding(
            "SCHEMA_DRIFT",
            None,
            f"schema {_schema_digest(EXPECTED_SCHEMA)}",
            f"schema {_schema_digest(complete)}: {shown(', '.join(differ))}",
        )
    identity = database.identity
    if identity != (APPLICATION_ID, SCHEMA_VERSION):
        yield Finding(
            "SCHEMA_DRIFT",
            None,
            f"application_id {APPLICATION_ID}, user_version {SCHEMA_VERSION}",
            f"application_id {identity[0]}, user_version {identity[1]}",
        )


def check_integrity(database: Database, _: Evidence) -> Iterator[Finding]:
    """DB_CORRUPT: SQLite's own check of pages, indices and constraints."""
    if problems := database.file_problems():
        got = shown("; ".join(problems))
        yield Finding("DB_CORRUPT", None, "PRAGMA integrity_check: ok", got)


def check_columns(database: Database, _: Evidence) -> Iterator[Finding]:
    """COLUMN_MISMATCH: what SQL sees is what the record says."""
    for start, stop in database.suspect_columns():
        for seq, record, columns in database.columns(start, stop):
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


def check_missing_wal(database: Database, evidence: Evidence) -> Iterator[Finding]:
    """WAL_MISSING_SUSPECTED (warning): the main file alone was copied, or its WAL deleted."""
    path = database.path
    if not database.in_wal_mode() or wal_of(path).exists():
        return
    if path.with_name(f"{path.name}-shm").exists():
        yield Finding("WAL_MISSING_SUSPECTED", None, f"{path.name}-wal", "only the -shm file")
    elif evidence.complete and evidence.largest_signed > evidence.following:
        got = "no such file, and records are missing at the end"
        yield Finding("WAL_MISSING_SUSPECTED", None, f"{path.name}-wal", got)


DATABASE_CHECKS = (
    check_triggers,
    check_schema,
    check_integrity,
    check_columns,
    check_missing_wal,
)


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _schema_digest(schema: dict[str, tuple[str, str]]) -> str:
    return sha256(msgspec.json.encode(sorted(schema.items()))).hexdigest()


def _in_sql(value: object) -> str:
    return "NULL" if value is None else repr(value)
