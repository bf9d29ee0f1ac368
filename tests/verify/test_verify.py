"""What a verification says and when it is satisfied. What it finds stands in tests/adversary."""

import base64
import json
import os
import shlex
import shutil
import subprocess
import threading
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pygit2
import pytest
from sample_ledger import SampleLedger, append_one

import ledger.verify.verification
from ledger.clock import new_id
from ledger.errors import Unfinished, Usage
from ledger.export import export, import_ledger
from ledger.last_seen import recall, remember_ledger
from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.checks import wal_of
from ledger.sqlite.log import SqliteLog
from ledger.sqlite.records import SqliteRecords
from ledger.verify.verification import Options, exit_status, report_json, verify
from schemas.events.cell import ProtocolViolated
from schemas.events.ledger import CheckpointAnchored


def test_report_is_the_documented_json(sample: SampleLedger) -> None:
    sample.rewrite({13: lambda record: {**record, "run": "other"}})
    shown = json.loads(report_json(verify(sample.directory.root)))
    assert list(shown) == [
        *("path", "ledger", "status", "events", "unsigned", "head"),
        *("anchors", "findings", "assurance"),
    ]
    assert shown["path"] == str(sample.database)
    assert shown["ledger"] == sample.origin
    assert shown["unsigned"] == 20
    assert shown["status"] == "violated"
    assert shown["events"] == 31
    assert list(shown["head"]) == ["seq", "leaf", "root"]
    assert shown["head"]["seq"] == 30
    (finding,) = shown["findings"]
    assert list(finding) == ["code", "seq", "expected", "got"]
    assert (finding["code"], finding["seq"]) == ("ROOT_MISMATCH", 20)
    (anchor,) = shown["anchors"]
    assert (anchor["kind"], anchor["size"], anchor["age"]) == ("self", 11, 20)
    assert "nothing is proven about events after seq 10" in shown["assurance"]


@pytest.mark.parametrize("name", ["root", "var", "ledger"])
def test_every_way_to_name_a_ledger(sample: SampleLedger, name: str) -> None:
    report = verify(getattr(sample.directory, name))
    assert exit_status(report) == 0
    assert report.head is not None
    assert report.head.root == report.anchors[0].root
    assert "not against an owner who holds the key" in report.assurance


def test_what_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="does not exist"):
        verify(tmp_path / "absent")
    with pytest.raises(Usage, match=r"no ledger\.db and no records\.jsonl"):
        verify(tmp_path)
    with pytest.raises(Usage, match="verifier string"):
        (tmp_path / "x.jsonl").write_bytes(b"")
        verify(tmp_path / "x.jsonl", options=Options(key="nonsense"))


def test_empty_things(tmp_path: Path, sample: SampleLedger) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"")
    report = verify(tmp_path / "x.jsonl")
    assert (report.status, report.events, report.head) == ("unanchored", 0, None)
    SqliteLog.create(tmp_path / "empty" / "ledger.db").close()
    assert verify(tmp_path / "empty").status == "unanchored"


# --- anchors -------------------------------------------------------------------------------------


def test_anchor_age_is_counted_in_records(sample: SampleLedger) -> None:
    sample.grow(5, sign=False)
    assert verify(sample.directory.root, options=Options(max_anchor_age=5)).status == "verified"
    report = verify(sample.directory.root, options=Options(max_anchor_age=4))
    assert exit_status(report) == 4
    assert "more than 4 records follow it" in report.anchors[0].detail
    assert "nothing is proven about any event" in report.assurance


def test_outside_anchor_can_be_required(sample: SampleLedger) -> None:
    for kind in ("git", "time", "copy"):
        report = verify(sample.directory.root, options=Options(require=kind))
        assert exit_status(report) == 4
        assert f"only {kind} counts here" in report.anchors[0].detail
    kept = (sample.notes()[1],)
    report = verify(sample.directory.root, options=Options(require="copy", against=kept))
    assert exit_status(report) == 0
    assert "nothing is proven about events after seq 10" in report.assurance
    assert "owner who holds the key" not in report.assurance
    report = verify(sample.directory.root, options=Options(require="git", against=kept))
    assert exit_status(report) == 4


