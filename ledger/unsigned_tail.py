"""The records that no signature covers yet: what they may not say when they are signed.

Whoever can write the file can append a record that hashes and links as it must. A signature would
make it one of ours, so signing folds what it signs. Every result that this program appends has the
command that it belongs to as its cause, stands in the log before that command's end, and ends what
it ends once.
"""

from itertools import islice

from ledger.codec import decode_event
from ledger.errors import Integrity
from ledger.log import FINISHES_COMMAND, EventLog
from schemas.envelope import Envelope
from schemas.events import EVENT_TYPES
from schemas.events.command import CommandRequested
from schemas.identifiers import command_stream, role_stream

REQUESTS_AT_ONCE = 200
NEVER = 1 << 63

_FINISHES = {kind.TYPE for kind in FINISHES_COMMAND}


def check_unsigned(log: EventLog, start: int, stop: int) -> None:
    """Raises Integrity, naming the record, where one of start <= seq < stop repeats an event that
    ends something, or is the result of no command that was open."""
    commands = _Commands(log)
    for stored in log.read(start, stop):
        envelope = stored.envelope()
        kind = EVENT_TYPES.get(envelope.type)
        if envelope.type == CommandRequested.TYPE:
            commands.requested(envelope)
            continue
        if kind is None:
            continue
        if kind.ONCE_FOR is not None and _stands_before(log, envelope, kind.ONCE_FOR):
            raise _refused(envelope, f"{envelope.stream} has such a record already")
        if envelope.cause is None:
            if kind.CARRIES_OUTCOME or envelope.type in _FINISHES:
                raise _refused(envelope, "no command caused it")
            continue
        if problem := commands.problem(envelope, envelope.cause):
            raise _refused(envelope, problem)


class _Commands:
    """What is known of the commands that records name as their cause."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known: dict[str, int | None] = {}
        """Seq of the record that ended a command that was requested; ``NEVER`` for one that is
        open, None where that was not looked at."""

    def requested(self, envelope: Envelope) -> None:
        self._known[envelope.id] = None

    def problem(self, envelope: Envelope, command: str) -> str:
        """Why a record cannot be a result of a command; empty where it can."""
        if command not in self._known:
            if not self._was_requested(command, role_stream(envelope.actor), envelope.seq):
                return f"its cause {command} is no command of the role that was requested before it"
            self._known[command] = None
        if self._known[command] is None:
            end = next(iter(self._log.read_stream(command_stream(command))), None)
            self._known[command] = end.seq if end is not None else NEVER
        ended = self._known[command]
        if ended is not None and envelope.seq > ended:
            return f"its cause, the command {command}, had ended with seq {ended}"
        return ""

    def _was_requested(self, command: str, stream: str, before: int) -> bool:
        """Looks at the newest requests of the role first: nearly always it is one of them."""
        stop = self._log.stream_version(stream)
        while stop > 0:
            start = max(0, stop - REQUESTS_AT_ONCE)
            for stored in islice(self._log.read_stream(stream, start), stop - start):
                envelope = stored.envelope()
                if envelope.id == command and envelope.type == CommandRequested.TYPE:
                    return envelope.seq < before
            stop = start
        return False


def _stands_before(log: EventLog, envelope: Envelope, fields: tuple[str, ...]) -> bool:
    """Whether the stream holds an event of the same type with the same fields, or for a command any
    end, before."""
    if envelope.type in _FINISHES:
        return envelope.version > 0
    wanted = _values(envelope, fields)
    return any(
        earlier.type == envelope.type and _values(earlier, fields) == wanted
        for earlier in (
            stored.envelope()
            for stored in islice(log.read_stream(envelope.stream), envelope.version)
        )
    )


def _values(envelope: Envelope, fields: tuple[str, ...]) -> list[object]:
    event = decode_event(envelope)
    return [getattr(event, name) for name in fields]


def _refused(envelope: Envelope, why: str) -> Integrity:
    return Integrity(
        f"seq {envelope.seq} ({envelope.type}): {why}, so this program did not write it: nothing "
        "was signed. Put a backup in the study's place, or let `ledger export` keep what is here "
        "as evidence"
    )
