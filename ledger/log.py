"""The log: what every store of records promises.

Four verbs matter: ``append`` (compare-and-swap, durable when it returns), ``read`` (a gapless
prefix, in order), ``read_stream`` and ``head``. The delivery verbs (``claim``, ``renew``,
``release_all``) serve the actors; they hold leases, never facts, and can be rebuilt from the
records at any time. Signed notes lie beside the records. ``memory_log`` is the readable reference,
``sqlite/log`` the durable one; the contract suite in ``tests/contract/`` runs over both.
``stores.open_log`` opens one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET

from ledger.chain import leaf_hash
from ledger.clock import timestamp, uuid7s
from ledger.codec import (
    check_envelope,
    check_extent,
    decode_as_recorded,
    decode_envelope,
    encode_data,
    encode_envelope,
    encode_events,
    in_todays_form,
)
from ledger.errors import Integrity, LeaseLost, RecordRefused, StaleVersion
from schemas.base import Event
from schemas.envelope import FIRST_PREV, Envelope
from schemas.events.command import (
    CommandAbandoned,
    CommandCompleted,
    CommandRefused,
    CommandRequested,
)
from schemas.identifiers import command_stream, role_stream

FINISHES_COMMAND = (CommandCompleted, CommandRefused, CommandAbandoned)
_ABOUT_COMMANDS = {kind.TYPE for kind in (CommandRequested, *FINISHES_COMMAND)}
"""Looked up before ``isinstance``, which is slow for a struct: nearly all events are others."""


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as it stands in the log."""

    seq: int
    record: bytes
    leaf: bytes

    def envelope(self) -> Envelope:
        """Raises Integrity naming the seq."""
        try:
            return decode_envelope(self.record)
        except Integrity as error:
            raise Integrity(f"seq {self.seq}: {error}; run `ledger verify-chain`") from None


class Fact(msgspec.Struct, frozen=True, gc=False):
    """A record, decoded: what folds consume."""

    seq: int
    id: str
    stream: str
    version: int
    at: str
    actor: str
    cause: str | None
    run: str
    event: Event
    as_recorded: Event | None = None
    """What stands in the record, where that is an earlier form of the event."""


def decode(stored: StoredRecord) -> Fact:
    """Raises Integrity for an unknown type or malformed data, naming the seq."""
    return fact_of(stored.envelope())


def fact_of(envelope: Envelope) -> Fact:
    """The second step of decoding, for a reader that chooses by type in between."""
    recorded = decode_as_recorded(envelope)
    event = in_todays_form(recorded)
    return Fact(
        envelope.seq,
        envelope.id,
        envelope.stream,
        envelope.version,
        envelope.at,
        envelope.actor,
        envelope.cause,
        envelope.run,
        event,
        None if event is recorded else recorded,
    )


class Head(msgspec.Struct, frozen=True):
    """The last record: its position and its leaf."""

    seq: int
    leaf: bytes


class NewEvent(msgspec.Struct, frozen=True):
    """An event on its way into the log."""

    stream: str
    event: Event


class Lease(msgspec.Struct, frozen=True):
    """The right to finish one command, until another process takes it over."""

    command: str
    token: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one ``append`` writes, all of it or nothing.

    ``expected`` maps a stream to the version its next event must get (0 for a new stream); streams
    that are not named are not compared. With a ``lease`` the batch is written only if the lease is
    still held. ``first_index`` is the index of the first event among those of ``cause``; together
    they are the idempotency key.
    """

    events: Sequence[NewEvent]
    actor: str
    run: str
    cause: str | None = None
    first_index: int = 0
    expected: Mapping[str, int] = {}
    lease: Lease | None = None


class Claim(msgspec.Struct, frozen=True):
    """A command taken from the delivery table."""

    lease: Lease
    seq: int
    attempts: int


class EventLog(Protocol):
    """A store of records.

    Any number of processes may append and read at the same time. An append that returned is
    durable and seen by every later read. One that raised ``StaleVersion``, ``LeaseLost`` or
    ``RecordRefused`` wrote nothing. One that raised ``UnknownOutcome`` may have been written: the
    caller reopens and looks for the ids, and never assumes. Appending the same events again under
    the same ``cause`` and ``first_index`` returns the records that are there and writes nothing;
    other events under those keys raise ``LeaseLost`` (``RecordRefused`` without a lease).
    """

    def append(self, batch: Batch) -> list[StoredRecord]: ...

    def head(self) -> Head | None:
        """The last record, or None for an empty log."""
        ...

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[StoredRecord]:
        """Records with start <= seq < stop, in order, without a gap. A long read never holds a
        writer up: it is paged."""
        ...

    def read_stream(self, stream: str, start: int = 0) -> Iterator[StoredRecord]:
        """Records of one stream from version ``start`` on, in order."""
        ...

    def stream_version(self, stream: str) -> int:
        """Version that the stream's next event will get: 0 where there is none."""
        ...

    def find(self, record_id: str) -> StoredRecord | None:
        """The first record with this id (our own are never given twice). Reads all records before
        it: a claim says where its command stands."""
        ...

    def caused_by(self, command: str) -> list[StoredRecord]:
        """Records whose cause is that command, by index."""
        ...

    def claim(self, roles: Sequence[str], seconds: float) -> Claim | None:
        """Take the oldest pending command of these roles whose lease is free or has run out."""
        ...

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease; False when it is no longer ours."""
        ...

    def pending(self) -> list[str]:
        """Ids of commands that were requested and not finished, oldest first, from the records."""
        ...

    def release_all(self, roles: Collection[str] | None = None) -> None:
        """Rebuild the delivery table from the records; with ``roles`` what it holds of these alone.
        Only for a caller that has proven that nobody works in them on this log."""
        ...

    def leaves(self, start: int, stop: int) -> Iterator[bytes]:
        """Leaves at start <= seq < stop as they were stored: what a checkpoint is made of. Ends
        early at a missing position."""
        ...

    def add_checkpoint(self, size: int, note: bytes) -> None:
        """Keep the signed note over the first ``size`` records; a second one for the same size is
        ignored. The note is durable with the next append."""
        ...

    def checkpoints(self) -> list[tuple[int, bytes]]:
        """(size, note) of every checkpoint, smallest first."""
        ...

    def close(self) -> None: ...


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A record that was built but not yet written."""

    stored: StoredRecord
    envelope: Envelope
    event: Event