def test_note_of_a_longer_history_shows_the_cut(sample: SampleLedger) -> None:
    older = shutil.copytree(sample.directory.root, sample.home.parent / "older")
    sample.grow(3)
    report = verify(older, options=Options(key=str(sample.key), against=(sample.notes()[-1],)))
    assert ("TRUNCATED_BELOW_CHECKPOINT", 33) in [(f.code, f.seq) for f in report.findings]


def anchor(sample: SampleLedger, **fields: Any) -> None:
    log = SqliteLog.open(sample.database)
    note = sample.notes()[-1].decode()
    append_one(log, CheckpointAnchored(size=31, note=note, **fields), "ledger")
    log.close()


def test_copy_on_another_path(sample: SampleLedger, tmp_path: Path) -> None:
    note = sample.notes()[-1]
    place = tmp_path / "elsewhere" / "note"
    place.parent.mkdir()
    place.write_bytes(note)
    anchor(sample, kind="copy", where=str(place), receipt=sha256(note).hexdigest())
    required = Options(require="copy")
    assert exit_status(verify(sample.directory.root, options=required)) == 0
    place.write_bytes(note[:-2])
    report = verify(sample.directory.root, options=required)
    assert exit_status(report) == 4
    assert report.anchors[1].detail == "it is not the note"
    place.unlink()
    report = verify(sample.directory.root, options=required)
    assert exit_status(report) == 4
    assert "not on this machine" in report.anchors[1].detail


@pytest.mark.parametrize(
    "where", ["inside", "beside study.toml", "link", "pipe", "relative", "/dev/zero", "a\0b"]
)
def test_places_that_are_no_copy(sample: SampleLedger, tmp_path: Path, where: str) -> None:
    """A hostile ledger names the place: it must neither count nor hang."""
    note = sample.notes()[-1]
    if where == "inside":
        where = str(sample.directory.var / "copy")
        Path(where).write_bytes(note)
    elif where == "beside study.toml":
        where = str(sample.directory.root / "copy")
        Path(where).write_bytes(note)
    elif where == "link":
        where = str(tmp_path / "link")
        (sample.directory.root / "copy").write_bytes(note)
        Path(where).symlink_to(sample.directory.root / "copy")
    elif where == "pipe":
        where = str(tmp_path / "pipe")
        os.mkfifo(where)
    anchor(sample, kind="copy", where=where, receipt=sha256(note).hexdigest())
    report = verify(sample.directory.root, options=Options(require="copy"))
    assert exit_status(report) == 4
    assert not report.anchors[1].counts


def test_commit_in_a_remote(sample: SampleLedger, tmp_path: Path) -> None:
    note = sample.notes()[-1]
    remote = pygit2.init_repository(tmp_path / "remote.git", bare=True)
    tree = remote.TreeBuilder()
    tree.insert("checkpoint", remote.create_blob(note), pygit2.enums.FileMode.BLOB)
    person = pygit2.Signature("a", "a@example.org", 1, 0)
    commit = remote.create_commit("refs/heads/main", person, person, "31", tree.write(), [])
    anchor(sample, kind="git", where=str(tmp_path / "remote.git"), receipt=str(commit))
    required = Options(require="git")
    assert exit_status(verify(sample.directory.root, options=required)) == 0
    later = remote.create_commit("refs/heads/main", person, person, "x", tree.write(), [commit])
    assert exit_status(verify(sample.directory.root, options=required)) == 0
    assert later != commit
    remote.references.delete("refs/heads/main")
    report = verify(sample.directory.root, options=required)
    assert exit_status(report) == 4
    assert "no branch" in report.anchors[1].detail


