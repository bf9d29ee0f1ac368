"""The durable log: one SQLite file, any number of processes on one machine.

The table ``records`` holds the exact bytes of every record; its other columns are copies that make
reading fast and that ``ledger verify-chain`` compares. Promises and their mechanisms:

- durable when ``append`` returns: WAL and ``synchronous=FULL``, one sync a commit;
- gapless: writers queue on ``flock(ledger.lock)``, then ``BEGIN IMMEDIATE``, read the head and
  assign head + 1 (without the lock SQLite's busy handler starves: one commit in 4 s among eight);
- append-only: triggers refuse UPDATE, DELETE and every INSERT that is not at head + 1. They guard
  against accidents; evidence is the hash chain.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from ledger.atomic_file import make_folder, sync_directory
from ledger.chain import leaf_hash
from ledger.clock import now_us, timestamp
from ledger.codec import decode_envelope
from ledger.errors import (
    Integrity,
    LeaseLost,
    Refused,
    Unfinished,
    UnknownOutcome,
    Usage,
)
from ledger.log import (
    Batch,
    Claim,
    Draft,
    Head,
    Lease,
    StoredRecord,
    check_batch,
    draft_batch,
    finished,
    repeated,
    requested,
)
from ledger.regular_file import (
    Identity,
    check_database,
    check_one_name,
    database_closed,
    database_opened,
    is_no_file,
)
from ledger.sqlite import delivery
from ledger.sqlite.errors import ledger_error, translated
from ledger.sqlite.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION
from ledger.study_directory import IMPORTED_MARK
from schemas.envelope import Envelope

PAGE_RECORDS = 1_000
PAGE_BYTES = 4 << 20
ROWS_A_STATEMENT = 100
CLOCK_TOLERANCE_US = 60_000_000
LAST_POSITION = (1 << 63) - 1
"""The largest integer of SQLite."""
BUSY_SECONDS = 10.0
"""How long to wait for a program that does not queue at the lock file (a database browser)."""

_COLUMNS = 'seq, leaf, id, type, stream, version, at, actor, cause, "index", run, record'
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SqliteLog:
    """``EventLog`` in one SQLite file. One object may be used by several threads.

    Make one with ``create``, ``open`` or ``open_read_only``.
    """

    def __init__(
        self,
        path: Path,
        records: sqlite3.Connection,
        leases: sqlite3.Connection | None,
        lock_file: int | None,
        clock: Callable[[], int],
    ) -> None:
        self.path = path
        self._records = records
        self._leases = leases
        self._lock_file = lock_file
        self._clock = clock
        self._identity: Identity | None = database_opened(path)
        self._wal: Identity | None = None
        """Of the WAL, where this log is written: it stays the same as long as it is open."""
        self._committed = "nothing"
        self._lock = threading.RLock()
        self.warnings: tuple[str, ...] = ()
        """What is odd but no reason to stop, for the caller to show."""

    @classmethod
    def create(cls, path: str | os.PathLike[str], clock: Callable[[], int] = now_us) -> "SqliteLog":
        """Make a new, empty log and open it. Raises Usage when there is a file already.

        The file is complete under its own name or not there at all.
        """
        path = Path(path)
        with translated(path):
            make_folder(path.parent)
            lock_file = _open_lock_file(path)
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX)
                if os.path.lexists(path):
                    raise Usage(f"{path} exists already; open it, or choose another directory")
                for beside in (_beside(path, "-wal"), _beside(path, "-journal")):
                    if os.path.lexists(beside):
                        raise Usage(
                            f"{beside} is what is left of another database: SQLite would play it "
                            "into the new one; move it away first"
                        )
                unfinished = _beside(path, ".new")
                for suffix in ("", "-wal", "-shm", "-journal"):
                    _beside(unfinished, suffix).unlink(missing_ok=True)
                os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                with closing(_connect(unfinished, "rw", "FULL")) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                    for statement in SCHEMA.values():
                        connection.execute(statement)
                    connection.execute("COMMIT")
                    # Closing does this too, but says nothing where it fails; and the file would get
                    # its name without what is still in the WAL.
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                os.rename(unfinished, path)
                sync_directory(path.parent)
            finally:
                os.close(lock_file)
        return cls.open(path, clock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], clock: Callable[[], int] = now_us) -> "SqliteLog":
        """Open a log for reading and appending.

        Raises Usage for what is not a ledger of this version, Refused for an imported one,
        Integrity when the last record, its leaf and its columns contradict each other, Unfinished
        when it cannot be read or written.
        """
        path = Path(path)
        if path.with_name(IMPORTED_MARK).exists():
            raise Refused(f"{path} was imported: it can be read and verified, never written")
        with translated(path), ExitStack() as opened:
            records = opened.enter_context(closing(_open_ledger(path, "rw", "FULL")))
            # Another program may have switched it: a commit that is killed would leave a journal.
            records.execute("PRAGMA journal_mode = WAL")
            # Leases are not facts: after a loss of power release_all rebuilds them from the
            # records. NORMAL commits them without a sync, so a renewal every few seconds costs
            # the disk nothing. Not OFF: a checkpoint that happens to run on this connection moves
            # durable records out of the WAL and must sync.
            leases = opened.enter_context(closing(_open_ledger(path, "rw", "NORMAL")))
            lock_file = _open_lock_file(path)
            opened.callback(os.close, lock_file)
            log = cls(path, records, leases, lock_file, clock)
            log._check_beginning()
            log._check_head()
            log._wal = _identity(_beside(path, "-wal"))
            opened.pop_all()
        return log

    @classmethod
    def open_read_only(cls, path: str | os.PathLike[str]) -> "SqliteLog":
        """Open a log that must not be written: an imported one, a backup, a read-only medium.

        The last record is not checked here, but that there is a first one is.
        """
        path = Path(path)
        with translated(path):
            try:
                records = _open_ledger(path, "ro", "FULL")
            except sqlite3.OperationalError:
                # A WAL database needs its -shm file, which cannot be made on a read-only medium.
                # Without a WAL nothing is missing from the main file and nobody can change it.
                wal = _beside(path, "-wal")
                if wal.exists() and wal.stat().st_size > 0:
                    raise
                records = _open_ledger(path, "ro&immutable=1", "FULL")
            log = cls(path, records, None, None, now_us)
            try:
                log._check_beginning()
            except BaseException:
                records.close()
                raise
        return log

    # --- appending -------------------------------------------------------------------------------

    def append(self, batch: Batch) -> list[StoredRecord]:
        check_batch(batch)
        drafts: list[Draft] = []
        with self._transaction(self._records, drafts) as connection:
            written = self._already_written(batch)
            if written:
                return written
            if batch.lease is not None and not delivery.holds(connection, batch.lease):
                raise LeaseLost(f"command {batch.lease.command} was taken over")
            streams = {new.stream for new in batch.events} | set(batch.expected)
            versions = {stream: self._next_version(stream) for stream in streams}
            head, last_at = self._last()
            drafts[:] = draft_batch(batch, head, last_at, versions, self._clock())
            insert(connection, drafts)
            if offered := requested(drafts):
                delivery.offer(connection, offered)
            if withdrawn := finished(drafts):
                delivery.withdraw(connection, withdrawn)
        return [draft.stored for draft in drafts]

    def _already_written(self, batch: Batch) -> list[StoredRecord]:
        if batch.cause is None:
            return []
        found = self._select(
            'cause = ? AND "index" >= ? AND "index" < ? ORDER BY "index"',
            (batch.cause, batch.first_index, batch.first_index + len(batch.events)),
        )
        return list(repeated(batch, found))

    def _last(self) -> tuple[Head | None, str]:
        row = self._records.execute(
            "SELECT seq, leaf, at FROM records ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return (None, "") if row is None else (Head(row[0], row[1]), row[2])

    # --- reading ---------------------------------------------------------------------------------

    def head(self) -> Head | None:
        with self._reading():
            return self._last()[0]

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[StoredRecord]:
        """See ``EventLog.read``. Raises Integrity where a position is missing."""
        return self._read("seq", "TRUE", (), start, stop)

    def read_stream(self, stream: str, start: int = 0) -> Iterator[StoredRecord]:
        """See ``EventLog.read_stream``. Raises Integrity where a version is missing."""
        return self._read("version", "stream = ?", (stream,), start, None)

    def _read(
        self, column: str, condition: str, values: tuple[object, ...], start: int, stop: int | None
    ) -> Iterator[StoredRecord]:
        """Rows by a column that must be dense.

        In pages, so that no read transaction outlives one: a long one would keep the WAL from
        being checkpointed. Pages are bounded in bytes too, because a record may have 1 MiB.
        """
        position = start
        # Up to the last position and not below the next: 2^63 is no integer of SQLite.
        last = LAST_POSITION if stop is None else min(stop - 1, LAST_POSITION)
        query = (
            f"SELECT {column}, seq, record, leaf FROM records WHERE {condition} "
            f"AND {column} BETWEEN ? AND ? ORDER BY {column} LIMIT {PAGE_RECORDS}"
        )
        while position <= last:
            page = []
            size = 0
            with self._reading():
                cursor = self._records.execute(query, (*values, position, last))
                for row in cursor:
                    page.append(row)
                    size += len(row[2])
                    if size > PAGE_BYTES:
                        break
                cursor.close()
            if not page:
                return
            for place, seq, record, leaf in page:
                if place != position:
                    raise Integrity(
                        f"{column} {position} is missing before seq {seq}; run "
                        "`ledger verify-chain`"
                    )
                yield StoredRecord(seq, record, leaf)
                position += 1

    def _select(self, condition: str, values: tuple[object, ...]) -> list[StoredRecord]:
        rows = self._records.execute(
            f"SELECT seq, record, leaf FROM records WHERE {condition}", values
        )
        return [StoredRecord(*row) for row in rows]

    def stream_version(self, stream: str) -> int:
        with self._reading():
            return self._next_version(stream)

    def _next_version(self, stream: str) -> int:
        row = self._records.execute(
            "SELECT version FROM records WHERE stream = ? ORDER BY version DESC LIMIT 1", (stream,)
        ).fetchone()
        return 0 if row is None else int(row[0]) + 1

    def find(self, record_id: str) -> StoredRecord | None:
        with self._reading():
            # Without an index, which every append would pay for: it is rarely looked for.
            found = self._select("id = ? ORDER BY seq LIMIT 1", (record_id,))
            return found[0] if found else None

    def caused_by(self, command: str) -> list[StoredRecord]:
        with self._reading():
            return self._select('cause = ? ORDER BY "index"', (command,))

    # --- delivery --------------------------------------------------------------------------------

    def claim(self, roles: Sequence[str], seconds: float) -> Claim | None:
        with self._reading():
            # Looking first keeps idle workers, which poll, from queueing among the writers.
            if delivery.find_free(self._records, roles, self._clock()) is None:
                return None
        with self._transaction(self._leases) as connection:
            return delivery.claim(connection, roles, self._clock(), seconds)

    def renew(self, lease: Lease, seconds: float) -> bool:
        with self._transaction(self._leases) as connection:
            return delivery.renew(connection, lease, self._clock(), seconds)

    def pending(self) -> list[str]:
        with self._reading():
            return [command for command, _, _ in delivery.pending(self._records)]

    def release_all(self, roles: Collection[str] | None = None) -> None:
        with self._transaction(self._leases) as connection:
            delivery.rebuild(connection, roles)

    # --- checkpoints -----------------------------------------------------------------------------

    def add_checkpoint(self, size: int, note: bytes) -> None:
        """Keep the signed note over the first ``size`` records; a second one for the same size is
        ignored."""
        # The records under it are durable already, and the note is synced in checkpoints.log next:
        # a row that a loss of power takes away is lost to nobody, so it needs no sync of its own.
        with self._transaction(self._leases) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO checkpoints (size, note) VALUES (?, ?)", (size, note)
            )

    def checkpoints(self) -> list[tuple[int, bytes]]:
        """(size, note) of every checkpoint, smallest first."""
        with self._reading():
            return self._records.execute(
                "SELECT size, note FROM checkpoints ORDER BY size"
            ).fetchall()

    def leaves(self, start: int, stop: int) -> Iterator[bytes]:
        """Leaves at start <= seq < stop as their column holds them: what a checkpoint is made of.
        Ends early at a missing position."""
        for position in range(start, stop, PAGE_RECORDS):
            with self._reading():
                rows = self._records.execute(
                    "SELECT leaf FROM records WHERE seq BETWEEN ? AND ? ORDER BY seq",
                    (position, min(stop, position + PAGE_RECORDS) - 1),
                ).fetchall()
            yield from (row[0] for row in rows)
            if len(rows) < min(stop, position + PAGE_RECORDS) - position:
                return

    # --- opening, locking, closing ---------------------------------------------------------------

    def close(self) -> None:
        """Release every file; a second time does nothing. Moves what it can from the WAL into the
        main file first, so that what is left behind stays small."""
        with self._lock:
            if self._lock_file is not None:
                with suppress(sqlite3.Error):
                    self._records.execute("PRAGMA wal_checkpoint(PASSIVE)")
                os.close(self._lock_file)
                self._lock_file = None
            if self._leases is not None:
                self._leases.close()
            self._records.close()
            if self._identity is not None:
                database_closed(self._identity)
                self._identity = None

    def _check_beginning(self) -> None:
        """A log that has lost its first records is not one that has none yet."""
        ((first,),) = self._records.execute("SELECT min(seq) FROM records").fetchall()
        signed = self._records.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone()
        if (first is None and signed is not None) or first not in (None, 0):
            found = "has no record" if first is None else f"begins at record {first}, not at 0"
            raise Integrity(
                f"{self.path} {found}: records were removed or moved; run `ledger verify-chain` "
                "and go on with a backup"
            )

    def _check_head(self) -> None:
        """A log whose end contradicts itself must not be continued."""
        rows = self._records.execute(
            f"SELECT {_COLUMNS} FROM records ORDER BY seq DESC LIMIT 2"
        ).fetchall()
        if not rows:
            return
        head = rows[0]
        envelope = decode_envelope(head[-1])
        columns = _columns(envelope.seq, leaf_hash(head[-1]), envelope, head[-1])
        if columns != head:
            raise Integrity(
                f"{self.path}: the columns of seq {head[0]} differ from its record; run "
                "`ledger verify-chain` and go on with a backup"
            )
        if len(rows) == 2 and envelope.prev != leaf_hash(rows[1][-1]).hex():
            raise Integrity(
                f"{self.path}: seq {head[0]} does not follow the record before it; run "
                "`ledger verify-chain` and go on with a backup"
            )
        now = timestamp(self._clock() + CLOCK_TOLERANCE_US)
        if now < envelope.at:
            self.warnings = (
                f"the clock is far behind the last record ({envelope.at}); new records repeat "
                "that time until the clock has passed it",
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, translated(self.path):
            yield

    @contextmanager
    def _transaction(
        self, connection: sqlite3.Connection | None, drafts: Sequence[Draft] = ()
    ) -> Iterator[sqlite3.Connection]:
        """One write transaction among all processes and threads; all of it or nothing.

        ``drafts``, filled by the caller before the end, are the facts that the commit is about.
        """
        if connection is None or self._leases is None:
            raise Refused(f"{self.path} was opened read-only; nothing was written")
        with self._lock, translated(self.path), self._writer_lock():
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._check_still_there()
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                if not drafts:
                    raise
                # The frames may be in the WAL whole, and a recovery after a crash would find them.
                self.close()
                raise UnknownOutcome(
                    f"{ledger_error(error, self.path)}. The commit may have been written all the "
                    f"same, whole: open the log again and look for {drafts[0].envelope.id} first"
                ) from error
            self._check_still_there()
            if drafts:
                last = drafts[-1].envelope
                self._committed = f"seq {last.seq} ({last.type}, {last.id})"

    def _check_still_there(self) -> None:
        """Raises Unfinished where the path no longer leads to the files that are open: what is
        committed to a file without a name is gone when it is closed."""
        for path, opened in ((self.path, self._identity), (_beside(self.path, "-wal"), self._wal)):
            if _identity(path) != opened:
                raise Unfinished(
                    f"{path} was removed or replaced while it was written to; the last record that "
                    f"this process wrote before is {self._committed}. Put the ledger's own files "
                    "or a backup back, run `ledger verify-chain`, then the command again"
                )

    @contextmanager
    def _writer_lock(self) -> Iterator[None]:
        """Writers of all processes queue here, in order."""
        lock_file = self._lock_file
        if lock_file is None:
            raise Usage(f"{self.path}: this log was closed; open it again")
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            yield
        finally:
            if self._lock_file is not None:
                fcntl.flock(lock_file, fcntl.LOCK_UN)


def insert(connection: sqlite3.Connection, drafts: Sequence[Draft]) -> None:
    """Many rows a statement: with one each, the statements cost a quarter of the time."""
    for start in range(0, len(drafts), ROWS_A_STATEMENT):
        some = drafts[start : start + ROWS_A_STATEMENT]
        connection.execute(
            f"INSERT INTO records ({_COLUMNS}) VALUES {', '.join([_VALUES] * len(some))}",
            [
                value
                for draft in some
                for value in _columns(
                    draft.stored.seq, draft.stored.leaf, draft.envelope, draft.stored.record
                )
            ],
        )


def _columns(seq: int, leaf: bytes, envelope: Envelope, record: bytes) -> tuple[object, ...]:
    return (
        seq,
        leaf,
        envelope.id,
        envelope.type,
        envelope.stream,
        envelope.version,
        envelope.at,
        envelope.actor,
        envelope.cause,
        envelope.index,
        envelope.run,
        record,
    )


def _connect(path: Path, mode: str, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA fullfsync = ON")
        # Else INSERT OR REPLACE would delete a record without asking the trigger.
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _open_ledger(path: Path, mode: str, synchronous: str) -> sqlite3.Connection:
    """Connect, and check that there is a ledger of this version."""
    if path.is_dir():
        raise Usage(f"{path} is a directory; give the path of the ledger.db in it")
    if not os.path.lexists(path):
        raise Usage(f"{path} does not exist; give the path of a ledger.db or make one first")
    if sqlite3.sqlite_version_info < (3, 37):
        raise Usage(
            f"this Python has SQLite {sqlite3.sqlite_version}; the ledger needs 3.37 or newer, "
            "use a newer Python"
        )
    try:
        check_database(path)
        written = ("", "-wal", "-shm") if mode == "rw" else ("-wal", "-shm")
        check_one_name(*(_beside(path, suffix) for suffix in written))
    except OSError as error:
        if not is_no_file(error):
            raise
        if str(error.filename).endswith("-journal"):
            raise Integrity(f"{error.filename} is {error.strerror}") from None
        raise Integrity(
            f"{error.filename} is {error.strerror}; move it away and put the ledger's own file back"
        ) from None
    connection = _connect(path, mode, synchronous)
    try:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if application_id != APPLICATION_ID:
            raise Usage(
                f"{path} is a SQLite database but not a ledger (application_id {application_id}, "
                f"not {APPLICATION_ID}); give the path of a ledger.db"
            )
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            raise Usage(
                f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}; use "
                "the program that wrote it"
            )
        # A view in a table's place could be endless, and read as records without an end.
        present = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
        for name in ("records", "delivery", "checkpoints"):
            if present.get(name) != SCHEMA[name]:
                raise Integrity(
                    f"{path}: its table {name} is not the one that this program makes; "
                    "`ledger verify-chain` says what can still be read"
                )
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> Identity | None:
    """Device and inode; None where there is no such file."""
    try:
        about = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _open_lock_file(path: Path) -> int:
    return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
