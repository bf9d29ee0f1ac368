"""``ledger prove``, and ``ledger check-proof``, which needs only what the first has printed."""

import shutil
import sqlite3
from base64 import b64encode
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE, load_or_create_signing_key
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.events.cell import ProtocolViolated
from tests.cli.conftest import Run, facts_of, inspections

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def key(ledger: Run, study: Path) -> str:
    text = ledger("checkpoint", "--study", study, "--json").json["key"]
    assert isinstance(text, str)
    return text


def elsewhere(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An auditor's machine: another user, and no ledger."""
    shutil.rmtree(study)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "auditor"))


def test_a_record_is_proven_without_the_ledger(
    ledger: Run, study: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, note = tmp_path / "record.tlog-proof", tmp_path / "note"
    note.write_text(ledger("checkpoint", "--study", study).out)
    proof.write_text(ledger("prove", "5", "--study", study).out)
    fact = facts_of(study)[5]
    elsewhere(study, tmp_path, monkeypatch)
    ran = ledger("check-proof", proof, "--key", key, "--against", note, "--json")
    assert (ran.status, ran.json["status"], ran.json["seq"]) == (0, "proven", 5)
    assert ran.json["record"]["id"] == fact.id
    shown = ledger("check-proof", proof, "--key", key)
    assert shown.status == 0 and f'"id":"{fact.id}"' in shown.out
    size = ran.json["size"]
    assert f"proven     this is record 5 of the first {size}, byte for byte\n" in shown.out
    assert f"by         the checkpoint over {size} records\n" in shown.out
    assert f"signed     {key}, the key that you gave\n" in shown.out
    unknown = ledger("check-proof", proof)
    assert unknown.status == 4 and "unknown by whom" in unknown.out
    assert not (tmp_path / "auditor").exists()


def test_a_checkpoint_continues_an_older_one(
    ledger: Run, study: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SqliteLog.open_read_only(StudyDirectory(study).ledger)
    rows = log.checkpoints()
    log.close()
    (old, kept), (new, _) = rows[0], rows[-1]
    assert old < new
    (tmp_path / "kept").write_bytes(kept)
    between = ledger("prove", "--consistency", str(old), str(new), "--study", study)
    assert between.status == 0
    assert ledger("prove", "--from", str(old), "--study", study).out == between.out
    (tmp_path / "proof").write_text(between.out)
    elsewhere(study, tmp_path, monkeypatch)
    words = ("check-proof", tmp_path / "proof", "--key", key, "--against", tmp_path / "kept")
    ran = ledger(*words, "--json")
    assert (ran.status, ran.json["old_size"], ran.json["size"]) == (0, old, new)
    assert "are unchanged" in ledger(*words).out


def test_an_altered_proof_is_refuted(ledger: Run, study: Path, key: str, tmp_path: Path) -> None:
    text = ledger("prove", "5", "--study", study).out
    proof = tmp_path / "proof"
    for altered in (
        text.replace("index 5", "index 6"),
        text.replace("\nindex", "\nindex 5\nindex"),
    ):
        proof.write_text(altered)
        ran = ledger("check-proof", proof, "--key", key)
        assert (ran.status, ran.out) == (3, "") and ran.err.startswith("ledger: ")
    proof.write_text(text.replace("index 5", "index 6"))
    ran = ledger("check-proof", proof, "--json")
    assert (ran.status, ran.json["status"], ran.json["part"]) == (3, "refuted", "hashes")
    assert "NOT PROVEN, what fails is the hashes: " in ledger("check-proof", proof).err
    proof.write_text(text.replace("\nindex", "\nindex 5\nindex"))
    assert ledger("check-proof", proof, "--json").json["part"] == "form"
    proof.write_text("dear diary")
    assert ledger("check-proof", proof).status == 2
    proof.write_text(text)
    wrong = key.replace(key[-3], "A" if key[-3] != "A" else "B")
    assert ledger("check-proof", proof, "--key", wrong).status == 2


def test_the_part_of_a_proof_that_fails_is_named(
    ledger: Run, study: Path, key: str, tmp_path: Path
) -> None:
    text = ledger("prove", "5", "--study", study).out
    (tmp_path / "proof").write_text(text)
    note = "\n\n".join(text.split("\n\n")[1:])
    signature = note.rstrip().rpartition(" ")[2]
    letter = "A" if signature[20] != "A" else "B"
    altered = text.replace(signature, f"{signature[:20]}{letter}{signature[21:]}")
    (tmp_path / "altered").write_text(altered)
    (tmp_path / "line").write_text("{}\n")
    other = load_or_create_signing_key(tmp_path / "other").verifier(note.splitlines()[0])
    (tmp_path / "all").write_bytes(StudyDirectory(study).checkpoints.read_bytes())
    for words, part, meaning in (
        (("altered", "--key", key), "signature", "it was altered after it was signed"),
        (("proof", "--key", str(other)), "signature", "another key, or a note of another ledger"),
        (("proof", "--record", tmp_path / "line"), "record", "is not about yours"),
        (("proof", "--against", tmp_path / "all"), "kept_note", "ask for a proof against yours"),
    ):
        file, *rest = words
        ran = ledger("check-proof", tmp_path / str(file), *rest, "--json")
        assert (ran.status, ran.json["part"]) == (3, part), ran
        assert meaning in ran.json["why"]


def test_a_record_with_an_outcome_is_left_out(
    ledger: Run, study: Path, key: str, tmp_path: Path
) -> None:
    """The proof must be no way around the inspection gate."""
    graded = next(fact for fact in facts_of(study) if fact.event.CARRIES_OUTCOME)
    before = len(inspections(study))
    ran = ledger("prove", str(graded.seq), "--study", study)
    assert ran.status == 0 and "extra" not in ran.out
    assert "carries an outcome" in ran.err and len(inspections(study)) == before
    (tmp_path / "proof").write_text(ran.out)
    assert ledger("check-proof", tmp_path / "proof").status == 2
    log = SqliteLog.open_read_only(StudyDirectory(study).ledger)
    (tmp_path / "line").write_bytes(next(log.read(graded.seq)).record + b"\n")
    log.close()
    given = ledger("check-proof", tmp_path / "proof", "--record", tmp_path / "line")
    assert given.status == 0
    shown = ledger("prove", str(graded.seq), "--study", study, "--reason", "to show it")
    assert shown.status == 0 and "\nextra " in shown.out
    assert [one.reason for one in inspections(study)][before:] == ["to show it"]


def test_nothing_is_proven_of_a_missing_record(ledger: Run, study: Path) -> None:
    with closing(sqlite3.connect(StudyDirectory(study).ledger)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM records WHERE seq = 5")
        connection.commit()
    for command in ("prove", "show"):
        ran = ledger(command, "5", "--study", study)
        assert (ran.status, ran.out) == (3, "") and "record 5 is missing" in ran.err
        assert "`ledger verify-chain`" in ran.err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "name one record"),
        (("1", "--from", "1"), 2, "name one record"),
        (("99999",), 2, "has no record 99999: the last is"),
        (("--consistency", "2", "3"), 2, "no checkpoint was signed over"),
        (("--", "-1"), 2, "-1"),
    ],
)
def test_what_cannot_be_asked(
    ledger: Run, study: Path, words: tuple[str, ...], status: int, says: str
) -> None:
    ran = ledger("prove", "--study", study, *words)
    assert ran.status == status and says in ran.err and ran.out == ""


