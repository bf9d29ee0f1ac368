"""Proofs that travel without the ledger: one record under a checkpoint, or one checkpoint under a
later one. Whoever checks them needs the proof, a signed note and the signer's public key.

Inclusion, as C2SP's tlog-proof has it (any implementation of that checks it):

    c2sp.org/tlog-proof@v1
    extra <base64 of the record>             left out where the record may not be shown
    index <seq>
    <base64 of a hash>                       the siblings, from the leaf upwards

    <the signed note>

Consistency, as the request ``add-checkpoint`` of C2SP's tlog-witness has it; the old note follows:

    old <size>
    <base64 of a hash>

    <the signed note of the larger tree>

    <the signed note of the old tree>
"""

import base64
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from ledger.chain import leaf_hash
from ledger.checkpoint import (
    Checkpoint,
    SignedCheckpoint,
    check_signature,
    parse_checkpoint,
)
from ledger.errors import Integrity, Usage
from ledger.log import EventLog
from ledger.merkle import (
    HASH_BYTES,
    consistency_proof,
    inclusion_proof,
    proves_consistency,
    proves_inclusion,
)
from ledger.signing_keys import VerifierKey

Part = Literal["form", "record", "hashes", "signature", "kept_note"]
"""What of a proof can fail: its form, the record that it is about, the hashes from there to the
root, the signature under that root, the note that the reader has kept."""

INCLUSION_HEADER = b"c2sp.org/tlog-proof@v1\n"
CONSISTENCY_HEADER = b"old "
MAX_PROOF_BYTES = 4 << 20
MAX_HASHES = 63

_HASHES = rb"(?P<hashes>(?:[A-Za-z0-9+/]{43}=\n){0,%d})\n" % MAX_HASHES
_NUMBER = rb"(?:0|[1-9][0-9]{0,15})"
_INCLUSION = re.compile(
    rb"(?:extra (?P<extra>[A-Za-z0-9+/]*={0,2})\n)?index (?P<index>"
    + _NUMBER
    + rb")\n"
    + _HASHES
    + rb"(?P<note>.+)",
    re.DOTALL,
)
_CONSISTENCY = re.compile(
    rb"old (?P<old>"
    + _NUMBER
    + rb")\n"
    + _HASHES
    + rb"(?P<note>[^\n]+\n[^\n]+\n[^\n]+\n\n(?:[^\n]+\n)+)\n(?P<old_note>.+)",
    re.DOTALL,
)


class Refuted(Integrity):
    """A proof does not hold; ``part`` is the first part of it that fails."""

    def __init__(self, part: Part, message: str) -> None:
        super().__init__(message)
        self.part = part


class InclusionProof(msgspec.Struct, frozen=True):
    """Record ``index`` is under ``note``. ``record`` is None where it was left out."""

    index: int
    hashes: tuple[bytes, ...]
    note: bytes
    record: bytes | None = None

    def text(self) -> bytes:
        extra = b""
        if self.record is not None:
            extra = b"extra " + base64.b64encode(self.record) + b"\n"
        index = f"index {self.index}\n".encode()
        return INCLUSION_HEADER + extra + index + _lines(self.hashes) + b"\n" + self.note


class ConsistencyProof(msgspec.Struct, frozen=True):
    """The records under ``old_note`` are the first of those under ``note``."""

    hashes: tuple[bytes, ...]
    note: bytes
    old_note: bytes

    def text(self) -> bytes:
        old = f"old {parse_checkpoint(self.old_note).checkpoint.size}\n".encode()
        return old + _lines(self.hashes) + b"\n" + self.note + b"\n" + self.old_note


class Proven(msgspec.Struct, frozen=True):
    """What a checked proof says. ``signed`` is False where no key was there to check with."""

    checkpoint: Checkpoint
    """Of the signed note."""
    signed: bool
    old: Checkpoint | None = None
    """Of a consistency proof: the older checkpoint."""
    index: int | None = None
    """Of an inclusion proof: the position of the record."""
    leaf: bytes | None = None


