"""Something else where a file of the ledger belongs: nothing waits, nothing is followed.

Every test ends because nothing blocks; a pipe without a writer would hang it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sample_ledger import SampleLedger, append_one

from ledger.checkpoint import Checkpointer
from ledger.errors import Integrity, Refused, Unfinished, Usage
from ledger.export import backup, export, import_ledger
from ledger.sqlite.log import SqliteLog
from ledger.verify.verification import Options, exit_status, verify
from schemas.events.cell import ProtocolViolated

INSTEAD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
}


def put(name: str, path: Path) -> None:
    path.unlink()
    INSTEAD[name](path)


@pytest.mark.parametrize("name", INSTEAD)
def test_in_place_of_the_database(sample: SampleLedger, tmp_path: Path, name: str) -> None:
    put(name, sample.database)
    report = verify(sample.directory.root)
    assert [(f.code, f.seq) for f in report.findings] == [("DB_CORRUPT", None)]
    assert exit_status(report) == 3
    for move in (export, backup):
        with pytest.raises(Integrity, match="not a file"):
            move(sample.directory.root, tmp_path / "moved")
    for open_log in (SqliteLog.open, SqliteLog.open_read_only):
        expected, says = (
            (Usage, "is a directory") if name == "folder" else (Integrity, "not a file")
        )
        with pytest.raises(expected, match=says):
            open_log(sample.database)
    assert not (tmp_path / "moved").exists()


@pytest.mark.parametrize("name", INSTEAD)
def test_in_place_of_the_wal(sample: SampleLedger, name: str) -> None:
    wal = sample.database.with_name("ledger.db-wal")
    wal.touch()
    put(name, wal)
    report = verify(sample.directory.root)
    assert [(f.code, f.seq) for f in report.findings] == [("DB_CORRUPT", None)]
    with pytest.raises(Integrity, match="not a file"):
        SqliteLog.open(sample.database)


@pytest.mark.parametrize("name", INSTEAD)
def test_in_place_of_the_checkpoints(sample: SampleLedger, tmp_path: Path, name: str) -> None:
    put(name, sample.log_file)
    report = verify(sample.directory.root)
    assert [(f.code, f.seq) for f in report.findings] == [("SIG_BAD", None)]
    # The rows of the database still anchor all records.
    assert report.anchors[0].size == 31
    with pytest.raises(Integrity, match="checkpoints.log: .* not a file"):
        export(sample.directory.root, tmp_path / "out")
    log = SqliteLog.open(sample.database)
    append_one(log, ProtocolViolated(turn=0, kind="k", detail="d"))
    with pytest.raises(Unfinished, match="the checkpoint is in the database"):
        Checkpointer(sample.directory).sign(log)
    assert [size for size, _ in log.checkpoints()] == [1, 11, 21, 31, 32]
    log.close()


@pytest.mark.parametrize("name", INSTEAD)
def test_in_place_of_the_frontier(sample: SampleLedger, name: str) -> None:
    """It needs no trust: it is made again."""
    frontier = sample.log_file.with_suffix(".frontier")
    put(name, frontier)
    sample.grow(1)
    assert exit_status(verify(sample.directory.root)) == 0
    assert frontier.is_file() or frontier.is_dir()


@pytest.mark.parametrize("name", INSTEAD)
@pytest.mark.parametrize("file", ["records.jsonl", "checkpoints.log"])
def test_in_an_export(sample: SampleLedger, tmp_path: Path, file: str, name: str) -> None:
    folder = tmp_path / "out"
    export(sample.directory.root, folder)
    put(name, folder / file)
    report = verify(folder, options=Options(key=str(sample.key), require="self"))
    code = "DB_CORRUPT" if file == "records.jsonl" else "SIG_BAD"
    assert (code, None) in [(f.code, f.seq) for f in report.findings]
    assert exit_status(report) == 3
    with pytest.raises(Refused, match="not a file"):
        import_ledger(folder, tmp_path / "in")
    with pytest.raises(Integrity, match="not a file"):
        export(folder, tmp_path / "again")
    assert sorted(os.listdir(tmp_path)) == ["home", "out", "study"]


def test_an_artifact_that_is_longer_than_its_content_can_be_is_not_copied(
    sample: SampleLedger, tmp_path: Path
) -> None:
    """A file of a terabyte that takes no room: copying it would fill the disk."""
    path = sample.artifact_of(12)
    os.truncate(path, 1 << 40)
    moved = export(sample.directory.root, tmp_path / "out")
    assert moved.altered == (path.name,)
    assert not list((tmp_path / "out" / "artifacts").rglob(path.name))
