"""The life of a small ledger as one piece of work that can be gone on with after any fault, and
what must hold however it was interrupted.

It goes through everything that is written for good: creation, requests, leases, artifacts, appends
under a lease, checkpoints, moving the WAL into the main file, an export. What it was told is done
it tells somebody outside at once; the checks compare the disk with what was told.
"""

import contextlib
import os
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ledger import independent_verifier
from ledger.artifacts import Artifacts
from ledger.checkpoint import Checkpointer, split_notes
from ledger.creation import create_ledger
from ledger.errors import StaleVersion
from ledger.export import export
from ledger.log import FINISHES_COMMAND, Batch, NewEvent, StoredRecord, decode
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import verify
from projections import store
from projections.fold import fold
from projections.pending_commands import PendingCommands
from schemas.base import ArtifactRef
from schemas.commands import AdvanceCell
from schemas.events.cell import ProtocolViolated, ToolCalled
from schemas.events.command import CommandCompleted, CommandRequested

COMMANDS = 3
CHECKPOINT_AFTER = 0
"""Number of the command after which a root is signed; at the end another one is."""
CLOSE_AFTER = 1
"""Number of the command after which the log is closed, which moves the WAL into the main file."""
ROLE_STREAM = "role/cell"


class Told(msgspec.Struct, frozen=True, tag=True):
    """A message of the work to somebody who survives it."""


class Trying(Told, frozen=True):
    """An append of so many records begins."""

    records: int


class Appended(Told, frozen=True):
    """An append returned; or, at the beginning, what is found."""

    records: list[tuple[int, str]]
    """(seq, leaf in hexadecimal) of every record."""


class Stored(Told, frozen=True):
    artifacts: list[ArtifactRef]


class Signed(Told, frozen=True):
    note: str


class Exported(Told, frozen=True):
    records: int


class Ended(Told, frozen=True):
    """A command of the command line ended; what it printed."""

    status: int
    printed: str


class Failed(Told, frozen=True):
    """The work ended with an error; ``kind`` is its class, ``text`` what a user reads."""

    kind: str
    text: str


Message = Trying | Appended | Stored | Signed | Exported | Ended | Failed
Tell = Callable[[Message], None]


def silence(message: Message) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Place:
    """Where the work happens: a study, its user's configuration and an export side by side."""

    root: Path

    @property
    def directory(self) -> StudyDirectory:
        return StudyDirectory(self.root / "study")

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def exported(self) -> Path:
        return self.root / "export"


def cell_of(number: int) -> str:
    return f"R001-{number:03}/H000/M001/0"


def work(place: Place, tell: Tell = silence) -> None:
    """Begin, or go on where an earlier process ended. Raises what the ledger raises."""
    directory = place.directory
    tell(Trying(1))
    with contextlib.suppress(StaleVersion):  # record 0 is there
        create_ledger(directory)
    log = SqliteLog.open(directory.ledger)
    try:
        tell(Appended([(one.seq, one.leaf.hex()) for one in log.read()]))
        log.release_all()
        artifacts = Artifacts(directory.artifacts)
        for number in range(COMMANDS):
            _command(log, artifacts, number, tell)
            if number == CHECKPOINT_AFTER:
                tell(Signed(Checkpointer(directory).sign(log).decode()))
            if number == CLOSE_AFTER:
                log.close()
                log = SqliteLog.open(directory.ledger)
        tell(Signed(Checkpointer(directory).sign(log).decode()))
    finally:
        log.close()
    if not place.exported.exists():
        export(directory.root, place.exported)
    tell(Exported((place.exported / "records.jsonl").read_bytes().count(b"\n")))


def _command(log: SqliteLog, artifacts: Artifacts, number: int, tell: Tell) -> None:
    """Request and carry out one command, as far as that has not happened yet."""
    cell = cell_of(number)
    ids = {
        fact.event.command.cell: fact.id
        for fact in map(decode, log.read_stream(ROLE_STREAM))
        if isinstance(fact.event, CommandRequested) and isinstance(fact.event.command, AdvanceCell)
    }
    if cell not in ids:
        request = CommandRequested(role="cell", command=AdvanceCell(cell=cell))
        stored = _append(
            log, Batch(events=[NewEvent(ROLE_STREAM, request)], actor="operator", run="r"), tell
        )
        ids[cell] = stored[0].envelope().id
    command = ids[cell]
    done = len(log.caused_by(command))
    if done > 1:
        return
    claim = log.claim(["cell"], 30.0)
    assert claim is not None and claim.lease.command == command
    stream = f"cell/{cell}"

    def commit(first_index: int, *events: NewEvent) -> None:
        batch = Batch(
            events=events,
            actor="cell",
            run="r",
            cause=command,
            first_index=first_index,
            lease=claim.lease,
        )
        _append(log, batch, tell)

    if done == 0:
        started = ProtocolViolated(turn=0, kind="unknown_tool", detail="started")
        commit(0, NewEvent(stream, started))
    arguments = artifacts.put(b'{"path":"%d"}' % number, "application/json", erasable=True)
    tell(Stored([arguments]))
    contents = [(b"line %d\n" % number * 3000, "text/plain"), (b"the same", "text/plain")]
    results = artifacts.put_many(contents)
    tell(Stored(results))
    commit(
        1,
        *(
            NewEvent(
                stream,
                ToolCalled(
                    turn=0, number=n, tool="read_file", arguments=arguments, result=result, ok=True
                ),
            )
            for n, result in enumerate(results)
        ),
        NewEvent(f"command/{command}", CommandCompleted(command=command)),
    )
    assert log.renew(claim.lease, 30.0) is False  # what is finished is nobody's


