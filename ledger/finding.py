"""What verification finds: a code, where, what was expected, what stands there."""

from typing import Literal

import msgspec

MAX_SHOWN = 200

Code = Literal[
    "SEQ_GAP",
    "SEQ_DUP",
    "LINK",
    "LEAF",
    "COLUMN_MISMATCH",
    "NON_CANONICAL",
    "STREAM_VERSION",
    "TRUNCATED_BELOW_CHECKPOINT",
    "ROOT_MISMATCH",
    "FORK",
    "SIG_BAD",
    "KEY_UNKNOWN",
    "ARTIFACT_MISSING",
    "ARTIFACT_ALTERED",
    "CLOCK_BACKWARD",
    "TRIGGER_MISSING",
    "SCHEMA_DRIFT",
    "DB_CORRUPT",
    "WAL_MISSING_SUSPECTED",
    "UNKNOWN_TYPE",
]
"""Every code of a finding; its class or function says what it means."""
WARNINGS = frozenset({"CLOCK_BACKWARD", "WAL_MISSING_SUSPECTED"})
NOTES = frozenset({"UNKNOWN_TYPE"})


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be. ``expected`` and ``got`` are printable ASCII."""

    code: Code
    seq: int | None
    expected: str
    got: str

    @property
    def severity(self) -> Literal["violation", "warning", "note"]:
        if self.code in WARNINGS:
            return "warning"
        if self.code in NOTES or (self.code == "ARTIFACT_MISSING" and self.got == ERASED):
            return "note"
        return "violation"


ERASED = "gone; it was recorded as erasable"


def shown(text: str) -> str:
    """Untrusted text for a report: one line of printable ASCII, cut."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= MAX_SHOWN else f"{escaped[:MAX_SHOWN]}..."
