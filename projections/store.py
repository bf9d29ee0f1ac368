"""Projections as SQLite files: made from record 0, switched by one rename, never repaired.

    var/projections/current                          the live generation: its name, its digests
    var/projections/<source digest>-<n>/open.db      tables that anybody may read
    var/projections/<source digest>-<n>/outcomes.db  tables behind the inspection gate

A generation is complete and synced under its name or not there at all, and it never changes. Both
files carry the table ``built_from``: up to which record, and by which code. A generation that is
not of the log's head or not of this code is made again, and so is one whose bytes are not those
that were written (``current`` holds their SHA-256): nobody is shown a table that was edited. One
process at a time makes one; the generation before it stays for those who are about to read it, and
older ones go as soon as nobody holds them.
"""

import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
import sqlite_utils

import ledger
import projections
import schemas
from ledger.artifacts import Artifacts
from ledger.atomic_file import sync, sync_directory, write_file
from ledger.errors import Integrity, Unfinished
from ledger.log import EventLog
from ledger.regular_file import check_database, open_lock, open_regular, read_regular
from ledger.study_directory import StudyDirectory
from projections.fold import Follower, Projection, Row, columns_of
from projections.registry import PROJECTIONS, declared_tables
from schemas.envelope import FIRST_PREV

OPEN = "open.db"
OUTCOMES = "outcomes.db"
GUARDED_SCHEMA = "guarded"
"""Name under which ``outcomes.db`` is attached."""
REPORT_EVERY = 2_000

_POINTER = "current"
_UNFINISHED = ".unfinished"
_GENERATION = re.compile(r"[0-9a-f]{16}-([0-9]{1,9})")
_SQL_TYPES = {
    str: "TEXT NOT NULL",
    int: "INTEGER NOT NULL",
    float: "REAL NOT NULL",
    str | None: "TEXT",
    int | None: "INTEGER",
    float | None: "REAL",
}

Report = Callable[[int, int], None]
"""Called now and then while records are replayed: (records read, records to read)."""


class BuiltFrom(Row):
    """Seq of the last record read (-1: none), its leaf in hexadecimal, digest of the code."""

    TABLE: ClassVar[str] = "built_from"
    KEY: ClassVar[tuple[str, ...]] = ("seq",)
    seq: int
    leaf: str
    source: str


@dataclass(frozen=True)
class TableDigest:
    """SHA-256 over one line of JSON for the names of the columns and one for each row."""

    table: str
    guarded: bool
    rows: int
    digest: str


@dataclass(frozen=True)
class Difference:
    """The first row of a table that differs. A row is None where it is missing; both are None
    where the table is guarded."""

    table: str
    key: str
    live: Mapping[str, Any] | None
    replayed: Mapping[str, Any] | None


@dataclass(frozen=True)
class Comparison:
    """What ``check`` found. ``fresh``: there was nothing to compare with, so the projections were
    made first; then equal digests say that the same records give the same tables twice."""

    built_from: BuiltFrom
    fresh: bool
    tables: tuple[TableDigest, ...]
    differences: tuple[Difference, ...]


