"""Replay: reading, decoding and folding every record against a bare msgspec decode.

The bare loop reads the record column with `sqlite3` and decodes each record to dictionaries. The
replay reads through the log (pages, no gap), decodes the envelope and then the event by its type,
and folds: it counts tool calls and the paths they showed, by cell.

Usage: python tests/benchmarks/bench_replay.py [--records N] [--rounds N] [--json]
"""

import argparse
import json
import sqlite3
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import msgspec
from common import describe_machine, interleave

from ledger.log import Batch, Fact, NewEvent, decode
from ledger.sqlite_log import SqliteLog
from projections.fold import fold
from schemas.base import ArtifactRef, Event
from schemas.events.cell import BudgetCharged, ToolCalled, TurnStarted

TARGET = 0.5
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


def replay(path: Path) -> float:
    with closing(SqliteLog.open_read_only(path)) as log:
        begin = time.perf_counter()
        state = fold(ToolCalls(), map(decode, log.read()))
        seconds = time.perf_counter() - begin
    assert state.calls.total() > 0
    return seconds


def bare(path: Path) -> float:
    with closing(sqlite3.connect(path)) as connection:
        decoder = msgspec.json.Decoder()
        begin = time.perf_counter()
        for (record,) in connection.execute("SELECT record FROM records ORDER BY seq"):
            decoder.decode(record)
        return time.perf_counter() - begin


def peak_bytes(path: Path) -> int:
    """Most memory that a replay of this log holds at once."""
    tracemalloc.start()
    replay(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
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
    rates = {name: arguments.records / value for name, value in seconds.items()}
    if arguments.json:
        result = {"machine": machine, "events_per_second": rates, "memory_of_4_times": growth}
        print(json.dumps(result, indent=2))
        return
    print(f"replay of {arguments.records:,} records; {machine}")
    print(
        f"{rates['replay']:,.0f} events/s, {rates['replay'] / rates['bare']:.2f} of a bare decode "
        f"(target {TARGET}); four times the records take {growth:.2f} times the memory"
    )


if __name__ == "__main__":
    main()
