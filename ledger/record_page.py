"""Records as they were read: a page of them, hashed and decoded once for every check."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ledger.codec import is_canonical
from ledger.named_artifacts import artifacts_by_shape
from ledger.record_source import Stretch
from ledger.unconstrained_types import unconstrained
from schemas.base import ArtifactRef, Event
from schemas.envelope import MAX_RECORD_BYTES
from schemas.events import EVENT_TYPES


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """``Envelope`` without its patterns (``unconstrained_types`` says why)."""

    seq: int
    prev: str
    id: str
    type: str
    stream: str
    version: int
    at: str
    actor: str
    cause: str | None
    index: int
    run: str
    clock: str | UnsetType = UNSET
    data: Raw = Raw(b"null")


COLUMN_NAMES = ("id", "type", "stream", "version", "at", "actor", "cause", "index", "run")

_decode = msgspec.json.Decoder(Fields).decode
_decode_lines: Callable[[bytes], list[Any]] = msgspec.json.Decoder(Fields).decode_lines
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_data_decoders: dict[str, Callable[[bytes | Raw], Any]] = {
    tag: msgspec.json.Decoder(unconstrained(kind)).decode for tag, kind in EVENT_TYPES.items()
}
_NOT_DECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Page:
    """Some records in a row, hashed and decoded once for all checks. Lists of equal length."""

    def __init__(self, stretch: Stretch, following: int) -> None:
        """``following``: the position that the first record should have."""
        self.rows = stretch.rows
        self.unreadable = stretch.unreadable
        self.records: list[bytes] = [row[1] for row in self.rows]
        self.seqs: list[int] = [row[0] for row in self.rows]
        self.not_canonical: list[tuple[int, str]] = []
        """(seq, why)"""
        if {type(record) for record in self.records} - {bytes}:
            self._make_bytes()
        self.leaves = [sha256(b"\x00" + record).digest() for record in self.records]
        self.fields: list[Fields | None]
        self.events: list[Event | None]
        self.fields, self.events, whole = _read_whole_page(self.records)
        if not whole or None in self.seqs:
            for place, record in enumerate(self.records):
                self.fields[place], self.events[place], why = read_record(record)
                if self.seqs[place] is None:
                    self.seqs[place] = self._position(place, following)
                if why:
                    self.not_canonical.append((self.seqs[place], why))
        self.following = max(following, max(self.seqs, default=-1) + 1)

    def _make_bytes(self) -> None:
        for place, record in enumerate(self.records):
            if not isinstance(record, bytes):
                self.not_canonical.append((self.seqs[place], "it is not stored as bytes"))
                self.records[place] = str(record).encode("utf-8", "replace")

    def _position(self, place: int, following: int) -> int:
        """Of a line that does not begin like a record: what it says itself, or the next one."""
        fields = self.fields[place]
        if fields is not None:
            return fields.seq
        return following if place == 0 else self.seqs[place - 1] + 1


def _read_whole_page(
    records: Sequence[bytes],
) -> tuple[list[Fields | None], list[Event | None], bool]:
    """(envelopes, events, are all of them canonical records of known types).

    Decoding and encoding a page at once costs half of what it costs record by record.
    """
    nothing: list[Any] = [None] * len(records)
    text = b"\n".join([*records, b""])
    try:
        fields = _decode_lines(text)
        events = [_data_decoders[each.type](each.data) for each in fields]
    except (KeyError, *_NOT_DECODABLE):
        return nothing, [*nothing], False
    data = b"\n".join([*[each.data for each in fields], b""])
    # Canonical JSON holds no newline: as many lines as records, and equal text, means that every
    # single record is canonical.
    canonical = (
        len(fields) == len(records)
        and _encode_lines(fields) == text
        and _encode_lines(events) == data
        and max(map(len, records), default=0) <= MAX_RECORD_BYTES
    )
    return (fields, events, True) if canonical else (nothing, [*nothing], False)


CONVERTED = "its line ends in CR LF: something converted the file as text; copy it as binary"


def read_record(record: bytes) -> tuple[Fields | None, Event | None, str]:
    """(envelope, event of a known type, why it is not canonical or "")."""
    try:
        fields = _decode(record)
    except _NOT_DECODABLE as error:
        return None, None, f"not a record: {error}"
    event = None
    if fields.type in _data_decoders:
        try:
            event = _data_decoders[fields.type](fields.data)
        except _NOT_DECODABLE as error:
            return fields, None, f"its data is not a {fields.type}: {error}"
    if len(record) > MAX_RECORD_BYTES:
        return fields, event, f"{len(record)} bytes"
    if record.endswith(b"\r"):
        return fields, event, CONVERTED
    if _encode(fields) != record or not is_canonical(record):
        return fields, event, "it does not re-encode to the same bytes, or is nested too deep"
    return fields, event, ""


def artifacts_of_unknown_type(fields: Fields | None) -> list[ArtifactRef]:
    """What a record of a type that this program does not know names; nothing of any other one."""
    if fields is None or fields.type in EVENT_TYPES:
        return []
    try:
        return artifacts_by_shape(bytes(fields.data))
    except _NOT_DECODABLE:
        return []


# --- checks of records ---------------------------------------------------------------------------
