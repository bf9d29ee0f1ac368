"""A turn costs at most 14 durable syncs: artifacts, started, answered, tool results, commits."""

from pathlib import Path

import msgspec
import pytest

import ledger.atomic_file
from actors.loop import Context, perform, request
from actors.model_server import ModelServerActor
from actors.model_turns import ModelRequest
from actors.rehearsal.stand_in_chat import Call, Turn
from actors.rehearsal.stand_in_server import StandInServer
from actors.repair.kind import REPAIR
from actors.servers.lmstudio import LMStudio
from ledger.artifacts import Artifacts
from ledger.log import Claim
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.commands import AskModel, EnsureResident
from tests.actors.test_model_server import CELL, STUDY, client, lms, stand_in

__all__ = ["client", "lms", "stand_in"]  # fixtures

TURN_SYNCS = 14
# What the cell's step adds to the model server's: its request, then arguments and result of one
# tool call, two syncs each, and its own append.
CELL_SYNCS = 3 * 2 + 1


def test_the_model_servers_half_leaves_room_for_the_cells(
    tmp_path: Path,
    client: LMStudio,
    stand_in: StandInServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = StudyDirectory(tmp_path / "study")
    log = SqliteLog.create(directory.ledger)
    context = Context(log, Artifacts(directory.artifacts), directory, "run-1")
    context.artifacts.put(b"the first put of a process makes the folders", "text/plain")
    actor = ModelServerActor(STUDY, client, REPAIR.advance)
    handlers = {EnsureResident: actor.ensure_resident, AskModel: actor.ask_model}

    def take() -> Claim:
        claim = log.claim(["model_server"], 60.0)
        assert claim is not None
        return claim

    request(context, EnsureResident(model="M002", cell=CELL))
    perform(context, take(), handlers)

    asked = ModelRequest(
        messages=[{"role": "user", "content": "hello"}],
        tools=[],
        temperature=0.0,
        top_p=1.0,
        seed=0,
        max_tokens=256,
        reasoning="on",
    )
    stored = context.artifacts.put(msgspec.json.encode(asked), "application/json")
    request(context, AskModel(cell=CELL, turn=0, model="M002", request=stored))
    stand_in.script.append(Turn(calls=[Call(name="submit", arguments="{}")]))

    syncs: list[str] = []
    sync = ledger.atomic_file.sync  # the only place that syncs files and folders

    def counted_sync(descriptor: int) -> None:
        syncs.append("sync")
        sync(descriptor)

    monkeypatch.setattr(ledger.atomic_file, "sync", counted_sync)
    append = SqliteLog.append

    def counted_append(self: SqliteLog, batch: object) -> object:
        syncs.append("append")
        return append(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteLog, "append", counted_append)
    perform(context, take(), handlers)
    log.close()
    assert syncs.count("append") == 2  # started; answered with acknowledgement and next command
    assert syncs.count("sync") == 4  # the raw stream and what it says, each with its folder
    assert len(syncs) + CELL_SYNCS <= TURN_SYNCS
