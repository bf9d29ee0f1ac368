"""What only the SQLite log promises; the promises of every log stand in tests/contract/."""

import fcntl
import os
import resource
import sqlite3
import stat
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.chain import leaf_hash
from ledger.clock import now_us, timestamp
from ledger.codec import encode_record
from ledger.errors import Integrity, LedgerError, Refused, Unfinished, UnknownOutcome, Usage
from ledger.log import Batch, NewEvent, StoredRecord
from ledger.sqlite import log as sqlite_log
from ledger.sqlite.errors import ledger_error
from ledger.sqlite.log import SqliteLog
from ledger.sqlite.schema import SCHEMA
from ledger.study_directory import IMPORTED_MARK
from schemas.commands import ContinueStudy
from schemas.events.cell import ProtocolViolated
from schemas.events.command import CommandRequested
from tests.contract.conftest import FakeClock, assert_chain

CAUSE = "01980f3e-7c00-7000-8000-000000000000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    created = SqliteLog.create(path)
    yield created
    created.close()


def note(text: str) -> NewEvent:
    return NewEvent("cell/a", ProtocolViolated(turn=0, kind="note", detail=text))


def append(log: SqliteLog, *texts: str) -> list[StoredRecord]:
    return [
        stored
        for text in texts
        for stored in log.append(Batch(events=[note(text)], actor="cell", run="run"))
    ]


def request(log: SqliteLog) -> str:
    event = CommandRequested(role="scheduler", command=ContinueStudy())
    batch = Batch(events=[NewEvent("role/scheduler", event)], actor="operator", run="run")
    return log.append(batch)[0].envelope().id


