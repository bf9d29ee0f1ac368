"""The database of a log that cannot be trusted, read for verification, export and backup."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from ledger.checkpoint import MAX_NOTE_BYTES
from ledger.errors import Unfinished
from ledger.record_source import (
    ARTIFACTS_FOLDER,
    CHECKPOINTS_FILE,
    PAGE_BYTES,
    PAGE_RECORDS,
    Damaged,
    ForeignTable,
    OwnCheck,
    Row,
    Stretch,
    Unreadable,
    held_in_memory,
    not_to_be_read,
    read_checkpoint_log,
)
from ledger.regular_file import (
    Identity,
    check_database,
    check_one_name,
    database_closed,
    database_opened,
    is_open_here,
    open_regular,
)
from ledger.sqlite.checks import DATABASE_CHECKS, wal_of
from ledger.sqlite.schema import EXPECTED_SCHEMA, STATISTICS
from ledger.study_directory import IMPORTED_MARK
from schemas.envelope import MAX_RECORD_BYTES
from schemas.identifiers import LEDGER_STREAM

MAX_VALUE_BYTES = 4 * MAX_RECORD_BYTES
MAX_NOTES = 200_000
MAX_SCHEMA_ENTRIES = 1_000
MAX_PROBES = 1 << 20
"""Positions tried one by one behind damage before reading is given up."""
STEPS_BETWEEN_LOOKS = 1_000_000
MAX_STEPS_A_PAGE = 200_000_000
"""Virtual machine steps: a hostile schema can make a plain SELECT run for ever."""


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
            raise not_to_be_read(path, error) from None
        self.artifacts: Path | None = artifacts or path.with_name(ARTIFACTS_FOLDER)
        self.imported = os.path.lexists(path.with_name(IMPORTED_MARK))
        if self.imported and artifacts is None and not path.with_name(ARTIFACTS_FOLDER).is_dir():
            self.artifacts = None  # made from an export of records only
        self.at_rest = not live and not _has_content(wal_of(path))
        if not self.at_rest:  # SQLite writes its side files
            try:
                check_one_name(wal_of(path), path.with_name(f"{path.name}-shm"))
            except OSError as error:
                raise not_to_be_read(path, error) from None
        self._before = self._fingerprint()
        self._mode = "ro&immutable=1" if self.at_rest else "ro"
        self._wal_mode = self._read_wal_mode()
        self._budget = _Budget()
        self._connection = self._connect(self._budget)
        self._identity: Identity | None = database_opened(path)
        self._background: BackgroundChecks | None = None
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
        """By name: (kind, SQL). Without what SQLite makes by itself, ANALYZE included."""
        rows = self._connection.execute(
            f"SELECT name, type, sql FROM sqlite_master LIMIT {MAX_SCHEMA_ENTRIES}"
        ).fetchall()
        return {
            str(name): (str(kind), str(sql))
            for name, kind, sql in rows
            if not (str(name).startswith("sqlite_autoindex_") and sql is None)
            and (kind, sql) != ("table", STATISTICS.get(name, ""))
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
            rows = held_in_memory(cursor, "checkpoints", lambda row: row[1])
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
            rows = held_in_memory(cursor, f"records of type {event_type}", lambda row: row[0])
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
            raise not_to_be_read(self.path, error) from None

    def has_known_tables(self) -> bool:
        """True when no table, index or view holds an expression that is not ours."""
        return all(
            entry == EXPECTED_SCHEMA.get(name)
            for name, entry in self.schema.items()
            if entry[0] != "trigger"
        )

    def begin_own_checks(self, end: int | None) -> None:
        assert end is not None
        # A foreign schema may hide endless work in an expression that the integrity check computes;
        # it is a finding anyway.
        budget = _Budget()
        integrity = self.has_known_tables()
        self._background = BackgroundChecks(self._connect(budget), budget, end, integrity)

    def own_checks(self) -> Iterable[OwnCheck]:
        return DATABASE_CHECKS

    def file_problems(self) -> list[str]:
        """What SQLite's check of the whole file says; nothing where it was not begun."""
        return self._background.messages() if self._background is not None else []

    def suspect_columns(self) -> list[tuple[int, int]]:
        """Ranges (first, last) of positions whose columns may differ from their records."""
        return self._background.suspects() if self._background is not None else []

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
        if self._background is not None:
            self._background.stop()
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


def _rows_in_order(rows: list[Row], position: int, end: int) -> int:
    """How many rows stand in ascending order from ``position`` on and before ``end``."""
    for place, row in enumerate(rows):
        if not isinstance(row[0], int) or not position <= row[0] < end:
            return place
        position = row[0] + 1
    return len(rows)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _position_after(row: Row) -> int:
    return int(row[0]) + 1
