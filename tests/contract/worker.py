"""A process that works on a log, for the tests of many processes.

Usage: python worker.py PATH MODE COUNT

It prints one line of JSON for every append that was acknowledged, and only then.
"""

import json
import sys
from collections.abc import Sequence

from ledger.clock import new_id
from ledger.errors import LeaseLost, StaleVersion
from ledger.log import Batch, NewEvent, StoredRecord
from ledger.sqlite.log import SqliteLog
from schemas.events.cell import ProtocolViolated
from schemas.events.command import CommandCompleted

BATCH = 3


def note(number: int) -> NewEvent:
    return NewEvent("cell/shared", ProtocolViolated(turn=number, kind="note", detail="x" * 300))


def acknowledge(stored: Sequence[StoredRecord]) -> None:
    print(json.dumps([(record.seq, record.leaf.hex()) for record in stored]), flush=True)


def append(log: SqliteLog, count: int) -> None:
    """Batches of three under one cause."""
    cause = new_id()
    for number in range(count):
        events = [note(number)] * BATCH
        acknowledge(
            log.append(
                Batch(events=events, actor="w", run="w", cause=cause, first_index=BATCH * number)
            )
        )


def contend(log: SqliteLog, count: int) -> None:
    """Single events that each must be the next one of a stream that everybody writes to."""
    for number in range(count):
        while True:
            expected = {"cell/shared": log.stream_version("cell/shared")}
            try:
                stored = log.append(
                    Batch(events=[note(number)], actor="w", run="w", expected=expected)
                )
            except StaleVersion:
                continue
            acknowledge(stored)
            break


def deliver(log: SqliteLog, seconds: float) -> None:
    """Finish commands until none is left."""
    while (claim := log.claim(["scheduler"], seconds)) is not None:
        command = claim.lease.command
        done = NewEvent(f"command/{command}", CommandCompleted(command=command))
        try:
            stored = log.append(
                Batch(
                    events=[note(claim.attempts), done],
                    actor="w",
                    run="w",
                    cause=command,
                    lease=claim.lease,
                )
            )
        except LeaseLost:
            continue
        acknowledge(stored)


def main() -> None:
    path, mode, count = sys.argv[1:]
    log = SqliteLog.open(path)
    if mode == "append":
        append(log, int(count))
    elif mode == "contend":
        contend(log, int(count))
    else:
        deliver(log, float(count))
    log.close()


if __name__ == "__main__":
    main()
