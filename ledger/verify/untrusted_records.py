"""Reading records that cannot be trusted: a database, an exported bundle, a file of JSON lines.

Verification and export read through these. They never write (not even the side files that SQLite
makes when it opens a WAL database for reading), go on behind what is damaged, hold at most one page
in memory, and hand out bytes without judging them.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote

import msgspec

from ledger.checkpoint import MAX_NOTE_BYTES, split_notes
from ledger.errors import Unfinished, Usage
from ledger.regular_file import (
    Identity,
    check_database,
    database_closed,
    database_opened,
    is_no_file,
    is_open_here,
    open_regular,
    read_regular,
)
from ledger.sqlite.log import SCHEMA
from ledger.study_directory import IMPORTED_MARK
from schemas.envelope import MAX_RECORD_BYTES
from schemas.identifiers import LEDGER_STREAM

PAGE_RECORDS = 256
PAGE_BYTES = 4 << 20
MAX_VALUE_BYTES = 4 * MAX_RECORD_BYTES
MAX_SKIPS = 64
"""How often, in all, a line that is too long is read on by as much as a record may have."""
MAX_CHECKPOINT_LOG_BYTES = 64 << 20
MAX_NOTES = 200_000
MAX_FOUND_BYTES = 64 << 20
"""Of all notes, and of all records of one type, that are held at once."""
MAX_SCHEMA_ENTRIES = 1_000
MAX_PROBES = 1 << 20
"""Positions tried one by one behind damage before reading is given up."""
STEPS_BETWEEN_LOOKS = 1_000_000
MAX_STEPS_A_PAGE = 200_000_000
"""Virtual machine steps: a hostile schema can make a plain SELECT run for ever."""

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

    def close(self) -> None: ...


class SqliteRecords:
    """The database of a log, open read-only."""

    def __init__(self, path: Path, artifacts: Path | None = None, live: bool = False) -> None:
        """``live`` reads with locks, as beside a writer. Else that is done only where a WAL shows
        that somebody writes or crashed: SQLite would make side files for a database at rest.

        Raises Unfinished where the file cannot be read, Damaged where it is no database.
        """
        self.path = path
        try:
            check_database(path)
        except OSError as error:
            raise _not_to_be_read(path, error) from None
        self.artifacts: Path | None = artifacts or path.with_name(ARTIFACTS_FOLDER)
        self.imported = os.path.lexists(path.with_name(IMPORTED_MARK))
        if self.imported and artifacts is None and not path.with_name(ARTIFACTS_FOLDER).is_dir():
            self.artifacts = None  # made from an export of records only
        self.at_rest = not live and not _has_content(wal_of(path))
        self._before = self._fingerprint()
        self._mode = "ro&immutable=1" if self.at_rest else "ro"
        self._wal_mode = self._read_wal_mode()
        self._budget = _Budget()
        self._connection = self._connect(self._budget)
        self._identity: Identity | None = database_opened(path)
        try:
            self.schema = self._read_schema()
            self.identity = (
                int(self._scalar("PRAGMA application_id")),
                int(self._scalar("PRAGMA user_version")),
            )
            """(application id, version of the schema)"""
        except sqlite3.DatabaseError as error:
            self.close()
            raise Damaged(f"{path.name}: {self._damage(error)}") from None

    def _connect(self, budget: "_Budget") -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                f"file:{quote(str(self.path.absolute()))}?mode={self._mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=60,
            )
        except sqlite3.Error as error:
            raise Unfinished(f"{self.path}: {error}") from None
        # Hostile databases: no functions in views and triggers, no huge values, no endless work.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.set_progress_handler(budget.is_spent, STEPS_BETWEEN_LOOKS)
        return connection

    def _read_schema(self) -> dict[str, tuple[str, str]]:
        """By name: (kind, SQL). Without what SQLite makes by itself."""
        rows = self._connection.execute(
            f"SELECT name, type, sql FROM sqlite_master LIMIT {MAX_SCHEMA_ENTRIES}"
        ).fetchall()
        return {
            str(name): (str(kind), str(sql))
            for name, kind, sql in rows
            if not (str(name).startswith("sqlite_autoindex_") and sql is None)
        }

    def is_ours(self, table: str) -> bool:
        """True where a table is exactly the one that this program makes, so that reading it does
        nothing but read."""
        return self.schema.get(table) == EXPECTED_SCHEMA[table]

    def _fingerprint(self) -> tuple[int, int, bool]:
        try:
            status = self.path.stat()
        except OSError as error:
            raise Unfinished(f"{self.path}: {error.strerror}") from None
        return (status.st_mtime_ns, status.st_size, _has_content(wal_of(self.path)))

    def _damage(self, error: sqlite3.DatabaseError) -> str:
        """What an error says about the file. Raises Unfinished where it says nothing about it."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN:
            raise Unfinished(
                f"{self.path}: its WAL cannot be read where nothing can be written; copy the "
                "database with its -wal file to a folder of yours"
            ) from None
        if code in _NOT_DAMAGE:
            raise Unfinished(f"{self.path}: {error}; look at the disk and run it again") from None
        if code == sqlite3.SQLITE_INTERRUPT:
            raise Damaged("a query does not end") from None
        return str(error)

    def changed_at_rest(self) -> bool:
        """True when a writer came while we read without locks: what was read proves nothing."""
        return self.at_rest and self._fingerprint() != self._before

    def first(self) -> bytes | None:
        if not self.is_ours("records"):
            return None
        try:
            row = self._execute("SELECT record FROM records WHERE seq = 0").fetchone()
        except sqlite3.DatabaseError:
            return None
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    def end(self) -> int:
        """Raises ForeignTable before any record is read."""
        if not self.is_ours("records"):
            raise ForeignTable(
                "the table records is not the one that this program makes, so nothing of it was "
                "read"
            )
        try:
            return 1 + int(self._scalar("SELECT coalesce(max(seq), -1) FROM records"))
        except (sqlite3.DatabaseError, ValueError, TypeError):
            pass
        # The last page is damaged. An index may still know how many rows there were.
        try:
            return int(self._scalar("SELECT count(*) FROM records"))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise Damaged(f"the end of the records cannot be found: {error}") from None

    def stretches(self, end: int | None) -> Iterator[Stretch]:
        """As the protocol says; records at negative positions, which no ledger has, come first."""
        assert end is not None
        try:
            lowest = int(self._scalar("SELECT coalesce(min(seq), 0) FROM records"))
        except (sqlite3.DatabaseError, ValueError, TypeError):
            lowest = 0
        if lowest < 0:
            yield from self._between(lowest, 0)
        yield from self._between(0, end)

    def _between(self, position: int, end: int) -> Iterator[Stretch]:
        while position < end:
            rows: list[Row] = []
            reason = ""
            try:
                self._read_page(position, end, rows)
            except sqlite3.DatabaseError as error:
                reason = self._damage(error)
            ordered = _rows_in_order(rows, position, end)
            if ordered < len(rows):
                # A damaged tree may lead back to rows that were read, without end.
                del rows[ordered:]
                reason = reason or "rows that are not in order"
            if rows:
                position = _position_after(rows[-1])
            elif not reason:
                return
            unreadable, behind = None, None
            if reason and position < end:
                unreadable, behind = self._read_behind_damage(position, end)
                if unreadable is not None:
                    position = unreadable.stop
            yield Stretch(rows, unreadable)
            if behind is not None:
                yield Stretch([behind])
                position = _position_after(behind)

    def _read_page(self, position: int, end: int, rows: list[Row]) -> None:
        size = 0
        # Up to the last position and not below the next: 2^63 is no integer of SQLite.
        query = f"{_SELECT} WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT {PAGE_RECORDS}"
        with closing(self._execute(query, (position, end - 1))) as cursor:
            while size <= PAGE_BYTES and (some := cursor.fetchmany(16)):
                rows += some
                size += sum(len(row[1]) for row in some if isinstance(row[1], bytes | str))

    def _execute(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Run a query with a fresh allowance of work."""
        self._budget.renew()
        return self._connection.execute(query, values)

    def _read_behind_damage(self, position: int, end: int) -> tuple[Unreadable | None, Row | None]:
        """A row at ``position`` or behind it raised an error: find the next that can be read.

        Returns what is unreadable and the row behind it, if any.
        """
        reason = ""
        for tried in range(position, min(end, position + MAX_PROBES)):
            try:
                row = self._execute(f"{_SELECT} WHERE seq = ?", (tried,)).fetchone()
            except sqlite3.DataError as error:
                return Unreadable(position, tried + 1, str(error), too_large=True), None
            except sqlite3.DatabaseError as error:
                reason = reason or self._damage(error)
                continue
            if row is not None and row[0] == tried:
                return (Unreadable(position, tried, reason) if tried > position else None), row
        reason = reason or "rows that are not in order"
        if end - position > MAX_PROBES:
            raise Damaged(f"nothing can be read from seq {position} on: {reason}")
        return Unreadable(position, end, reason), None

    def published(self) -> bytes:
        return read_checkpoint_log(self.path.with_name(CHECKPOINTS_FILE))

    def checkpoint_rows(self) -> list[tuple[int, bytes]]:
        if not self.is_ours("checkpoints"):
            return []
        try:
            cursor = self._execute(
                # What is too long for a note is not read, and is none.
                f"SELECT size, iif(length(note) > {MAX_NOTE_BYTES}, x'', note) FROM checkpoints "
                f"ORDER BY size LIMIT {MAX_NOTES}"
            )
            rows = _held(cursor, "checkpoints", lambda row: row[1])
        except sqlite3.DatabaseError:
            return []  # the check of the file's integrity says why
        return [(row[0], row[1]) for row in rows if isinstance(row[1], bytes)]

    def find(self, event_type: str) -> list[bytes]:
        if not self.is_ours("records"):
            return []
        try:
            cursor = self._execute(
                "SELECT record FROM records WHERE stream = ? AND type = ? ORDER BY version "
                f"LIMIT {MAX_NOTES}",
                (LEDGER_STREAM, event_type),
            )
            rows = _held(cursor, f"records of type {event_type}", lambda row: row[0])
        except sqlite3.DatabaseError:
            return []
        return [row[0] for row in rows if isinstance(row[0], bytes)]

    # --- what only a database has ----------------------------------------------------------------

    def _scalar(self, query: str) -> int:
        row = self._execute(query).fetchone()
        return int(row[0])

    def in_wal_mode(self) -> bool:
        """True when the header of the main file says that commits go to a WAL first."""
        return self._wal_mode

    def _read_wal_mode(self) -> bool:
        if is_open_here(self.path):
            return True  # by our own log, which knows no other way
        try:
            with open_regular(self.path) as file:
                return file.read(20)[18:] == b"\x02\x02"
        except OSError as error:
            raise _not_to_be_read(self.path, error) from None

    def has_known_tables(self) -> bool:
        """True when no table, index or view holds an expression that is not ours."""
        return all(
            entry == EXPECTED_SCHEMA.get(name)
            for name, entry in self.schema.items()
            if entry[0] != "trigger"
        )

    def begin_background_checks(self, end: int) -> "BackgroundChecks":
        # A foreign schema may hide endless work in an expression that the integrity check computes;
        # it is a finding anyway.
        budget = _Budget()
        return BackgroundChecks(self._connect(budget), budget, end, self.has_known_tables())

    def columns(self, first: int, last: int) -> Iterator[tuple[int, bytes, tuple[object, ...]]]:
        """(position, record, columns) of a range, both ends included, without leaf; an empty tuple
        where the columns cannot be read. What is damaged is left out."""
        try:
            positions = self._execute(
                f"SELECT seq FROM records WHERE seq BETWEEN ? AND ? LIMIT {COLUMNS_RANGE}",
                (first, last),
            ).fetchall()
        except sqlite3.DatabaseError:
            return
        for (position,) in positions:
            columns: tuple[object, ...] = ()
            try:
                query = "SELECT record FROM records WHERE seq = ?"
                row = self._execute(query, (position,)).fetchone()
                if row is None:
                    continue  # a damaged tree
                record = row[0]
                query = (
                    'SELECT id, type, stream, version, at, actor, cause, "index", run '
                    "FROM records WHERE seq = ?"
                )
                columns = self._execute(query, (position,)).fetchone() or ()
            except sqlite3.OperationalError:
                pass  # text that is no text
            except sqlite3.DatabaseError:
                continue
            yield position, record, columns

    def copy_to(self, target: Path) -> None:
        """Write a snapshot of the whole database to a new file (SQLite's online backup)."""
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            # In one step: it holds no writer up, and none makes it start again.
            with closing(sqlite3.connect(target)) as copy:
                self._connection.backup(copy)
        except sqlite3.Error as error:
            raise Unfinished(f"{self.path}: {error}; nothing was copied") from None

    def close(self) -> None:
        self._connection.close()
        if self._identity is not None:
            database_closed(self._identity)
            self._identity = None


_NOT_DAMAGE = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
)

_SELECT = "SELECT seq, record, leaf FROM records"

# A record begins {"seq":N,"prev":"<64 digits>", and then come the columns. SQLite writes them as
# JSON itself, without the braces, and looks where in the record they stand.
_COLUMNS_DIFFER = """\
SELECT seq FROM records WHERE seq BETWEEN ? AND ? AND (
  instr(record, CAST('{"seq":' || seq || ',"prev":"' AS BLOB)) IS NOT 1
  OR instr(record, CAST(trim(json_object('id', id, 'type', type, 'stream', stream, 'version',
    version, 'at', at, 'actor', actor, 'cause', cause, 'index', "index", 'run', run), '{}')
    AS BLOB)) IS NOT length(seq) + 83)"""
COLUMNS_RANGE = 4_000
MAX_DAMAGED_RANGES = 1_000


class _Budget:
    """How much work of SQLite's virtual machine one query may cost."""

    def __init__(self) -> None:
        self._left = MAX_STEPS_A_PAGE
        self.unlimited = False

    def renew(self) -> None:
        self._left = MAX_STEPS_A_PAGE

    def is_spent(self) -> bool:
        """Asked by SQLite now and then; True interrupts the query."""
        self._left -= STEPS_BETWEEN_LOOKS
        return self._left < 0 and not self.unlimited


class BackgroundChecks:
    """What SQLite checks by itself, in a thread of its own: it needs no Python lock for it, so on a
    second processor it costs no time.

    ``PRAGMA integrity_check``, and the comparison of every column with its record. The latter only
    gathers suspects, which the caller looks at: JSON has more than one form.
    """

    def __init__(
        self, connection: sqlite3.Connection, budget: "_Budget", end: int, integrity: bool
    ) -> None:
        self._connection = connection
        self._budget = budget
        self._end = end
        self._integrity = integrity
        self._stopped = False
        self._messages: list[str] = []
        self._suspects: list[tuple[int, int]] = []
        self._thread = Thread(target=self._run, name="background-checks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._integrity:
                # It looks at every page once, so it ends; how long that takes is the file's size.
                self._budget.unlimited = True
                rows = self._connection.execute("PRAGMA integrity_check(20)").fetchall()
                self._messages = [str(row[0]) for row in rows if row[0] != "ok"]
        except sqlite3.Error as error:
            self._messages = [str(error)]
        finally:
            self._budget.unlimited = False
        try:
            self._compare_columns()
        finally:
            self._connection.close()

    def _compare_columns(self) -> None:
        start, last = 0, self._end - 1
        damaged = 0
        while start <= last and damaged < MAX_DAMAGED_RANGES:
            stop = last
            try:
                # Positions may be far apart.
                self._budget.renew()
                row = self._connection.execute(
                    "SELECT seq FROM records WHERE seq >= ? ORDER BY seq "
                    f"LIMIT 1 OFFSET {COLUMNS_RANGE - 1}",
                    (start,),
                ).fetchone()
                if row is not None and start <= row[0] <= last:
                    stop = row[0]
                elif row is not None and row[0] < start:
                    damaged += 1  # a damaged tree leads back
                self._budget.renew()
                found = self._connection.execute(_COLUMNS_DIFFER, (start, stop))
                self._suspects += [(seq, seq) for (seq,) in found]
            except sqlite3.OperationalError as error:
                if self._stopped:
                    return
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    damaged += 1  # it took too much work
                self._suspects.append((start, stop))
            except sqlite3.DatabaseError:
                damaged += 1
                self._suspects.append((start, stop))
            start = stop + 1

    def messages(self) -> list[str]:
        """What is wrong with the file; waits for the end."""
        self._thread.join()
        return self._messages

    def suspects(self) -> list[tuple[int, int]]:
        """Ranges (first, last) of positions whose columns may differ; waits for the end."""
        self._thread.join()
        return self._suspects

    def stop(self) -> None:
        """Give up waiting: what runs ends at its next step."""
        self._stopped = True
        while self._thread.is_alive():
            self._connection.interrupt()
            self._thread.join(0.01)


class JsonlRecords:
    """A file with one record a line, alone or in an exported bundle."""

    def __init__(
        self, path: Path, checkpoints: Path | None = None, artifacts: Path | None = None
    ) -> None:
        self.path = path
        self.artifacts = artifacts
        self.imported = False
        self._checkpoints = checkpoints
        try:
            self._file: BinaryIO = open_regular(path)
        except OSError as error:
            raise _not_to_be_read(path, error) from None

    def first(self) -> bytes | None:
        self._file.seek(0)
        return next(self._lines(), None)

    def end(self) -> int | None:
        return None

    def stretches(self, end: int | None) -> Iterator[Stretch]:
        rows: list[Row] = []
        size = 0
        following = 0
        self._file.seek(0)
        for line in self._lines():
            if line is None:
                reason = f"a line longer than {MAX_RECORD_BYTES} bytes"
                yield Stretch(rows, Unreadable(following, following + 1, reason, too_large=True))
                rows, size = [], 0
                following += 1
                continue
            match = _BEGINNING.match(line)
            position = int(match[1]) if match else None
            rows.append((position, line))
            following = (following if position is None else position) + 1
            size += len(line)
            if len(rows) == PAGE_RECORDS or size > PAGE_BYTES:
                yield Stretch(rows)
                rows, size = [], 0
        if rows:
            yield Stretch(rows)

    def _lines(self) -> Iterator[bytes | None]:
        """Lines without their end; None for one that is too long. Nothing after ``MAX_SKIPS``: a
        file can be made to go on for as long as one cares, in one line or in many."""
        limit = MAX_RECORD_BYTES + 1
        skips = iter(range(MAX_SKIPS))
        try:
            while line := self._file.readline(limit):
                if line.endswith(b"\n"):
                    yield line[:-1]
                elif len(line) < limit:
                    yield line
                else:
                    yield None
                    if not any(
                        self._file.readline(MAX_RECORD_BYTES).endswith(b"\n") for _ in skips
                    ):
                        return
        except OSError as error:
            raise Unfinished(f"{self.path}: {error.strerror}") from None

    def published(self) -> bytes:
        return read_checkpoint_log(self._checkpoints) if self._checkpoints else b""

    def checkpoint_rows(self) -> list[tuple[int, bytes]]:
        return []

    def find(self, event_type: str) -> list[bytes]:
        mark = f'"type":"{event_type}"'.encode()
        self._file.seek(0)
        lines = ((line,) for line in self._lines() if line is not None and mark in line[:512])
        return [row[0] for row in _held(lines, f"records of type {event_type}", lambda r: r[0])]

    def close(self) -> None:
        self._file.close()


_BEGINNING = re.compile(rb'\{"seq":(0|[1-9][0-9]{0,15}),"prev":"')


def open_records(path: Path, artifacts: Path | None = None, live: bool = False) -> RecordSource:
    """Open what stands at ``path``: a study directory, its ``var/``, a database, an exported
    bundle, or a file of JSON lines.

    Raises Usage where there is nothing of the kind, Unfinished, Damaged.
    """
    if path.is_dir():
        for database in (path / DATABASE_FILE, path / "var" / DATABASE_FILE):
            if os.path.lexists(database):
                return SqliteRecords(database, artifacts, live)
        if os.path.lexists(path / RECORDS_FILE):
            folder = artifacts or path / ARTIFACTS_FOLDER
            return JsonlRecords(
                path / RECORDS_FILE, path / CHECKPOINTS_FILE, folder if folder.is_dir() else None
            )
        raise Usage(
            f"{path}: no {DATABASE_FILE} and no {RECORDS_FILE} in it; name a study or export"
        )
    if not path.exists():
        raise Usage(f"{path} does not exist; name a study, a database or an export")
    if path.suffix == ".db" or is_sqlite(path):
        return SqliteRecords(path, artifacts, live)
    return JsonlRecords(path, None, artifacts)


def is_sqlite(path: Path) -> bool:
    """Raises Damaged for what is no regular file, Unfinished for what cannot be read."""
    if is_open_here(path):
        return True
    try:
        with open_regular(path) as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError as error:
        raise _not_to_be_read(path, error) from None


def read_checkpoint_log(path: Path) -> bytes:
    """The whole file; empty where there is none. Raises Damaged for what is no regular file."""
    try:
        return read_regular(path, MAX_CHECKPOINT_LOG_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _not_to_be_read(path, error) from None


def _not_to_be_read(path: Path, error: OSError) -> Damaged | Unfinished:
    """What stands in the place of a file is a fault of the ledger; a file that may not be read is
    none."""
    if is_no_file(error):
        return Damaged(f"{os.path.basename(error.filename or path)}: {error.strerror}")
    return Unfinished(f"{path}: {error.strerror}")


def _held(
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


def _rows_in_order(rows: list[Row], position: int, end: int) -> int:
    """How many rows stand in ascending order from ``position`` on and before ``end``."""
    for place, row in enumerate(rows):
        if not isinstance(row[0], int) or not position <= row[0] < end:
            return place
        position = row[0] + 1
    return len(rows)


def all_notes(rows: Iterable[tuple[int, bytes]], published: bytes) -> list[bytes]:
    """Every different note of rows and file, by size and bytes."""
    notes = {note for _, note in rows} | set(split_notes(published)[0])
    return sorted(notes, key=lambda note: (_claimed_size(note), note))


def _claimed_size(note: bytes) -> int:
    lines = note.split(b"\n", 2)
    return int(lines[1]) if len(lines) == 3 and lines[1].isdigit() else -1


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _position_after(row: Row) -> int:
    return int(row[0]) + 1


EXPECTED_SCHEMA: dict[str, tuple[str, str]] = {
    name: (sql.split()[1 if sql.split()[1] != "UNIQUE" else 2].lower(), sql)
    for name, sql in SCHEMA.items()
}
