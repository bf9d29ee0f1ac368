"""The only place that reads the wall clock or draws randomness.

What comes from here goes into a record's ``at`` and ``id``, an artifact's salt and a lease, and
nowhere else: nothing that is ranked, selected, planned, projected or analysed may depend on it.
"""

import os
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VARIANT = str.maketrans("0123456789abcdef", "89ab" * 4)
"""The two fixed bits and two random ones, from a random digit."""


def now_us() -> int:
    """Microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def timestamp(microseconds: int) -> str:
    """RFC 3339 in UTC with exactly six fractional digits: ``2026-07-18T09:30:00.000000Z``."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def uuid7s(microseconds: int, count: int) -> list[str]:
    """Different UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then 74 random bits."""
    milliseconds = f"{microseconds // 1000:012x}"
    beginning = f"{milliseconds[:8]}-{milliseconds[8:]}-7"
    digits = os.urandom(10 * count).hex()
    variants = digits[::20].translate(_VARIANT)
    return [
        f"{beginning}{digits[at + 1 : at + 4]}-{variant}{digits[at + 4 : at + 7]}"
        f"-{digits[at + 7 : at + 19]}"
        for variant, at in zip(variants, range(0, 20 * count, 20), strict=True)
    ]


def new_id() -> str:
    return uuid7s(now_us(), 1)[0]


def salt() -> bytes:
    """The 32 random bytes in front of an erasable artifact."""
    return os.urandom(32)
