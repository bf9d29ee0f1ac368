"""A small ledger to verify, export and attack; loaded by the conftest of both test folders.

31 records: ``ledger.created``, then six times a request (1 + 5n), a tool call with two artifacts
(2 + 5n), a violation (3 + 5n), a parsed answer (4 + 5n) and the completion (5 + 5n). Checkpoints
cover 1, 11, 21 and 31 records. The last tool call's arguments are erasable.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ledger.artifacts import Artifacts
from ledger.chain import leaf_hash
from ledger.checkpoint import Checkpoint, Checkpointer, parse_checkpoint, sign_checkpoint
from ledger.creation import create_ledger
from ledger.last_seen import remember_ledger
from ledger.log import Batch, NewEvent
from ledger.merkle import tree_root
from ledger.record_source import all_notes, read_checkpoint_log
from ledger.signing_keys import (
    CONFIG_HOME_VARIABLE,
    SigningKey,
    VerifierKey,
    load_or_create_signing_key,
)
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.commands import AdvanceCell
from schemas.events.cell import AnswerParsed, ProtocolViolated, ToolCalled
from schemas.events.command import CommandCompleted, CommandRequested

SIZES = (1, 11, 21, 31)
COLUMNS = 'id, type, stream, version, at, actor, cause, "index", run'

Edit = Callable[[dict[str, Any]], dict[str, Any]]


class SampleLedger:
    """A study directory, the configuration folder of its owner, and means to tamper with both."""

    def __init__(self, root: Path, home: Path) -> None:
        self.home = home
        self.directory = StudyDirectory(root)
        self.database = self.directory.ledger
        self.log_file = self.directory.checkpoints

    @property
    def signing_key(self) -> SigningKey:
        return load_or_create_signing_key(self.home)

    @property
    def origin(self) -> str:
        return parse_checkpoint(self.notes()[0]).checkpoint.origin

    @property
    def key(self) -> VerifierKey:
        return self.signing_key.verifier(self.origin)

    def copy(self, to: Path) -> "SampleLedger":
        """A copy of everything, known to its owner under the new path. What was seen when the
        original was signed is forgotten: each test says what its verifier has seen before."""
        key = self.key
        shutil.copytree(self.directory.root, to / "study", symlinks=True)
        shutil.copytree(self.home, to / "home", ignore=shutil.ignore_patterns("last-seen"))
        copy = SampleLedger(to / "study", to / "home")
        remember_ledger(copy.home, copy.database, key)
        return copy

    def notes(self) -> list[bytes]:
        return all_notes([], read_checkpoint_log(self.log_file))

    def records(self) -> list[bytes]:
        with self.connected() as connection:
            rows = connection.execute("SELECT record FROM records ORDER BY seq").fetchall()
        return [row[0] for row in rows]

    def grow(self, events: int = 1, sign: bool = True) -> None:
        """Append more records by the program itself."""
        log = SqliteLog.open(self.database)
        for number in range(events):
            append_one(log, ProtocolViolated(turn=number, kind="later", detail="grown"))
        if sign:
            Checkpointer(self.directory).sign(log)
        log.close()

    # --- tampering -------------------------------------------------------------------------------

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.database, isolation_level=None)
        try:
            yield connection
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()

    @contextmanager
    def tampering(self) -> Iterator[sqlite3.Connection]:
        """A connection without triggers; they are put back afterwards, to the letter."""
        with self.connected() as connection:
            triggers = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            connection.execute("BEGIN")
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            yield connection
            for _, sql in triggers:
                connection.execute(sql)
            connection.execute("COMMIT")

    def rewrite(self, edits: dict[int, Edit | bytes], chained: bool = True) -> None:
        """Change records and everything that follows from them: links, leaves, columns.

        An edit is a function of the decoded record, or the new ``data`` as bytes. Without
        ``chained`` only the edited records change, their leaf column included.
        """
        with self.tampering() as connection:
            rows = connection.execute("SELECT seq, record FROM records ORDER BY seq").fetchall()
            leaf: bytes | None = None
            for seq, record in rows:
                if seq in edits or (leaf is not None and chained):
                    record = _edited(record, edits.get(seq), leaf if chained else None)
                    leaf = leaf_hash(record)
                    store(connection, seq, record)

    def sign_again(self, key: SigningKey | None = None, sizes: tuple[int, ...] = SIZES) -> None:
        """Replace every checkpoint by one over the records that are there now."""
        origin = self.origin
        leaves = [leaf_hash(record) for record in self.records()]
        notes = [
            sign_checkpoint(
                Checkpoint(origin, size, tree_root(leaves[:size])), key or self.signing_key
            )
            for size in sizes
        ]
        with self.connected() as connection:
            connection.execute("DELETE FROM checkpoints")
            connection.executemany(
                "INSERT INTO checkpoints VALUES (?, ?)", zip(sizes, notes, strict=True)
            )
        self.log_file.write_bytes(b"".join(note + b"\n" for note in notes))

    def artifact_of(self, seq: int, field: str = "result") -> Path:
        digest = msgspec.json.decode(self.records()[seq])["data"][field]["digest"]
        return self.directory.artifacts / digest[:2] / digest


def _edited(record: bytes, edit: Edit | bytes | None, leaf: bytes | None) -> bytes:
    fields = msgspec.json.decode(record)
    if leaf is not None:
        fields["prev"] = leaf.hex()
    data = msgspec.Raw(msgspec.json.encode(fields["data"]))
    if isinstance(edit, bytes):
        data = msgspec.Raw(edit)
    elif edit is not None:
        fields = edit(fields)
        data = msgspec.Raw(msgspec.json.encode(fields["data"]))
    return msgspec.json.encode({**fields, "data": data})


def store(connection: sqlite3.Connection, seq: int, record: bytes) -> None:
    """Put a record, its leaf and its columns into a row that is there."""
    fields = msgspec.json.decode(record)
    names = ("id", "type", "stream", "version", "at", "actor", "cause", "index", "run")
    columns = ", ".join(f'"{name}" = ?' for name in names)
    connection.execute(
        f"UPDATE records SET record = ?, leaf = ?, {columns} WHERE seq = ?",
        (record, leaf_hash(record), *(fields[name] for name in names), seq),
    )


def append_one(log: SqliteLog, event: Any, stream: str = "cell/notes") -> str:
    """Append one event that a person caused; returns its id."""
    stored = log.append(Batch(events=[NewEvent(stream, event)], actor="operator", run="run-1"))
    return stored[0].envelope().id


def make_sample(root: Path, home: Path) -> SampleLedger:
    """Make the ledger with its own configuration folder (which the environment must name)."""
    assert os.environ[CONFIG_HOME_VARIABLE] == str(home)
    sample = SampleLedger(root / "sample", home)
    create_ledger(sample.directory)
    log = SqliteLog.open(sample.database)
    artifacts = Artifacts(sample.directory.artifacts)
    for n in range(6):
        cell = f"R001-00{n}/H000/M001/0"
        request = CommandRequested(role="cell", command=AdvanceCell(cell=cell))
        command = append_one(log, request, "role/cell")
        arguments = artifacts.put(
            f'{{"path":"src/module_{n}.py"}}'.encode(), "application/json", erasable=n == 5
        )
        result = artifacts.put(f"def function_{n}(): ...\n".encode() * 40, "text/x-python")
        stream = f"cell/{cell}"
        log.append(
            Batch(
                events=[
                    NewEvent(
                        stream,
                        ToolCalled(
                            turn=0,
                            number=0,
                            tool="read_file",
                            arguments=arguments,
                            result=result,
                            ok=True,
                        ),
                    ),
                    NewEvent(stream, ProtocolViolated(turn=0, kind="unknown_tool", detail="rm")),
                    NewEvent(
                        stream,
                        AnswerParsed(turn=0, calls=1, rejected=1, salvage="native", cut=False),
                    ),
                    NewEvent(f"command/{command}", CommandCompleted(command=command)),
                ],
                actor="cell",
                run="run-1",
                cause=command,
            )
        )
        if n in (1, 3, 5):
            Checkpointer(sample.directory).sign(log)
    log.close()
    for shard in sample.directory.artifacts.iterdir():
        if not any(shard.iterdir()):
            shard.rmdir()  # 256 folders would make the many copies slow
    return sample