def prove_inclusion(
    log: EventLog, seq: int, note: bytes, with_record: bool = True
) -> InclusionProof:
    """The proof that record ``seq`` is under a signed note of this log.

    Raises Usage where the note does not cover it, Integrity where the log is not what was signed.
    """
    checkpoint = _covered(log, note)
    if not 0 <= seq < checkpoint.size:
        raise Usage(
            f"record {seq} is not under the checkpoint over {checkpoint.size} records; "
            "`ledger checkpoint` signs the present root"
        )
    record = next(iter(log.read(seq, seq + 1))).record
    hashes = tuple(inclusion_proof(log.leaves, seq, checkpoint.size))
    if not proves_inclusion(leaf_hash(record), seq, checkpoint.size, hashes, checkpoint.root):
        raise _contradiction(checkpoint)
    return InclusionProof(seq, hashes, note, record if with_record else None)


def prove_consistency(log: EventLog, old_note: bytes, note: bytes) -> ConsistencyProof:
    """The proof that one signed note of this log continues another. Raises as above."""
    old, checkpoint = _covered(log, old_note), _covered(log, note)
    if not 0 < old.size <= checkpoint.size:
        raise Usage(f"a tree of {checkpoint.size} records cannot continue one of {old.size}")
    hashes = tuple(consistency_proof(log.leaves, old.size, checkpoint.size))
    if not proves_consistency(old.size, checkpoint.size, hashes, old.root, checkpoint.root):
        raise _contradiction(old)
    return ConsistencyProof(hashes, note, old_note)


def parse_proof(content: bytes) -> InclusionProof | ConsistencyProof:
    """Read a proof; nothing is checked yet.

    Raises Usage for what is no proof at all, Integrity for one that is malformed. Strict: what does
    not serialise to the same bytes is refused.
    """
    if not content.startswith((INCLUSION_HEADER, CONSISTENCY_HEADER)):
        raise Usage("not a proof: it begins with neither c2sp.org/tlog-proof@v1 nor `old`")
    if len(content) > MAX_PROOF_BYTES:
        raise Refuted("form", f"not a proof: longer than {MAX_PROOF_BYTES} bytes")
    proof: InclusionProof | ConsistencyProof
    if content.startswith(INCLUSION_HEADER):
        match = _INCLUSION.fullmatch(content[len(INCLUSION_HEADER) :])
        if match is None:
            raise Refuted(
                "form", "not a proof: it needs index, hashes, an empty line and a signed note"
            )
        extra = None if match["extra"] is None else _decoded(match["extra"])
        proof = InclusionProof(int(match["index"]), _hashes(match["hashes"]), match["note"], extra)
    else:
        match = _CONSISTENCY.fullmatch(content)
        if match is None:
            raise Refuted("form", "not a proof: it needs the old size, hashes and two signed notes")
        proof = ConsistencyProof(_hashes(match["hashes"]), match["note"], match["old_note"])
        parse_checkpoint(proof.old_note)
    parse_checkpoint(proof.note)
    if proof.text() != content:
        raise Refuted("form", "not a proof: it does not re-serialise to itself")
    return proof


