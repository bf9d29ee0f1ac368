"""The loop of every actor: claim a command, let its handler act, commit.

    claim → handler decides from the log → (before an effect that may not silently repeat:
    ``work.commit(…started)``) → effect → results, acknowledgement and next commands in ONE append

A handler is a plain function of a :class:`Work`. It may be killed at any instant: whatever it had
committed stands in the log, the lease runs out or is released, and the next process that takes the
command reads from the log how far it came.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from actors.diagnostics import diagnostics
from actors.untrusted_trees import remove_tree
from actors.wakeup import Waiter, wake
from ledger.artifacts import Artifacts
from ledger.errors import Integrity, LeaseLost, LedgerError, Refused, of_the_machine
from ledger.log import Batch, Claim, EventLog, Fact, NewEvent, StoredRecord, decode
from ledger.study_directory import StudyDirectory
from schemas.base import Event
from schemas.commands import Command, Role
from schemas.credentials import without_credentials
from schemas.events.command import (
    CommandAbandoned,
    CommandCompleted,
    CommandRefused,
    CommandRequested,
)
from schemas.identifiers import STUDY_STREAM, command_stream, role_stream
from schemas.secret_shapes import marked_secrets

LEASE_SECONDS = 30.0


@dataclass(frozen=True)
class Context:
    """What every handler may use: the log, the artifacts, the study's folder, the run's id."""

    log: EventLog
    artifacts: Artifacts
    directory: StudyDirectory
    run: str

    def log_facts(self) -> Iterator[Fact]:
        """Every event of the log, decoded, in order."""
        return map(decode, self.log.read())

    def study_facts(self) -> Iterator[Fact]:
        """Every event of the study's own stream: what was declared, frozen, amended and analysed.
        Short, however long the log is."""
        return map(decode, self.log.read_stream(STUDY_STREAM))


@dataclass(frozen=True)
class Done:
    """How a handler ends its command: the last events, and what is to be done next."""

    events: Sequence[NewEvent] = ()
    requests: Sequence[Command] = ()
    expected: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Work:
    """One claimed command in the hands of its handler."""

    context: Context
    claim: Claim
    role: Role
    command: Any  # a member of schemas.commands.Command; its handler knows which
    next_index: int

    @property
    def log(self) -> EventLog:
        return self.context.log

    @property
    def artifacts(self) -> Artifacts:
        return self.context.artifacts

    @property
    def scratch(self) -> Path:
        """A folder for files that nobody needs after the command."""
        return scratch_of(self.context, self.role)

    @property
    def command_id(self) -> str:
        return self.claim.lease.command

    def facts(self, stream: str, start: int = 0) -> list[Fact]:
        """The decoded events of a stream."""
        return [decode(stored) for stored in self.log.read_stream(stream, start)]

    def commit(
        self, events: Sequence[NewEvent], expected: Mapping[str, int] | None = None
    ) -> list[StoredRecord]:
        """Append under the lease, without ending the command. Raises LeaseLost."""
        stored = self.log.append(
            Batch(
                events=events,
                actor=self.role,
                run=self.context.run,
                cause=self.command_id,
                first_index=self.next_index,
                expected=expected or {},
                lease=self.claim.lease,
            )
        )
        self.next_index += len(events)
        return stored


def scratch_of(context: Context, role: Role) -> Path:
    return context.directory.var / "scratch" / role


def clear_scratch(context: Context, roles: Iterable[Role]) -> None:
    """Remove what killed processes of these roles left behind. The caller has proven that nobody
    works in them; what cannot be removed is in nobody's way."""
    for role in roles:
        folder = scratch_of(context, role)
        if folder.is_dir():
            with suppress(OSError):
                remove_tree(folder)


Handler = Callable[[Work], Done]
Handlers = Mapping[type[Any], Handler]


def request(context: Context, command: Command, actor: str = "operator") -> str:
    """Append a command that a person gave; returns its id.

    Raises Refused for one that seems to hold a secret: it would be recorded for good.
    """
    if kinds := marked_secrets(msgspec.json.encode(command).decode()):
        raise Refused(
            f"what you gave seems to hold {', '.join(kinds)}: recorded, it could never be taken "
            "back; give the command without it"
        )
    event = _request_event(command)
    stored = context.log.append(Batch(events=[event], actor=actor, run=context.run))
    wake(context.directory.sockets, [command.ROLE])
    return stored[0].envelope().id


def _request_event(command: Command) -> NewEvent:
    role = command.ROLE
    return NewEvent(role_stream(role), CommandRequested(role=role, command=command))