@contextmanager
def outsider(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program: no lock file, no settings of ours."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.execute("PRAGMA recursive_triggers = OFF")
        yield connection


def tamper(path: Path, *statements: str) -> None:
    """Do what the triggers refuse, as somebody who owns the file can."""
    with outsider(path) as connection:
        for trigger in ("records_insert", "records_update", "records_delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for statement in statements:
            connection.execute(statement)


# --- creating and opening ------------------------------------------------------------------------


def test_create_makes_files_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "var" / "ledger.db"
    with closing(SqliteLog.create(path)) as log:
        append(log, "a")
        assert {file.name for file in path.parent.iterdir()} == {
            "ledger.db",
            "ledger.db-shm",
            "ledger.db-wal",
            "ledger.lock",
        }
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {0o600}
    assert {file.name for file in path.parent.iterdir()} == {"ledger.db", "ledger.lock"}


def test_create_never_replaces_anything(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(Usage, match="exists already"):
        SqliteLog.create(path)
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(Usage, match="exists already"):
        SqliteLog.create(path)


def test_create_starts_again_after_a_crash_in_the_middle(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with outsider(other) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE records (x)")
        for suffix in ("", "-wal"):
            content = other.with_name(other.name + suffix).read_bytes()
            path.with_name("ledger.db.new" + suffix).write_bytes(content)
    with closing(SqliteLog.create(path)) as log:
        append(log, "a")
    assert list(tmp_path.glob("ledger.db.new*")) == []


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_create_takes_nothing_over_from_a_database_that_is_gone(
    log: SqliteLog, suffix: str
) -> None:
    append(log, "a")
    wal = log.path.with_name("ledger.db-wal").read_bytes()
    log.close()
    log.path.unlink()
    log.path.with_name(f"ledger.db{suffix}").write_bytes(wal)
    with pytest.raises(Usage, match="move it away first"):
        SqliteLog.create(log.path)


def test_no_journal_is_played_into_a_ledger(log: SqliteLog) -> None:
    log.close()
    log.path.with_name("ledger.db-journal").write_bytes(b"\xd9")
    for open_log in (SqliteLog.open, SqliteLog.open_read_only):
        with pytest.raises(Integrity, match="a rollback journal, .*PRAGMA journal_mode=WAL"):
            open_log(log.path)


def test_any_name_of_a_directory_is_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=memory&b=#%41 é" / "ledger.db"
    with closing(SqliteLog.create(path)) as log:
        stored = append(log, "a")
    with closing(SqliteLog.open_read_only(path)) as reader:
        assert list(reader.read()) == stored
    assert path.stat().st_size > 0


def plain_database(path: Path) -> None:
    with outsider(path) as connection:
        connection.execute("CREATE TABLE t (x)")


def newer_ledger(path: Path) -> None:
    SqliteLog.create(path).close()
    with outsider(path) as connection:
        connection.execute("PRAGMA user_version = 3")


@pytest.mark.parametrize("opener", [SqliteLog.open, SqliteLog.open_read_only])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "does not exist; give the path of a ledger.db"),
        (Path.mkdir, "is a directory; give the path of the ledger.db in it"),
        (Path.touch, "not a ledger"),
        (lambda path: path.write_text("Hello, I am no database. " * 100), "not a SQLite database"),
        (plain_database, "a SQLite database but not a ledger"),
        (newer_ledger, "schema version 3, this program reads 2"),
    ],
)
def test_what_is_not_a_ledger_is_refused_with_a_remedy(
    path: Path,
    opener: Callable[[Path], SqliteLog],
    make: Callable[[Path], Any],
    says: str,
) -> None:
    make(path)
    with pytest.raises(Usage, match=says) as caught:
        opener(path)
    assert str(path) in str(caught.value)


def test_an_old_sqlite_is_refused(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(Usage, match=r"needs 3\.37 or newer"):
        SqliteLog.open(log.path)


def test_the_settings_that_durability_rests_on(log: SqliteLog) -> None:
    def setting(connection: sqlite3.Connection | None, name: str) -> Any:
        assert connection is not None
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    full, normal = 2, 1
    assert setting(log._records, "journal_mode") == "wal"
    assert setting(log._records, "synchronous") == full
    assert setting(log._leases, "synchronous") == normal
    for connection in (log._records, log._leases):
        assert setting(connection, "fullfsync") == 1
        assert setting(connection, "recursive_triggers") == 1


# --- the table -----------------------------------------------------------------------------------


def test_columns_are_copies_of_the_record(log: SqliteLog) -> None:
    append(log, "a")
    command = request(log)
    log.append(Batch(events=[note("b")], actor="x", run="y", cause=command, first_index=4))
    with outsider(log.path) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM records ORDER BY seq").fetchall()
    assert len(rows) == 3
    for row, stored in zip(rows, log.read(), strict=True):
        assert (row["record"], row["leaf"]) == (stored.record, stored.leaf)
        envelope = stored.envelope()
        for name in set(row.keys()) - {"record", "leaf"}:
            assert row[name] == getattr(envelope, name), name


def test_bytes_are_stored_as_blobs_in_strict_tables(log: SqliteLog) -> None:
    append(log, "a")
    with outsider(log.path) as connection:
        kinds = connection.execute("SELECT typeof(record), typeof(leaf) FROM records").fetchall()
        strict = connection.execute(
            "SELECT count(*) FROM pragma_table_list WHERE strict AND name IN "
            "('records', 'delivery', 'checkpoints')"
        ).fetchone()
        schema = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL"))
    assert kinds == [("blob", "blob")]
    assert strict == (3,)
    assert schema == SCHEMA


ROW = (
    '(seq, leaf, id, type, stream, version, at, actor, cause, "index", run, record) '
    "VALUES ({seq}, x'00', 'id{seq}', 't', 's', {seq}, 'at', 'a', NULL, 0, 'r', x'00')"
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET actor = 'somebody else' WHERE seq = 1",
        "UPDATE OR REPLACE records SET seq = 0 WHERE seq = 1",
        "DELETE FROM records WHERE seq = 2",
        "DELETE FROM records",
        "INSERT INTO records " + ROW.format(seq=4),
        "INSERT INTO records " + ROW.format(seq=1),
        "INSERT INTO records " + ROW.format(seq=-1),
        "INSERT INTO records " + ROW.format(seq="NULL"),
        "INSERT OR REPLACE INTO records " + ROW.format(seq=2),
        "INSERT OR IGNORE INTO records " + ROW.format(seq=5),
    ],
)
def test_triggers_refuse_what_is_no_append(log: SqliteLog, statement: str) -> None:
    append(log, "a", "b", "c")
    before = list(log.read())
    with outsider(log.path) as connection, pytest.raises(sqlite3.IntegrityError, match="a record"):
        connection.execute(statement)
    assert list(log.read()) == before


def test_replacing_a_record_by_another_of_its_stream_asks_the_trigger(log: SqliteLog) -> None:
    append(log, "a", "b", "c")
    before = list(log.read())
    row = ROW.format(seq=3).replace("'s', 3", "'cell/a', 0")
    with pytest.raises(sqlite3.IntegrityError, match="a record is never deleted"):
        log._records.execute(f"INSERT OR REPLACE INTO records {row}")
    assert list(log.read()) == before


def test_a_missing_position_stops_a_reader(log: SqliteLog) -> None:
    append(log, "a", "b", "c", "d")
    tamper(log.path, "DELETE FROM records WHERE seq = 2")
    for reader, missing in ((log.read(), "seq 2"), (log.read_stream("cell/a"), "version 2")):
        assert [next(reader).seq, next(reader).seq] == [0, 1]
        with pytest.raises(Integrity, match=f"{missing} is missing"):
            next(reader)


# --- checks on opening ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alteration",
    [
        "UPDATE records SET actor = 'somebody else' WHERE seq = 2",
        "UPDATE records SET stream = 'cell/b' WHERE seq = 2",
        'UPDATE records SET "index" = 1 WHERE seq = 2',
        "UPDATE records SET at = '2020-01-01T00:00:00.000000Z' WHERE seq = 2",
        "UPDATE records SET leaf = zeroblob(32) WHERE seq = 2",
        "UPDATE records SET record = CAST(record || ' ' AS BLOB) WHERE seq = 2",
        "UPDATE records SET record = x'ff' WHERE seq = 2",
        "UPDATE records SET record = CAST(record || ' ' AS BLOB) WHERE seq = 1",
        "UPDATE records SET seq = 7 WHERE seq = 2",
    ],
)
def test_a_log_whose_end_contradicts_itself_is_not_continued(
    log: SqliteLog, alteration: str
) -> None:
    append(log, "a", "b", "c")
    log.close()
    tamper(log.path, alteration)
    with pytest.raises(Integrity):
        SqliteLog.open(log.path)
    with closing(SqliteLog.open_read_only(log.path)) as reader:
        assert reader.head() is not None, "verification must be able to look"


