"""As many events as a large study has, from eight processes, through every command that reads them
all; each in a process of its own, whose memory is measured."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ledger.checkpoint import CHECKPOINT_INTERVAL
from ledger.creation import create_ledger
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from tests.projections.tiny_study import STUDY_TOML

WRITERS = 8
ALLOWED_MIB = 200
ALLOWED_WAL = 64 << 20
"""SQLite moves 4 MB at a time; what may come on top is what is written while one reads a page."""
SAMPLE = 2_000


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which keeps the last three: this is gigabytes."""
    with tempfile.TemporaryDirectory(prefix="ledger-load-") as name:
        yield Path(name)


MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command and writes down the memory that it held at most. A process of its own, because
what Linux counts begins with what the process held that a program was started from, and a long test
session holds hundreds of MiB."""


def ledger(*arguments: object) -> tuple[dict[str, object], float]:
    """Run a command: (what it printed as JSON, MiB that it held at most)."""
    with tempfile.NamedTemporaryFile(prefix="ledger-load-") as measured:
        command = [sys.executable, "-c", MEASURE, measured.name, sys.executable, "-m", "ledger"]
        command += [*map(str, arguments), "--json"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        # An imported ledger is anchored by what its reader has kept, and here that is nothing.
        assert ran.returncode in (0, 4), ran.stdout[-2000:]
        highest = int(measured.read())
    return msgspec.json.decode(ran.stdout), highest / (
        1 << 20 if sys.platform == "darwin" else 1 << 10
    )


def read_on(log: SqliteLog, writers: list[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """Read slowly from record 0 while the others write: (records read, longest WAL in bytes)."""
    wal = log.path.with_name(f"{log.path.name}-wal")
    read = longest = 0
    for stored in log.read():
        assert stored.seq == read
        read += 1
        if read % 1_000 == 1:
            longest = max(longest, wal.stat().st_size)
            time.sleep(0.01)
        if all(writer.poll() is not None for writer in writers):
            break
    return read, longest


def fill_and_use(
    folder: Path, events: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """MiB by command."""
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(folder / "home"))
    study = folder / "study"
    directory = StudyDirectory(study)
    create_ledger(directory)
    directory.toml.write_text(STUDY_TOML)
    script = Path(__file__).with_name("writer.py")
    each = events // processes
    writers = [
        subprocess.Popen([sys.executable, str(script), str(study), str(number), str(each)])
        for number in range(processes)
    ]
    with closing(SqliteLog.open(directory.ledger)) as log:
        read = longest = 0
        while any(writer.poll() is None for writer in writers):
            count, wal = read_on(log, writers)
            read, longest = max(read, count), max(longest, wal)
        assert [writer.wait() for writer in writers] == [0] * processes
        head = log.head()
        assert head is not None
        written = head.seq + 1
        # Beside the events: the record that creates the ledger, and a command for each process.
        assert written == 1 + (each + 1) * processes
        assert log.stream_version("cell/R000-001/H000/M001/0") == min(each, 120)
        assert len(log.checkpoints()) >= written // CHECKPOINT_INTERVAL
        assert read > 0
        assert 0 < longest < ALLOWED_WAL
    print(f"{read} records read while {written} were written; WAL of at most {longest} bytes")
    memory = {}
    report, memory["verify"] = ledger("verify-chain", "--study", study)
    assert (report["status"], report["events"], report["findings"]) == ("verified", written, [])
    _, memory["replay"] = ledger("replay", "--study", study)
    _, memory["export"] = ledger("export", "--study", study, folder / "bundle")
    lines = 0
    with open(folder / "bundle" / "records.jsonl", "rb") as file:
        lines = sum(1 for _ in file)
    assert lines == written
    # The import verifies every byte of the bundle, so that is measured with it.
    _, memory["import"] = ledger("import", folder / "bundle", folder / "received")
    report, memory["verify what was imported"] = ledger(
        "verify-chain", "--study", folder / "received"
    )
    assert (report["events"], report["findings"]) == (written, [])
    return memory


def test_a_sample_of_the_events_comes_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = fill_and_use(folder, SAMPLE, 2, monkeypatch)
    assert max(memory.values()) < ALLOWED_MIB, memory


@pytest.mark.slow
def test_a_million_events_come_through_in_constant_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    memory = fill_and_use(folder, request.config.getoption("--load-events"), WRITERS, monkeypatch)
    print({name: round(mib) for name, mib in memory.items()})
    assert max(memory.values()) < ALLOWED_MIB, memory