def test_remote_in_the_studys_own_folder_does_not_count(sample: SampleLedger) -> None:
    """Also beside var/: whoever changes the ledger changes it with it."""
    place = sample.directory.root / "remote.git"
    remote = pygit2.init_repository(place, bare=True)
    tree = remote.TreeBuilder()
    blob = remote.create_blob(sample.notes()[-1])
    tree.insert("checkpoint", blob, pygit2.enums.FileMode.BLOB)
    person = pygit2.Signature("a", "a@example.org", 1, 0)
    commit = remote.create_commit("refs/heads/main", person, person, "31", tree.write(), [])
    anchor(sample, kind="git", where=str(place), receipt=str(commit))
    report = verify(sample.directory.root, options=Options(require="git"))
    assert exit_status(report) == 4
    assert "the study's own folder" in report.anchors[1].detail


def test_remote_that_is_not_here_does_not_count(sample: SampleLedger) -> None:
    anchor(sample, kind="git", where="https://git.example/anchors", receipt="a" * 40)
    report = verify(sample.directory.root, options=Options(require="git"))
    assert exit_status(report) == 4
    assert "not on this machine" in report.anchors[1].detail


def openssl(*arguments: object, cwd: Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=cwd)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
def test_token_of_a_time_stamping_authority(sample: SampleLedger, tmp_path: Path) -> None:
    """RFC 3161, checked offline against the certificate of an authority made here."""
    folder = tmp_path / "tsa"
    folder.mkdir()
    (folder / "tsa.cnf").write_text(
        "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=Test authority\n"
        "[ext]\nextendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\n"
        "[tsa]\ndefault_tsa=t\n[t]\nserial=serial\nsigner_cert=tsa.pem\nsigner_key=tsa.key\n"
        "signer_digest=sha256\ndefault_policy=1.2.3.4\ndigests=sha256\ness_cert_id_alg=sha256\n"
    )
    (folder / "serial").write_text("01\n")
    openssl(
        *shlex.split(
            "req -x509 -newkey rsa:2048 -nodes -keyout tsa.key -out tsa.pem -days 9 -config"
        ),
        "tsa.cnf",
        cwd=folder,
    )
    (folder / "note").write_bytes(sample.notes()[-1])
    openssl(*shlex.split("ts -query -data note -sha256 -cert -out q.tsq"), cwd=folder)
    openssl(*shlex.split("ts -reply -config tsa.cnf -queryfile q.tsq -out r.tsr"), cwd=folder)
    receipt = base64.b64encode((folder / "r.tsr").read_bytes()).decode()
    anchor(sample, kind="time", where="Test authority", receipt=receipt)
    trusted = Options(require="time", time_authority=folder / "tsa.pem")
    assert exit_status(verify(sample.directory.root, options=trusted)) == 0
    report = verify(sample.directory.root, options=Options(require="time"))
    assert exit_status(report) == 4
    assert "certificate" in report.anchors[1].detail
    openssl(
        *shlex.split(
            "req -x509 -newkey rsa:2048 -nodes -keyout o.key -out other.pem -days 9 -config"
        ),
        "tsa.cnf",
        cwd=folder,
    )
    other = Options(require="time", time_authority=folder / "other.pem")
    report = verify(sample.directory.root, options=other)
    assert exit_status(report) == 4
    assert "did not sign" in report.anchors[1].detail


# --- keys and what was seen ----------------------------------------------------------------------


def test_stranger_has_no_anchor_without_a_key(
    sample: SampleLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's ledger: nothing contradicts, and nothing proves who signed."""
    key = str(sample.key)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "auditor"))
    report = verify(sample.directory.root)
    assert exit_status(report) == 4
    assert "no key is known" in report.anchors[0].detail
    assert not (tmp_path / "auditor").exists()
    report = verify(sample.directory.root, options=Options(key=key))
    assert exit_status(report) == 4
    assert exit_status(verify(sample.directory.root, options=Options(key=key, require="self"))) == 0