def test_a_clock_far_behind_the_last_record_is_a_warning(path: Path) -> None:
    clock = FakeClock()
    with closing(SqliteLog.create(path, clock)) as log:
        assert log.warnings == ()
        append(log, "a")
    clock.advance(-60)
    with closing(SqliteLog.open(path, clock)) as log:
        assert log.warnings == ()
    clock.advance(-1)
    with closing(SqliteLog.open(path, clock)) as log:
        assert len(log.warnings) == 1
        assert "2026-07-18T09:30:00.000000Z" in log.warnings[0]
        assert_chain([*log.read()] + append(log, "b"))


# --- reading only --------------------------------------------------------------------------------


def test_an_id_that_an_outsider_repeats_stays_the_first_records(log: SqliteLog) -> None:
    """No index forbids it, and a chain that goes on is no fault: it must not change an answer."""
    command = request(log)
    first = log.find(command)
    assert first is not None
    repeated = first.envelope()
    envelope = msgspec.structs.replace(repeated, seq=1, prev=first.leaf.hex(), version=1)
    record = encode_record(envelope)
    with outsider(log.path) as connection:
        connection.execute(
            'INSERT INTO records SELECT 1, ?, id, type, stream, 1, at, actor, cause, "index", run, '
            "? FROM records WHERE seq = 0",
            (leaf_hash(record), record),
        )
    assert log.find(command) == first
    assert log.pending() == [command]
    log.release_all()
    claim = log.claim(["scheduler"], 30)
    assert claim is not None
    assert (claim.lease.command, claim.seq) == (command, 0)
    assert log.claim(["scheduler"], 30) is None


