"""The only place that reads the wall clock or draws randomness.

What comes from here goes into a record's ``at`` and ``id``, an artifact's salt and a lease, and
nowhere else: nothing that is ranked, selected, planned, projected or analysed may depend on it.
"""

import os
import time
from datetime import UTC, datetime


def now_us() -> int:
    """Microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def timestamp(microseconds: int) -> str:
    """RFC 3339 in UTC with exactly six fractional digits: ``2026-07-18T09:30:00.000000Z``."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{microseconds % 1_000_000:06d}Z"


def uuid7(microseconds: int) -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then 74 random bits."""
    random_bits = int.from_bytes(os.urandom(10), "big")
    value = (microseconds // 1000) << 80
    value |= 0x7 << 76 | (random_bits >> 62 & 0xFFF) << 64
    value |= 0b10 << 62 | random_bits & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_id() -> str:
    return uuid7(now_us())


def salt() -> bytes:
    """The 32 random bytes in front of an erasable artifact."""
    return os.urandom(32)
