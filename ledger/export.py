"""Ledgers on the move: export to a folder of plain files, import of such a folder, backup.

    records.jsonl      one record a line, exactly the stored bytes; every line proves the one before
    checkpoints.log    every signed note, by size
    artifacts/         the files of all artifacts that records name (left out with records_only)

Bytes are moved, never made again: the same ledger gives the same files, and what was imported
exports to the bytes it came from. Everything is written under a temporary name, synced, and renamed
when it is complete; nothing that exists is overwritten.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ledger.atomic_file import TEMPORARY_PREFIX, sync, sync_directory
from ledger.chain import leaf_hash
from ledger.checkpoint import parse_checkpoint, split_notes
from ledger.clock import new_id
from ledger.errors import Integrity, Refused, Unfinished
from ledger.last_seen import remember_ledger
from ledger.named_artifacts import artifacts_in_content, named_artifacts
from ledger.record_checks import MISSING, check_artifact, read_record
from ledger.record_sources import (
    ARTIFACTS_FOLDER,
    CHECKPOINTS_FILE,
    DATABASE_FILE,
    RECORDS_FILE,
    Damaged,
    JsonlRecords,
    RecordSource,
    SqliteRecords,
    Stretch,
    all_notes,
    open_records,
    read_checkpoint_log,
)
from ledger.signing_keys import config_home, parse_verifier_key
from ledger.sqlite_log import APPLICATION_ID, IMPORTED_MARK, SCHEMA, SCHEMA_VERSION
from ledger.verify import Options, Report, verify
from schemas.base import ArtifactRef, Event

IMPORTED_TEXT = b"This ledger was imported. It is opened read-only and never written.\n"

_INSERT = """\
INSERT INTO records
  (seq, record, leaf, id, type, stream, version, at, actor, cause, "index", run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Moved(msgspec.Struct, frozen=True):
    """What an export or a backup holds, and what it could not take along."""

    records: int
    checkpoints: int
    artifacts: int
    missing: tuple[str, ...] = ()
    """Digests of named artifacts that are not there."""
    altered: tuple[str, ...] = ()
    """Digests of artifacts that were copied though their bytes are not the recorded ones."""


def export(source: Path, directory: Path, records_only: bool = False) -> Moved:
    """Write a ledger (study directory, database or exported folder) to a new folder.

    Nothing is judged: verification of the export says what it is worth. Raises Refused where the
    folder has content already, Integrity where a record cannot be read or is no line, Unfinished.
    """
    with _new_folder(directory) as folder, _opened(source) as records:
        rows, published = records.notes()
        notes = all_notes(rows, published)
        copying = _Artifacts(None if records_only else records.artifacts, folder)
        count = 0
        with _created(folder / RECORDS_FILE) as file:
            for stretch in _readable(records):
                for row in stretch.rows:
                    record = row[1]
                    if not isinstance(record, bytes) or b"\n" in record:
                        raise Integrity(f"seq {count}: not a line; run `ledger verify-chain`")
                    file.write(record + b"\n")
                    count += 1
                    copying.take(read_record(record)[1])
        _write(folder / CHECKPOINTS_FILE, b"".join(note + b"\n" for note in notes))
        copying.finish()
        return Moved(
            count, len(notes), copying.count, tuple(copying.missing), tuple(copying.altered)
        )


def import_ledger(directory: Path, target: Path, key: str | None = None) -> Report:
    """Make a read-only ledger in the new folder ``target`` from an exported one.

    Everything is verified before it gets its name; ``key``, the verifier string that its owner
    published, is remembered for it. Returns the report (its status may be ``unanchored``). Raises
    Integrity with the first finding when anything contradicts, Refused, Usage or Unfinished.
    """
    verifier = parse_verifier_key(key) if key is not None else None
    for name in (RECORDS_FILE, CHECKPOINTS_FILE):
        _check_regular(directory / name)
    with _new_folder(target) as folder, _opened(directory) as records:
        if not isinstance(records, JsonlRecords):
            raise Refused(f"{directory} is a ledger already; copy it with `ledger backup`")
        published = read_checkpoint_log(directory / CHECKPOINTS_FILE)
        database = folder / DATABASE_FILE
        with closing(_create_database(database)) as connection:
            _insert_notes(connection, published)
            copying = _Artifacts(records.artifacts, folder)
            for stretch in _readable(records):
                _insert_records(connection, stretch, copying)
        copying.finish()
        _write(folder / CHECKPOINTS_FILE, published)
        _write(folder / IMPORTED_MARK, IMPORTED_TEXT)
        database.chmod(0o400)
        _sync_file(database)
        report = _verified(folder, Options(key=key, last_seen=False))
    if verifier is not None:
        remember_ledger(config_home(), target / DATABASE_FILE, verifier)
    return report


def backup(source: Path, target: Path) -> Report:
    """Copy a ledger that may be in use, with checkpoints and artifacts, into a new folder.

    Copying ``ledger.db`` alone would silently lose what is still in its WAL. The copy is verified,
    against the newest checkpoint too, before it gets its name. Returns the report. Raises Refused,
    Integrity with the first finding, Unfinished.
    """
    with _new_folder(target) as folder, _opened(source) as records:
        if not isinstance(records, SqliteRecords):
            raise Refused(f"{source} is an export; copy the folder")
        # Notes first: none may be ahead of the records that are copied afterwards.
        rows, published = records.notes()
        database = folder / DATABASE_FILE
        records.copy_to(database)
        _sync_file(database)
        _write(
            folder / CHECKPOINTS_FILE,
            b"".join(note + b"\n" for note in all_notes(rows, published)),
        )
        if records.imported:
            _write(folder / IMPORTED_MARK, IMPORTED_TEXT)
        copying = _Artifacts(records.artifacts, folder)
        with _opened(database) as copied:
            for stretch in _readable(copied):
                for row in stretch.rows:
                    copying.take(read_record(row[1])[1])
        copying.finish()
        return _verified(folder, Options(require="self", last_seen=False))


# --- folders and files ---------------------------------------------------------------------------


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that gets its name when the block ends well."""
    if os.path.lexists(target) and (
        not target.is_dir() or target.is_symlink() or any(target.iterdir())
    ):
        raise Refused(f"{target} exists and is not empty; name a new folder")
    temporary = target.absolute().parent / f"{TEMPORARY_PREFIX}{new_id()}"
    try:
        temporary.mkdir(mode=0o700, parents=True)
        try:
            yield temporary
            sync_directory(temporary)
            os.rename(temporary, target.absolute())
            sync_directory(target.absolute().parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise Unfinished(
            f"{target}: {error.strerror or error}; nothing was kept, look at the disk"
        ) from error


@contextmanager
def _opened(source: Path) -> Iterator[RecordSource]:
    try:
        records = open_records(source)
    except Damaged as error:
        raise Integrity(f"{source}: {error}; run `ledger verify-chain`") from None
    try:
        yield records
        if isinstance(records, SqliteRecords) and records.changed_at_rest():
            raise Unfinished(f"{source}: somebody began to write to it; run this again")
    finally:
        records.close()


def _readable(records: RecordSource) -> Iterator[Stretch]:
    """Every record; raises Integrity where one cannot be read."""
    try:
        for stretch in records.stretches(records.end()):
            if stretch.unreadable is not None:
                lost = stretch.unreadable
                raise Integrity(f"seq {lost.start}: {lost.reason}; run `ledger verify-chain`")
            yield stretch
    except Damaged as error:
        raise Integrity(f"{records.path}: {error}; run `ledger verify-chain`") from None


@contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    """A new file for this user alone, durable when the block ends."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        yield file
        file.flush()
        sync(file.fileno())


def _write(path: Path, content: bytes) -> None:
    with _created(path) as file:
        file.write(content)


def _check_regular(path: Path) -> None:
    """What is imported is what stands in the folder, not what a link in it points to."""
    if path.is_symlink() or not path.is_file():
        raise Refused(f"{path} is not a file; name the folder of an export")


class _Artifacts:
    """Copies the artifacts that events name, each once, as they are stored."""

    def __init__(self, source: Path | None, folder: Path) -> None:
        self._source = source
        self._target = folder / ARTIFACTS_FOLDER
        self.count = 0
        self.missing: list[str] = []
        self.altered: list[str] = []
        if source is not None:
            self._target.mkdir(mode=0o700)

    def take(self, event: Event | None) -> None:
        if event is not None and self._source is not None:
            for ref, content_type in named_artifacts(event):
                self._copy(self._source, ref, content_type)

    def _copy(self, source: Path, ref: ArtifactRef, content_type: Any) -> None:
        target = self._target / ref.digest[:2] / ref.digest
        if target.exists():
            return
        content = bytearray() if content_type is not None else None
        problem = check_artifact(source, ref, content)
        if problem == MISSING:
            if ref.digest not in self.missing:
                self.missing.append(ref.digest)
            return
        if problem:
            self.altered.append(ref.digest)
        # A link or a pipe in an artifact's place is never followed, and so not taken along.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(source / ref.digest[:2] / ref.digest, flags)
        except OSError:
            return
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with _created(target) as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        self.count += 1
        if content is not None and not problem:
            try:
                further = artifacts_in_content(bytes(content), content_type)
            except (ValueError, RecursionError):
                return  # verification notes that this program cannot tell what it names
            for inner in further:
                self._copy(source, inner, None)

    def finish(self) -> None:
        """Make the folders durable."""
        if self._source is not None:
            for shard in sorted(self._target.iterdir()):
                sync_directory(shard)
            sync_directory(self._target)


# --- databases -----------------------------------------------------------------------------------


def _create_database(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    # Nobody sees the file before it is complete and synced as a whole.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for statement in SCHEMA.values():
        connection.execute(statement)
    return connection


def _insert_notes(connection: sqlite3.Connection, published: bytes) -> None:
    notes, strays, torn = split_notes(published)
    if strays or torn:
        raise Integrity(f"{CHECKPOINTS_FILE} holds something that is no checkpoint")
    for note in notes:
        size = parse_checkpoint(note).checkpoint.size
        connection.execute(
            "INSERT OR IGNORE INTO checkpoints (size, note) VALUES (?, ?)", (size, note)
        )


def _insert_records(connection: sqlite3.Connection, stretch: Stretch, copying: _Artifacts) -> None:
    connection.execute("BEGIN")
    for position, record in stretch.rows:
        fields, event, problem = read_record(record)
        if fields is None or problem:
            raise Integrity(f"seq {position}: {problem}; nothing was kept")
        columns = (fields.id, fields.type, fields.stream, fields.version, fields.at, fields.actor)
        rest = (fields.cause, fields.index, fields.run)
        try:
            connection.execute(_INSERT, (fields.seq, record, leaf_hash(record), *columns, *rest))
        except sqlite3.IntegrityError as error:
            raise Integrity(f"seq {fields.seq}: {error}; nothing was kept") from None
        copying.take(event)
    connection.execute("COMMIT")


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _verified(folder: Path, options: Options) -> Report:
    """Verify a new folder; raises when it may not get its name."""
    report = verify(folder, options=options)
    if report.status == "violated":
        first = next(f for f in report.findings if f.severity == "violation")
        place = "" if first.seq is None else f" at seq {first.seq}"
        raise Integrity(
            f"{len(report.findings)} findings, the first is {first.code}{place}: expected "
            f"{first.expected}, got {first.got}; nothing was kept"
        )
    if report.status == "unfinished":
        raise Unfinished(f"{report.assurance} Nothing was kept.")
    return report