def _append(log: SqliteLog, batch: Batch, tell: Tell) -> list[StoredRecord]:
    tell(Trying(len(batch.events)))
    stored = log.append(batch)
    tell(Appended([(one.seq, one.leaf.hex()) for one in stored]))
    return stored


# --- what must hold ------------------------------------------------------------------------------


@dataclass
class Known:
    """What somebody outside was told, over all the processes that worked."""

    records: dict[int, str] = field(default_factory=dict)
    artifacts: list[ArtifactRef] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exported: int | None = None
    in_flight: int | None = None
    """Records of an append that was begun and not acknowledged."""

    def hear(self, messages: list[Message]) -> "Known":
        for message in messages:
            match message:
                case Trying(records=records):
                    self.in_flight = records
                case Appended(records=records):
                    self.in_flight = None
                    self.records |= dict(records)
                case Stored(artifacts=artifacts):
                    self.artifacts += artifacts
                case Signed(note=note):
                    self.notes.append(note)
                case Exported(records=count):
                    self.exported = count
        return self


def check_interrupted(place: Place, known: Known) -> None:
    """What was acknowledged is there, each once and with the same bytes; of the append that was
    under way all or nothing; chain, artifacts and checkpoints verify, and a replay agrees."""
    directory = place.directory
    if place.exported.exists():
        status, said = verify_independently(place.exported)
        assert status == 0, said
        exported = (place.exported / "records.jsonl").read_bytes().count(b"\n")
        assert known.exported in (None, exported)
    else:
        assert known.exported is None
    if not directory.ledger.exists():
        assert not known.records, f"no ledger, and acknowledged was {known}"
        return
    log = SqliteLog.open(directory.ledger)
    try:
        records = list(log.read())
        leaves = {stored.seq: stored.leaf.hex() for stored in records}
        lost = known.records.items() - leaves.items()
        assert not lost, f"acknowledged and not there: {sorted(lost)} of {sorted(leaves)}"
        facts = list(map(decode, records))
        more = len(records) - len(known.records)
        assert more in (0, known.in_flight), f"{more} records that nobody was told of"
        ends = Counter(f.event.command for f in facts if isinstance(f.event, FINISHES_COMMAND))
        assert set(ends.values()) <= {1}
        for command in ends:
            events = [decode(stored).event for stored in log.caused_by(command)]
            assert sum(isinstance(event, ToolCalled) for event in events) == 2, "done, without work"
        pending = fold(PendingCommands(), facts)
        assert log.pending() == list(pending.commands)
        log.release_all()
        assert log.pending() == list(pending.commands)
        artifacts = Artifacts(directory.artifacts)
        for ref in known.artifacts:
            artifacts.get(ref)
        if known.notes:
            published, _, _ = split_notes(directory.checkpoints.read_bytes())
            assert set(known.notes) <= {note.decode() for note in published}
        if not records:
            return
        if directory.checkpoints.exists() and split_notes(directory.checkpoints.read_bytes())[2]:
            # Neither verifier may take what a crash has left of a note for a contradiction.
            status, said = verify_independently(directory.root)
            assert status == 0, said
    finally:
        log.close()
    report = verify(directory.root)
    # A creation that was interrupted before its first checkpoint is anchored nowhere.
    assert report.status in ("verified", "unanchored"), report
    assert report.status == "verified" or not known.records, report
    assert [finding for finding in report.findings if finding.severity == "violation"] == []


def check_finished(place: Place, known: Known) -> None:
    """After going on to the end: everything exactly once, verified by both verifiers, replayed."""
    check_interrupted(place, known)
    directory = place.directory
    log = SqliteLog.open(directory.ledger)
    try:
        facts = list(map(decode, log.read()))
        asked = [f.event.command for f in facts if isinstance(f.event, CommandRequested)]
        assert asked == [AdvanceCell(cell=cell_of(number)) for number in range(COMMANDS)]
        assert sum(isinstance(f.event, CommandCompleted) for f in facts) == COMMANDS
        assert sum(isinstance(f.event, ToolCalled) for f in facts) == 2 * COMMANDS
        assert sum(isinstance(f.event, ProtocolViolated) for f in facts) == COMMANDS
        assert log.pending() == []
        comparison = store.check(directory, log)
        assert comparison.differences == ()
    finally:
        log.close()
    report = verify(directory.root)
    assert (report.status, report.findings) == ("verified", ()), report
    status, said = verify_independently(directory.root)
    assert status == 0, said
    assert known.exported == len(facts)


def verify_independently(path: Path) -> tuple[int, str]:
    """(exit status, output) of the verifier that shares no code with the ledger. In a process of
    its own, because its files are closed at its end; forked, because starting one costs more."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                sys.argv = ["independent_verifier", str(path)]
                with contextlib.redirect_stdout(said):
                    runpy.run_path(str(independent_verifier.__file__), run_name="__main__")
            except SystemExit as end:
                status = int(end.code or 0)
            finally:
                said.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(ended), said.read()
