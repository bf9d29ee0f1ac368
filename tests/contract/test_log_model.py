"""Hypothesis drives the readable log and the durable one with the same calls.

Ids are random, so a command, a lease and a batch are pairs: one of each log. What is compared are
records without ids and links (a cause becomes the seq of its command), return values and errors.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ledger.errors import LedgerError
from ledger.log import Batch, Claim, EventLog, Lease, NewEvent, StoredRecord
from ledger.memory_log import MemoryLog
from schemas.base import Event
from schemas.commands import Command, ContinueStudy, ReleaseModels
from schemas.events.command import CommandCompleted, CommandRefused, CommandRequested
from tests.contract.conftest import DURABLE, FakeClock, Opener, assert_chain
from tests.strategies import events

ROLES: dict[str, Command] = {"scheduler": ContinueStudy(), "model_server": ReleaseModels()}
STREAMS = ["cell/a", "cell/b", "study"]

Pair = tuple[Any, Any]
"""The same thing in the readable log and in the durable one."""

SAME: Pair = (None, None)


class LogsAgree(RuleBasedStateMachine):
    opener: Opener

    @initialize()
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.logs: list[EventLog] = [MemoryLog(self.clock), self.open_durable()]
        self.commands: list[Pair] = []
        self.leases: list[Pair] = []
        self.batches: list[Pair] = []

    def open_durable(self) -> EventLog:
        return self.opener(Path(self.directory.name), self.clock)

    def teardown(self) -> None:
        if hasattr(self, "logs"):
            self.compare_everything()
            self.logs[1].close()
            self.directory.cleanup()

    # --- what is compared ------------------------------------------------------------------------

    def seq_of(self, log: EventLog, record_id: str | None) -> int | None:
        if record_id is None:
            return None
        stored = log.find(record_id)
        return -1 if stored is None else stored.seq

    def plain(self, log: EventLog, value: Any) -> Any:
        """A result without what is random."""
        match value:
            case StoredRecord():
                envelope = value.envelope()
                fields = msgspec.structs.asdict(envelope)
                data = bytes(fields.pop("data"))
                stream = envelope.stream
                for command in (fields.pop("id"), fields.pop("prev"), fields["cause"]):
                    if command is not None:
                        data = data.replace(command.encode(), b"*")
                if stream.startswith("command/"):
                    command = stream.removeprefix("command/")
                    data = data.replace(command.encode(), b"*")
                    fields["stream"] = f"command/{self.seq_of(log, command)}"
                return {**fields, "cause": self.seq_of(log, envelope.cause), "data": data}
            case Claim():
                return self.seq_of(log, value.lease.command), value.seq, value.attempts
            case list():
                return [self.plain(log, item) for item in value]
            case str():
                return self.seq_of(log, value)
        return value

    def both(self, call: Callable[[EventLog, int], Any]) -> Pair:
        """Make one call on each log; the results must agree, or the errors."""
        results: list[Any] = []
        outcomes: list[Any] = []
        for number, log in enumerate(self.logs):
            try:
                results.append(call(log, number))
                outcomes.append(self.plain(log, results[-1]))
            except LedgerError as error:
                results.append(None)
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
        return results[0], results[1]

    @invariant()
    @precondition(lambda self: hasattr(self, "logs"))
    def heads_and_versions_agree(self) -> None:
        heads = [log.head() for log in self.logs]
        assert [head and head.seq for head in heads] == [heads[0] and heads[0].seq] * 2
        for stream in STREAMS:
            self.both(lambda log, _, stream=stream: log.stream_version(stream))  # type: ignore[misc]
        self.both(lambda log, _: log.pending())

    def compare_everything(self) -> None:
        self.both(lambda log, _: list(log.read()))
        for stream in [*STREAMS, *(f"role/{role}" for role in ROLES)]:
            self.both(lambda log, _, stream=stream: list(log.read_stream(stream, 1)))  # type: ignore[misc]
        for command in self.commands:
            self.both(lambda log, n, command=command: log.caused_by(command[n]))  # type: ignore[misc]
        for log in self.logs:
            assert_chain(list(log.read()))

    # --- calls -----------------------------------------------------------------------------------

    def append(self, batches: Pair) -> Pair:
        self.batches.append(batches)
        return self.both(lambda log, n: log.append(batches[n]))

    def pick(self, data: st.DataObject, pairs: list[Pair]) -> Pair:
        """One of the pairs, or neither."""
        pair: Pair = data.draw(st.sampled_from([SAME, *pairs]))
        return pair

    @rule(role=st.sampled_from(list(ROLES)))
    def request(self, role: str) -> None:
        event = NewEvent(f"role/{role}", CommandRequested(role=role, command=ROLES[role]))
        batch = Batch(events=[event], actor="operator", run="run")
        records = self.append((batch, batch))
        self.commands.append(tuple(record[0].envelope().id for record in records))

    @rule(
        data=st.data(),
        contents=st.lists(st.tuples(st.sampled_from(STREAMS), events), min_size=1, max_size=3),
        first_index=st.integers(0, 4),
        off=st.dictionaries(st.sampled_from(STREAMS), st.sampled_from([0, 0, 0, 1, -1])),
    )
    def append_events(
        self,
        data: st.DataObject,
        contents: list[tuple[str, Event]],
        first_index: int,
        off: dict[str, int],
    ) -> None:
        """With right and wrong versions, causes that repeat, and leases held or lost."""
        causes = self.pick(data, self.commands)
        leases = self.pick(data, self.leases)
        expected = {s: max(0, self.logs[0].stream_version(s) + shift) for s, shift in off.items()}
        first, second = (
            Batch(
                events=[NewEvent(stream, event) for stream, event in contents],
                actor="cell",
                run="run",
                cause=causes[n],
                first_index=first_index,
                expected=expected,
                lease=leases[n],
            )
            for n in (0, 1)
        )
        self.append((first, second))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        batches = data.draw(st.sampled_from(self.batches))
        if batches[0].cause is not None:
            self.both(lambda log, n: log.append(batches[n]))

    @precondition(lambda self: self.commands)
    @rule(data=st.data(), refused=st.booleans(), follow=st.booleans())
    def end_command(self, data: st.DataObject, refused: bool, follow: bool) -> None:
        commands = data.draw(st.sampled_from(self.commands))
        leases = self.pick(data, self.leases)
        batches = []
        for n in (0, 1):
            command = commands[n]
            end: Event = CommandCompleted(command=command)
            if refused:
                end = CommandRefused(command=command, reason="a rule", exit_status=1)
            new = [NewEvent(f"command/{command}", end)]
            if follow:
                request = CommandRequested(role="scheduler", command=ContinueStudy())
                new.append(NewEvent("role/scheduler", request))
            batches.append(
                Batch(
                    events=new,
                    actor="scheduler",
                    run="run",
                    cause=command,
                    first_index=10,
                    expected={f"command/{command}": 0},
                    lease=leases[n],
                )
            )
        first, second = self.append((batches[0], batches[1]))
        if follow and first is not None and len(first) == 2:
            following = (first[1].envelope().id, second[1].envelope().id)
            if following not in self.commands:
                self.commands.append(following)

    @rule(roles=st.sets(st.sampled_from(list(ROLES))), seconds=st.sampled_from([0, 10, 60]))
    def claim(self, roles: set[str], seconds: float) -> None:
        claims = self.both(lambda log, _: log.claim(sorted(roles), seconds))
        if claims != SAME:
            self.leases.append((claims[0].lease, claims[1].lease))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), seconds=st.sampled_from([0, 10, 60]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        leases: tuple[Lease, Lease] = data.draw(st.sampled_from(self.leases))
        self.both(lambda log, n: log.renew(leases[n], seconds))

    @rule(roles=st.none() | st.sets(st.sampled_from(list(ROLES))))
    def release_all(self, roles: set[str] | None) -> None:
        self.both(lambda log, _: log.release_all(roles))

    @rule(seconds=st.sampled_from([0.000_001, 1, 10, 59.999_999, -1, -3600]))
    def move_clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        self.logs[1].close()
        self.logs[1] = self.open_durable()


class SqliteAgrees(LogsAgree):
    opener = staticmethod(DURABLE["sqlite"])


TestSqliteAgrees = SqliteAgrees.TestCase
TestSqliteAgrees.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
