"""Encoding an event into the bytes of a record, and reading them back.

The bytes are the truth: they are made once, here, checked to be canonical (decoding and encoding
gives the same bytes) and never made again. The traps this closes: msgspec writes NaN and infinity
as ``null``; JSON numbers above 2^53-1 lose digits in other readers; duplicate keys, lone
surrogates and invalid UTF-8 parse differently in different readers.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from ledger.errors import Integrity, RecordRefused
from schemas.base import Event
from schemas.envelope import MAX_INTEGER, MAX_NESTING, MAX_RECORD_BYTES, Envelope
from schemas.events import EVENT_TYPES
from schemas.events.earlier import EARLIER_FORMS
from schemas.json_nesting import nesting

_encoder = msgspec.json.Encoder()
_UNFIT = (UnicodeError, OverflowError, TypeError, RecursionError, msgspec.DecodeError)
"""What msgspec raises for what cannot be JSON, or cannot be read back as its type."""
_envelope_decoder = msgspec.json.Decoder(Envelope)
_plain_decoder = msgspec.json.Decoder()

_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
"""Translates JSON text to zeros and blanks: sixteen zeros in a row may be too large a number."""
_NEITHER_BRACKET_NOR_END = bytes(byte for byte in range(256) if byte not in b"{[\n")
"""Deleted from lines of JSON, it leaves of every line its opening brackets."""

AT_ONCE = 256
"""How many texts are joined for one check: many enough to share its cost, few enough to stay in a
processor's cache."""


@cache
def _decoder_of(event_class: type[Event]) -> "msgspec.json.Decoder[Event]":
    return msgspec.json.Decoder(event_class)


def encode_data(event: Event) -> bytes:
    """The ``data`` of an event as canonical JSON.

    Raises RecordRefused for what JSON cannot carry safely and for an event that its own type would
    refuse when it is read back: a record that was written can be decoded for ever.
    """
    try:
        data = _encoder.encode(event)
        again = _decoder_of(type(event)).decode(data)
        # Equal bytes: one form only. Equal values: NaN has become null and is not what it was.
        if _encoder.encode(again) != data or again != event:
            raise RecordRefused(
                f"{event.TYPE}: it reads back as another value (NaN, infinity, or a field that "
                "holds another type than it declares)"
            )
        if b"0" * 16 in data.translate(_DIGITS):
            _check_integers(_plain_decoder.decode(data), event.TYPE)
    except _UNFIT as error:
        raise RecordRefused(f"{event.TYPE}: {error}") from None
    return data


def encode_events(events: Sequence[Event]) -> list[bytes]:
    """What ``encode_data`` gives for each of them, under the same checks, made on many at once.

    Raises RecordRefused like ``encode_data``, for the first that is refused.
    """
    if len(events) == 1:
        return [encode_data(events[0])]
    return [
        data
        for start in range(0, len(events), AT_ONCE)
        for data in _encode_at_once(events[start : start + AT_ONCE])
    ]


def _encode_at_once(events: Sequence[Event]) -> list[bytes]:
    try:
        data = [_encoder.encode(event) for event in events]
        again = [
            _decoder_of(type(event)).decode(text) for event, text in zip(events, data, strict=True)
        ]
        # Canonical JSON holds no newline: equal texts are equal line by line.
        lines = b"\n".join([*data, b""])
        if (
            _encoder.encode_lines(again) == lines
            and again == list(events)
            and b"0" * 16 not in lines.translate(_DIGITS)
        ):
            return data
    except _UNFIT:
        pass
    return [encode_data(event) for event in events]


def encode_record(envelope: Envelope) -> bytes:
    """The exact bytes of a record around ``data`` from ``encode_data``.

    Raises RecordRefused: not an envelope that can be read back, nested too deep, or too large.
    """
    record = encode_envelope(envelope)
    check_envelope(record, envelope.type)
    check_extent([record], [envelope.type])
    return record


def encode_envelope(envelope: Envelope) -> bytes:
    """A record that has yet to be checked. Raises RecordRefused for what is no JSON."""
    try:
        return _encoder.encode(envelope)
    except _UNFIT as error:
        raise RecordRefused(f"{envelope.type}: {error}") from None


def check_envelope(record: bytes, event_type: str) -> None:
    """Raises RecordRefused for a record whose envelope does not read back as it was written."""
    try:
        canonical = _encoder.encode(_envelope_decoder.decode(record)) == record
    except _UNFIT as error:
        raise RecordRefused(f"{event_type}: {error}") from None
    if not canonical:
        raise RecordRefused(f"{event_type}: its JSON does not re-encode to the same bytes")


def check_extent(records: Sequence[bytes], types: Sequence[str]) -> None:
    """Raises RecordRefused for the first that is too large or nested too deep."""
    for start in range(0, len(records), AT_ONCE):
        some = records[start : start + AT_ONCE]
        # Brackets are fast to count, in lines that were joined, and enough for nearly every record.
        lines = b"\n".join(some).translate(None, _NEITHER_BRACKET_NOR_END).split(b"\n")
        if max(map(len, some)) <= MAX_RECORD_BYTES and max(map(len, lines)) <= MAX_NESTING:
            continue
        for record, event_type in zip(some, types[start : start + AT_ONCE], strict=True):
            if len(record) > MAX_RECORD_BYTES:
                raise RecordRefused(
                    f"{event_type}: {len(record)} bytes, more than {MAX_RECORD_BYTES}; "
                    "large content belongs in an artifact"
                )
            if nesting(record) > MAX_NESTING:
                raise RecordRefused(f"{event_type}: its JSON is nested deeper than {MAX_NESTING}")


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
    """The typed event of a record; what was recorded in an earlier form, in today's. Raises
    Integrity like ``decode_as_recorded``."""
    return in_todays_form(decode_as_recorded(envelope))


def in_todays_form(event: Event) -> Event:
    """The event in today's form."""
    earlier = EARLIER_FORMS.get(event.TYPE)
    return event if earlier is None else earlier.upcast(event)


def decode_as_recorded(envelope: Envelope) -> Event:
    """The typed event of a record in the form in which it was recorded.

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
        raise Integrity(
            f"seq {envelope.seq}: {envelope.type}: {error}; run `ledger verify-chain`"
        ) from None


def is_canonical(record: bytes) -> bool:
    """True when decoding and encoding gives the same bytes and nothing is nested too deep.

    This finds insignificant white space, duplicate keys, other escapes or number forms, invalid
    UTF-8 and lone surrogates in one comparison.
    """
    try:
        return _is_shallow(record) and _encoder.encode(_plain_decoder.decode(record)) == record
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError):
        return False


def _is_shallow(record: bytes) -> bool:
    # Counting is fast and enough for nearly every record; brackets in strings only cost time.
    brackets = record.count(b"{") + record.count(b"[")
    return brackets <= MAX_NESTING or nesting(record) <= MAX_NESTING


def _check_integers(value: Any, where: str) -> None:
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise RecordRefused(f"{where}: {value} is beyond ±(2^53-1); record it as a string")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_integers(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            _check_integers(item, where)