def test_a_log_opened_read_only_writes_nothing(log: SqliteLog) -> None:
    append(log, "a")
    command = request(log)
    claim = log.claim(["scheduler"], 30)
    assert claim is not None
    log.close()
    before = log.path.read_bytes()
    with closing(SqliteLog.open_read_only(log.path)) as reader:
        assert len(list(reader.read())) == 2
        assert reader.pending() == [command]
        for write in (
            lambda: append(reader, "b"),
            lambda: reader.renew(claim.lease, 30),
            lambda: reader.release_all(),
            lambda: reader.add_checkpoint(1, b"note"),
        ):
            with pytest.raises(Refused, match="opened read-only"):
                write()
    assert log.path.read_bytes() == before


def test_an_imported_log_is_opened_for_reading_alone(log: SqliteLog) -> None:
    stored = append(log, "a")
    log.close()
    log.path.with_name(IMPORTED_MARK).touch()
    with pytest.raises(Refused, match="never written"):
        SqliteLog.open(log.path)
    with closing(SqliteLog.open_read_only(log.path)) as reader:
        assert list(reader.read()) == stored


def test_leaves_are_read_alone_and_end_where_one_is_missing(log: SqliteLog) -> None:
    stored = append(log, "a", "b", "c", "d")
    assert list(log.leaves(1, 3)) == [record.leaf for record in stored[1:3]]
    assert list(log.leaves(0, 4)) == [record.leaf for record in stored]
    assert list(log.leaves(2, 2)) == []
    assert len(list(log.leaves(2, 9))) == 2


def test_a_reader_sees_what_is_appended_meanwhile(log: SqliteLog) -> None:
    with closing(SqliteLog.open_read_only(log.path)) as reader:
        stored = append(log, "a", "b")
        assert list(reader.read()) == stored


def block_shared_memory(path: Path) -> None:
    """Make the -shm file impossible to make, as on a read-only medium, but for root too."""
    path.with_name("ledger.db-shm").symlink_to("nowhere")


def test_a_read_only_medium_without_a_wal_is_read(log: SqliteLog) -> None:
    stored = append(log, "a", "b")
    log.close()
    block_shared_memory(log.path)
    with closing(SqliteLog.open_read_only(log.path)) as reader:
        assert list(reader.read()) == stored


def test_a_wal_that_cannot_be_read_is_never_left_out(log: SqliteLog, tmp_path: Path) -> None:
    append(log, "a", "b")
    copy = tmp_path / "copy" / "ledger.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        name = log.path.name + suffix
        copy.with_name(name).write_bytes(log.path.with_name(name).read_bytes())
    block_shared_memory(copy)
    with pytest.raises(Unfinished, match="copy all three files"):
        SqliteLog.open_read_only(copy)


# --- failures ------------------------------------------------------------------------------------

SQLITE_ERRORS = [
    value
    for value in vars(sqlite3).values()
    if isinstance(value, type) and issubclass(value, sqlite3.Error)
]


def test_every_exception_of_sqlite_becomes_one_of_ours() -> None:
    assert len(SQLITE_ERRORS) >= 8
    for kind in SQLITE_ERRORS:
        translated = ledger_error(kind("as the driver says"), Path("x.db"))
        assert isinstance(translated, LedgerError), kind
        assert str(translated).startswith("x.db: as the driver says"), kind
        assert ";" in str(translated), "what it means; what to do"