def test_moved_ledger_is_still_its_owners(sample: SampleLedger, tmp_path: Path) -> None:
    moved = sample.directory.root.rename(tmp_path / "moved")
    report = verify(moved)
    assert exit_status(report) == 0
    assert "the origin is the ledger's word" in report.anchors[0].detail
    again = verify(moved)
    assert "configured for this path" in again.anchors[0].detail


def test_last_seen_state_is_kept_by_key(sample: SampleLedger) -> None:
    assert recall(sample.home, sample.key) is None
    verify(sample.directory.root, options=Options(last_seen=False))
    assert recall(sample.home, sample.key) is None
    verify(sample.directory.root)
    seen = recall(sample.home, sample.key)
    assert seen is not None and seen.size == 31
    # Records that nobody has signed yet are not remembered: anybody could have made them.
    sample.grow(4, sign=False)
    verify(sample.directory.root)
    assert recall(sample.home, sample.key) == seen


def test_signed_again_with_the_right_key_is_said_to_go_unseen(sample: SampleLedger) -> None:
    """Where nothing was seen before and nothing is anchored outside, the report says what it cannot
    know; an outside anchor then takes these words away."""
    sample.rewrite({13: lambda record: {**record, "run": "other"}})
    sample.sign_again()
    report = verify(sample.directory.root)
    assert report.status == "verified"
    said = "could have rewritten everything and signed again, which only this user's last-seen"
    assert said in report.assurance
    kept = Options(against=(sample.notes()[-1],))
    assert said not in verify(sample.directory.root, options=kept).assurance


def test_last_seen_state_can_be_left_out(sample: SampleLedger) -> None:
    verify(sample.directory.root)
    sample.rewrite({13: lambda record: {**record, "run": "other"}})
    sample.sign_again()
    assert exit_status(verify(sample.directory.root)) == 3
    report = verify(sample.directory.root, options=Options(last_seen=False))
    assert exit_status(report) == 0
    assert "Last-seen state not used." in report.assurance


def test_violated_ledger_is_not_remembered(sample: SampleLedger) -> None:
    sample.rewrite({25: lambda record: {**record, "run": "other"}})
    assert exit_status(verify(sample.directory.root)) == 3
    assert recall(sample.home, sample.key) is None


def test_home_that_cannot_be_written(sample: SampleLedger, tmp_path: Path) -> None:
    """Verification does not depend on being able to remember."""
    (tmp_path / "home" / "last-seen").write_bytes(b"a file where a folder belongs")
    with pytest.raises(Unfinished):
        recall(sample.home, sample.key)
    report = verify(sample.directory.root, options=Options(last_seen=False))
    assert exit_status(report) == 0


# --- copies that are older than what was seen ----------------------------------------------------


def test_older_export_of_a_log_that_has_grown(sample: SampleLedger, tmp_path: Path) -> None:
    """Its records are the first ones of the log that is at hand: nothing contradicts."""
    export(sample.directory.root, tmp_path / "fresh")
    report = verify(tmp_path / "fresh")
    assert (report.status, report.findings) == ("verified", ())
    sample.grow(4)
    for _ in range(2):  # the second time its path is known
        report = verify(tmp_path / "fresh")
        assert (report.status, report.findings) == ("verified", ())
        assert "older than what was last seen: 35 records under this key, 31 here" in (
            report.assurance
        )
        # Whichever copy of it was seen first: their records are the same ones.
        assert "which are the first ones of this user's own log /" in report.assurance
    report = verify(tmp_path / "fresh", options=Options(key=str(sample.key), require="self"))
    assert report.status == "verified"


