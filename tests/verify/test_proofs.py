"""Proofs that are checked without the ledger: by us, and by Go's tlog where Go is there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sample_ledger import SIZES, SampleLedger

from ledger.errors import Integrity, LedgerError, Usage
from ledger.signing_keys import VerifierKey
from ledger.sqlite.log import SqliteLog
from ledger.verify.proofs import (
    ConsistencyProof,
    InclusionProof,
    check_proof,
    parse_proof,
    prove_consistency,
    prove_inclusion,
)

TLOG = Path(__file__).parent / "tlog_vectors"


def proofs_of(sample: SampleLedger) -> list[InclusionProof | ConsistencyProof]:
    """Every record under every note that covers it, every note under every later one."""
    notes = dict(zip(SIZES, sample.notes(), strict=True))
    log = SqliteLog.open_read_only(sample.database)
    try:
        found: list[InclusionProof | ConsistencyProof] = [
            prove_inclusion(log, seq, note) for size, note in notes.items() for seq in range(size)
        ]
        found += [
            prove_consistency(log, notes[old], notes[size])
            for old in SIZES
            for size in SIZES
            if old <= size
        ]
    finally:
        log.close()
    return found


def test_every_proof_holds_without_the_ledger(sample: SampleLedger) -> None:
    proofs = proofs_of(sample)
    records = sample.records()
    key = sample.key
    shutil.rmtree(sample.directory.root)
    assert len(proofs) == sum(SIZES) + 10
    for proof in proofs:
        read = parse_proof(proof.text())
        assert read == proof
        proven = check_proof(read, key)
        assert proven.signed and proven.checkpoint.origin == key.name
        if isinstance(read, InclusionProof):
            assert read.record == records[read.index]
            assert proven.index == read.index


def test_a_note_from_elsewhere_must_be_one_of_the_proof(sample: SampleLedger) -> None:
    notes = sample.notes()
    log = SqliteLog.open_read_only(sample.database)
    inclusion = prove_inclusion(log, 3, notes[1])
    consistency = prove_consistency(log, notes[1], notes[2])
    log.close()
    assert check_proof(inclusion, sample.key, [notes[1]]).index == 3
    assert check_proof(consistency, sample.key, [notes[1], notes[2]]).old is not None
    for proof, note in ((inclusion, notes[2]), (consistency, notes[3])):
        with pytest.raises(Integrity, match="not a checkpoint of the proof"):
            check_proof(proof, sample.key, [note])
    forged = notes[1].replace(b"\n11\n", b"\n12\n")
    with pytest.raises(Integrity, match="not signed by"):
        check_proof(inclusion, sample.key, [forged])


def test_a_record_that_is_left_out_must_be_given(sample: SampleLedger) -> None:
    log = SqliteLog.open_read_only(sample.database)
    proof = prove_inclusion(log, 3, sample.notes()[1], with_record=False)
    log.close()
    record = sample.records()[3]
    assert record not in proof.text() and b"extra" not in proof.text()
    with pytest.raises(Usage, match="--record"):
        check_proof(proof, sample.key)
    assert check_proof(proof, sample.key, record=record).index == 3
    with pytest.raises(Integrity, match="not record 3"):
        check_proof(proof, sample.key, record=sample.records()[4])
    whole = InclusionProof(3, proof.hashes, proof.note, record)
    with pytest.raises(Integrity, match="another record"):
        check_proof(whole, sample.key, record=sample.records()[4])


def test_signed_by_another_key_or_for_another_ledger(sample: SampleLedger) -> None:
    proof = next(p for p in proofs_of(sample) if isinstance(p, InclusionProof))
    assert not check_proof(proof, None).signed
    for other in (VerifierKey(sample.key.name, bytes(32)), sample.signing_key.verifier("other/x")):
        with pytest.raises(Integrity, match="is not signed by"):
            check_proof(proof, other)


def test_what_cannot_be_proven(sample: SampleLedger) -> None:
    notes = sample.notes()
    log = SqliteLog.open_read_only(sample.database)
    with pytest.raises(Usage, match="not under the checkpoint over 11"):
        prove_inclusion(log, 11, notes[1])
    with pytest.raises(Usage, match="cannot continue"):
        prove_consistency(log, notes[2], notes[1])
    log.close()
    # Rewritten and chained again: the old note does not cover this history.
    sample.rewrite({3: lambda record: {**record, "run": "other"}})
    log = SqliteLog.open_read_only(sample.database)
    for prove in (
        lambda: prove_inclusion(log, 3, notes[1]),
        lambda: prove_inclusion(log, 0, notes[1]),
        lambda: prove_consistency(log, notes[1], notes[3]),
    ):
        with pytest.raises(Integrity, match="not those that were signed"):
            prove()
    log.close()
    with sample.tampering() as connection:
        connection.execute("DELETE FROM records WHERE seq >= 20")
    log = SqliteLog.open_read_only(sample.database)
    with pytest.raises(Integrity, match="the ledger is shorter"):
        prove_inclusion(log, 0, notes[3])
    log.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_no_altered_proof_says_something_else(original: SampleLedger, data: st.DataObject) -> None:
    """Whatever is changed, cut or put in: it is refused, or it still says a true thing."""
    notes = original.notes()
    log = SqliteLog.open_read_only(original.database)
    proof = data.draw(
        st.sampled_from(
            [prove_inclusion(log, 13, notes[2]), prove_consistency(log, notes[1], notes[3])]
        )
    )
    log.close()
    text = bytearray(proof.text())
    place = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 4))
    put_in = data.draw(st.binary(max_size=4) | st.sampled_from([b"\n", b"=", b"9", b"A"]))
    text[place : place + length] = put_in
    records = original.records()
    try:
        read = parse_proof(bytes(text))
        proven = check_proof(read, original.key)
    except LedgerError:
        return
    if isinstance(read, InclusionProof):
        assert read.record == records[read.index]
    else:
        assert proven.old is not None and proven.old.size in SIZES
    assert proven.checkpoint.size in SIZES


@given(st.binary(max_size=200).map(lambda tail: b"c2sp.org/tlog-proof@v1\n" + tail))
@example(b"c2sp.org/tlog-proof@v1\nindex 1\n" + b"A" * 43 + b"=\n" * 64)
@example(b"c2sp.org/tlog-proof@v1\nindex 01\n\n")
@example(b"c2sp.org/tlog-proof@v1\nextra ====\nindex 1\n\nx\n")
@example(b"old 1\n\n")
@example(b"old " + b"9" * 400)
@example(b"dear diary")
@example(b"")
def test_what_is_no_proof(content: bytes) -> None:
    with pytest.raises((Integrity, Usage), match="not a (proof|checkpoint)"):
        parse_proof(content)


# --- another implementation ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tlog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of ``tlog_vectors``, built from what Go has on this machine; no network."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed; vectors.json holds what its tlog computed")
    program = tmp_path_factory.mktemp("tlog") / "tlog"
    built = subprocess.run(
        [go, "build", "-buildvcs=false", "-o", program, "."],
        cwd=TLOG,
        env={**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "module lookup disabled" in built.stderr:
        pytest.skip(
            "golang.org/x/mod is not here: run `go mod download` in tests/verify/tlog_vectors"
        )
    assert built.returncode == 0, built.stderr
    return program


def test_the_stored_vectors_are_what_go_computes(tlog: Path) -> None:
    computed = subprocess.run([tlog], capture_output=True, check=True).stdout
    assert computed == (Path(__file__).parent / "vectors.json").read_bytes()


def test_go_believes_every_proof(sample: SampleLedger, tlog: Path, tmp_path: Path) -> None:
    proofs = proofs_of(sample)
    files = []
    for number, proof in enumerate(proofs):
        files.append(tmp_path / f"{number}.tlog-proof")
        files[-1].write_bytes(proof.text())
    checked = subprocess.run(
        [tlog, str(sample.key), *files], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    expected = []
    for proof in proofs:
        size = check_proof(proof, None).checkpoint.size
        if isinstance(proof, InclusionProof):
            expected.append(f"{proof.index} under {size}")
        else:
            old = check_proof(proof, None).old
            assert old is not None
            expected.append(f"{size} continues {old.size}")
    assert checked.stdout.splitlines() == expected


@pytest.mark.parametrize("what", ["record", "hash", "signature", "index"])
def test_go_refuses_an_altered_proof(
    sample: SampleLedger, tlog: Path, tmp_path: Path, what: str
) -> None:
    log = SqliteLog.open_read_only(sample.database)
    proof = prove_inclusion(log, 7, sample.notes()[3])
    log.close()
    altered = {
        "record": InclusionProof(7, proof.hashes, proof.note, sample.records()[8]),
        "hash": InclusionProof(7, proof.hashes[::-1], proof.note, proof.record),
        "signature": InclusionProof(
            7, proof.hashes, sample.notes()[2] + sample.notes()[3].split(b"\n\n")[1], proof.record
        ),
        "index": InclusionProof(8, proof.hashes, proof.note, proof.record),
    }[what]
    (tmp_path / "proof").write_bytes(altered.text())
    checked = subprocess.run(
        [tlog, str(sample.key), tmp_path / "proof"], capture_output=True, check=False
    )
    assert checked.returncode != 0 and checked.stdout == b""
    with pytest.raises(Integrity):
        check_proof(altered, sample.key)