def test_a_record_that_no_checkpoint_covers(ledger: Run, study: Path) -> None:
    log = SqliteLog.open(StudyDirectory(study).ledger)
    event = ProtocolViolated(turn=0, kind="later", detail="after the last checkpoint")
    log.append(Batch(events=[NewEvent("cell/notes", event)], actor="operator", run="run"))
    head = log.head()
    log.close()
    assert head is not None
    ran = ledger("prove", str(head.seq), "--study", study)
    assert ran.status == 1 and "`ledger checkpoint` signs" in ran.err
    ledger("checkpoint", "--study", study)
    assert ledger("prove", str(head.seq), "--study", study).status == 0


def test_a_note_that_somebody_has_kept(ledger: Run, study: Path, tmp_path: Path) -> None:
    note = tmp_path / "kept"
    note.write_text(ledger("checkpoint", "--study", study).out)
    size = int(note.read_text().splitlines()[1])
    ledger("show", "analysis", "--study", study, "--reason", "more records")
    ledger("checkpoint", "--study", study)
    ran = ledger("prove", "5", "--study", study, "--against", note)
    assert ran.status == 0 and ran.out.endswith(note.read_text())
    later = ledger("prove", str(size), "--study", study, "--against", note)
    assert later.status == 2 and f"over {size} records" in later.err


@pytest.mark.parametrize(
    "record",
    [
        b"not json",
        b"\xff\xfe",
        b'{"a":"\xff"}',
        b"[1e999]",
        b"[" * 100_000,
        b"[" * 900 + b"]" * 900,
    ],
)
def test_a_proof_of_bytes_that_are_no_record_of_ours(
    ledger: Run, tmp_path: Path, record: bytes
) -> None:
    """Anybody can prove anything of a log of their own: one leaf, which is its root."""
    root = b64encode(sha256(b"\0" + record).digest()).decode()
    signature = b64encode(bytes(76)).decode()
    (tmp_path / "proof").write_text(
        f"c2sp.org/tlog-proof@v1\nextra {b64encode(record).decode()}\nindex 0\n\n"
        f"evil/name\n1\n{root}\n\n\u2014 evil/name {signature}\n"
    )
    ran = ledger("check-proof", tmp_path / "proof", "--json")
    assert (ran.status, ran.json["status"]) == (4, "unsigned")
    assert ran.json["record"]