def test_older_copy_without_a_log_to_compare_with(sample: SampleLedger, tmp_path: Path) -> None:
    """An auditor who has seen more: consistent, and not anchored by its own checkpoints."""
    export(sample.directory.root, tmp_path / "older")
    note = sample.notes()[-1]
    sample.grow(4)
    export(sample.directory.root, tmp_path / "newer")
    home, key = tmp_path / "auditor", str(sample.key)
    own = Options(key=key, require="self", home=home)
    assert verify(tmp_path / "newer", options=own).status == "verified"
    report = verify(tmp_path / "older", options=own)
    assert (report.status, exit_status(report), report.findings) == ("unanchored", 4, ())
    assert "older than what was last seen" in report.anchors[0].detail
    assert "35 records under this key, 31 here." in report.assurance
    # A note that the auditor has kept is an anchor whatever was seen since.
    kept = Options(key=key, require="copy", home=home, against=(note,))
    assert verify(tmp_path / "older", options=kept).status == "verified"


def test_older_copy_of_another_history(sample: SampleLedger, tmp_path: Path) -> None:
    """Signed with the right key, but not the beginning of the log that is at hand."""
    forged = sample.copy(tmp_path / "forged")
    sample.grow(4)
    forged.rewrite({13: lambda record: {**record, "run": "other"}})
    forged.sign_again()
    export(forged.directory.root, tmp_path / "out")
    report = verify(tmp_path / "out")
    assert [(f.code, f.seq) for f in report.findings] == [("FORK", 30)]
    assert "this user's own log" in report.findings[0].expected


def test_older_copy_in_the_place_of_the_log_is_a_truncation(
    sample: SampleLedger, tmp_path: Path
) -> None:
    older = sample.copy(tmp_path / "older")
    sample.grow(4)
    for name in ("ledger.db", "checkpoints.log", "checkpoints.frontier"):
        shutil.copy(older.directory.var / name, sample.directory.var / name)
    report = verify(sample.directory.root)
    assert ("TRUNCATED_BELOW_CHECKPOINT", 34) in [(f.code, f.seq) for f in report.findings]


def test_an_imported_ledger_needs_an_outside_anchor(sample: SampleLedger, tmp_path: Path) -> None:
    """What the help says: its own checkpoints count for a log and an export, not for an import."""
    export(sample.directory.root, tmp_path / "out")
    assert exit_status(verify(tmp_path / "out")) == 0
    assert exit_status(import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))) == 4
    assert exit_status(verify(tmp_path / "in")) == 4


# --- reading -------------------------------------------------------------------------------------


def test_database_at_rest_gets_no_side_files(sample: SampleLedger) -> None:
    before = sorted(os.listdir(sample.directory.var))
    verify(sample.directory.root)
    assert sorted(os.listdir(sample.directory.var)) == before


def test_folder_that_cannot_be_written(sample: SampleLedger) -> None:
    """Only telling where the user is not the superuser, who may write everywhere."""
    sample.directory.var.chmod(0o500)
    sample.database.chmod(0o400)
    try:
        assert exit_status(verify(sample.directory.root)) == 0
    finally:
        sample.directory.var.chmod(0o700)


def test_newest_records_are_read_from_the_wal(sample: SampleLedger) -> None:
    log = SqliteLog.open(sample.database)
    append_one(log, ProtocolViolated(turn=0, kind="k", detail="d"))
    assert wal_of(sample.database).stat().st_size > 0
    report = verify(sample.directory.root)
    log.close()
    assert (report.events, report.status) == (32, "verified")


def test_writer_at_work_disturbs_nothing(sample: SampleLedger) -> None:
    """A gapless prefix is verified while another connection appends, and no false finding made."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            sample.grow(3)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [verify(sample.directory.root) for _ in range(15)]
    finally:
        stop.set()
        writer.join()
    for report in reports:
        assert report.findings == ()
        assert report.status == "verified"
        assert report.head is not None and report.head.seq == report.events - 1
    assert reports[-1].events > reports[0].events


def test_writer_who_comes_makes_reading_begin_again(
    sample: SampleLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rest, SQLite is read without locks; a write meanwhile would give torn pages."""
    modes = []
    stretches = SqliteRecords.stretches

    def written_meanwhile(source: SqliteRecords, end: int | None) -> Any:
        modes.append(source.at_rest)
        if source.at_rest:
            sample.grow(2)
        return stretches(source, end)

    monkeypatch.setattr(SqliteRecords, "stretches", written_meanwhile)
    report = verify(sample.directory.root)
    assert modes == [True, False]
    assert (report.status, report.events) == ("verified", 33)


