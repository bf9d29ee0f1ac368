"""The encoding traps: each a rule, each with the input that springs it."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis.strategies import lists
from msgspec import Meta

from ledger.codec import (
    decode_envelope,
    decode_event,
    encode_data,
    encode_events,
    encode_record,
    is_canonical,
)
from ledger.errors import Integrity, RecordRefused
from schemas.base import Event, Value
from schemas.envelope import MAX_INTEGER, MAX_NESTING, MAX_RECORD_BYTES, Envelope
from schemas.events.cell import BudgetCharged, ProtocolViolated
from schemas.json_nesting import nesting
from tests.strategies import events


class Anything(Event):
    """Wider than any event of ours, so that every trap fits in."""

    TYPE: ClassVar[str] = "anything.noted.v1"
    value: Any


class Measured(Event):
    """A float where a null would read back without an error."""

    TYPE: ClassVar[str] = "anything.measured.v1"
    value: float | None


class Limited(Event):
    TYPE: ClassVar[str] = "anything.limited.v1"
    value: Annotated[int, Meta(ge=1)]


class Pair(Value):
    left: str


def envelope_of(data: bytes, **changes: Any) -> Envelope:
    fields = {
        "seq": 7,
        "prev": "ab" * 32,
        "id": "01980f3e-7c00-7000-8000-000000000001",
        "type": "protocol.violated.v1",
        "stream": "cell/R001-003/H000/M002/0",
        "version": 3,
        "at": "2026-07-18T09:30:00.000000Z",
        "actor": "cell",
        "cause": None,
        "index": 0,
        "run": "run",
        "data": msgspec.Raw(data),
    }
    return Envelope(**{**fields, **changes})


@settings(deadline=None)
@given(events)
def test_what_is_encoded_is_canonical_and_reads_back(event: Event) -> None:
    data = encode_data(event)
    envelope = envelope_of(data, type=event.TYPE)
    record = encode_record(envelope)
    assert is_canonical(record)
    assert decode_event(decode_envelope(record)) == event
    # Another reader sees the same.
    assert msgspec.convert(json.loads(record)["data"], type(event)) == event


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("event_class", [Measured, Anything])
def test_what_is_not_a_number_is_refused(event_class: type[Event], value: float) -> None:
    event = event_class(value=value)
    assert msgspec.json.encode(event) == b'{"value":null}', "the trap"
    with pytest.raises(RecordRefused, match="NaN"):
        encode_data(event)


@settings(deadline=None)
@given(lists(events, max_size=5))
def test_events_of_a_batch_are_encoded_like_single_ones(batch: list[Event]) -> None:
    assert encode_events(batch) == [encode_data(event) for event in batch]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (Measured(value=math.nan), "NaN"),
        (Anything(value=2**53), "record it as a string"),
        (Anything(value=(1, 2)), "reads back as another value"),
        (Limited(value=0), "Expected `int` >= 1"),
        (ProtocolViolated(turn=0, kind="\ud800", detail=""), "surrogates not allowed"),
    ],
)
def test_one_refused_event_is_found_in_a_batch(refused: Event, why: str) -> None:
    others: list[Event] = [Anything(value="a\nb"), Measured(value=1.5)]
    with pytest.raises(RecordRefused, match=f"{refused.TYPE}.*{why}"):
        encode_events([others[0], refused, others[1]])


@pytest.mark.parametrize("value", [{"deep": [1, math.nan]}, [[math.inf]]])
def test_what_is_not_a_number_is_found_at_any_depth(value: Any) -> None:
    with pytest.raises(RecordRefused, match="NaN"):
        encode_data(Anything(value=value))


@pytest.mark.parametrize("value", [MAX_INTEGER, -MAX_INTEGER, "9" * 40, ["12" * 32]])
def test_safe_integers_and_any_digits_in_text_pass(value: Any) -> None:
    assert json.loads(encode_data(Anything(value=value))) == {"value": value}


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**63, 10**30, {"a": [2**53]}])
def test_integers_that_other_readers_round_are_refused(value: Any) -> None:
    with pytest.raises(RecordRefused, match="record it as a string"):
        encode_data(Anything(value=value))


def test_a_lone_surrogate_is_refused_in_data_and_envelope() -> None:
    with pytest.raises(RecordRefused, match="surrogates not allowed"):
        encode_data(ProtocolViolated(turn=0, kind="\ud800", detail=""))
    for field in ("stream", "actor", "run", "cause"):
        with pytest.raises(RecordRefused, match="surrogates not allowed"):
            encode_record(envelope_of(b"{}", **{field: "\udfff"}))


@pytest.mark.parametrize(
    "event",
    [
        BudgetCharged(kind="lunch", used=1, limit=2),  # type: ignore[arg-type]
        BudgetCharged(kind="turn", used=0, limit=2),
        BudgetCharged(kind="turn", used=1.0, limit=2),  # type: ignore[arg-type]
        BudgetCharged(kind="turn", used=True, limit=2),
        BudgetCharged(kind="turn", used=None, limit=2),  # type: ignore[arg-type]
        BudgetCharged(kind="turn", used="1", limit=2),  # type: ignore[arg-type]
        ProtocolViolated(turn=0, kind=b"bytes", detail=""),  # type: ignore[arg-type]
        ProtocolViolated(turn=0, kind=Path("here"), detail=""),  # type: ignore[arg-type]
        Anything(value=("a", "tuple")),
        Anything(value=Pair(left="x")),
        Anything(value={1: "a key that is not text"}),
        Limited(value=-3),
    ],
    ids=repr,
)
def test_an_event_that_would_not_read_back_is_refused(event: Event) -> None:
    with pytest.raises(RecordRefused, match=event.TYPE):
        encode_data(event)


def nest(levels: int) -> Any:
    value: Any = "["  # a bracket in a string is not nesting
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_limited() -> None:
    around = 2  # the record's object and that of its data
    deepest = encode_data(Anything(value=nest(MAX_NESTING - around)))
    assert nesting(encode_record(envelope_of(deepest))) == MAX_NESTING
    deeper = encode_data(Anything(value=nest(MAX_NESTING - around + 1)))
    with pytest.raises(RecordRefused, match=f"deeper than {MAX_NESTING}"):
        encode_record(envelope_of(deeper))
    with pytest.raises(RecordRefused, match=r"anything\.noted\.v1"):
        encode_data(Anything(value=nest(100_000)))


def test_brackets_in_text_are_not_nesting() -> None:
    text = '\\"[{' * 500
    record = encode_record(envelope_of(encode_data(Anything(value=text))))
    assert nesting(record) == 2
    assert is_canonical(record)


def test_a_record_has_at_most_one_mebibyte() -> None:
    empty = len(encode_record(envelope_of(encode_data(Anything(value="")))))
    largest = "x" * (MAX_RECORD_BYTES - empty)
    assert len(encode_record(envelope_of(encode_data(Anything(value=largest))))) == MAX_RECORD_BYTES
    with pytest.raises(RecordRefused, match="belongs in an artifact"):
        encode_record(envelope_of(encode_data(Anything(value=largest + "x"))))


RECORD = encode_record(envelope_of(b'{"turn":1,"kind":"a/b","detail":"\xc3\xa9"}'))


@pytest.mark.parametrize(
    ("original", "altered"),
    [
        (b'"turn":1', b'"turn": 1'),
        (b'"turn":1', b'"turn":1\n'),
        (b'"turn":1', b'"turn":1,"turn":1'),
        (b'"turn":1', b'"turn":1.0e0'),
        (b'"turn":1', b'"turn":-0'),
        (b'"turn":1', b'"turn":01'),
        (b'"turn":1', b'"turn":+1'),
        (b'"turn":1', b'"turn":NaN'),
        (b'"turn":1', b'"turn":1e999'),
        (b"a/b", b"a\\/b"),
        (b"a/b", b"\\u0061/b"),
        (b"a/b", b"a/b\\u0009"),
        (b"a/b", b"\\ud83d\\ude00"),
        (b"a/b", b"\\uD800"),
        (b"a/b", b"\xed\xa0\x80"),
        (b"\xc3\xa9", b"\\u00e9"),
        (b"\xc3\xa9", b"\xe9"),
        (b"\xc3\xa9", b"\xc0\xaf"),
        (b"\xc3\xa9", b"\xc3"),
        (b'{"turn"', b'{\t"turn"'),
        (b"}}", b"}}\n"),
        (b"}}", b"}}{}"),
        (b"}}", b"},}"),
        (b'{"seq"', b'\xef\xbb\xbf{"seq"'),
    ],
)
def test_any_other_form_of_the_same_record_is_found(original: bytes, altered: bytes) -> None:
    assert is_canonical(RECORD)
    assert RECORD.count(original) == 1
    assert not is_canonical(RECORD.replace(original, altered))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        RECORD[:-1],
        RECORD.replace(b'"seq":7', b'"seq":-7'),
        RECORD.replace(b'"prev":"ab', b'"prev":"'),
        RECORD.replace(b'"run"', b'"ran"'),
        RECORD.replace(b'"run":"run"', b'"run":"run","extra":1'),
        RECORD.replace(b"a/b", b"\xed\xa0\x80"),
    ],
)
def test_what_is_not_a_record_is_an_integrity_error(record: bytes) -> None:
    with pytest.raises(Integrity):
        decode_event(decode_envelope(record))


def test_an_unknown_type_reads_as_a_record_and_stops_replay_with_its_seq() -> None:
    envelope = decode_envelope(encode_record(envelope_of(b'{"a":1}', type="cell.dreamt.v1")))
    with pytest.raises(Integrity, match=r"seq 7: unknown event type 'cell.dreamt.v1'"):
        decode_event(envelope)


def test_data_that_its_type_refuses_stops_replay_with_its_seq() -> None:
    envelope = decode_envelope(encode_record(envelope_of(b'{"turn":1}')))
    with pytest.raises(Integrity, match=r"seq 7: protocol.violated.v1: .*kind"):
        decode_event(envelope)
