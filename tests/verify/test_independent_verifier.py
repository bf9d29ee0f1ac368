"""The verifier that shares no code: what it is made of, its signatures, what it says."""

import ast
import hashlib
import json
import os
import runpy
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_ledger import SampleLedger

from ledger import independent_verifier
from ledger.checkpoint import Checkpoint, sign_checkpoint
from ledger.errors import LedgerError, Refused
from ledger.export import export, import_ledger
from ledger.merkle import tree_root
from ledger.sqlite.log import SqliteLog
from ledger.verify.verification import Options, exit_status, verify

FILE = Path(independent_verifier.__file__)
VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))

# RFC 8032, section 7.1: (public key, message, signature).
RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e3970"
        "1cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613"
        "d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760"
        "984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


def test_one_file_of_the_standard_library() -> None:
    text = FILE.read_text("utf-8")
    assert len(text.splitlines()) <= 300
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("vector", RFC_8032, ids=["empty", "one byte", "two bytes"])
def test_signatures_of_the_rfc(vector: tuple[str, str, str]) -> None:
    public_key, message, signature = (bytes.fromhex(text) for text in vector)
    assert independent_verifier.signed_by(public_key, message, signature)
    assert not independent_verifier.signed_by(public_key, message + b"x", signature)


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80), st.integers(0, 511))
def test_signatures_as_the_library_makes_them(seed: bytes, message: bytes, bit: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public_key, signature = key.public_key().public_bytes_raw(), key.sign(message)
    assert independent_verifier.signed_by(public_key, message, signature)
    broken = bytearray(signature)
    broken[bit // 8] ^= 1 << bit % 8
    assert not independent_verifier.signed_by(public_key, message, bytes(broken))


def test_malleable_and_malformed_signatures_are_refused() -> None:
    public_key, message, signature = (bytes.fromhex(text) for text in RFC_8032[1])
    s = int.from_bytes(signature[32:], "little") + independent_verifier.L
    assert not independent_verifier.signed_by(
        public_key, message, signature[:32] + s.to_bytes(32, "little")
    )
    assert not independent_verifier.signed_by(public_key, message, signature[:-1])
    assert not independent_verifier.signed_by(public_key[:-1], message, signature)
    assert not independent_verifier.signed_by(b"\xff" * 32, message, signature)


@pytest.mark.parametrize("vector", VECTORS["notes"], ids=lambda v: v["note"].split("\n")[1])
def test_notes_of_go(vector: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    program = runpy.run_path(str(FILE))
    (match,) = program["NOTE"].finditer(vector["note"].encode())
    size = int(match[2])
    roots = {size: bytes.fromhex(VECTORS["roots"][size])}
    assert program["check_notes"]([match], vector["verifier"], 100, roots) == size
    assert program["findings"] == {}
    (forged,) = program["NOTE"].finditer(
        vector["note"].encode().replace(b"example/0", b"example/1")
    )
    assert program["check_notes"]([forged], vector["verifier"], 100, roots) == 0
    assert program["findings"] == {"KEY_UNKNOWN": 1}
    capsys.readouterr()


def run(path: Path, *arguments: str, program: Path = FILE) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-S", program, path, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


def test_every_form_of_a_ledger(sample: SampleLedger, tmp_path: Path) -> None:
    """The file alone, far from the project, without site-packages."""
    program = tmp_path / "alone.py"
    shutil.copy(FILE, program)
    export(sample.directory.root, tmp_path / "full")
    export(sample.directory.root, tmp_path / "bare", records_only=True)
    key = str(sample.key)
    import_ledger(tmp_path / "full", tmp_path / "imported", key)
    import_ledger(tmp_path / "bare", tmp_path / "imported-bare", key)
    for path, artifacts in (
        (sample.directory.root, True),
        (sample.directory.var, True),
        (sample.database, True),
        (tmp_path / "full", True),
        (tmp_path / "full" / "records.jsonl", True),
        (tmp_path / "bare", False),
        (tmp_path / "imported", True),
        (tmp_path / "imported-bare", False),
    ):
        done = run(path, "--key", key, program=program)
        assert (done.returncode, done.stderr) == (0, "")
        assert "CHECKED 31 positions" in done.stdout
        assert ("CHECKED 12 artifacts" in done.stdout) == artifacts
        assert ("NOT CHECKED artifacts\n" in done.stdout) == (not artifacts)
        assert "the largest that matches covers 31 records" in done.stdout
        assert "\nCHECKED signatures" in done.stdout
        assert "NOT PROVEN anything about events after the first 31" in done.stdout


def test_it_says_what_it_did_not_check(sample: SampleLedger, tmp_path: Path) -> None:
    done = run(sample.directory.root)
    assert done.returncode == 0
    assert "NOT CHECKED signatures" in done.stdout
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b"".join(record + b"\n" for record in sample.records()))
    done = run(lines)
    assert done.returncode == 0
    assert "CHECKED 0 checkpoints" in done.stdout
    assert "after the first 0," in done.stdout


def test_its_idea_of_the_schema_is_ours(tmp_path: Path) -> None:
    """It holds only a digest: this says what to write there after a change of the schema."""
    SqliteLog.create(tmp_path / "ledger.db").close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    program = runpy.run_path(str(FILE))
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")
    found = [row for row in rows if row[2] is not None]
    found += connection.execute("SELECT * FROM pragma_application_id, pragma_user_version")
    connection.close()
    assert program["SCHEMA"] == hashlib.sha256(repr(found).encode()).hexdigest()


@pytest.mark.parametrize("key", ["foo", "a+b+c", "a+00000000+AAAA", "é+00000000+" + "A" * 44])
def test_a_key_that_is_none_is_a_wrong_call(sample: SampleLedger, key: str) -> None:
    done = run(sample.directory.root, "--key", key)
    assert done.returncode == 2
    assert "--key is a verifier string" in done.stderr and "Traceback" not in done.stderr


def record_with(data: str, **changes: str) -> bytes:
    """A record whose fields, given as JSON text, are what an attacker likes."""
    fields = {
        "seq": "0", "prev": f'"{"0" * 64}"', "id": '"i"', "type": '"t"', "stream": '"s"',
        "version": "0", "at": '"a"', "actor": '"a"', "cause": "null", "index": "0", "run": '"r"',
        **changes, "data": data,
    }  # fmt: skip
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode()


NOT_CANONICAL = {
    "key twice": record_with('{"a":1,"a":2}'),
    "key twice beside a fraction": record_with('{"a":1,"a":2,"f":1.5}'),
    "not a number": record_with('{"a":NaN}'),
    "infinity": record_with('{"a":-Infinity}'),
    "space beside a fraction": record_with('{"a": 1.5}'),
    "half of a pair": record_with('{"a":"\\ud800"}'),
    "a digit too many for Python": record_with("1" * 5000),
    "deep": record_with("[" * 70 + "]" * 70),
    "as deep as a record is long": record_with("[" * 500_000 + "]" * 500_000),
    "stream of another kind": record_with("{}", stream='{"a":1}'),
    "fraction for text": record_with("{}", at="1.5"),
    "truth for a position": record_with("{}", seq="true"),
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_what_is_not_canonical(tmp_path: Path, name: str) -> None:
    """Both verifiers say so, and neither breaks."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(NOT_CANONICAL[name] + b"\n")
    done = run(path)
    assert (done.returncode, done.stderr) == (3, "")
    assert "FINDING NON_CANONICAL seq 0" in done.stdout
    report = verify(path)
    assert ("NON_CANONICAL", 0) in [(f.code, f.seq) for f in report.findings]


def test_a_line_without_an_end_is_not_read_to_it(sample: SampleLedger, tmp_path: Path) -> None:
    """A terabyte that takes no room, after the last record: one finding, and nobody reads on."""
    export(sample.directory.root, tmp_path / "out")
    path = tmp_path / "out" / "records.jsonl"
    records = path.read_bytes().count(b"\n")
    os.truncate(path, 1 << 40)
    done = run(tmp_path / "out")
    assert (done.returncode, done.stderr) == (3, "")
    assert f"FINDING NON_CANONICAL seq {records}" in done.stdout
    report = verify(tmp_path / "out")
    assert ("NON_CANONICAL", records) in [(f.code, f.seq) for f in report.findings]
    with pytest.raises(LedgerError):
        import_ledger(tmp_path / "out", tmp_path / "in")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize(
    "ref",
    [
        '{"digest":"%s","length":[],"media_type":"x"}' % ("a" * 64),
        '{"digest":{"a":[]},"length":{},"media_type":"x"}',
        '{"digest":"../../../../../../etc/passwd","length":-1,"media_type":"x"}',
        '{"digest":"%s","length":9007199254740991,"media_type":"x"}' % ("a" * 64),
    ],
)
def test_a_name_of_an_artifact_that_is_none(tmp_path: Path, ref: str) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "records.jsonl").write_bytes(record_with(ref) + b"\n")
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert "FINDING ARTIFACT_ALTERED seq 0" in done.stdout


def test_it_says_much_in_few_lines(sample: SampleLedger, tmp_path: Path) -> None:
    """Thousands of findings of one code are counted, not listed."""
    export(sample.directory.root, tmp_path / "out", records_only=True)
    note = "x/y\n%d\n" + "A" * 43 + "=\n\n\u2014 x/y AAAA\n\n"
    text = "".join(note % number for number in range(1, 3000))
    (tmp_path / "out" / "checkpoints.log").write_text(text, encoding="utf-8")
    done = run(tmp_path / "out", "--key", str(sample.key))
    assert (done.returncode, done.stderr) == (3, "")
    assert len(done.stdout.splitlines()) < 40
    assert "'KEY_UNKNOWN': 2999" in done.stdout
    assert "'" not in done.stdout.partition("\n")[0]


NOTES_ALTERED: dict[str, Callable[[list[bytes]], bytes]] = {
    "no note at all": lambda notes: b"garbage\n\nmore\n",
    # 68 bytes leave two bits of the last digit without a meaning.
    "another form of base64": lambda notes: b"\n".join(
        [*notes[:-1], notes[-1][:-3] + bytes([notes[-1][-3] + 1]) + b"=\n"]
    ),
    "another form of the size": lambda notes: b"\n".join(notes).replace(b"\n31\n", b"\n+31\n"),
    "seventeen signatures": lambda notes: b"\n".join(
        [*notes[:-1], notes[-1] + b"\xe2\x80\x94 w AAAA\n" * 16]
    ),
    "more zeros than a note has bytes": lambda notes: b"\n".join(notes) + bytes(17 << 10),
    "carriage return in a name": lambda notes: b"\n".join(
        [*notes[:-1], notes[-1] + b"\xe2\x80\x94 w\rx AAAA\n"]
    ),
}


@pytest.mark.parametrize("name", NOTES_ALTERED)
def test_notes_that_are_none(sample: SampleLedger, tmp_path: Path, name: str) -> None:
    """Both verifiers say so of a file beside a good export."""
    export(sample.directory.root, tmp_path / "out")
    altered = NOTES_ALTERED[name](sample.notes())
    (tmp_path / "out" / "checkpoints.log").write_bytes(altered)
    key = str(sample.key)
    report = verify(tmp_path / "out", options=Options(key=key, require="self"))
    assert {finding.code for finding in report.findings} == {"SIG_BAD"}
    done = run(tmp_path / "out", "--key", key)
    assert (done.returncode, done.stderr) == (3, "")
    assert "FINDING SIG_BAD" in done.stdout


def test_a_note_that_a_crash_cut_off_is_no_finding(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out")
    first, second, *_ = sample.notes()
    key = str(sample.key)
    for left in (first[:20], first + b"\n" + second[:70] + bytes(900), bytes(900)):
        (tmp_path / "out" / "checkpoints.log").write_bytes(left)
        report = verify(tmp_path / "out", options=Options(key=key, require="self"))
        assert report.findings == ()
        assert run(tmp_path / "out", "--key", key).returncode == 0


def test_it_checks_few_signatures_that_are_bad(sample: SampleLedger) -> None:
    """Each takes milliseconds, and a file of notes may hold hundreds of thousands."""
    program = runpy.run_path(str(FILE))
    checked = []
    program["check_notes"].__globals__["signed_by"] = lambda *_: checked.append(1)
    note = sample.notes()[0].replace(b"\n1\n", b"\n%d\n")
    content = b"\n".join(note % size for size in range(1, 3_000))
    program["check_notes"](program["NOTE"].finditer(content), str(sample.key), 31, {})
    assert len(checked) == program["findings"]["SIG_BAD"] == 100


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert run(tmp_path / "absent").returncode == 5
    assert run(tmp_path).returncode == 5
    (tmp_path / "ledger.db").write_bytes(b"")
    done = run(tmp_path / "ledger.db")
    assert done.returncode in (3, 5)
    assert "Traceback" not in done.stderr


def test_it_writes_nothing(sample: SampleLedger) -> None:
    before = {path: path.stat().st_mtime_ns for path in sample.directory.root.rglob("*")}
    assert run(sample.directory.root).returncode == 0
    after = {path: path.stat().st_mtime_ns for path in sample.directory.root.rglob("*")}
    assert after == before


def test_damage_anywhere_is_found_by_both(
    sample: SampleLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a byte of a record becomes, both contradict."""
    export(sample.directory.root, tmp_path / "out", records_only=True)
    path = tmp_path / "out" / "records.jsonl"
    whole = path.read_bytes()
    key = str(sample.key)
    monkeypatch.setattr(sys, "argv", [str(FILE), str(tmp_path / "out"), "--key", key])
    # Every 991st byte: all fields are hit, and every run hits the same.
    for place in range(0, len(whole) - 1, 991):
        damaged = bytearray(whole)
        damaged[place] ^= 0x04
        path.write_bytes(bytes(damaged))
        report = verify(tmp_path / "out", options=Options(key=key, require="self"))
        assert exit_status(report) == 3, place
        assert runpy.run_path(str(FILE))["main"]() == 3, place
    path.write_bytes(whole)
    assert runpy.run_path(str(FILE))["main"]() == 0


def test_both_verifiers_agree_on_what_is_no_fault(sample: SampleLedger) -> None:
    """SQLite's own statistics, and a note over no record (RFC 6962: the hash of nothing)."""
    with sample.connected() as connection:
        connection.execute("ANALYZE")
        assert connection.execute("SELECT count(*) FROM sqlite_stat1").fetchone() != (0,)
    empty = sign_checkpoint(Checkpoint(sample.origin, 0, tree_root([])), sample.signing_key)
    with open(sample.log_file, "ab") as file:
        file.write(empty + b"\n")
    assert verify(sample.directory.root).findings == ()
    done = run(sample.directory.root, "--key", str(sample.key))
    assert (done.returncode, "FINDINGS none" in done.stdout) == (0, True)


def test_both_verifiers_refuse_a_note_over_no_record_with_another_root(
    sample: SampleLedger,
) -> None:
    forged = sign_checkpoint(Checkpoint(sample.origin, 0, bytes(32)), sample.signing_key)
    with open(sample.log_file, "ab") as file:
        file.write(forged + b"\n")
    found = verify(sample.directory.root).findings
    assert [(finding.code, finding.seq) for finding in found] == [("ROOT_MISMATCH", None)]
    done = run(sample.directory.root, "--key", str(sample.key))
    assert done.returncode == 3
    assert "FINDING ROOT_MISMATCH - the root over 0 records is another" in done.stdout


def test_both_verifiers_say_which_file_they_judge_and_refuse_two(sample: SampleLedger) -> None:
    root = sample.directory.root
    assert f"FILE {sample.database}\n" in run(root).stdout
    assert sample.origin.partition("/")[2] in run(root).stdout
    shutil.copy(sample.database, root / "ledger.db")
    done = run(root)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{root}/ledger.db and {root}/var/ledger.db" in done.stderr
    with pytest.raises(Refused, match=r"holds ledger.db and var/ledger.db"):
        verify(root)
