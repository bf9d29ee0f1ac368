"""Signed notes against Go's implementation, and the checkpointer that makes and keeps them."""

import base64
import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from sample_ledger import SampleLedger, append_one

from ledger.chain import leaf_hash
from ledger.checkpoint import (
    Checkpoint,
    Checkpointer,
    check_signature,
    is_cut_off,
    ledger_origin,
    parse_checkpoint,
    sign_checkpoint,
    split_notes,
)
from ledger.cli.main import main
from ledger.creation import create_ledger
from ledger.errors import Integrity, Unfinished, Usage
from ledger.last_seen import recall
from ledger.merkle import tree_root
from ledger.signing_keys import SigningKey, parse_verifier_key
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import verify
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
        assert split_notes(NOTE + b"\n" + second[:length]) == ([NOTE], [], second[:length])
        assert is_cut_off(second[:length], "example/x")
    # Whole once, and changed since: no crash leaves that.
    altered = second.replace(b"\n9\n", b"\n+9\n")
    assert split_notes(NOTE + b"\n" + altered + b"\n") == ([NOTE], [], altered + b"\n")
    assert not is_cut_off(altered, "example/x")


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


@pytest.mark.parametrize("lost", [1, 230, 1 << 20])
def test_zeros_at_the_end_of_the_file_are_no_finding(sample: SampleLedger, lost: int) -> None:
    """As after a loss of power: the file has its new length, and its last bytes never came."""
    *before, last = sample.notes()
    whole = sample.log_file.read_bytes()
    lost = min(lost, len(last) + 1)
    sample.log_file.write_bytes(whole[:-lost] + bytes(lost))
    assert verify(sample.directory.root).findings == ()
    assert not is_cut_off(bytes(lost) + b"x", sample.origin)
    sample.grow(1)
    assert sample.notes()[:-1] == [*before, last]


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
    with pytest.raises(Integrity, match="first 31 records differ from those of a checkpoint"):
        sign(sample)
    assert sample.log_file.read_bytes() == before


def test_shortened_log_is_not_signed(sample: SampleLedger) -> None:
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq > 25")
    with pytest.raises(Integrity, match="the log has 26 records, and a checkpoint covers 31"):
        sign(sample)


def test_empty_log_cannot_be_signed(tmp_path: Path, sample: SampleLedger) -> None:
    log = SqliteLog.create(tmp_path / "ledger.db")
    with pytest.raises(Usage, match="empty log"):
        Checkpointer(sample.directory).sign(log)
    log.close()


def _grow_and_sign(root: Path, count: int) -> None:
    directory = StudyDirectory(root)
    log = SqliteLog.open(directory.ledger)
    for number in range(count):
        append_one(log, ProtocolViolated(turn=number, kind="k", detail="d"), f"cell/{os.getpid()}")
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


# --- what the signer has seen --------------------------------------------------------------------


def test_what_was_signed_is_remembered(sample: SampleLedger) -> None:
    assert recall(sample.home, sample.key) is None
    sample.grow(2)
    seen = recall(sample.home, sample.key)
    assert seen is not None
    assert (seen.size, seen.root) == (
        33,
        tree_root([leaf_hash(record) for record in sample.records()]).hex(),
    )


def put_back(older: Path, sample: SampleLedger) -> None:
    shutil.rmtree(sample.directory.var)
    shutil.copytree(older, sample.directory.var)


def test_an_older_copy_that_was_put_back_is_not_signed(
    sample: SampleLedger, tmp_path: Path
) -> None:
    older = shutil.copytree(sample.directory.var, tmp_path / "older")
    sample.grow(5)
    put_back(older, sample)
    log = SqliteLog.open(sample.database)
    with pytest.raises(Integrity, match="has 31 records, and what was seen before .* covers 36"):
        Checkpointer(sample.directory).check_before_writing(log)
    with pytest.raises(Integrity, match="an older copy was put back"):
        Checkpointer(sample.directory).sign(log)
    log.close()
    # Nor when it has grown again, past what was seen: the roots differ.
    sample.grow(9, sign=False)
    with pytest.raises(Integrity, match="first 36 records differ from those of what was seen"):
        sign(sample)
    assert [parse_checkpoint(note).checkpoint.size for note in sample.notes()] == [1, 11, 21, 31]


