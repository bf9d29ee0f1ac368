"""One of the processes that fill a ledger: events of its own cells, each commit durable and signed
at every interval, as an actor writes them.

Usage: python tests/load/writer.py STUDY NUMBER EVENTS
"""

import sys
from pathlib import Path

from ledger.artifacts import Artifacts
from ledger.checkpoint import CHECKPOINT_INTERVAL, Checkpointer
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.base import ArtifactRef, Event
from schemas.commands import AdvanceCell
from schemas.events.cell import BudgetCharged, ToolCalled, TurnStarted
from schemas.events.command import CommandRequested

BATCH = 100
EVENTS_A_CELL = 120


def event(number: int, ref: ArtifactRef) -> Event:
    turn = number // 3
    match number % 3:
        case 0:
            return TurnStarted(turn=turn, attempt=0, request=ref, instance="instance")
        case 1:
            return BudgetCharged(kind="turn", used=turn + 1, limit=EVENTS_A_CELL)
        case _:
            return ToolCalled(
                turn=turn,
                number=turn,
                tool="read_file",
                arguments=ref,
                result=ref,
                ok=True,
                shown=("src/package/module.py",),
            )


def write(study: Path, number: int, events: int) -> None:
    directory = StudyDirectory(study)
    log = SqliteLog.open(directory.ledger)
    checkpointer = Checkpointer(directory)
    ref = Artifacts(directory.artifacts).put(b"def f(): ...\n" * 99, "text/x-python")
    advance = AdvanceCell(cell=f"R{number:03}-001/H000/M001/0")
    request = NewEvent("role/cell", CommandRequested(role="cell", command=advance))
    cause = log.append(Batch(events=[request], actor="scheduler", run="r"))[0].envelope().id
    versions: dict[str, int] = {}
    for first in range(0, events, BATCH):
        new, expected = [], {}
        for place in range(first, min(first + BATCH, events)):
            stream = f"cell/R{number:03}-001/H000/M001/{place // EVENTS_A_CELL}"
            expected.setdefault(stream, versions.get(stream, 0))
            versions[stream] = versions.get(stream, 0) + 1
            new.append(NewEvent(stream, event(place % EVENTS_A_CELL, ref)))
        batch = Batch(
            events=new, actor="cell", run="r", cause=cause, first_index=first, expected=expected
        )
        stored = log.append(batch)
        if stored[0].seq // CHECKPOINT_INTERVAL < (stored[-1].seq + 1) // CHECKPOINT_INTERVAL:
            checkpointer.sign(log)
    log.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
