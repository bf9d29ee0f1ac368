"""The in-memory log: the readable reference of what ``EventLog`` promises. One process only."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from ledger.clock import new_id, now_us
from ledger.errors import LeaseLost
from ledger.log import (
    Batch,
    Claim,
    Head,
    Lease,
    StoredRecord,
    check_batch,
    draft_batch,
    finished,
    repeated,
    requested,
)
from schemas.envelope import Envelope


class _Delivery:
    """One row of the delivery table."""

    def __init__(self, role: str, seq: int) -> None:
        self.role = role
        self.seq = seq
        self.token: str | None = None
        self.deadline_us = 0
        self.attempts = 0


class MemoryLog:
    """Records in a list, indices in dictionaries, one lock."""

    def __init__(self, clock: Callable[[], int] = now_us) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._records: list[StoredRecord] = []
        self._envelopes: list[Envelope] = []
        self._streams: dict[str, list[int]] = {}
        self._ids: dict[str, int] = {}
        self._causes: dict[tuple[str, int], int] = {}
        self._delivery: dict[str, _Delivery] = {}
        self._checkpoints: dict[int, bytes] = {}

    def append(self, batch: Batch) -> list[StoredRecord]:
        check_batch(batch)
        with self._lock:
            written = self._already_written(batch)
            if written:
                return written
            if batch.lease is not None and not self._holds(batch.lease):
                raise LeaseLost(f"command {batch.lease.command} was taken over")
            streams = {new.stream for new in batch.events} | set(batch.expected)
            versions = {stream: self.stream_version(stream) for stream in streams}
            last_at = self._envelopes[-1].at if self._envelopes else ""
            drafts = draft_batch(batch, self.head(), last_at, versions, self._clock())
            for draft in drafts:
                self._store(draft.stored, draft.envelope)
            for command, role, seq in requested(drafts):
                self._delivery[command] = _Delivery(role, seq)
            for command in finished(drafts):
                self._delivery.pop(command, None)
            return [draft.stored for draft in drafts]

    def _already_written(self, batch: Batch) -> list[StoredRecord]:
        if batch.cause is None:
            return []
        keys = [(batch.cause, batch.first_index + n) for n in range(len(batch.events))]
        found = [self._records[self._causes[key]] for key in keys if key in self._causes]
        return list(repeated(batch, found))

    def _holds(self, lease: Lease) -> bool:
        row = self._delivery.get(lease.command)
        return row is not None and row.token == lease.token

    def _store(self, stored: StoredRecord, envelope: Envelope) -> None:
        self._records.append(stored)
        self._envelopes.append(envelope)
        self._streams.setdefault(envelope.stream, []).append(stored.seq)
        self._ids.setdefault(envelope.id, stored.seq)
        if envelope.cause is not None:
            self._causes[envelope.cause, envelope.index] = stored.seq

    def head(self) -> Head | None:
        with self._lock:
            return Head(self._records[-1].seq, self._records[-1].leaf) if self._records else None

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[StoredRecord]:
        position = start
        while True:
            with self._lock:
                page = self._records[position : position + 512]
            for stored in page:
                if stop is not None and stored.seq >= stop:
                    return
                yield stored
            if not page:
                return
            position += len(page)

    def read_stream(self, stream: str, start: int = 0) -> Iterator[StoredRecord]:
        with self._lock:
            seqs = self._streams.get(stream, [])[start:]
            return iter([self._records[seq] for seq in seqs])

    def stream_version(self, stream: str) -> int:
        with self._lock:
            return len(self._streams.get(stream, []))

    def find(self, record_id: str) -> StoredRecord | None:
        with self._lock:
            seq = self._ids.get(record_id)
            return None if seq is None else self._records[seq]

    def caused_by(self, command: str) -> list[StoredRecord]:
        with self._lock:
            keys = sorted(key for key in self._causes if key[0] == command)
            return [self._records[self._causes[key]] for key in keys]

    def claim(self, roles: Sequence[str], seconds: float) -> Claim | None:
        with self._lock:
            now = self._clock()
            free = [
                (row.seq, command)
                for command, row in self._delivery.items()
                if row.role in roles and (row.token is None or row.deadline_us <= now)
            ]
            if not free:
                return None
            seq, command = min(free)
            row = self._delivery[command]
            row.token = new_id()
            row.deadline_us = now + int(seconds * 1_000_000)
            row.attempts += 1
            return Claim(Lease(command, row.token), seq, row.attempts)

    def renew(self, lease: Lease, seconds: float) -> bool:
        with self._lock:
            if not self._holds(lease):
                return False
            self._delivery[lease.command].deadline_us = self._clock() + int(seconds * 1_000_000)
            return True

    def pending(self) -> list[str]:
        with self._lock:
            return [
                envelope.id
                for envelope in self._envelopes
                if envelope.type == "command.requested.v1"
                and not self._streams.get(f"command/{envelope.id}")
            ]

    def release_all(self, roles: Collection[str] | None = None) -> None:
        with self._lock:
            for command in self.pending():
                seq = self._ids[command]
                role = self._envelopes[seq].stream.removeprefix("role/")
                if roles is None or role in roles:
                    self._delivery[command] = _Delivery(role, seq)

    def leaves(self, start: int, stop: int) -> Iterator[bytes]:
        return (stored.leaf for stored in self.read(start, stop))

    def add_checkpoint(self, size: int, note: bytes) -> None:
        with self._lock:
            self._checkpoints.setdefault(size, note)

    def checkpoints(self) -> list[tuple[int, bytes]]:
        with self._lock:
            return sorted(self._checkpoints.items())

    def close(self) -> None:
        """Nothing to release."""
