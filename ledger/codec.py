"""Encoding an event into the bytes of a record, and reading them back.

The bytes are the truth: they are made once, here, checked to be canonical (decoding and encoding
gives the same bytes) and never made again. The traps this closes: msgspec writes NaN and infinity
as ``null``; JSON numbers above 2^53-1 lose digits in other readers; duplicate keys, lone
surrogates and invalid UTF-8 parse differently in different readers.
"""

import math
from functools import cache
from typing import Any

import msgspec

from ledger.errors import Integrity, RecordRefused
from schemas.base import Event
from schemas.envelope import MAX_INTEGER, MAX_NESTING, MAX_RECORD_BYTES, Envelope
from schemas.events import EVENT_TYPES

_encoder = msgspec.json.Encoder()
_envelope_decoder = msgspec.json.Decoder(Envelope)
_plain_decoder = msgspec.json.Decoder()


def encode_data(event: Event) -> bytes:
    """The ``data`` of an event as JSON. Raises RecordRefused for what JSON cannot carry safely."""
    _check_value(msgspec.to_builtins(event), f"{event.TYPE}")
    try:
        return _encoder.encode(event)
    except (UnicodeEncodeError, OverflowError) as error:
        raise RecordRefused(f"{event.TYPE}: {error}") from None


def encode_record(envelope: Envelope) -> bytes:
    """The exact bytes of a record. Raises RecordRefused: not canonical, or too large."""
    record = _encoder.encode(envelope)
    if len(record) > MAX_RECORD_BYTES:
        raise RecordRefused(
            f"{envelope.type}: {len(record)} bytes, more than {MAX_RECORD_BYTES}; "
            "large content belongs in an artifact"
        )
    if not is_canonical(record):
        raise RecordRefused(f"{envelope.type}: its JSON does not re-encode to the same bytes")
    return record


def decode_envelope(record: bytes) -> Envelope:
    """Read a record. Raises Integrity when it is not an envelope."""
    try:
        return _envelope_decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Integrity(f"not a record: {error}") from None


@cache
def _data_decoder(event_type: str) -> "msgspec.json.Decoder[Event] | None":
    known = EVENT_TYPES.get(event_type)
    return None if known is None else msgspec.json.Decoder(known)


def decode_event(envelope: Envelope) -> Event:
    """The typed event of a record.

    Raises Integrity with the record's seq for an unknown type or for data that its type refuses:
    replay stops there, verification goes on.
    """
    decoder = _data_decoder(envelope.type)
    if decoder is None:
        raise Integrity(
            f"seq {envelope.seq}: unknown event type {envelope.type!r}; it was written by another "
            "version of this program, replay it with that one"
        )
    try:
        return decoder.decode(envelope.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Integrity(f"seq {envelope.seq}: {envelope.type}: {error}") from None


def is_canonical(record: bytes) -> bool:
    """True when decoding and encoding gives the same bytes and nothing is nested too deep.

    This finds insignificant white space, duplicate keys, other escapes or number forms, invalid
    UTF-8 and lone surrogates in one comparison.
    """
    if record.count(b"{") + record.count(b"[") > MAX_NESTING and nesting(record) > MAX_NESTING:
        return False
    try:
        return _encoder.encode(_plain_decoder.decode(record)) == record
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError):
        return False


def nesting(record: bytes) -> int:
    """Deepest nesting of objects and arrays in JSON text, strings skipped. Linear, no recursion."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in record:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x7B, 0x5B):
            depth += 1
            deepest = max(deepest, depth)
        elif byte in (0x7D, 0x5D):
            depth -= 1
    return deepest


def _check_value(value: Any, where: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RecordRefused(f"{where}: {value} is not a JSON number")
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise RecordRefused(f"{where}: {value} is beyond ±(2^53-1); record it as a string")
    elif isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RecordRefused(f"{where}: not encodable as UTF-8: {error.reason}") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_value(key, where)
            _check_value(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            _check_value(item, where)