CONDITIONS = {
    "SQLITE_FULL": (Unfinished, "make room"),
    "SQLITE_BUSY": (Unfinished, "locked"),
    "SQLITE_BUSY_SNAPSHOT": (Unfinished, "locked"),
    "SQLITE_LOCKED": (Unfinished, "locked"),
    "SQLITE_READONLY": (Unfinished, "cannot be written"),
    "SQLITE_READONLY_DIRECTORY": (Unfinished, "cannot be written"),
    "SQLITE_CANTOPEN": (Unfinished, "cannot be opened"),
    "SQLITE_PERM": (Unfinished, "permissions"),
    "SQLITE_IOERR": (Unfinished, "the disk failed"),
    "SQLITE_IOERR_FSYNC": (Unfinished, "the disk failed"),
    "SQLITE_NOMEM": (Unfinished, "memory"),
    "SQLITE_PROTOCOL": (Unfinished, "run the command again"),
    "SQLITE_NOLFS": (Unfinished, "file system"),
    "SQLITE_INTERRUPT": (Unfinished, "interrupted"),
    "SQLITE_CORRUPT": (Integrity, "damaged"),
    "SQLITE_CORRUPT_INDEX": (Integrity, "damaged"),
    "SQLITE_NOTADB": (Usage, "not a SQLite database"),
    "SQLITE_CONSTRAINT": (Integrity, "another program"),
    "SQLITE_CONSTRAINT_TRIGGER": (Integrity, "another program"),
    "SQLITE_MISMATCH": (Integrity, "another type"),
    "SQLITE_ERROR": (Integrity, "not those of a ledger"),
    "SQLITE_TOOBIG": (Integrity, "larger"),
    "SQLITE_INTERNAL": (Unfinished, "could not finish"),
    "SQLITE_MISUSE": (Unfinished, "could not finish"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_has_its_kind_and_its_remedy(name: str) -> None:
    error = sqlite3.OperationalError("as the driver says")
    error.sqlite_errorcode = getattr(sqlite3, name)
    kind, remedy = CONDITIONS[name]
    translated = ledger_error(error, Path("x.db"))
    assert type(translated) is kind
    assert remedy in str(translated)


def test_a_full_disk_loses_nothing_and_is_survived(log: SqliteLog) -> None:
    before = append(log, "a", "b")
    log._records.execute("PRAGMA max_page_count = 1")
    with pytest.raises(Unfinished, match="make room") as caught:
        append(log, *("x" * 10_000 for _ in range(10)))
    assert not isinstance(caught.value, UnknownOutcome)
    log._records.execute("PRAGMA max_page_count = 100000")
    assert list(log.read()) == before
    assert_chain(before + append(log, "c"))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond ``size`` bytes into any file fail, as on a disk that is full or broken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_that_fails_is_an_unknown_outcome(log: SqliteLog) -> None:
    before = append(log, "a")
    batch = Batch(
        events=[note("b" * 50_000), note("c" * 50_000)], actor="cell", run="run", cause=CAUSE
    )
    wal = log.path.with_name("ledger.db-wal")
    with file_size_limit(wal.stat().st_size + 60_000), pytest.raises(UnknownOutcome) as caught:
        log.append(batch)
    assert "open the log again and look for 0" in str(caught.value)
    for call in (log.head, lambda: append(log, "d"), lambda: log.claim(["scheduler"], 30)):
        with pytest.raises(Usage, match="open it again|open the log again"):
            call()

    with closing(SqliteLog.open(log.path)) as again:
        found = again.caused_by(CAUSE)
        assert len(found) in (0, 2), "never a part of a batch"
        assert len(again.append(batch)) == 2
        records = list(again.read())
        assert records[:1] == before
        assert len(records) == 3
        assert_chain(records)


def test_a_program_that_holds_the_database_is_named_as_the_reason(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "BUSY_SECONDS", 0.05)
    with closing(SqliteLog.open(log.path)) as impatient, outsider(log.path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unfinished, match="a database browser"):
            append(impatient, "a")
        assert impatient.head() is None, "readers do not wait"
        other.execute("ROLLBACK")
        append(impatient, "a")


def test_damage_in_the_file_is_an_integrity_error(log: SqliteLog) -> None:
    append(log, *("x" * 3_000 for _ in range(50)))
    log.close()
    content = bytearray(log.path.read_bytes())
    # Every page but the first, which holds the schema: no page header is left intact.
    for page in range(4096, len(content), 4096):
        content[page : page + 16] = b"\xff" * 16
    log.path.write_bytes(content)
    with pytest.raises(Integrity, match=r"damaged.*backup"):
        SqliteLog.open(log.path)


def test_a_lost_table_is_an_integrity_error(log: SqliteLog) -> None:
    with outsider(log.path) as connection:
        connection.execute("DROP TABLE records")
    with pytest.raises(Integrity, match="not those of a ledger"):
        log.head()


def test_an_error_of_the_operating_system_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unfinished, match="permissions of its directory"):
        SqliteLog.create(tmp_path / "file" / "ledger.db")


# --- locking, threads, size ----------------------------------------------------------------------


def test_writers_queue_at_the_lock_file_and_idle_workers_do_not(log: SqliteLog) -> None:
    descriptor = os.open(log.path.with_name("ledger.lock"), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    appended: list[StoredRecord] = []
    with closing(SqliteLog.open(log.path)) as other:
        assert other.claim(["scheduler"], 30) is None, "there is nothing to claim: no queueing"
        writer = threading.Thread(target=lambda: appended.extend(append(log, "a")))
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        assert other.head() is None, "readers do not queue either"
    os.close(descriptor)  # as when the process that holds it is killed
    writer.join(30)
    assert [stored.seq for stored in appended] == [0]


def test_time_is_read_inside_the_lock(log: SqliteLog) -> None:
    """A record's time never lies before that of a record which another process wrote first."""
    descriptor = os.open(log.path.with_name("ledger.lock"), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    appended: list[StoredRecord] = []
    writer = threading.Thread(target=lambda: appended.extend(append(log, "a")))
    writer.start()
    writer.join(0.1)
    released = timestamp(now_us())
    os.close(descriptor)
    writer.join(30)
    assert appended[0].envelope().at >= released


def test_an_interrupted_append_leaves_the_log_usable(log: SqliteLog) -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    stored = append(log, "a")
    log._clock = interrupt
    with pytest.raises(KeyboardInterrupt):
        append(log, "b")
    log._clock = now_us
    assert_chain(stored + append(log, "c"))


def test_the_wal_stays_small_under_a_long_read(log: SqliteLog, path: Path) -> None:
    written = 0

    def write(count: int) -> None:
        nonlocal written
        events = [note("x" * 4_000)] * count
        log.append(Batch(events=events, actor="c", run="r", cause=CAUSE, first_index=written))
        written += count

    write(sqlite_log.PAGE_RECORDS + 100)
    with closing(SqliteLog.open_read_only(path)) as other:
        reader = other.read()
        next(reader)  # and there it stays
        for _ in range(30):
            write(100)
        # 3,000 records are about 16 MiB; SQLite checkpoints at 4 MiB unless a reader is in the way.
        assert path.with_name("ledger.db-wal").stat().st_size < 8 << 20
        assert sum(1 for _ in reader) == written - 1


def test_reading_takes_constant_memory_even_of_the_largest_records(log: SqliteLog) -> None:
    for _ in range(24):
        append(log, "x" * 1_000_000)
    tracemalloc.start()
    size = 0
    for stored in log.read():
        size += len(stored.record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 24_000_000
    assert peak < 12_000_000


def test_checkpoints_are_kept_by_size(log: SqliteLog) -> None:
    log.add_checkpoint(20, b"second")
    log.add_checkpoint(10, b"first")
    log.add_checkpoint(20, b"another note for the same size")
    assert log.checkpoints() == [(10, b"first"), (20, b"second")]


def test_closing_twice_is_closing(log: SqliteLog) -> None:
    log.close()
    log.close()
    with pytest.raises(Usage, match="open the log again"):
        log.head()


@pytest.mark.parametrize("mode", ["open", "open_read_only"])
def test_a_view_in_place_of_the_records_is_not_read(tmp_path: Path, mode: str) -> None:
    """It could give rows without an end."""
    path = tmp_path / "ledger.db"
    SqliteLog.create(path).close()
    with closing(sqlite3.connect(path)) as connection:
        columns = 'seq, leaf, id, type, stream, version, at, actor, cause, "index", run, record'
        names = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE tbl_name = 'records' AND type = 'trigger'"
            )
        ]
        for name in names:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("ALTER TABLE records RENAME TO real_records")
        connection.execute(
            f"CREATE VIEW records ({columns}) AS WITH RECURSIVE n(x) AS "
            "(SELECT 0 UNION ALL SELECT x + 1 FROM n) "
            "SELECT x, x'00', x, 't', 's', 0, '', '', NULL, 0, '', x'7b7d' FROM n"
        )
        connection.commit()
    with pytest.raises(Integrity, match="records"):
        getattr(SqliteLog, mode)(path)
