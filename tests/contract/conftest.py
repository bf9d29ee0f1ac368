"""The logs that the contract suite runs over."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.log import EventLog, StoredRecord
from ledger.memory_log import MemoryLog
from ledger.sqlite.log import SqliteLog
from schemas.envelope import FIRST_PREV


def assert_chain(records: Sequence[StoredRecord]) -> None:
    """Dense from 0, every record linked to the one before, every stream's versions dense."""
    prev = FIRST_PREV
    versions: dict[str, int] = {}
    for position, stored in enumerate(records):
        envelope = stored.envelope()
        assert stored.seq == envelope.seq == position
        assert envelope.prev == prev
        assert stored.leaf == sha256(b"\x00" + stored.record).digest()
        assert envelope.version == versions.get(envelope.stream, 0)
        versions[envelope.stream] = envelope.version + 1
        prev = stored.leaf.hex()


class FakeClock:
    """Microseconds that move only when a test says so."""

    def __init__(self) -> None:
        self.microseconds = 1_784_367_000_000_000  # 2026-07-18T09:30:00Z

    def __call__(self) -> int:
        return self.microseconds

    def advance(self, seconds: float) -> None:
        self.microseconds += int(seconds * 1_000_000)


def open_memory(directory: Path, clock: FakeClock) -> EventLog:
    return MemoryLog(clock)


def open_sqlite(directory: Path, clock: FakeClock) -> EventLog:
    """Makes the log at the first call; a second one opens it again."""
    path = directory / "ledger.db"
    return SqliteLog.open(path, clock) if path.exists() else SqliteLog.create(path, clock)


Opener = Callable[[Path, FakeClock], EventLog]

DURABLE: Mapping[str, Opener] = {"sqlite": open_sqlite}
"""Logs that outlive their process."""

BACKENDS: Mapping[str, Opener] = {"memory": open_memory, **DURABLE}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=BACKENDS)
def event_log(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[EventLog]:
    log = BACKENDS[request.param](tmp_path, clock)
    yield log
    log.close()


@pytest.fixture(params=DURABLE)
def reopen(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[Callable[[], EventLog]]:
    """Opens the same durable log as often as it is called."""
    opened = []

    def open_again() -> EventLog:
        opened.append(DURABLE[request.param](tmp_path, clock))
        return opened[-1]

    yield open_again
    for log in opened:
        log.close()