def perform(context: Context, claim: Claim, handlers: Handlers) -> None:
    """Carry out one claimed command to its terminal record.

    A LedgerError of the handler becomes ``command.refused`` and is raised again, so that the
    program ends with the error's status; so does a condition of the machine (a full disk).
    LeaseLost writes nothing. Any other exception is a fault of ours: nothing is recorded, the lease
    runs out, and the command is done again.
    """
    work = _open(context, claim)
    try:
        done = _handle(handlers[type(work.command)], work)
    except LeaseLost:
        raise
    except LedgerError as error:
        refused = CommandRefused(
            command=work.command_id,
            reason=without_credentials(str(error)),
            exit_status=error.exit_status,
        )
        _finish(work, refused, Done())
        raise
    _finish(work, CommandCompleted(command=work.command_id), done)
    wake(context.directory.sockets, {command.ROLE for command in done.requests})


def _handle(handler: Handler, work: Work) -> Done:
    try:
        return handler(work)
    except OSError as error:
        condition = of_the_machine(error, work.context.directory.var)
        if condition is None:
            raise
        raise condition from error


def _open(context: Context, claim: Claim) -> Work:
    stored = next(context.log.read(claim.seq, claim.seq + 1), None)
    if stored is None or (fact := decode(stored)).id != claim.lease.command:
        raise Integrity(
            f"the delivery table names {claim.lease.command}, which is not at seq {claim.seq} of "
            "the log"
        )
    requested = fact.event
    if not isinstance(requested, CommandRequested):
        raise Integrity(f"{claim.lease.command} is a {requested.TYPE}, not a command")
    command = requested.command
    committed = len(context.log.caused_by(claim.lease.command))
    return Work(context, claim, command.ROLE, command, committed)


def _finish(work: Work, terminal: Event, done: Done) -> None:
    events = [
        *done.events,
        NewEvent(command_stream(work.command_id), terminal),
        *(_request_event(command) for command in done.requests),
    ]
    work.commit(events, {command_stream(work.command_id): 0, **done.expected})


def serve(
    context: Context, roles: Sequence[Role], handlers: Handlers, stop: threading.Event
) -> None:
    """Work until ``stop`` is set: claim, perform, wait for a wake-up or the polling interval."""
    waiter = Waiter(context.directory.sockets, roles)
    try:
        while not stop.is_set():
            claim = context.log.claim(roles, LEASE_SECONDS)
            if claim is None:
                waiter.wait()
                continue
            with Heartbeat(context.log, claim):
                try:
                    perform(context, claim, handlers)
                except LeaseLost:
                    diagnostics().warning("lease lost", command=claim.lease.command)
    finally:
        waiter.close()


def carry_out(context: Context, command: Command, handlers: Handlers) -> str:
    """Request a command and carry it out in this process; returns its id.

    For the command line. One program at a time works in a role this way; so a command of the role
    that is still pending was given to a program that no longer exists, and is abandoned first,
    whether its lease has run out or not.
    """
    role = command.ROLE
    busy = f"another program works on commands of the role {role} here; wait until it has ended"
    with context.directory.exclusive(f"role-{role}", busy):
        clear_scratch(context, [role])
        abandon_pending(
            context, [role], "the program that was given it ended before it was carried out"
        )
        command_id = request(context, command)
        claim = context.log.claim([role], LEASE_SECONDS)
        if claim is None or claim.lease.command != command_id:
            raise Refused(busy)
        with Heartbeat(context.log, claim):
            perform(context, claim, handlers)
        return command_id


def abandon_pending(context: Context, roles: Sequence[Role], reason: str) -> None:
    """End every pending command of these roles. The caller has proven that nobody works on one."""
    for role in roles:
        for stored in context.log.read_stream(role_stream(role)):
            command = stored.envelope().id
            stream = command_stream(command)
            if context.log.stream_version(stream) == 0:
                abandoned = CommandAbandoned(command=command, reason=reason)
                context.log.append(
                    Batch(
                        events=[NewEvent(stream, abandoned)],
                        actor=role,
                        run=context.run,
                        cause=command,
                        first_index=len(context.log.caused_by(command)),
                        expected={stream: 0},
                    )
                )


class Heartbeat:
    """Renews a lease in the background while a handler works."""

    def __init__(self, log: EventLog, claim: Claim) -> None:
        self._log = log
        self._claim = claim
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self) -> None:
        while not self._done.wait(LEASE_SECONDS / 3):
            if not self._log.renew(self._claim.lease, LEASE_SECONDS):
                return

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