class Generation:
    """A complete set of projections, kept on disk until it is closed, whoever makes newer ones."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, sqlite3.Error or msgspec.ValidationError for what is not complete, or is
        not what this program writes: a view in a table's place could compute without end."""
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            check_database(path / OPEN)
            check_database(path / OUTCOMES)
            with _opened(self) as connection:
                _check_schema(connection)
                found = [
                    connection.execute(_select(BuiltFrom, schema)).fetchone()
                    for schema in ("main", GUARDED_SCHEMA)
                ]
            self.built_from, other = (
                msgspec.convert(
                    dict(zip(columns_of(BuiltFrom), row or (), strict=False)), BuiltFrom
                )
                for row in found
            )
            if self.built_from != other:
                raise msgspec.ValidationError("the two files are not of the same generation")
        except BaseException:
            self.close()
            raise

    def connect(self, outcomes: bool = False) -> sqlite3.Connection:
        """Open for reading. With ``outcomes`` the guarded tables are attached: only for a caller
        that has passed the inspection gate, or that shows no value of theirs."""
        connection = sqlite3.connect(_uri(self.path / OPEN), uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            if outcomes:
                connection.execute(
                    f"ATTACH DATABASE ? AS {GUARDED_SCHEMA}", (_uri(self.path / OUTCOMES),)
                )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        os.close(self._lock)

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def current(directory: StudyDirectory, log: EventLog, report: Report | None = None) -> Generation:
    """The live projections, made again first where they are not of the log's head and this code.

    Raises Integrity for records that cannot be replayed, Unfinished where the folder cannot be
    written.
    """
    return _live(directory, log) or _make_live(directory, log, report)


def rebuild(directory: StudyDirectory, log: EventLog, report: Report | None = None) -> Generation:
    """Make the projections again in any case, and switch to them. Raises like ``current``."""
    return _make_live(directory, log, report, always=True)


def digests(generation: Generation) -> tuple[TableDigest, ...]:
    """A digest of every table as it stands in the files. Raises Integrity for damaged ones."""
    found = []
    with _readable(generation), _opened(generation) as connection:
        for schema in ("main", GUARDED_SCHEMA):
            # A damaged tree can lead back to rows that were read, without end.
            ((problem,), *_) = connection.execute(f"PRAGMA {schema}.integrity_check(1)")
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
        for table, guarded in _all_tables():
            digest = sha256(msgspec.json.encode(list(columns_of(table))) + b"\n")
            rows = 0
            for row in connection.execute(_select(table, _schema(guarded))):
                digest.update(msgspec.json.encode(row) + b"\n")
                rows += 1
            found.append(TableDigest(table.TABLE, guarded, rows, digest.hexdigest()))
    return tuple(found)


def check(directory: StudyDirectory, log: EventLog, report: Report | None = None) -> Comparison:
    """Replay the log and compare every table with the live projections.

    Live ones that are behind the log are compared as far as they go, then brought to the head and
    compared again: the answer is always about the whole log. Raises Integrity as :func:`_compare`.
    """
    found = _compare(directory, log, report)
    head = log.head()
    if found.differences or head is None or found.built_from.seq == head.seq:
        return found
    with current(directory, log, report):
        pass
    return _compare(directory, log, report)


def _compare(directory: StudyDirectory, log: EventLog, report: Report | None) -> Comparison:
    """Replay the records that the live projections were made from, and compare every table.

    Raises Integrity where the log does not hold the record that they were made from, or where
    their files are damaged.
    """
    live = _open_live(directory, edited=True)
    if live is None and (name := _live_name(directory.projections)):
        raise Integrity(
            f"{directory.projections / name}: missing or damaged; `ledger replay` makes it again"
        )
    fresh = live is None or live.built_from.source != source_digest()
    if live is None or fresh:
        live = rebuild(directory, log, report)
    with live:
        expected = live.built_from
        if _leaf_at(log, expected.seq) != expected.leaf:
            raise Integrity(
                f"the projections were made from record {expected.seq} with leaf {expected.leaf}, "
                "which is not in this log: it was truncated or replaced, or they belong to "
                "another one. Run `ledger verify-chain`, then `ledger replay`"
            )
        before = digests(live)
        with _only_writer(directory):
            path = _build(directory, log, expected.seq, report)
            try:
                with Generation(path) as replayed:
                    differences = tuple(
                        _first_difference(old.table, live, replayed)
                        for old, now in zip(before, digests(replayed), strict=True)
                        if old != now
                    )
            finally:
                shutil.rmtree(path)
    return Comparison(expected, fresh, before, differences)


def source_digest() -> str:
    """Digest of the code that decides what is in the tables: the schemas, the reading of records,
    and the modules of this package without the analyses and audits, which only read."""
    lines = []
    for package, patterns in (
        (schemas, ("**/*.py",)),
        (ledger, ("codec.py", "log.py")),
        (projections, ("*.py",)),
    ):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            name = f"{root.name}/{path.relative_to(root).as_posix()}"
            lines.append(f"{sha256(path.read_bytes()).hexdigest()}  {name}\n")
    return sha256("".join(lines).encode()).hexdigest()


# --- making a generation -------------------------------------------------------------------------


def _make_live(
    directory: StudyDirectory, log: EventLog, report: Report | None, always: bool = False
) -> Generation:
    with _only_writer(directory):
        if not always and (made_by_another := _live(directory, log)) is not None:
            return made_by_another
        folder = directory.projections
        head = log.head()
        unfinished = _build(directory, log, -1 if head is None else head.seq, report)
        with _writable(folder):
            previous = _live_name(folder)
            numbers = [
                int(match[1]) for match in map(_GENERATION.fullmatch, os.listdir(folder)) if match
            ]
            name = f"{source_digest()[:16]}-{max(numbers, default=0) + 1}"
            os.rename(unfinished, folder / name)
            sync_directory(folder)
            generation = Generation(folder / name)
            write_file(folder / _POINTER, f"{name} {_bytes_of(folder / name)}\n".encode())
            _remove_generations(folder, keep={name, previous})
        return generation


def _build(directory: StudyDirectory, log: EventLog, last: int, report: Report | None) -> Path:
    """Replay records 0 to ``last`` into a complete, synced folder under a temporary name."""
    target = directory.projections / _UNFINISHED
    with _writable(directory.projections):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700, parents=True)
    try:
        read = Artifacts(directory.artifacts).get
        states = [make(read) for make in PROJECTIONS.values()]
        follower = Follower(log, *states)
        leaf = FIRST_PREV
        for stored in log.read(0, last + 1):
            follower.see(stored)
            leaf = stored.leaf.hex()
            if report is not None and stored.seq % REPORT_EVERY == 0:
                report(stored.seq, last + 1)
        if report is not None:
            report(last + 1, last + 1)
        built_from = BuiltFrom(seq=last, leaf=leaf, source=source_digest())
        with _writable(directory.projections):
            for name, guarded in ((OPEN, False), (OUTCOMES, True)):
                _write(target / name, [s for s in states if s.GUARDED is guarded], built_from)
            sync_directory(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def _write(path: Path, states: Sequence[Projection], built_from: BuiltFrom) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path)) as connection:
        # Nobody sees the file before it is whole: no journal, and one sync at the end.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        database = sqlite_utils.Database(connection, execute_plugins=False)
        with database.atomic():
            _insert(database, BuiltFrom, [built_from])
            for state in states:
                rows: dict[type[Row], list[Row]] = {table: [] for table in state.TABLES}
                for row in state.rows():
                    rows[type(row)].append(row)
                for table in state.TABLES:
                    _insert(database, table, rows[table])
    with open(path, "rb") as file:
        sync(file.fileno())


