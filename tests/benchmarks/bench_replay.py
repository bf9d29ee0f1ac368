"""Replay: reading, decoding and folding every record against a bare msgspec decode.

The bare loop reads the record column with `sqlite3` and decodes each record to dictionaries. The
replay reads through the log (pages, no gap), decodes the envelope and then the event by its type,
and folds: it counts tool calls and the paths they showed, by cell.

The projections are all of the product's, over a study of ``--cells`` cells in memory: folded there,
and made into SQLite files as `ledger replay` does.

Usage: python tests/benchmarks/bench_replay.py [--records N] [--cells N] [--rounds N] [--json]
"""

import argparse
import json
import sqlite3
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))
from common import Seconds, Stopwatch, describe_machine, interleave, rates

from ledger.artifacts import Artifacts
from ledger.log import Batch, EventLog, Fact, NewEvent, decode
from ledger.memory_log import MemoryLog
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from projections import store
from projections.fold import Follower, fold
from projections.registry import PROJECTIONS
from schemas.base import ArtifactRef, Event
from schemas.events.cell import BudgetCharged, ToolCalled, TurnStarted
from schemas.identifiers import CellId
from tests.projections.tiny_study import TinyStudy

TARGET = 0.5
TARGET_INTO_SQLITE = 0.25
BATCH = 500


class ToolCalls:
    """What the replay folds into."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (ToolCalled,)

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.shown: Counter[str] = Counter()

    def apply(self, fact: Fact) -> None:
        if isinstance(fact.event, ToolCalled):
            self.calls[fact.stream] += 1
            self.shown[fact.stream] += len(fact.event.shown)


def events(count: int) -> Iterator[NewEvent]:
    """One turn after the other: a request, a charge, a tool call."""
    ref = ArtifactRef(digest="5e" * 32, length=4711, media_type="application/json")
    for number in range(count):
        turn = number // 3 % 40
        event: Event
        match number % 3:
            case 0:
                event = TurnStarted(turn=turn, attempt=0, request=ref, instance="instance")
            case 1:
                event = BudgetCharged(kind="turn", used=turn + 1, limit=40)
            case _:
                event = ToolCalled(
                    turn=turn,
                    number=turn,
                    tool="read_file",
                    arguments=ref,
                    result=ref,
                    ok=True,
                    shown=("src/package/module.py",),
                    opened=("src/package/module.py",),
                )
        yield NewEvent(f"cell/R001-{number // 120 % 1000:03d}/H000/M001/0", event)


def fill(path: Path, count: int) -> None:
    log = SqliteLog.create(path)
    source = events(count)
    for first in range(0, count, BATCH):
        new = [event for _, event in zip(range(BATCH), source, strict=False)]
        log.append(Batch(events=new, actor="c", run="r", cause="bench", first_index=first))
    log.close()


def replay(path: Path) -> Seconds:
    with closing(SqliteLog.open_read_only(path)) as log:
        watch = Stopwatch()
        state = fold(ToolCalls(), map(decode, log.read()))
        seconds = watch.read()
    assert state.calls.total() > 0
    return seconds


def bare(path: Path) -> Seconds:
    with closing(sqlite3.connect(path)) as connection:
        decoder = msgspec.json.Decoder()
        watch = Stopwatch()
        for (record,) in connection.execute("SELECT record FROM records ORDER BY seq"):
            decoder.decode(record)
        return watch.read()


def peak_bytes(path: Path) -> int:
    """Most memory that a replay of this log holds at once."""
    tracemalloc.start()
    replay(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def study_of(root: Path, cells: int) -> TinyStudy:
    """A finished study in memory."""
    ids = [CellId(unit="R001-001", arm="H000", agent="M002", repeat=n) for n in range(cells)]
    study = TinyStudy(root, MemoryLog(), ids)
    study.write_everything([number % 3 == 0 for number in range(cells)])
    return study


def in_memory(directory: StudyDirectory, log: EventLog) -> Seconds:
    read = Artifacts(directory.artifacts).get
    watch = Stopwatch()
    Follower(log, *[make(read) for make in PROJECTIONS.values()]).catch_up()
    return watch.read()


def into_sqlite(directory: StudyDirectory, log: EventLog) -> Seconds:
    watch = Stopwatch()
    store.rebuild(directory, log).close()
    return watch.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        machine = describe_machine(Path(name))
        path, short = Path(name) / "ledger.db", Path(name) / "short.db"
        fill(path, arguments.records)
        fill(short, arguments.records // 4)
        contenders = {"replay": lambda: replay(path), "bare": lambda: bare(path)}
        seconds = interleave(contenders, arguments.rounds)
        growth = peak_bytes(path) / peak_bytes(short)
        study = study_of(Path(name) / "study", arguments.cells)
        projected = interleave(
            {
                "in memory": lambda: in_memory(study.directory, study.log),
                "into SQLite": lambda: into_sqlite(study.directory, study.log),
            },
            arguments.rounds,
        )
        head = study.log.head()
        assert head is not None
    result = {
        "machine": machine,
        "events_per_second": rates(seconds, arguments.records),
        "projected_per_second": rates(projected, head.seq + 1),
        "memory_of_4_times": growth,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"replay of {arguments.records:,} records; {machine}")
    for clock in Seconds._fields:
        plain = rates(seconds, arguments.records)[clock]
        made = rates(projected, head.seq + 1)[clock]
        print(
            f"{clock}: {plain['replay']:,.0f} events/s, {plain['replay'] / plain['bare']:.2f} of a "
            f"bare decode (target {TARGET}); into SQLite "
            f"{made['into SQLite'] / made['in memory']:.2f} of the fold in memory (target "
            f"{TARGET_INTO_SQLITE})"
        )
    print(f"four times the records take {growth:.2f} times the memory")


if __name__ == "__main__":
    main()
