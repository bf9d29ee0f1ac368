"""Signed notes against Go's implementation, and the checkpointer that makes and keeps them."""

import base64
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from sample_ledger import SampleLedger, append_one

from ledger.chain import leaf_hash
from ledger.checkpoint import (
    CHECKPOINT_INTERVAL,
    Checkpoint,
    Checkpointer,
    check_signature,
    ledger_origin,
    parse_checkpoint,
    sign_checkpoint,
    split_notes,
)
from ledger.errors import Integrity, Usage
from ledger.log import Batch, NewEvent
from ledger.merkle import tree_root
from ledger.signing_keys import SigningKey, parse_verifier_key
from ledger.sqlite_log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.events.cell import ProtocolViolated
from schemas.events.ledger import LedgerCreated

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
VECTOR = VECTORS["notes"][1]
NOTE = VECTOR["note"].encode()


def vector_key() -> SigningKey:
    seed = bytes.fromhex(VECTOR["seed"])
    return SigningKey(Ed25519PrivateKey.from_private_bytes(seed))


@pytest.mark.parametrize("vector", VECTORS["notes"], ids=lambda v: v["note"].split("\n")[1])
def test_notes_are_those_of_go(vector: dict[str, str]) -> None:
    note = vector["note"].encode()
    signed = parse_checkpoint(note)
    leaves = [leaf_hash(f"record {n}".encode()) for n in range(signed.checkpoint.size)]
    assert signed.checkpoint.root == tree_root(leaves)
    assert check_signature(signed, parse_verifier_key(vector["verifier"])) == "valid"
    assert sign_checkpoint(signed.checkpoint, vector_key()) == note
    assert str(vector_key().verifier(signed.checkpoint.origin)) == vector["verifier"]


def test_signature_speaks_for_one_ledger_and_one_note() -> None:
    signed = parse_checkpoint(NOTE)
    key = parse_verifier_key(VECTOR["verifier"])
    other = vector_key().verifier("example/another")
    assert check_signature(signed, other) == "unknown"
    forged = parse_checkpoint(NOTE.replace(b"\n3\n", b"\n4\n"))
    assert check_signature(forged, key) == "bad"
    # Signed by our key under its own name, but for another log.
    text = Checkpoint("example/another", 3, signed.checkpoint.root).text()
    line = base64.b64encode(key.id + vector_key().sign(text)).decode()
    misused = parse_checkpoint(text + f"\n— {key.name} {line}\n".encode())
    assert check_signature(misused, key) == "bad"


def test_signatures_of_strangers_are_ignored() -> None:
    stranger = SigningKey(Ed25519PrivateKey.from_private_bytes(b"\x01" * 32))
    signed = parse_checkpoint(NOTE)
    theirs = sign_checkpoint(signed.checkpoint, stranger).split(b"\n\n")[1]
    both = parse_checkpoint(NOTE + theirs)
    assert len(both.signatures) == 2
    assert check_signature(both, parse_verifier_key(VECTOR["verifier"])) == "valid"


@pytest.mark.parametrize(
    "note",
    [
        NOTE[:-1],
        NOTE + b"\n",
        b"\n" + NOTE,
        NOTE.replace(b"\n3\n", b"\n03\n"),
        NOTE.replace(b"\n3\n", b"\n-3\n"),
        NOTE.replace(b"\n3\n", b"\n3 \n"),
        NOTE.replace(b"\n\n", b"\nextension\n\n"),
        NOTE.replace(b"\n\n", b"\n\n\n"),
        NOTE.replace("— ".encode(), b"- "),
        NOTE.replace("— ".encode(), "—  ".encode()),
        NOTE.replace(b"example/", b"exa mple/"),
        NOTE.replace(b"example/", b"exa+mple/"),
        NOTE.replace(b"example/", b"exa\rmple/"),
        NOTE.replace(b"=\n\n", b"\n\n"),
        NOTE.replace(b"\n", b"\r\n"),
        b"x" * 100_000,
        b"",
    ],
    ids=range(17),
)
def test_what_does_not_reserialise_is_refused(note: bytes) -> None:
    assert note != NOTE
    with pytest.raises(Integrity, match="not a checkpoint"):
        parse_checkpoint(note)


