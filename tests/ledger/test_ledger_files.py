"""What may happen to a ledger's files while, or before, it is written."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledger.errors import Integrity, Unfinished
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from schemas.events.cell import ProtocolViolated


def note(detail: str) -> Batch:
    event = ProtocolViolated(turn=0, kind="k", detail=detail)
    return Batch(events=[NewEvent("cell/notes", event)], actor="a", run="r")


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("vanish", [remove, replace])
def test_nothing_is_committed_to_a_file_that_is_not_there_any_more(
    tmp_path: Path, suffix: str, vanish: Callable[[Path], None]
) -> None:
    path = tmp_path / "ledger.db"
    log = SqliteLog.create(path)
    last = log.append(note("kept"))[0].envelope()
    vanish(Path(f"{path}{suffix}"))
    with pytest.raises(Unfinished, match=f"{path.name}{suffix} was removed.*seq 0 .*{last.id}"):
        log.append(note("lost"))
    head = log.head()
    assert head is not None and head.seq == 0
    log.close()


def test_a_log_is_written_through_a_wal_whatever_another_program_chose(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqliteLog.create(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    log = SqliteLog.open(path)
    log.append(note("one"))
    assert Path(f"{path}-wal").stat().st_size > 0
    log.close()


KILLED_IN_A_COMMIT = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM delivery")
for n in range(300):
    connection.execute("INSERT INTO delivery (seq, command, role) VALUES (?, ?, ?)",
                       (n, str(n), "x" * 2000))
os._exit(0)
"""


def test_an_interrupted_commit_outside_of_wal_mode_is_undone_by_sqlite_and_not_thrown_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    log = SqliteLog.create(path)
    log.append(note("one"))
    log.close()
    subprocess.run([sys.executable, "-c", KILLED_IN_A_COMMIT, path], check=True)
    assert Path(f"{path}-journal").stat().st_size > 0
    with pytest.raises(Integrity, match="rollback journal.*PRAGMA journal_mode=WAL") as refused:
        SqliteLog.open(path)
    assert "move it away" not in str(refused.value)
    with closing(sqlite3.connect(path)) as connection:  # what the message says
        connection.execute("PRAGMA journal_mode = WAL")
    log = SqliteLog.open(path)
    assert [stored.seq for stored in log.read()] == [0]
    log.close()