def _insert(database: sqlite_utils.Database, table: type[Row], rows: Iterable[Row]) -> None:
    database.execute(create_table_sql(table))
    values: Iterator[Sequence[Any]] = map(msgspec.structs.astuple, rows)
    database.table(table.TABLE).insert_all(chain([tuple(columns_of(table))], values))


def create_table_sql(table: type[Row], schema: str = "main") -> str:
    """The statement that makes a declared table."""
    columns = [f'"{column}" {_SQL_TYPES[kind]}' for column, kind in columns_of(table).items()]
    key = ", ".join(f'"{column}"' for column in table.KEY)
    return (
        f'CREATE TABLE {schema}."{table.TABLE}" ({", ".join(columns)}, PRIMARY KEY ({key})) STRICT'
    )


# --- the live generation -------------------------------------------------------------------------


def _live(directory: StudyDirectory, log: EventLog) -> Generation | None:
    """The live generation where it is up to date."""
    generation = _open_live(directory)
    if generation is None:
        return None
    head = log.head()
    wanted = BuiltFrom(
        seq=-1 if head is None else head.seq,
        leaf=FIRST_PREV if head is None else head.leaf.hex(),
        source=source_digest(),
    )
    if generation.built_from == wanted:
        return generation
    generation.close()
    return None


def _open_live(directory: StudyDirectory, edited: bool = False) -> Generation | None:
    """The generation that the pointer names; None where there is none that is whole, or (unless
    ``edited``) where its bytes are others than were written."""
    name = _live_name(directory.projections)
    while name:
        try:
            generation = Generation(directory.projections / name)
            if edited or _bytes_of(generation.path) == _live_bytes(directory.projections):
                return generation
            generation.close()
        except (OSError, sqlite3.Error, msgspec.ValidationError):
            # Damaged; or two newer ones were made since the pointer was read, and it was removed.
            pass
        before, name = name, _live_name(directory.projections)
        if name == before:
            return None
    return None


