"""The layout of the database: what is created, what is expected where one is opened or verified."""

from pathlib import Path

from ledger.regular_file import open_regular

APPLICATION_ID = 0x4C61624C  # "LabL"
SCHEMA_VERSION = 2

SCHEMA = {
    # The record is the last column: a long one overflows its page, and the columns before it are
    # read without following the overflow.
    "records": """\
CREATE TABLE records (
  seq INTEGER PRIMARY KEY,
  leaf BLOB NOT NULL,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  stream TEXT NOT NULL,
  version INTEGER NOT NULL,
  at TEXT NOT NULL,
  actor TEXT NOT NULL,
  cause TEXT,
  "index" INTEGER NOT NULL,
  run TEXT NOT NULL,
  record BLOB NOT NULL
) STRICT""",
    "records_stream": "CREATE UNIQUE INDEX records_stream ON records (stream, version)",
    "records_cause": """\
CREATE UNIQUE INDEX records_cause ON records (cause, "index") WHERE cause IS NOT NULL""",
    "records_insert": """\
CREATE TRIGGER records_insert BEFORE INSERT ON records
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), -1) + 1 FROM records)
BEGIN SELECT RAISE(ABORT, 'a record is appended at head + 1 and nowhere else'); END""",
    "records_update": """\
CREATE TRIGGER records_update BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END""",
    "records_delete": """\
CREATE TRIGGER records_delete BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'a record is never deleted'); END""",
    "checkpoints": """\
CREATE TABLE checkpoints (
  size INTEGER PRIMARY KEY,
  note BLOB NOT NULL
) STRICT""",
    # seq first: the oldest free command is the first row that fits.
    "delivery": """\
CREATE TABLE delivery (
  seq INTEGER PRIMARY KEY,
  command TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  lease TEXT,
  deadline INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0
) STRICT""",
}

STATISTICS = {
    "sqlite_stat1": "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "sqlite_stat4": "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
"""What SQLite's ANALYZE makes, to the letter: no drift of the schema."""

EXPECTED_SCHEMA: dict[str, tuple[str, str]] = {
    name: (sql.split()[1 if sql.split()[1] != "UNIQUE" else 2].lower(), sql)
    for name, sql in SCHEMA.items()
}
"""By name: (kind, SQL)."""


def begins_like_a_database(path: Path, *, of_a_ledger: bool) -> bool:
    """By the header of the file ("Database file format" of SQLite's documentation): the magic
    string, and the application id at byte 68. Raises OSError."""
    with open_regular(path) as file:
        header = file.read(72)
    magic = header.startswith(b"SQLite format 3\0")
    return magic and (not of_a_ledger or header.endswith(APPLICATION_ID.to_bytes(4, "big")))
