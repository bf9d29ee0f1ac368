"""The record: one line of JSON whose bytes are the truth.

    {"seq":4711,"prev":"<64 hex>","id":"<UUIDv7>","type":"cell.graded.v1","stream":"cell/…",
     "version":12,"at":"2026-07-18T09:30:00.000000Z","actor":"grader","cause":"<command id>",
     "index":0,"run":"<correlation id>","data":{…}}

The fields stand in this order, without insignificant white space; ``clock`` (the raw clock) stands
before ``data`` only where ``at`` had to be clamped. ``data`` stays raw here and is decoded in a
second step by the decoder of its type, so a record of an unknown type still verifies.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schemas.base import Position

FORMAT_VERSION = 1
MAX_RECORD_BYTES = 1 << 20
MAX_NESTING = 64
MAX_INTEGER = 2**53 - 1
FIRST_PREV = "0" * 64


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One record, decoded as far as every reader needs. Field order is the byte order."""

    seq: Position
    # Only its length here: that it is the right hash is what verification is for, and a pattern
    # would be matched for every record that anybody reads.
    prev: Annotated[
        str,
        Meta(
            min_length=64, max_length=64, description="leaf of the record before; zeros in record 0"
        ),
    ]
    id: Annotated[str, Meta(description="UUIDv7 of this record")]
    type: Annotated[str, Meta(description="literal tag, `<subject>.<past-tense verb>.v<n>`")]
    stream: Annotated[str, Meta(description="what the event is about")]
    version: Annotated[int, Meta(ge=0, description="place in its stream, dense from 0")]
    at: Annotated[str, Meta(description="UTC, exactly six fractional digits, never backwards")]
    actor: Annotated[str, Meta(description="role that appended it")]
    cause: Annotated[
        str | None,
        Meta(description="id of the command record; null in record 0 and in a person's command"),
    ]
    index: Annotated[int, Meta(ge=0, description="place among the events of its cause")]
    run: Annotated[str, Meta(description="correlation id of the program run")]
    clock: Annotated[str | UnsetType, Meta(description="raw clock where `at` was clamped")] = UNSET
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
