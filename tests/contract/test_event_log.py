"""What every log promises, one test a promise. No backend is named here."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from ledger.errors import LeaseLost, RecordRefused, StaleVersion
from ledger.log import (
    Batch,
    Claim,
    EventLog,
    Lease,
    NewEvent,
    StoredRecord,
    decode,
)
from schemas.base import Event
from schemas.commands import Command, ContinueStudy, GradeCell, ReleaseModels
from schemas.events.cell import CellVoided, ProtocolViolated
from schemas.events.command import CommandAbandoned, CommandCompleted, CommandRequested
from schemas.identifiers import CellId
from tests.contract.conftest import FakeClock, assert_chain
from tests.strategies import events

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CAUSE = "01980f3e-7c00-7000-8000-000000000000"


def note(text: str, stream: str = "cell/a") -> NewEvent:
    return NewEvent(stream, ProtocolViolated(turn=0, kind="note", detail=text))


def batch(*new: NewEvent, **changes: Any) -> Batch:
    return Batch(events=new, **{"actor": "cell", "run": "run", "cause": CAUSE, **changes})


def append_notes(log: EventLog, *texts: str, stream: str = "cell/a") -> list[StoredRecord]:
    """One append each, without a cause."""
    return [
        stored for text in texts for stored in log.append(batch(note(text, stream), cause=None))
    ]


def request(log: EventLog, role: str = "scheduler") -> str:
    """Append a command of a role; return its id."""
    commands: dict[str, Command] = {"scheduler": ContinueStudy(), "model_server": ReleaseModels()}
    event = CommandRequested(role=role, command=commands[role])
    stored = log.append(batch(NewEvent(f"role/{role}", event), actor="operator", cause=None))
    return stored[0].envelope().id


def completion(command: str) -> NewEvent:
    return NewEvent(f"command/{command}", CommandCompleted(command=command))


def claimed(log: EventLog, roles: Sequence[str] = ("scheduler",), seconds: float = 30) -> Claim:
    claim = log.claim(roles, seconds)
    assert claim is not None
    return claim


def details(records: Sequence[StoredRecord]) -> list[str]:
    return [getattr(decode(stored).event, "detail", "") for stored in records]


# --- append and read -----------------------------------------------------------------------------


def test_an_empty_log_has_nothing(event_log: EventLog) -> None:
    assert event_log.head() is None
    assert list(event_log.read()) == []
    assert list(event_log.read_stream("cell/a")) == []
    assert event_log.stream_version("cell/a") == 0
    assert event_log.find(CAUSE) is None
    assert event_log.caused_by(CAUSE) == []
    assert event_log.pending() == []
    assert event_log.claim(["scheduler"], 30) is None


def test_append_returns_the_records_that_read_gives(event_log: EventLog) -> None:
    first = event_log.append(batch(note("one"), note("two"), note("three", "cell/b")))
    second = event_log.append(batch(note("four"), first_index=3))
    assert list(event_log.read()) == first + second
    assert details(first + second) == ["one", "two", "three", "four"]
    assert_chain(first + second)
    head = event_log.head()
    assert head is not None
    assert (head.seq, head.leaf) == (3, second[0].leaf)


def test_the_envelope_says_who_when_and_why(event_log: EventLog) -> None:
    stored = event_log.append(
        batch(note("one"), note("two"), actor="grader", run="r", first_index=5)
    )
    envelopes = [record.envelope() for record in stored]
    assert [envelope.index for envelope in envelopes] == [5, 6]
    assert {(e.actor, e.run, e.cause, e.type, e.stream) for e in envelopes} == {
        ("grader", "r", CAUSE, "protocol.violated.v1", "cell/a")
    }
    assert {envelope.at for envelope in envelopes} == {"2026-07-18T09:30:00.000000Z"}
    ids = {envelope.id for envelope in envelopes}
    assert len(ids) == 2
    for record_id in ids:
        assert UUID7.fullmatch(record_id)


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(event=events)
def test_an_event_comes_back_as_it_was(event_log: EventLog, event: Event) -> None:
    (stored,) = event_log.append(batch(NewEvent(event.STREAMS[0], event), cause=None))
    assert list(event_log.read(stored.seq)) == [stored]
    assert decode(stored).event == event


def test_read_takes_a_range(event_log: EventLog) -> None:
    append_notes(event_log, *"abcdef")
    assert details(list(event_log.read(2))) == list("cdef")
    assert details(list(event_log.read(2, 4))) == list("cd")
    assert list(event_log.read(4, 2)) == []
    assert list(event_log.read(6)) == []
    assert details(list(event_log.read(4, 99))) == list("ef")


def test_a_reader_that_is_under_way_neither_blocks_nor_skips(event_log: EventLog) -> None:
    append_notes(event_log, "a", "b")
    reader = event_log.read()
    seen = [next(reader)]
    append_notes(event_log, "c")
    seen += list(reader)
    assert details(seen) in (["a", "b"], ["a", "b", "c"])


def test_more_records_than_a_page(event_log: EventLog) -> None:
    count = 2_500
    event_log.append(batch(*(note(str(number)) for number in range(count))))
    assert details(list(event_log.read(1))) == [str(number) for number in range(1, count)]
    assert details(list(event_log.read_stream("cell/a", 2))) == [str(n) for n in range(2, count)]


def test_a_stream_is_read_from_a_version_on(event_log: EventLog) -> None:
    append_notes(event_log, "a", "b")
    append_notes(event_log, "other", stream="cell/b")
    append_notes(event_log, "c")
    assert details(list(event_log.read_stream("cell/a"))) == ["a", "b", "c"]
    assert details(list(event_log.read_stream("cell/a", 1))) == ["b", "c"]
    assert list(event_log.read_stream("cell/a", 3)) == []
    assert list(event_log.read_stream("cell")) == []
    assert event_log.stream_version("cell/a") == 3
    assert event_log.stream_version("cell/b") == 1


def test_records_are_found_by_id_and_by_cause(event_log: EventLog) -> None:
    append_notes(event_log, "before")
    stored = event_log.append(batch(note("one"), note("two")))
    later = event_log.append(batch(note("three"), first_index=2))
    append_notes(event_log, "after")
    for record in stored:
        assert event_log.find(record.envelope().id) == record
    assert event_log.caused_by(CAUSE) == stored + later


# --- all or nothing ------------------------------------------------------------------------------


def unchanged(log: EventLog) -> Callable[[], None]:
    before = list(log.read())
    pending = log.pending()

    def check() -> None:
        assert list(log.read()) == before
        assert log.pending() == pending

    return check


def test_a_stale_version_writes_nothing(event_log: EventLog) -> None:
    append_notes(event_log, "a", "b")
    check = unchanged(event_log)
    for expected in ({"cell/a": 1}, {"cell/a": 3}, {"cell/b": 0, "cell/a": 0}, {"cell/c": 1}):
        with pytest.raises(StaleVersion, match="read it again"):
            event_log.append(batch(note("c"), note("d", "cell/b"), expected=expected))
        check()


def test_the_expected_version_is_that_of_the_next_event(event_log: EventLog) -> None:
    event_log.append(batch(note("a"), note("b"), expected={"cell/a": 0, "cell/b": 0}))
    event_log.append(batch(note("c"), first_index=2, expected={"cell/a": 2}))
    assert event_log.stream_version("cell/a") == 3


def test_streams_that_are_not_named_are_not_compared(event_log: EventLog) -> None:
    append_notes(event_log, "a")
    event_log.append(batch(note("b"), expected={"cell/other": 0}))
    assert details(list(event_log.read())) == ["a", "b"]


def test_one_refused_event_refuses_its_batch(event_log: EventLog) -> None:
    append_notes(event_log, "a")
    check = unchanged(event_log)
    with pytest.raises(RecordRefused):
        event_log.append(batch(note("good"), note("\ud800")))
    check()
    command = NewEvent(
        "role/scheduler", CommandRequested(role="scheduler", command=ContinueStudy())
    )
    with pytest.raises(RecordRefused):
        event_log.append(batch(command, note("x" * (1 << 20))))
    check()
    assert event_log.claim(["scheduler"], 30) is None
    assert details(event_log.append(batch(note("good")))) == ["good"]


def test_batches_that_no_log_takes(event_log: EventLog) -> None:
    with pytest.raises(RecordRefused, match="at least one event"):
        event_log.append(batch())
    with pytest.raises(RecordRefused, match="one at a time"):
        event_log.append(batch(note("a"), note("b"), cause=None))
    grade = CommandRequested(role="grader", command=GradeCell(cell="a/b/c/0"))
    with pytest.raises(RecordRefused, match="role/grader"):
        event_log.append(batch(NewEvent("role/scheduler", grade)))
    with pytest.raises(RecordRefused, match=f"command/{CAUSE}"):
        event_log.append(batch(NewEvent("command/x", CommandCompleted(command=CAUSE))))
    with pytest.raises(RecordRefused, match="belongs to a stream of cell, not to study"):
        event_log.append(batch(NewEvent("study", note("a").event)))
    assert event_log.head() is None


# --- idempotency ---------------------------------------------------------------------------------


def test_a_repeated_batch_appends_nothing(event_log: EventLog) -> None:
    first = batch(note("one"), note("two"), expected={"cell/a": 0})
    stored = event_log.append(first)
    append_notes(event_log, "three")
    check = unchanged(event_log)
    # Its versions are stale by now and its lease may be gone; it is written all the same.
    assert event_log.append(first) == stored
    assert event_log.append(msgspec.structs.replace(first, lease=Lease(CAUSE, "gone"))) == stored
    check()


def test_the_same_events_under_another_cause_or_index_are_new(event_log: EventLog) -> None:
    event_log.append(batch(note("one")))
    event_log.append(batch(note("one"), first_index=1))
    event_log.append(batch(note("one"), cause=CAUSE.replace("0", "1")))
    append_notes(event_log, "one", "one")
    assert len(list(event_log.read())) == 5


def test_other_events_under_the_same_keys_are_not_taken_for_a_repetition(
    event_log: EventLog,
) -> None:
    event_log.append(batch(note("one")))
    check = unchanged(event_log)
    with pytest.raises(RecordRefused, match="same indices"):
        event_log.append(batch(note("two")))
    check()


def test_a_batch_that_is_there_in_part_is_refused(event_log: EventLog) -> None:
    event_log.append(batch(note("one"), note("two")))
    check = unchanged(event_log)
    with pytest.raises(RecordRefused, match="same indices"):
        event_log.append(batch(note("one"), note("two"), note("three")))
    with pytest.raises(RecordRefused, match="same indices"):
        event_log.append(batch(note("two"), note("three"), first_index=1))
    check()


# --- time ----------------------------------------------------------------------------------------


def test_time_never_runs_backwards(event_log: EventLog, clock: FakeClock) -> None:
    append_notes(event_log, "a")
    clock.advance(-3600.5)
    append_notes(event_log, "b")
    clock.advance(3600.5 + 0.000_001)
    append_notes(event_log, "c")
    times = [(e.at, e.clock) for e in (stored.envelope() for stored in event_log.read())]
    assert times == [
        ("2026-07-18T09:30:00.000000Z", msgspec.UNSET),
        ("2026-07-18T09:30:00.000000Z", "2026-07-18T08:29:59.500000Z"),
        ("2026-07-18T09:30:00.000001Z", msgspec.UNSET),
    ]


# --- delivery ------------------------------------------------------------------------------------


def test_commands_are_claimed_oldest_first_by_role(event_log: EventLog) -> None:
    commands = [request(event_log, role) for role in ("scheduler", "model_server", "scheduler")]
    assert event_log.pending() == commands
    claims = [
        claimed(event_log, ["scheduler"]),
        claimed(event_log, ["grader", "scheduler"]),
        claimed(event_log, ["model_server"]),
    ]
    assert [claim.lease.command for claim in claims] == [commands[0], commands[2], commands[1]]
    assert [(claim.seq, claim.attempts) for claim in claims] == [(0, 1), (2, 1), (1, 1)]
    assert event_log.claim(["scheduler", "model_server"], 30) is None
    assert event_log.claim([], 30) is None
    assert event_log.pending() == commands, "claimed is not finished"


def test_a_lease_that_ran_out_is_taken_over(event_log: EventLog, clock: FakeClock) -> None:
    command = request(event_log)
    first = claimed(event_log, seconds=30)
    clock.advance(29.999)
    assert event_log.claim(["scheduler"], 30) is None
    clock.advance(0.001)
    second = claimed(event_log, seconds=30)
    assert (second.lease.command, second.attempts) == (command, 2)
    assert second.lease.token != first.lease.token
    assert not event_log.renew(first.lease, 30)
    assert event_log.renew(second.lease, 30)


def test_a_renewed_lease_lasts_from_now(event_log: EventLog, clock: FakeClock) -> None:
    request(event_log)
    lease = claimed(event_log, seconds=30).lease
    clock.advance(20)
    assert event_log.renew(lease, 30)
    clock.advance(29)
    assert event_log.claim(["scheduler"], 30) is None
    clock.advance(1)
    assert event_log.renew(lease, 1), "late, but nobody has taken it"
    assert event_log.claim(["scheduler"], 30) is None
    clock.advance(1)
    assert event_log.claim(["scheduler"], 30) is not None


def test_a_terminal_record_ends_delivery(event_log: EventLog, clock: FakeClock) -> None:
    command = request(event_log)
    lease = claimed(event_log).lease
    event_log.append(
        batch(
            note("result"),
            completion(command),
            NewEvent("role/scheduler", CommandRequested(role="scheduler", command=ContinueStudy())),
            cause=command,
            lease=lease,
            expected={f"command/{command}": 0},
        )
    )
    assert not event_log.renew(lease, 30)
    following = event_log.pending()
    assert len(following) == 1
    assert following[0] != command
    clock.advance(3600)
    assert claimed(event_log).lease.command == following[0]


def test_a_command_can_be_abandoned_without_a_lease(event_log: EventLog) -> None:
    command = request(event_log)
    lease = claimed(event_log).lease
    abandoned = CommandAbandoned(command=command, reason="its process is gone")
    event_log.append(batch(NewEvent(f"command/{command}", abandoned), cause=command))
    assert event_log.pending() == []
    with pytest.raises(LeaseLost):
        event_log.append(batch(note("late"), cause=command, first_index=1, lease=lease))


def test_a_lost_lease_writes_nothing(event_log: EventLog, clock: FakeClock) -> None:
    command = request(event_log)
    lost = claimed(event_log, seconds=30).lease
    clock.advance(31)
    held = claimed(event_log, seconds=30).lease
    check = unchanged(event_log)
    for lease in (lost, Lease(command, "never given"), Lease(CAUSE, held.token)):
        with pytest.raises(LeaseLost):
            event_log.append(batch(completion(command), cause=command, lease=lease))
        check()
    event_log.append(batch(completion(command), cause=command, lease=held))
    assert event_log.pending() == []


def test_an_append_renews_nothing(event_log: EventLog, clock: FakeClock) -> None:
    command = request(event_log)
    lease = claimed(event_log, seconds=30).lease
    clock.advance(29)
    event_log.append(batch(note("working"), cause=command, lease=lease))
    clock.advance(1)
    event_log.append(batch(note("late"), cause=command, first_index=1, lease=lease))
    assert claimed(event_log).lease.command == command


def test_delivery_is_rebuilt_from_the_records(event_log: EventLog, clock: FakeClock) -> None:
    done, held, free = request(event_log), request(event_log), request(event_log, "model_server")
    first = claimed(event_log)
    event_log.append(batch(completion(done), cause=done, lease=first.lease))
    second = claimed(event_log)
    event_log.release_all()
    assert event_log.pending() == [held, free]
    assert not event_log.renew(second.lease, 30)
    again = claimed(event_log, ["model_server", "scheduler"])
    assert (again.lease.command, again.seq, again.attempts) == (held, 1, 1)
    assert claimed(event_log, ["model_server", "scheduler"]).lease.command == free
    assert event_log.claim(["model_server", "scheduler"], 30) is None


def test_leases_of_some_roles_are_released_and_others_stay(event_log: EventLog) -> None:
    freed, kept = request(event_log), request(event_log, "model_server")
    first, second = claimed(event_log), claimed(event_log, ["model_server"])
    event_log.release_all(["scheduler", "grader"])
    assert not event_log.renew(first.lease, 30)
    assert event_log.renew(second.lease, 30)
    assert event_log.pending() == [freed, kept]
    again = claimed(event_log)
    assert (again.lease.command, again.attempts) == (freed, 1)
    assert event_log.claim(["model_server"], 30) is None


# --- threads -------------------------------------------------------------------------------------


def test_one_log_serves_several_threads(event_log: EventLog) -> None:
    command = request(event_log)
    lease = claimed(event_log).lease
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def write() -> None:
        append_notes(event_log, *"abcdefghij", stream=f"cell/{threading.get_ident()}")

    def beat() -> None:
        for _ in range(10):
            assert event_log.renew(lease, 30)

    def read() -> None:
        for _ in range(10):
            assert_chain(list(event_log.read()))

    threads = [guarded(work) for work in (write, write, beat, read, beat, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    records = list(event_log.read())
    assert len(records) == 21
    assert_chain(records)
    assert event_log.pending() == [command]


# --- durable logs --------------------------------------------------------------------------------


def test_everything_is_there_after_reopening(
    reopen: Callable[[], EventLog], clock: FakeClock
) -> None:
    log = reopen()
    command = request(log)
    stored = append_notes(log, "a", "b")
    lease = claimed(log, seconds=30).lease
    log.close()
    again = reopen()
    assert list(again.read(1)) == stored
    assert again.pending() == [command]
    assert again.claim(["scheduler"], 30) is None, "leases outlive a process"
    assert again.renew(lease, 30)
    assert_chain([*again.read()] + append_notes(again, "c"))


def test_two_openings_see_each_other(reopen: Callable[[], EventLog]) -> None:
    one, other = reopen(), reopen()
    append_notes(one, "a")
    append_notes(other, "b")
    append_notes(one, "c")
    assert details(list(other.read())) == ["a", "b", "c"]
    command = request(one)
    assert claimed(other).lease.command == command
    assert one.claim(["scheduler"], 30) is None
    voided = CellVoided(cell=CellId(unit="u", arm="a", agent="m", repeat=0), reason="why")
    with pytest.raises(StaleVersion):
        other.append(batch(NewEvent("cell/a", voided), expected={"cell/a": 2}))
