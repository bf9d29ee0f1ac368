"""Many processes on one durable log, and processes that are killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.log import Batch, NewEvent, StoredRecord
from ledger.regular_file import open_regular
from ledger.sqlite.log import SqliteLog
from ledger.stores import is_sqlite
from ledger.verify.verification import Options, verify
from schemas.commands import ContinueStudy
from schemas.events.command import CommandRequested
from tests.contract.conftest import assert_chain

WORKER = Path(__file__).parent / "worker.py"
BATCH = 3


def start(path: Path, mode: str, count: float) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(path), mode, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(worker: "subprocess.Popen[str]") -> list[list[tuple[int, str]]]:
    """Wait for an orderly end; every acknowledged append as [(seq, leaf), …]."""
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0
    return acknowledged(output)


def acknowledged(output: str) -> list[list[tuple[int, str]]]:
    whole = output[: output.rfind("\n") + 1]
    return [[(seq, leaf) for seq, leaf in json.loads(line)] for line in whole.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    SqliteLog.create(tmp_path / "ledger.db").close()
    return tmp_path / "ledger.db"


def test_racing_writers_leave_one_gapless_chain(path: Path) -> None:
    log = SqliteLog.open_read_only(path)
    workers = [start(path, "append", 60), start(path, "append", 60), start(path, "contend", 60)]
    read: list[StoredRecord] = []
    while any(worker.poll() is None for worker in workers):
        # A gap raises; what was read once never changes (assert_chain below covers its links).
        read += list(log.read(len(read)))
    answers = [appended for worker in workers for appended in finish(worker)]
    read += list(log.read(len(read)))
    assert_chain(read)
    assert read == list(log.read())
    log.close()
    assert len(read) == 60 * BATCH + 60 * BATCH + 60
    written = {stored.seq: stored.leaf.hex() for stored in read}
    assert all(written[seq] == leaf for appended in answers for seq, leaf in appended)
    assert sum(map(len, answers)) == len(read)
    for appended in answers:
        first = appended[0][0]
        assert [seq for seq, _ in appended] == list(range(first, first + len(appended)))


def test_a_command_is_finished_by_exactly_one_process(path: Path) -> None:
    log = SqliteLog.open(path)
    requested = CommandRequested(role="scheduler", command=ContinueStudy())
    event = NewEvent("role/scheduler", requested)
    commands = [
        log.append(Batch(events=[event], actor="o", run="r"))[0].envelope().id for _ in range(40)
    ]
    # Leases of no length: every process may take over from every other at any moment.
    workers = [start(path, "deliver", seconds) for seconds in (0, 0, 30)]
    for worker in workers:
        finish(worker)
    assert log.pending() == []
    for command in commands:
        assert len(list(log.read_stream(f"command/{command}"))) == 1
        assert [stored.envelope().index for stored in log.caused_by(command)] == [0, 1]
    assert_chain(list(log.read()))
    log.close()


def test_a_killed_writer_loses_nothing_that_was_acknowledged(path: Path) -> None:
    known: dict[int, str] = {}
    for acknowledgements in (1, 2, 3, 5, 8, 13):
        worker = start(path, "append", 1_000_000)
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(acknowledgements)]
        worker.kill()
        rest = worker.stdout.read()
        worker.stdout.close()
        worker.wait()
        for appended in acknowledged("".join(lines) + rest):
            known.update(appended)

        log = SqliteLog.open(path)
        records = list(log.read())
        log.close()
        assert_chain(records)
        leaves = {stored.seq: stored.leaf.hex() for stored in records}
        assert known.items() <= leaves.items()
        assert len(records) % BATCH == 0, "a batch was torn"
        # At most the one append of each round whose acknowledgement was not read.
        known.update(leaves)


def test_a_process_that_ends_leaves_the_wal_to_those_who_write(path: Path) -> None:
    """Whoever closes a database last deletes its WAL. That nobody else is there it knows by their
    locks, which a process loses when it closes any descriptor of the database."""
    log = SqliteLog.open(path)
    request = CommandRequested(role="scheduler", command=ContinueStudy())
    batch = Batch(events=[NewEvent("role/scheduler", request)], actor="operator", run="run")
    log.append(batch)
    wal = path.with_name(f"{path.name}-wal")
    before = wal.stat().st_ino
    finish(start(path, "append", 3))
    assert wal.stat().st_ino == before
    log.append(batch)
    reader = SqliteLog.open_read_only(path)
    assert len(list(reader.read())) == 1 + 3 * BATCH + 1
    reader.close()
    log.close()


def test_looking_at_a_log_that_is_open_here_keeps_its_locks(path: Path) -> None:
    """Verification and the other ways to read a ledger in the process that writes to it."""
    log = SqliteLog.open(path)
    request = CommandRequested(role="scheduler", command=ContinueStudy())
    log.append(Batch(events=[NewEvent("role/scheduler", request)], actor="operator", run="run"))
    wal = path.with_name(f"{path.name}-wal")
    before = wal.stat().st_ino
    assert verify(path, options=Options(last_seen=False)).events == 1
    assert is_sqlite(path)
    SqliteLog.open_read_only(path).close()
    with pytest.raises(RuntimeError, match="a database that this process has open"):
        open_regular(path)
    finish(start(path, "append", 1))
    assert wal.stat().st_ino == before
    log.close()
    open_regular(path).close()