def test_wal_that_cannot_be_read_is_not_ignored(sample: SampleLedger) -> None:
    """On a medium where no -shm file can be made, the newest records would be missed in silence."""
    wal_of(sample.database).write_bytes(b"x" * 100)
    # Stands for a folder in which nothing can be made.
    Path(f"{sample.database}-shm").symlink_to("/nowhere/at/all")
    with pytest.raises(Unfinished, match="WAL cannot be read"):
        verify(sample.directory.root)


def test_findings_are_counted_when_they_are_too_many(
    sample: SampleLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger.verify.verification, "MAX_FINDINGS", 5)
    with sample.tampering() as connection:
        connection.execute("UPDATE records SET actor = 'nobody'")
    report = verify(sample.directory.root)
    assert len(report.findings) == 5
    assert "Not listed: 26 findings more." in report.assurance


def test_pages_of_any_size_give_the_same_report(
    sample: SampleLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.rewrite({13: lambda record: {**record, "run": "other"}}, chained=False)
    whole = verify(sample.directory.root)
    for size in (1, 2, 7):
        monkeypatch.setattr("ledger.sqlite.records.PAGE_RECORDS", size)
        assert verify(sample.directory.root) == whole


def test_other_folder_of_artifacts(sample: SampleLedger, tmp_path: Path) -> None:
    sample.directory.artifacts.rename(tmp_path / "moved")
    assert exit_status(verify(sample.directory.root)) == 3
    assert exit_status(verify(sample.directory.root, tmp_path / "moved")) == 0
    report = verify(sample.directory.root, options=Options(check_artifacts=False))
    assert exit_status(report) == 0
    assert "Artifacts not checked." in report.assurance


def test_configured_key_holds_for_the_path(sample: SampleLedger) -> None:
    stranger = sample.signing_key.verifier("another/ledger")
    remember_ledger(sample.home, sample.database, stranger)
    report = verify(sample.directory.root)
    assert {finding.code for finding in report.findings} == {"KEY_UNKNOWN"}


def test_query_that_does_not_end_is_given_up(
    sample: SampleLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile file can make a plain SELECT run for ever; here every SELECT is too long."""
    monkeypatch.setattr("ledger.sqlite.records.STEPS_BETWEEN_LOOKS", 10)
    monkeypatch.setattr("ledger.sqlite.records.MAX_STEPS_A_PAGE", 160)
    report = verify(sample.directory.root)
    assert exit_status(report) == 3
    assert [(f.code, f.seq, f.got) for f in report.findings] == [
        ("DB_CORRUPT", 0, "a query does not end")
    ]
    assert "Reading stopped" in report.assurance
    monkeypatch.setattr("ledger.sqlite.records.MAX_STEPS_A_PAGE", 50)
    report = verify(sample.directory.root)
    assert exit_status(report) == 3
    assert [(f.code, f.got) for f in report.findings] == [("DB_CORRUPT", "a query does not end")]


def test_memory_does_not_grow_with_the_ledger(sample: SampleLedger, tmp_path: Path) -> None:
    """Four times the records, the same peak (one page, and one number a stream)."""
    peaks = []
    log = SqliteLog.open(sample.database)
    for size in (1_500, 6_000):
        while (head := log.head()) is not None and head.seq < size:
            events = [
                NewEvent("cell/many", ProtocolViolated(turn=number, kind="k", detail="d" * 300))
                for number in range(500)
            ]
            log.append(Batch(events=events, actor="cell", run="run-1", cause=new_id()))
        tracemalloc.start()
        assert verify(sample.directory.root).findings == ()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    log.close()
    assert peaks[1] < 1.2 * peaks[0]
