"""The checks that see the ledger as a whole, after every record has been read.

Each function finds the codes that its docstring names.
"""

from collections.abc import Iterator

from ledger.checkpoint import Checkpoint, parse_checkpoint
from ledger.errors import Integrity
from ledger.evidence import Evidence, Note
from ledger.finding import Finding, shown
from ledger.record_page import CONVERTED


def check_signatures(evidence: Evidence) -> Iterator[Finding]:
    """SIG_BAD, KEY_UNKNOWN: every note is one, and signed by the configured key."""
    for note in evidence.notes:
        if note.signature == "unreadable":
            converted = b"\r\n" in note.note
            got = CONVERTED if converted else shown_note(note)
            yield Finding("SIG_BAD", note.seq, f"a signed note ({note.where})", got)
        elif note.signature == "bad":
            yield Finding("SIG_BAD", note.seq, f"a signature by {evidence.key}", shown_note(note))
        elif note.signature == "unknown":
            yield Finding("KEY_UNKNOWN", note.seq, f"key {evidence.key}", shown(note.key_ids))


def check_checkpoint_rows(evidence: Evidence) -> Iterator[Finding]:
    """COLUMN_MISMATCH: the size beside a note is the size in it."""
    for size, note in evidence.rows:
        try:
            signed = parse_checkpoint(note).checkpoint
        except Integrity:
            continue
        if signed.size != size:
            got = f"checkpoints.size={size}"
            yield Finding("COLUMN_MISMATCH", signed.size - 1, f"size={signed.size}", got)


def check_forks(evidence: Evidence) -> Iterator[Finding]:
    """FORK: two notes of one key for one size with different roots: two histories were signed."""
    first: dict[int, Checkpoint] = {}
    for note in evidence.notes:
        if note.signature == "valid" and note.checkpoint is not None:
            known = first.setdefault(note.checkpoint.size, note.checkpoint)
            if known.root != note.checkpoint.root:
                expected = f"root {known.root.hex()}, signed too"
                got = f"root {note.checkpoint.root.hex()} ({note.where})"
                yield Finding("FORK", known.size - 1 if known.size else None, expected, got)


def check_length(evidence: Evidence) -> Iterator[Finding]:
    """TRUNCATED_BELOW_CHECKPOINT: no record is missing under a checkpoint, or since this user's
    verifier looked last."""
    largest = evidence.largest_signed
    if evidence.complete and largest > evidence.following:
        source = "last seen by this user" if evidence.seen == largest else "checkpoint"
        yield Finding(
            "TRUNCATED_BELOW_CHECKPOINT",
            largest - 1,
            f"{largest} records ({source})",
            f"{evidence.following} records",
        )


def shown_note(note: Note) -> str:
    return shown(note.note[:80].decode("utf-8", "replace"))
