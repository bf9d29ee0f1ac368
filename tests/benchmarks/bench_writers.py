"""Eight processes that append at once: does each get on, and how long does one wait?

Beside the log, the same table without the lock file: there SQLite's busy handler lets a process
starve, because whoever comes back first gets in.

Usage: python tests/benchmarks/bench_writers.py [--writers N] [--seconds S] [--json]
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import describe_machine

from ledger.clock import new_id
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from schemas.events.cell import BudgetCharged

BATCH = 20
LONGEST_WAIT = 0.5
"""Seconds, at 10,000 events a second on an idle machine."""


def appender(path: Path) -> Callable[[], None]:
    log = SqliteLog.open(path)
    cause = new_id()
    new = [NewEvent("cell/a", BudgetCharged(kind="turn", used=1, limit=2))] * BATCH
    appended = 0

    def append() -> None:
        nonlocal appended
        log.append(Batch(events=new, actor="c", run="r", cause=cause, first_index=appended))
        appended += BATCH

    return append


def inserter(path: Path) -> Callable[[], None]:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA synchronous = FULL")
    rows = [(b"x" * 400,)] * BATCH

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO events (data) VALUES (?)", rows)
        connection.execute("COMMIT")

    return insert


def work(path: Path, seconds: float) -> None:
    """In a child: append until the time is over; print how many events and the longest append."""
    append = appender(path) if path.name == "ledger.db" else inserter(path)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    count, longest = 0, 0.0
    while time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        append()
        longest = max(longest, time.perf_counter() - before)
        count += BATCH
    print(json.dumps({"events": count, "longest": longest}))


def race(path: Path, writers: int, seconds: float) -> dict[str, float]:
    arguments = [sys.executable, __file__, "--work", str(path), "--seconds", str(seconds)]
    children = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(writers)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("start\n")
        child.stdin.flush()
    results = [json.loads(child.communicate()[0]) for child in children]
    counts = [result["events"] for result in results]
    return {
        "events_per_second": sum(counts) / seconds,
        "slowest_of_fastest": min(counts) / max(counts),
        "longest_wait_seconds": max(result["longest"] for result in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.seconds)
        return
    with tempfile.TemporaryDirectory() as name:
        machine = describe_machine(Path(name))
        log_path, bare_path = Path(name) / "ledger.db", Path(name) / "bare.db"
        SqliteLog.create(log_path).close()
        bare = sqlite3.connect(bare_path)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        bare.close()
        results = {
            "log": race(log_path, arguments.writers, arguments.seconds),
            "without lock file": race(bare_path, arguments.writers, arguments.seconds),
        }
    if arguments.json:
        print(json.dumps({"machine": machine, **results}, indent=2))
        return
    print(f"{arguments.writers} writing processes, {BATCH} events a commit; {machine}")
    print(f"{'':<18}{'events/s':>10}{'slowest/fastest':>17}{'longest wait':>14}")
    for name, row in results.items():
        print(
            f"{name:<18}{row['events_per_second']:>10,.0f}{row['slowest_of_fastest']:>17.2f}"
            f"{row['longest_wait_seconds']:>12.2f} s"
        )
    print(f"target: every process gets on, longest wait {LONGEST_WAIT} s on an idle machine")


if __name__ == "__main__":
    main()