def test_base64_with_unused_bits_is_refused() -> None:
    """Base64 of 32 bytes leaves two bits unused; only zeros are canonical."""
    root = NOTE.split(b"\n")[2]
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(root[-2:-1]) ^ 1 : (alphabet.index(root[-2:-1]) ^ 1) + 1]
    assert base64.b64decode(root[:-2] + last + b"=") == base64.b64decode(root)
    with pytest.raises(Integrity):
        parse_checkpoint(NOTE.replace(root, root[:-2] + last + b"="))


@given(
    st.from_regex(r"\A[A-Za-z0-9._/-]{1,40}\Z"),
    st.integers(0, 2**53),
    st.binary(min_size=32, max_size=32),
)
def test_every_note_reads_back(origin: str, size: int, root: bytes) -> None:
    checkpoint = Checkpoint(origin, size, root)
    note = sign_checkpoint(checkpoint, vector_key())
    signed = parse_checkpoint(note)
    assert signed.checkpoint == checkpoint
    assert signed.note() == note
    assert check_signature(signed, vector_key().verifier(origin)) == "valid"


def test_origin_is_a_name_that_a_key_may_have() -> None:
    created = LedgerCreated(format=1, hash="sha-256", uuid="018f-1", name="Mein + Ordner\n«x»")
    assert ledger_origin(created) == "Mein---Ordner--x/018f-1"
    assert ledger_origin(LedgerCreated(format=1, hash="sha-256", uuid="u", name="…")) == "ledger/u"
    with pytest.raises(Usage, match="cannot be an origin"):
        sign_checkpoint(Checkpoint("a b", 1, bytes(32)), vector_key())


def test_notes_in_a_file_come_apart() -> None:
    second = sign_checkpoint(Checkpoint("example/x", 9, bytes(32)), vector_key())
    assert split_notes(b"") == ([], [], b"")
    assert split_notes(NOTE + b"\n" + second + b"\n") == ([NOTE, second], [], b"")
    assert split_notes(NOTE + b"\nscribble\n\n" + second) == ([NOTE, second], [b"scribble"], b"")
    for length in range(1, len(second)):
        assert split_notes(NOTE + b"\n" + second[:length]) == (
            [NOTE],
            [],
            second[:length].strip(b"\n"),
        )


# --- the checkpointer ----------------------------------------------------------------------------


def sign(sample: SampleLedger) -> bytes:
    log = SqliteLog.open(sample.database)
    try:
        return Checkpointer(sample.directory).sign(log)
    finally:
        log.close()


def test_note_is_committed_and_published(sample: SampleLedger) -> None:
    sample.grow(4, sign=False)
    note = sign(sample)
    checkpoint = parse_checkpoint(note).checkpoint
    assert checkpoint.size == 35
    assert checkpoint.root == tree_root([leaf_hash(record) for record in sample.records()])
    with sample.connected() as connection:
        rows = dict(connection.execute("SELECT size, note FROM checkpoints").fetchall())
    assert rows[35] == note
    assert sample.notes()[-1] == note
    assert sorted(rows) == [1, 11, 21, 31, 35]


def test_signing_again_changes_nothing(sample: SampleLedger) -> None:
    before = sample.log_file.read_bytes()
    assert sign(sample) == sample.notes()[-1]
    assert sample.log_file.read_bytes() == before


def test_note_that_was_committed_and_not_published_is_published_later(
    sample: SampleLedger,
) -> None:
    """As after a crash between the commit and the file."""
    sample.log_file.write_bytes(b"".join(note + b"\n" for note in sample.notes()[:2]))
    sample.grow(1)
    assert [parse_checkpoint(note).checkpoint.size for note in sample.notes()] == [
        1,
        11,
        21,
        31,
        32,
    ]


@pytest.mark.parametrize("lost", [1, 2, 50, 230])
def test_torn_end_of_the_file_is_completed(sample: SampleLedger, lost: int) -> None:
    """As after a crash in the middle of the append."""
    whole = sample.log_file.read_bytes()
    sample.log_file.write_bytes(whole[:-lost])
    sample.grow(1)
    notes, strays, torn = split_notes(sample.log_file.read_bytes())
    assert [parse_checkpoint(note).checkpoint.size for note in notes] == [1, 11, 21, 31, 32]
    assert (strays, torn) == ([], b"")


