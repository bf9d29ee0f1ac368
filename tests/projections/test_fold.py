"""A follower sees what a fold sees, whenever it looks."""

import msgspec
import pytest

from ledger.errors import Integrity
from ledger.log import Batch, NewEvent, StoredRecord
from projections.fold import Follower, fold
from projections.pending_commands import PendingCommands
from projections.progress import Progress
from projections.registry import PROJECTIONS
from schemas.commands import ContinueStudy, MineRepository
from schemas.events.command import CommandRequested
from tests.projections.tiny_study import CELLS, TinyStudy


def test_following_in_steps_gives_what_one_fold_gives(whole: TinyStudy) -> None:
    records = list(whole.log.read())
    for make in PROJECTIONS.values():
        at_once = fold(make(whole.artifacts.get), whole.facts())
        in_steps = make(whole.artifacts.get)
        follower = Follower(whole.log, in_steps)
        for stop in range(0, len(records), 17):
            follower.catch_up(stop)
            assert follower.position == stop
        follower.catch_up()
        assert follower.position == len(records)
        assert list(in_steps.rows()) == list(at_once.rows())


def test_several_states_follow_one_log(tiny: TinyStudy) -> None:
    progress, pending = Progress(tiny.artifacts.get), PendingCommands()
    follower = Follower(tiny.log, progress, pending)
    tiny.create()
    tiny.mine()
    tiny.freeze()
    follower.catch_up()
    assert list(progress.cells) == [str(cell) for cell in CELLS]
    assert pending.commands == {}
    event = CommandRequested(role="scheduler", command=ContinueStudy())
    tiny.append("role/scheduler", event)
    follower.catch_up()
    assert list(pending.commands.values()) == [event]
    assert pending.of_roles(["miner"]) == []
    assert pending.of_roles(["scheduler"]) == [ContinueStudy()]


def test_only_what_is_folded_is_decoded(tiny: TinyStudy) -> None:
    """Another version may have written types that this one does not know."""
    tiny.create()
    batch = Batch(
        events=[
            NewEvent(
                "role/miner",
                CommandRequested(role="miner", command=MineRepository(repository="R001")),
            )
        ],
        actor="operator",
        run="test",
    )
    tiny.log.append(batch)
    records = list(tiny.log.read())
    unknown = StoredRecord(
        1, records[1].record.replace(b"command.requested.v1", b"command.requested.v9"), b""
    )
    pending, progress = PendingCommands(), Progress(tiny.artifacts.get)
    follower = Follower(tiny.log, progress, pending)
    for stored in (records[0], unknown):
        follower.see(stored)
    assert pending.commands == {}
    malformed = StoredRecord(1, records[1].record.replace(b"mine_repository", b"mine_nothing"), b"")
    with pytest.raises(Integrity, match="seq 1"):
        follower.see(malformed)
    assert msgspec.json.decode(malformed.record)["seq"] == 1