def draft_batch(
    batch: Batch,
    head: Head | None,
    last_at: str,
    versions: Mapping[str, int],
    clock_us: int,
) -> list[Draft]:
    """Build the records of a batch on top of ``head``: the one place where positions, links,
    versions, ids and times are assigned. Pure but for the random bits of the ids.

    ``versions`` gives the next version of every stream in the batch, ``last_at`` the time of the
    head. Raises StaleVersion and RecordRefused.
    """
    for stream, expected in batch.expected.items():
        actual = versions.get(stream, 0)
        if actual != expected:
            raise StaleVersion(
                f"stream {stream} is at version {actual}, not {expected}: another process wrote "
                "to it; read it again"
            )
    clock = timestamp(clock_us)
    at = max(clock, last_at)
    next_version = dict(versions)
    prev = FIRST_PREV if head is None else head.leaf.hex()
    seq = 0 if head is None else head.seq + 1
    ids = uuid7s(clock_us, len(batch.events))
    data = encode_events([new.event for new in batch.events])
    drafts = []
    read_back = set()
    for offset, new in enumerate(batch.events):
        version = next_version.get(new.stream, 0)
        next_version[new.stream] = version + 1
        envelope = Envelope(
            seq=seq,
            prev=prev,
            id=ids[offset],
            type=new.event.TYPE,
            stream=new.stream,
            version=version,
            at=at,
            actor=batch.actor,
            cause=batch.cause,
            index=batch.first_index + offset if batch.cause is not None else 0,
            run=batch.run,
            clock=UNSET if at == clock else clock,
            data=msgspec.Raw(data[offset]),
        )
        record = encode_envelope(envelope)
        if new.stream not in read_back:
            # The other envelopes of this stream differ in nothing but what is assigned here.
            check_envelope(record, envelope.type)
            read_back.add(new.stream)
        leaf = leaf_hash(record)
        drafts.append(Draft(StoredRecord(seq, record, leaf), envelope, new.event))
        prev = leaf.hex()
        seq += 1
    check_extent(
        [draft.stored.record for draft in drafts], [draft.envelope.type for draft in drafts]
    )
    return drafts


def repeated(batch: Batch, found: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
    """What an append of a batch returns whose keys (cause, index) are in the log already.

    ``found`` are the records with its keys. They are returned where they are this very batch: its
    append had succeeded and nobody had heard of it. Otherwise another process has worked on the
    command since: raises LeaseLost, or RecordRefused for a batch without a lease.
    """
    same = len(found) == len(batch.events) and all(
        (envelope.type, envelope.stream, bytes(envelope.data))
        == (new.event.TYPE, new.stream, encode_data(new.event))
        for envelope, new in zip((one.envelope() for one in found), batch.events, strict=True)
    )
    if found and not same:
        message = f"command {batch.cause}: other events stand in the log under the same indices"
        raise LeaseLost(message) if batch.lease is not None else RecordRefused(message)
    return found


def requested(drafts: Sequence[Draft]) -> list[tuple[str, str, int]]:
    """(command id, role, seq) of every command that these records request."""
    return [
        (draft.envelope.id, draft.event.role, draft.stored.seq)
        for draft in drafts
        if draft.envelope.type in _ABOUT_COMMANDS and isinstance(draft.event, CommandRequested)
    ]


def finished(drafts: Sequence[Draft]) -> list[str]:
    """Ids of the commands that these records finish."""
    return [
        draft.event.command
        for draft in drafts
        if draft.envelope.type in _ABOUT_COMMANDS and isinstance(draft.event, FINISHES_COMMAND)
    ]


def check_batch(batch: Batch) -> None:
    """Raises RecordRefused for a batch that no log may take."""
    if not batch.events:
        raise RecordRefused("an append needs at least one event")
    if batch.cause is None and len(batch.events) > 1:
        raise RecordRefused("events without a cause are appended one at a time")
    for new in batch.events:
        if new.stream.partition("/")[0] not in new.event.STREAMS:
            raise RecordRefused(
                f"{new.event.TYPE} belongs to a stream of {' or '.join(new.event.STREAMS)}, not to "
                f"{new.stream}"
            )
        if new.event.TYPE not in _ABOUT_COMMANDS:
            continue
        # What is pending is found by these streams alone.
        if isinstance(new.event, CommandRequested):
            stream = role_stream(new.event.role)
        elif isinstance(new.event, FINISHES_COMMAND):
            stream = command_stream(new.event.command)
        else:
            continue
        if new.stream != stream:
            raise RecordRefused(f"{new.event.TYPE} belongs to the stream {stream}")