def test_frontier_file_saves_reading_the_log_again(
    sample: SampleLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.grow(2, sign=False)
    log = SqliteLog.open(sample.database)
    asked = []
    leaves = log.leaves

    def counting(start: int, stop: int) -> Any:
        asked.append((start, stop))
        return leaves(start, stop)

    monkeypatch.setattr(log, "leaves", counting)
    Checkpointer(sample.directory).sign(log)
    log.close()
    assert asked == [(31, 31), (31, 33)]


@pytest.mark.parametrize("damage", ["gone", "garbage", "another root", "another key"])
def test_frontier_file_needs_no_trust(sample: SampleLedger, damage: str) -> None:
    path = sample.log_file.with_suffix(".frontier")
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(os.urandom(300))
    elif damage == "another root":
        path.write_bytes(content[:-65] + b"0" * 64 + b"\n")
    else:
        note = sample.notes()[-1]
        stranger = SigningKey(Ed25519PrivateKey.from_private_bytes(b"\x02" * 32))
        checkpoint = parse_checkpoint(note).checkpoint
        path.write_bytes(content.replace(note, sign_checkpoint(checkpoint, stranger)))
    sample.grow(3)
    checkpoint = parse_checkpoint(sample.notes()[-1]).checkpoint
    assert checkpoint.root == tree_root([leaf_hash(record) for record in sample.records()])


def test_contradicting_records_are_not_signed(sample: SampleLedger) -> None:
    """A log must not sign a root that contradicts one that it signed before."""
    sample.rewrite({13: lambda record: {**record, "run": "other"}})
    sample.log_file.with_suffix(".frontier").unlink()
    before = sample.log_file.read_bytes()
    with pytest.raises(Integrity, match="differ from those under the newest checkpoint"):
        sign(sample)
    assert sample.log_file.read_bytes() == before


def test_shortened_log_is_not_signed(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq > 25")
    with pytest.raises(Integrity, match="covers 31 records and the log has 26"):
        sign(sample)


def test_empty_log_cannot_be_signed(tmp_path: Path, sample: SampleLedger) -> None:
    log = SqliteLog.create(tmp_path / "ledger.db")
    with pytest.raises(Usage, match="empty log"):
        Checkpointer(sample.directory).sign(log)
    log.close()


def test_interval_is_signed_once(sample: SampleLedger) -> None:
    """Exactly the append that reaches a multiple of the interval signs."""
    log = SqliteLog.open(sample.database)
    checkpointer = Checkpointer(sample.directory)
    signed = []
    for first in range(0, CHECKPOINT_INTERVAL + 100, 70):
        events = [
            NewEvent("many", ProtocolViolated(turn=number, kind="k", detail="d"))
            for number in range(70)
        ]
        cause = append_one(log, ProtocolViolated(turn=first, kind="cause", detail="d"))
        stored = log.append(Batch(events=events, actor="cell", run="run-1", cause=cause))
        note = checkpointer.after_append(log, stored)
        if note is not None:
            signed.append((stored[0].seq, stored[-1].seq, parse_checkpoint(note).checkpoint.size))
    log.close()
    assert len(signed) == 1
    first, last, size = signed[0]
    assert first < CHECKPOINT_INTERVAL <= last + 1 == size


def _grow_and_sign(root: Path, count: int) -> None:
    directory = StudyDirectory(root)
    log = SqliteLog.open(directory.ledger)
    for number in range(count):
        append_one(log, ProtocolViolated(turn=number, kind="k", detail="d"), f"s{os.getpid()}")
        Checkpointer(directory).sign(log)
    log.close()


def test_processes_sign_side_by_side(sample: SampleLedger) -> None:
    """Every note is right and published, whoever was faster."""
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_grow_and_sign, args=(sample.directory.root, 8)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    leaves = [leaf_hash(record) for record in sample.records()]
    assert len(leaves) == 31 + 24
    notes, strays, torn = split_notes(sample.log_file.read_bytes())
    assert (strays, torn) == ([], b"")
    for note in notes:
        checkpoint = parse_checkpoint(note).checkpoint
        assert checkpoint.root == tree_root(leaves[: checkpoint.size])
    with sample.connected() as connection:
        rows = {row[0] for row in connection.execute("SELECT note FROM checkpoints")}
    assert rows == set(notes)
    assert parse_checkpoint(sample.notes()[-1]).checkpoint.size == 55