def _live_name(folder: Path) -> str:
    name = _pointer(folder).partition(" ")[0]
    return name if _GENERATION.fullmatch(name) else ""


def _live_bytes(folder: Path) -> str:
    """What ``_bytes_of`` gave for the live generation when it was made."""
    return _pointer(folder).partition(" ")[2]


def _pointer(folder: Path) -> str:
    try:
        return read_regular(folder / _POINTER, 1 << 10).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _bytes_of(generation: Path) -> str:
    """SHA-256 of each file of a generation. Raises OSError."""
    digests = []
    for name in (OPEN, OUTCOMES):
        with open_regular(generation / name) as file:
            digest = sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
            digests.append(digest.hexdigest())
    return " ".join(digests)


def _remove_generations(folder: Path, keep: set[str]) -> None:
    for name in sorted(os.listdir(folder)):
        if name in keep or not _GENERATION.fullmatch(name):
            continue
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder / name)
        except BlockingIOError:
            pass  # somebody reads it
        finally:
            os.close(descriptor)


@contextmanager
def _only_writer(directory: StudyDirectory) -> Iterator[None]:
    """Wait until nobody else makes projections of this study."""
    with _writable(directory.run):
        directory.run.mkdir(parents=True, exist_ok=True)
        file = open_lock(directory.run / "projections.lock")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- reading tables ------------------------------------------------------------------------------


def _all_tables() -> list[tuple[type[Row], bool]]:
    """Every table, and whether it is guarded."""
    return [(table, guarded) for guarded in (False, True) for table in declared_tables(guarded)]


def _first_difference(name: str, live: Generation, replayed: Generation) -> Difference:
    table, guarded = next((table, g) for table, g in _all_tables() if name == table.TABLE)
    query = _select(table, _schema(guarded))
    with _readable(live), _opened(live) as left, _opened(replayed) as right:
        for pair in zip_longest(left.execute(query), right.execute(query)):
            if pair[0] != pair[1]:
                break
    old, new = (
        None if row is None else dict(zip(columns_of(table), row, strict=True)) for row in pair
    )
    shown = old or new or {}
    key = ", ".join(f"{column} = {shown[column]}" for column in table.KEY)
    return Difference(name, key, None if guarded else old, None if guarded else new)


def _check_schema(connection: sqlite3.Connection) -> None:
    """Before any value is read. Raises sqlite3.DatabaseError."""
    for guarded in (False, True):
        tables: list[type[Row]] = [*declared_tables(guarded), BuiltFrom]
        expected = {
            (table.TABLE, create_table_sql(table).replace(" main.", " ", 1)) for table in tables
        }
        found = connection.execute(
            f"SELECT name, sql FROM {_schema(guarded)}.sqlite_master WHERE sql IS NOT NULL "
            f"LIMIT {len(expected) + 1}"
        )
        if set(found) != expected:
            raise sqlite3.DatabaseError("its tables are not those that were written")


def _select(table: type[Row], schema: str) -> str:
    columns = ", ".join(f'"{column}"' for column in columns_of(table))
    return f'SELECT {columns} FROM {schema}."{table.TABLE}" ORDER BY rowid'


def _schema(guarded: bool) -> str:
    return GUARDED_SCHEMA if guarded else "main"


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"


def _leaf_at(log: EventLog, seq: int) -> str | None:
    if seq < 0:
        return FIRST_PREV
    return next((stored.leaf.hex() for stored in log.read(seq, seq + 1)), None)


def _opened(generation: Generation) -> "closing[sqlite3.Connection]":
    return closing(generation.connect(outcomes=True))


@contextmanager
def _readable(generation: Generation) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Integrity(
            f"{generation.path}: {error}: not as it was written; `ledger replay` makes it again"
        ) from error


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Unfinished(
            f"{folder}: {reason}; projections are made there. Look at the free space and the "
            "permissions, or copy the study to a folder of yours"
        ) from error
