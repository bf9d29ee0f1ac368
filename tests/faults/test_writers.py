"""Two processes write one log: one is killed in the middle, or stands still for longer than its
lease while the other takes its command over."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from actors.loop import LEASE_SECONDS
from ledger.clock import new_id, now_us
from ledger.creation import create_ledger
from ledger.errors import LeaseLost
from ledger.log import Batch, Lease, NewEvent, StoredRecord, decode
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.verify.verification import verify
from schemas.commands import AdvanceCell
from schemas.events.cell import ProtocolViolated
from schemas.events.command import CommandCompleted, CommandRequested
from tests.faults.fault_points import count
from tests.faults.storage_work import ROLE_STREAM, Appended, Place, Tell, Trying, cell_of
from tests.faults.system_calls import Child, Ended, in_child
from tests.faults.test_storage_faults import needs_strace

BATCH = 3
NewPlace = Callable[[], Place]


@contextmanager
def opened(place: Place, ahead_s: float = 0.0) -> Iterator[SqliteLog]:
    """The place's log, with a clock that goes so many seconds ahead."""
    log = SqliteLog.open(place.directory.ledger, lambda: now_us() + int(ahead_s * 1_000_000))
    try:
        yield log
    finally:
        log.close()


def write_for_ever(place: Place, tell: Tell, go_on: Callable[[], bool] = lambda: True) -> None:
    """Batches of three, each acknowledged as soon as it is written."""
    cause = new_id()
    with opened(place) as log:
        for number in itertools.count():
            if not go_on():
                return
            event = ProtocolViolated(turn=number, kind="note", detail="x" * 300)
            tell(Trying(BATCH))
            batch = Batch(
                events=[NewEvent("cell/shared", event)] * BATCH,
                actor="cell",
                run="r",
                cause=cause,
                first_index=BATCH * number,
            )
            tell(acknowledgement(log.append(batch)))


def acknowledgement(stored: list[StoredRecord]) -> Appended:
    return Appended([(one.seq, one.leaf.hex()) for one in stored])


def acknowledged(*ended: Ended) -> dict[int, str]:
    told = [message for one in ended for message in one.told if isinstance(message, Appended)]
    records = [record for message in told for record in message.records]
    assert len(records) == len(dict(records)), "a position was given twice"
    return dict(records)


KILLS = [(call, n) for call, last in (("pwrite64", 30), ("fdatasync", 6)) for n in range(1, last)]


@needs_strace
@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_one_of_two_writers_is_killed(new_place: NewPlace, step: int) -> None:
    points = KILLS[::step]
    for call, number in points:
        place = new_place()
        create_ledger(place.directory)
        stop = place.root / "stop"

        def other(tell: Tell, place: Place = place) -> None:
            write_for_ever(place, tell, lambda: not (place.root / "stop").exists())

        survivor = Child(other)
        first = [survivor.hear_one(), survivor.hear_one()]
        options = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}"]
        killed = in_child(lambda tell: write_for_ever(place, tell), options)  # noqa: B023
        assert killed.signal == signal.SIGKILL
        for _ in range(4):
            first.append(survivor.hear_one())  # it goes on: the dead one holds no lock
        stop.touch()
        survived = survivor.finish()
        assert survived.signal == 0
        known = acknowledged(survived._replace(told=[*first, *survived.told]), killed)
        with opened(place) as log:
            records = list(log.read())
        leaves = {stored.seq: stored.leaf.hex() for stored in records}
        assert known.items() <= leaves.items()
        # Record 0, and all or nothing of the one append that nobody heard the end of.
        assert len(records) - 1 - len(known) in (0, BATCH)
        report = verify(place.directory.root)
        assert report.status == "verified", report
        assert report.findings == ()
    count("kill -9 of one of two writers", points, complete=step == 1)


# --- a writer that stands still ------------------------------------------------------------------

PLACES = ("after the claim", "after its first commit", "before its last")


def carry_out(place: Place, tell: Tell, stop_at: str) -> None:
    """Claim a command, commit twice under its lease, and stand still at one place in between."""
    with opened(place) as log:
        claim = log.claim(["cell"], LEASE_SECONDS)
        assert claim is not None
        stand_still(stop_at == PLACES[0])
        tell(acknowledgement(log.append(started(claim.lease))))
        stand_still(stop_at == PLACES[1])
        assert log.renew(claim.lease, LEASE_SECONDS) is (stop_at == PLACES[2])
        stand_still(stop_at == PLACES[2])
        tell(acknowledgement(log.append(finished(claim.lease, "by the first"))))


def stand_still(here: bool) -> None:
    if here:
        os.kill(os.getpid(), signal.SIGSTOP)


def started(lease: Lease) -> Batch:
    event = ProtocolViolated(turn=0, kind="note", detail="started")
    return under(lease, 0, NewEvent("cell/shared", event))


def finished(lease: Lease, who: str) -> Batch:
    event = ProtocolViolated(turn=0, kind="note", detail=who)
    done = NewEvent(f"command/{lease.command}", CommandCompleted(command=lease.command))
    return under(lease, 1, NewEvent("cell/shared", event), done)


def under(lease: Lease, first_index: int, *events: NewEvent) -> Batch:
    return Batch(
        events=events,
        actor="cell",
        run="r",
        cause=lease.command,
        first_index=first_index,
        lease=lease,
    )


@pytest.mark.parametrize(
    "real_time", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["clock", "real-time"]
)
def test_who_stood_still_beyond_its_lease_writes_nothing(
    new_place: NewPlace, monkeypatch: pytest.MonkeyPatch, real_time: bool
) -> None:
    """By a clock that is 30 s ahead; and by standing still for 30 s."""
    children = []
    for stop_at in PLACES:
        place = new_place()
        create_ledger(place.directory)
        request = CommandRequested(role="cell", command=AdvanceCell(cell=cell_of(0)))
        with opened(place) as log:
            log.append(Batch(events=[NewEvent(ROLE_STREAM, request)], actor="operator", run="r"))
        child = Child(lambda tell: carry_out(place, tell, stop_at))  # noqa: B023
        child.wait_until_stopped()
        children.append((place, stop_at, child))
    if real_time:
        time.sleep(LEASE_SECONDS)
    for place, stop_at, child in children:
        with opened(place, 0.0 if real_time else LEASE_SECONDS) as log:
            claim = log.claim(["cell"], LEASE_SECONDS)
            assert claim is not None and claim.attempts == 2
            if stop_at == PLACES[0]:
                log.append(started(claim.lease))
            log.append(finished(claim.lease, "by the second"))
            before = list(log.read())
        os.kill(child.pid, signal.SIGCONT)
        ended = child.finish()
        assert getattr(ended.told[-1], "kind", None) == LeaseLost.__name__, ended
        # The same first event under the same command is no news: it is answered with the record.
        known = acknowledged(ended)
        assert known.items() <= {stored.seq: stored.leaf.hex() for stored in before}.items()
        assert len(known) == 1
        with opened(place) as log:
            assert list(log.read()) == before
        notes = [decode(stored).event for stored in before]
        details = [event.detail for event in notes if isinstance(event, ProtocolViolated)]
        assert details == ["started", "by the second"]
        monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(place.home))
        assert verify(place.directory.root).status == "verified"
    points = [(stop_at, real_time) for _, stop_at, _ in children]
    count("stopped beyond the lease", points)
