"""A log that is opened, used and closed again and again leaves nothing behind."""

import gc
import os
import threading
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from ledger.checkpoint import Checkpointer
from ledger.creation import create_ledger
from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import verify
from schemas.events.cell import ProtocolViolated

CYCLES = 60
BYTES_A_CYCLE = 500
"""What noise of the allocator may come to; a leaked connection is fifty times as much."""


def use(directory: StudyDirectory, number: int) -> None:
    event = ProtocolViolated(turn=number, kind="note", detail="x" * 300)
    with closing(SqliteLog.open(directory.ledger)) as log:
        checkpointer = Checkpointer(directory)
        log.append(Batch(events=[NewEvent("cell/a", event)], actor="cell", run="r"))
        checkpointer.sign(log)
    with closing(SqliteLog.open_read_only(directory.ledger)) as log:
        # A reader that stops early, with its generator half way through.
        assert next(log.read()).seq == 0
    if number % 10 == 0:
        assert verify(directory.root).status == "verified"


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_files_threads_and_memory_do_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "home"))
    directory = StudyDirectory(tmp_path / "study")
    create_ledger(directory)
    for number in range(20):
        use(directory, number)
    gc.collect()
    files, threads = open_files(), threading.active_count()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20, 20 + CYCLES):
            use(directory, number)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert open_files() == files
    assert threading.active_count() == threads
    assert after - before < CYCLES * BYTES_A_CYCLE