def test_nothing_is_appended_to_an_older_copy(
    sample: SampleLedger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = shutil.copytree(sample.directory.var, tmp_path / "older")
    sample.grow(5)
    put_back(older, sample)
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "--study", str(sample.directory.root)])
    assert ended.value.code == 3
    assert "an older copy was put back" in capsys.readouterr().err
    assert len(sample.records()) == 31


def test_damaged_state_is_not_passed_over(sample: SampleLedger) -> None:
    (sample.home / "last-seen").write_bytes(b"a file where a folder belongs")
    with pytest.raises(Unfinished, match="last-seen.*delete it to forget"):
        sign(sample)


# --- records and checkpoints that are gone -------------------------------------------------------


@pytest.mark.parametrize("deleted", ["seq >= 0", "seq = 0", "seq < 3"])
def test_a_log_that_lost_its_beginning_is_not_gone_on_with(
    sample: SampleLedger, deleted: str
) -> None:
    with sample.tampering() as connection:
        connection.execute(f"DELETE FROM records WHERE {deleted}")
    for attempt in (
        lambda: SqliteLog.open(sample.database),
        lambda: SqliteLog.open_read_only(sample.database),
        lambda: create_ledger(sample.directory),
    ):
        with pytest.raises(Integrity, match="records were removed or moved"):
            attempt()
    report = verify(sample.directory.root)
    assert {"SEQ_GAP", "TRUNCATED_BELOW_CHECKPOINT"} & {f.code for f in report.findings}


@pytest.mark.parametrize("left", ["rows deleted too", "database gone"])
def test_no_ledger_is_begun_over_the_checkpoints_of_another(
    sample: SampleLedger, left: str
) -> None:
    if left == "database gone":
        sample.database.unlink()
    else:
        with sample.tampering() as connection:
            connection.execute("DELETE FROM records")
            connection.execute("DELETE FROM checkpoints")
    before = sample.log_file.read_bytes()
    with pytest.raises(Integrity, match="of a ledger whose records are gone"):
        create_ledger(sample.directory)
    assert sample.log_file.read_bytes() == before


GARBAGE = [b"\xff\xfe\0" * 1000, b"dear diary", b"x/y\n5\n", b"\n\n garbage \n\n"]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("kept", [0, 4])
def test_garbage_in_the_checkpoints_is_found_and_kept(
    sample: SampleLedger, garbage: bytes, kept: int
) -> None:
    """Overwritten, or written behind the last note: it is no end that a crash leaves."""
    content = b"".join(note + b"\n" for note in sample.notes()[:kept]) + garbage
    sample.log_file.write_bytes(content)
    report = verify(sample.directory.root)
    assert [(f.code, f.seq) for f in report.findings] == [("SIG_BAD", None)]
    sample.grow(2)
    after = sample.log_file.read_bytes()
    assert after.startswith(content)
    assert [parse_checkpoint(note).checkpoint.size for note in sample.notes()] == [
        1, 11, 21, 31, 33,
    ]  # fmt: skip
    assert [f.code for f in verify(sample.directory.root).findings] == ["SIG_BAD"]


@pytest.mark.parametrize("length", [1, 20, 60, 120, 200])
def test_an_end_that_a_crash_left_is_no_finding(sample: SampleLedger, length: int) -> None:
    note = sample.notes()[-1]
    sample.log_file.write_bytes(sample.log_file.read_bytes() + note[:length])
    assert verify(sample.directory.root).findings == ()
    sample.grow(1)
    assert verify(sample.directory.root).findings == ()
    assert len(sample.notes()) == 5
