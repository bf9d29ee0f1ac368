"""Durable appends: the log against a bare SQLite table, PyPI `eventsourcing` and a raw file.

Every contender starts from event objects whose data are 400 bytes of JSON and ends with a durable
commit for each batch (WAL, synchronous=FULL). The bare table has two columns and stores the JSON.
`eventsourcing` maps its domain events with its JSON transcoder and writes them with its SQLite
recorder; `recorder` is that recorder alone, given bytes, as `statements` is the log's SQL alone,
given rows. The log checks that every event reads back, links it into the chain, and keeps two
unique indices and a trigger.

Usage: python tests/benchmarks/bench_append.py [--directory DIR] [--rounds N] [--json]
"""

import argparse
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from common import Seconds, Stopwatch, describe_machine, interleave, rates
from eventsourcing.domain import DomainEvent
from eventsourcing.persistence import (
    DatetimeAsISO,
    JSONTranscoder,
    Mapper,
    StoredEvent,
)
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from ledger.clock import now_us
from ledger.codec import encode_data
from ledger.log import Batch, Head, NewEvent, draft_batch
from ledger.sqlite.log import SqliteLog, insert
from schemas.base import ArtifactRef
from schemas.events.cell import ToolCalled

DATA_BYTES = 400
STREAM = "cell/R001-001/H000/M001/0"
CAUSE = "01980f3e-7c00-7000-8000-000000000000"

BATCHES = {1: 60, 100: 10, 1000: 3}
"""Events a commit, and commits a round."""

TARGETS = {1: 0.8, 100: 0.35, 1000: 0.3}
"""Of the bare table's rate."""

Contender = Callable[[int, int], Seconds]
"""(events a commit, commits) -> seconds."""


def make_event(number: int, padding: int = 0) -> ToolCalled:
    ref = ArtifactRef(digest="5e" * 32, length=4711, media_type="text/plain")
    return ToolCalled(
        turn=3,
        number=number,
        tool="read_file",
        arguments=ref,
        result=ref,
        ok=True,
        shown=("p" * padding,),
    )


def make_events(count: int) -> list[ToolCalled]:
    """Different events, each of about DATA_BYTES."""
    padding = DATA_BYTES - len(encode_data(make_event(0)))
    return [make_event(number, padding) for number in range(count)]


def log_contender(directory: Path) -> Contender:
    log = SqliteLog.create(directory / "ledger.db")
    appended = 0

    def run(size: int, commits: int) -> Seconds:
        nonlocal appended
        batches = []
        for _ in range(commits):
            new = [NewEvent(STREAM, event) for event in make_events(size)]
            batches.append(
                Batch(events=new, actor="cell", run="bench", cause=CAUSE, first_index=appended)
            )
            appended += size
        watch = Stopwatch()
        for batch in batches:
            log.append(batch)
        return watch.read()

    return run


def statements_contender(directory: Path) -> Contender:
    """What SQLite does of an append and nothing else: rows that were made before, a commit."""
    path = directory / "statements.db"
    SqliteLog.create(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    head: Head | None = None
    appended = 0

    def run(size: int, commits: int) -> Seconds:
        nonlocal head, appended
        batches = []
        for _ in range(commits):
            new = [NewEvent(STREAM, event) for event in make_events(size)]
            batch = Batch(events=new, actor="cell", run="bench", cause=CAUSE, first_index=appended)
            drafts = draft_batch(batch, head, "", {STREAM: appended}, now_us())
            head = Head(drafts[-1].stored.seq, drafts[-1].stored.leaf)
            appended += size
            batches.append(drafts)
        watch = Stopwatch()
        for drafts in batches:
            connection.execute("BEGIN IMMEDIATE")
            insert(connection, drafts)
            connection.execute("COMMIT")
        return watch.read()

    return run


def bare_contender(directory: Path) -> Contender:
    connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    encode = msgspec.json.Encoder().encode

    def run(size: int, commits: int) -> Seconds:
        batches = [make_events(size) for _ in range(commits)]
        watch = Stopwatch()
        for batch in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO events (data) VALUES (?)", ((encode(event),) for event in batch)
            )
            connection.execute("COMMIT")
        return watch.read()

    return run


@dataclass(frozen=True)
class ToolCalledThere(DomainEvent):
    """The same event in the shape that `eventsourcing` takes."""

    data: dict[str, Any]


def eventsourcing_contender(directory: Path, encoded: bool) -> Contender:
    """With ``encoded``, its recorder alone."""
    name = "recorder.db" if encoded else "eventsourcing.db"
    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(directory / name)))
    recorder.create_table()
    transcoder = JSONTranscoder()
    transcoder.register(DatetimeAsISO())
    mapper: Mapper[UUID] = Mapper(transcoder)
    originator = UUID(int=1)
    version = 0

    def run(size: int, commits: int) -> Seconds:
        nonlocal version
        batches = []
        for _ in range(commits):
            batches.append(
                [
                    ToolCalledThere(
                        originator_id=originator,
                        originator_version=version + number,
                        timestamp=ToolCalledThere.create_timestamp(),
                        data=msgspec.to_builtins(event),
                    )
                    for number, event in enumerate(make_events(size))
                ]
            )
            version += size
        stored: list[list[StoredEvent]] = []
        if encoded:
            stored = [[mapper.to_stored_event(event) for event in batch] for batch in batches]
        watch = Stopwatch()
        for number, batch in enumerate(batches):
            recorder.insert_events(
                stored[number] if encoded else [mapper.to_stored_event(event) for event in batch]
            )
        return watch.read()

    return run


def file_contender(directory: Path) -> Contender:
    """Lines in a file, one fdatasync a commit: what the disk allows."""
    descriptor = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    encode = msgspec.json.Encoder().encode_lines
    sync = getattr(os, "fdatasync", os.fsync)

    def run(size: int, commits: int) -> Seconds:
        batches = [make_events(size) for _ in range(commits)]
        watch = Stopwatch()
        for batch in batches:
            os.write(descriptor, encode(batch))
            sync(descriptor)
        return watch.read()

    return run


def measure(directory: Path, rounds: int) -> dict[int, dict[str, dict[str, float]]]:
    """Events a second, by batch size, clock and contender."""
    contenders = {
        "log": log_contender(directory),
        "statements": statements_contender(directory),
        "bare": bare_contender(directory),
        "eventsourcing": eventsourcing_contender(directory, encoded=False),
        "recorder": eventsourcing_contender(directory, encoded=True),
        "file": file_contender(directory),
    }

    def turn(run: Contender, size: int) -> Callable[[], Seconds]:
        return lambda: run(size, BATCHES[size])

    return {
        size: rates(
            interleave({name: turn(run, size) for name, run in contenders.items()}, rounds),
            size * commits,
        )
        for size, commits in BATCHES.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        machine = describe_machine(Path(name))
        measured = measure(Path(name), arguments.rounds)
    if arguments.json:
        print(json.dumps({"machine": machine, "events_per_second": measured}, indent=2))
        return
    print(f"durable append of {DATA_BYTES}-byte events; {machine}")
    for clock in Seconds._fields:
        others = [name for name in measured[1][clock] if name != "log"]
        heading = "".join(f"{'/ ' + name:>16}" for name in others)
        print(f"{clock:>5}  events/s {heading}  target / bare")
        for size, row in measured.items():
            ratios = "".join(f"{row[clock]['log'] / row[clock][name]:>16.2f}" for name in others)
            print(f"{size:>5} {row[clock]['log']:>9,.0f} {ratios}{TARGETS[size]:>15.2f}")


if __name__ == "__main__":
    main()