def check_proof(
    proof: InclusionProof | ConsistencyProof,
    key: VerifierKey | None,
    kept: Sequence[bytes] = (),
    record: bytes | None = None,
) -> Proven:
    """Check a proof without any ledger.

    ``key`` is the public key that must have signed; None: signatures are not checked. ``kept`` are
    notes that the caller has from elsewhere: one of the proof's own checkpoints must be each of
    them. ``record`` is the record's line where the proof does not carry it.

    Raises Refuted where anything does not hold, Usage where the record is missing.
    """
    signed = parse_checkpoint(proof.note)
    checkpoints = [signed]
    old = None
    leaf = None
    if isinstance(proof, InclusionProof):
        content = proof.record if record is None else record
        if content is None:
            raise Usage(f"the proof does not carry record {proof.index}; give it with --record")
        if proof.record is not None and content != proof.record:
            raise Refuted(
                "record",
                "the record: the proof carries another record than the one that was given; what "
                "it proves is not about yours",
            )
        leaf = leaf_hash(content)
        tree = signed.checkpoint
        if not proves_inclusion(leaf, proof.index, tree.size, proof.hashes, tree.root):
            raise Refuted(
                "hashes",
                f"the hashes: this is not record {proof.index} under the checkpoint over "
                f"{tree.size} records; they do not lead from it to the signed root, so the record, "
                "its position, a hash or the checkpoint is another one than was proven",
            )
    else:
        older = parse_checkpoint(proof.old_note)
        checkpoints.append(older)
        old, tree = older.checkpoint, signed.checkpoint
        if old.origin != tree.origin:
            raise Refuted(
                "hashes",
                f"the checkpoints: they are of two ledgers, {old.origin} and {tree.origin}, and "
                "neither continues the other",
            )
        if not proves_consistency(old.size, tree.size, proof.hashes, old.root, tree.root):
            raise Refuted(
                "hashes",
                f"the hashes: the first {old.size} records are not those that were signed before; "
                f"the checkpoint over {tree.size} does not continue the one over {old.size}, so "
                "the history was rewritten between them, or the proof was altered",
            )
    if key is not None:
        for one in checkpoints:
            verdict = check_signature(one, key)
            if verdict != "valid":
                raise Refuted(
                    "signature",
                    f"the signature: the checkpoint over {one.checkpoint.size} records is not "
                    f"signed by {key}; {_why_unsigned(one, verdict)}",
                )
    for note in kept:
        wanted = parse_checkpoint(note)
        if key is not None and check_signature(wanted, key) != "valid":
            raise Refuted(
                "kept_note",
                f"the kept note: it is not signed by {key}; "
                f"{_why_unsigned(wanted, check_signature(wanted, key))}",
            )
        if wanted.checkpoint not in [one.checkpoint for one in checkpoints]:
            sizes = " and ".join(str(one.checkpoint.size) for one in checkpoints)
            raise Refuted(
                "kept_note",
                f"the kept note, over {wanted.checkpoint.size} records of "
                f"{wanted.checkpoint.origin}, is not a checkpoint of the proof (over {sizes}); "
                + (
                    "two histories of that length were signed, or one of the notes was altered"
                    if any(
                        (one.checkpoint.origin, one.checkpoint.size)
                        == (wanted.checkpoint.origin, wanted.checkpoint.size)
                        for one in checkpoints
                    )
                    else "ask for a proof against yours: `ledger prove --against NOTE`"
                ),
            )
    index = proof.index if isinstance(proof, InclusionProof) else None
    return Proven(signed.checkpoint, key is not None, old, index, leaf)


def _why_unsigned(signed: SignedCheckpoint, verdict: str) -> str:
    if verdict == "bad":
        return "it was altered after it was signed"
    named = ", ".join(f"{one.name}+{one.key_id.hex()}" for one in signed.signatures)
    return f"it is signed by {named}: another key, or a note of another ledger"


def _covered(log: EventLog, note: bytes) -> Checkpoint:
    """The checkpoint of a note, if the log is long enough for it."""
    checkpoint = parse_checkpoint(note).checkpoint
    head = log.head()
    if checkpoint.size > (0 if head is None else head.seq + 1):
        raise Integrity(
            f"a note was signed over {checkpoint.size} records and the ledger is shorter; run "
            "`ledger verify-chain`"
        )
    return checkpoint


def _contradiction(checkpoint: Checkpoint) -> Integrity:
    return Integrity(
        f"the first {checkpoint.size} records are not those that were signed: nothing can be "
        "proven; run `ledger verify-chain`"
    )


def _lines(hashes: Sequence[bytes]) -> bytes:
    return b"".join(base64.b64encode(one) + b"\n" for one in hashes)


def _hashes(lines: bytes) -> tuple[bytes, ...]:
    hashes = tuple(_decoded(line) for line in lines.split())
    assert all(len(one) == HASH_BYTES for one in hashes), "44 digits are 32 bytes"
    return hashes


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refuted("form", f"not a proof: {error}") from None
