"""Export, import and backup move bytes and never make them."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample_ledger import SampleLedger, append_one

from ledger.artifacts import Artifacts
from ledger.checkpoint import Checkpoint, sign_checkpoint
from ledger.errors import Integrity, Refused, Usage
from ledger.export import backup, export, import_ledger
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from ledger.verify.verification import Options, exit_status, verify
from schemas.events.cell import ProtocolViolated, ToolCalled
from schemas.events.study import TasksFrozen
from schemas.repair.task import FailToPass, Overlay, Size, Task


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_export_is_exactly_the_records(sample: SampleLedger, tmp_path: Path) -> None:
    moved = export(sample.directory.root, tmp_path / "out")
    assert (moved.records, moved.checkpoints, moved.artifacts) == (31, 4, 12)
    assert (moved.missing, moved.altered) == ((), ())
    lines = b"".join(record + b"\n" for record in sample.records())
    assert (tmp_path / "out" / "records.jsonl").read_bytes() == lines
    assert (tmp_path / "out" / "checkpoints.log").read_bytes() == sample.log_file.read_bytes()
    stored = contents(sample.directory.artifacts)
    assert contents(tmp_path / "out" / "artifacts") == stored
    for path in (tmp_path / "out").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    assert leftovers(tmp_path) == []


def test_same_ledger_same_bytes(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "a")
    export(sample.database, tmp_path / "b")
    export(tmp_path / "a", tmp_path / "c")
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")


def test_what_was_imported_exports_to_the_same_bytes(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out")
    report = import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    assert report.events == 31
    export(tmp_path / "in", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_imported_ledger_needs_an_outside_anchor_and_is_never_written(
    sample: SampleLedger, tmp_path: Path
) -> None:
    export(sample.directory.root, tmp_path / "out")
    import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    assert verify(tmp_path / "in").status == "unanchored"
    assert verify(tmp_path / "in", options=Options(require="self")).status == "verified"
    kept = Options(against=(sample.notes()[-1],))
    assert verify(tmp_path / "in", options=kept).status == "verified"
    with pytest.raises(Refused, match="never written"):
        SqliteLog.open(tmp_path / "in" / "var" / "ledger.db")
    log = SqliteLog.open_read_only(tmp_path / "in" / "var" / "ledger.db")
    assert [stored.record for stored in log.read()] == sample.records()
    with pytest.raises(Refused):
        append_one(log, ProtocolViolated(turn=0, kind="k", detail="d"))
    log.close()


def test_records_only(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out", records_only=True)
    assert sorted(os.listdir(tmp_path / "out")) == ["checkpoints.log", "records.jsonl"]
    options = Options(key=str(sample.key), require="self")
    report = verify(tmp_path / "out", options=options)
    assert report.status == "verified"
    assert "Artifacts not checked." in report.assurance
    imported = import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    assert "Artifacts not checked." in imported.assurance
    export(tmp_path / "in", tmp_path / "again", records_only=True)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_a_file_of_lines_by_itself(sample: SampleLedger, tmp_path: Path) -> None:
    """Without checkpoints nothing anchors it; with a note that somebody kept, something does."""
    export(sample.directory.root, tmp_path / "out")
    lines = tmp_path / "lines.jsonl"
    (tmp_path / "out" / "records.jsonl").rename(lines)
    options = Options(key=str(sample.key))
    assert verify(lines, options=options).status == "unanchored"
    kept = Options(key=str(sample.key), against=(sample.notes()[2],))
    report = verify(lines, options=kept)
    assert report.status == "verified"
    assert "nothing is proven about events after seq 20" in report.assurance


def test_nothing_that_exists_is_overwritten(sample: SampleLedger, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    export(sample.directory.root, target)  # an empty folder may become the export
    before = contents(target)
    for move in (
        lambda: export(sample.directory.root, target),
        lambda: backup(sample.directory.root, target),
        lambda: import_ledger(target, target),
    ):
        with pytest.raises(Refused, match="not empty"):
            move()
    assert contents(target) == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refused):
        export(sample.directory.root, tmp_path / "link")
    with pytest.raises(Usage):
        export(tmp_path / "absent", tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_no_copy_lies_in_what_it_is_a_copy_of(sample: SampleLedger, tmp_path: Path) -> None:
    """Also through a link; an export may lie in the study's folder, outside the ledger's files."""
    root = sample.directory.root
    (tmp_path / "link").symlink_to(sample.directory.var)
    before = contents(root)
    for place in (root / "copy", root / "var" / "copy", tmp_path / "link" / "copy"):
        with pytest.raises(Refused, match=r"destroys the backup too; name a folder outside"):
            backup(root, place)
    for place in (root / "var" / "reports", tmp_path / "link" / "copy"):
        with pytest.raises(Refused, match=r"own files: name a folder outside var/"):
            export(root, place)
    assert contents(root) == before
    export(root, root / "for-the-auditor")
    assert (root / "for-the-auditor" / "records.jsonl").is_file()
    with pytest.raises(Refused, match="name a folder outside it"):
        import_ledger(root / "for-the-auditor", root / "for-the-auditor" / "in")


def test_missing_and_altered_artifacts_are_named(sample: SampleLedger, tmp_path: Path) -> None:
    """A damaged ledger can be exported: what is left of it is evidence."""
    missing, altered, link = (sample.artifact_of(seq) for seq in (7, 12, 17))
    missing.unlink()
    altered.write_bytes(altered.read_bytes()[:-3])
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    moved = export(sample.directory.root, tmp_path / "out")
    assert moved.missing == (missing.name,)
    assert moved.altered == (altered.name, link.name)
    assert moved.artifacts == 10
    report = verify(tmp_path / "out", options=Options(key=str(sample.key)))
    assert [(finding.code, finding.seq) for finding in report.findings] == [
        ("ARTIFACT_MISSING", 7),
        ("ARTIFACT_ALTERED", 12),
        ("ARTIFACT_MISSING", 17),
    ]


def test_artifacts_that_no_record_names_stay_behind(sample: SampleLedger, tmp_path: Path) -> None:
    Artifacts(sample.directory.artifacts).put(b"nobody names me", "text/plain")
    export(sample.directory.root, tmp_path / "out")
    assert len(contents(tmp_path / "out" / "artifacts")) == 12


def a_task(artifacts: Artifacts) -> Task:
    def put(text: str) -> "msgspec.Struct":
        return artifacts.put(text.encode(), "text/plain")

    return Task(
        id="R001-000",
        repository="R001",
        commit="a" * 40,
        base="b" * 40,
        base_tree="c" * 40,
        gold_tree="d" * 40,
        committed="2026-07-18T09:30:00Z",
        statement=put("statement"),
        statement_words=1,
        redactions=0,
        production_paths=(),
        test_paths=(),
        changed_production_lines=1,
        gold=Overlay(),
        gold_patch=put("gold patch"),
        hidden=Overlay(),
        hidden_patch=put("hidden patch"),
        protected_paths=put("[]"),
        fail_to_pass=(FailToPass(id="t", how="assertion"),),
        pass_to_pass=put("[1]"),
        pass_to_pass_count=0,
        public_tests=put("[2]"),
        public_test_files=(),
        grading_test_files=(),
        environment="e",
        time_limit_ns=1,
        needs_gold_symbol=0,
        size=Size(bytes=1, source_files=1, source_lines=1, estimated_tokens=1),
    )


def test_artifacts_named_by_artifacts(sample: SampleLedger, tmp_path: Path) -> None:
    """Frozen tasks name their files: these are checked and taken along too."""
    artifacts = Artifacts(sample.directory.artifacts)
    task = a_task(artifacts)
    tasks = artifacts.put(msgspec.json.encode([task]), "application/json")
    log = SqliteLog.open(sample.database)
    event = TasksFrozen(tasks=tasks, count=1, packs={})
    log.append(Batch(events=[NewEvent("study", event)], actor="operator", run="run-1"))
    log.close()
    moved = export(sample.directory.root, tmp_path / "out")
    assert moved.artifacts == 12 + 1 + 6
    import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    hidden = task.hidden_patch.digest
    (sample.directory.artifacts / hidden[:2] / hidden).unlink()
    report = verify(sample.directory.root)
    assert [(finding.code, finding.seq, finding.expected) for finding in report.findings] == [
        ("ARTIFACT_MISSING", 31, hidden)
    ]


def test_artifacts_of_an_unknown_type_are_taken_along(sample: SampleLedger, tmp_path: Path) -> None:
    """An older program copies what a later one has recorded, and loses nothing of it."""
    sample.rewrite({12: lambda record: {**record, "type": "tool.called.v9"}})
    sample.sign_again()
    wanted = contents(sample.directory.artifacts)
    assert export(sample.directory.root, tmp_path / "out").artifacts == len(wanted) == 12
    import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    backup(sample.directory.root, tmp_path / "copy")
    for moved in (tmp_path / "out", tmp_path / "in" / "var", tmp_path / "copy" / "var"):
        assert contents(moved / "artifacts") == wanted


def test_import_refuses_what_verification_finds(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out")
    records = tmp_path / "out" / "records.jsonl"
    whole = records.read_bytes()
    lines = whole.splitlines(keepends=True)

    def refuses(content: bytes, message: str) -> None:
        records.write_bytes(content)
        with pytest.raises(Integrity, match=message):
            import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
        assert not (tmp_path / "in").exists()
        assert leftovers(tmp_path) == []

    refuses(whole.replace(b'"rm"', b'"ls"'), "LINK")
    refuses(b"".join(lines[:-1]), "TRUNCATED")
    refuses(b"".join(lines[:9] + lines[10:]), "head")
    refuses(b"".join(lines[:9] + [lines[8]] + lines[9:]), "head")
    refuses(whole + b" " * (3 << 20), "longer than")
    refuses(whole + b"[" * 1_000_000, "not a record")
    refuses(whole + b'{"seq":31,"seq":31}\n', "not a record")
    refuses(whole + lines[-1].replace(b'"seq":30', b'"seq":31'), "UNIQUE")
    refuses(b"", "TRUNCATED")
    records.write_bytes(whole)
    notes = tmp_path / "out" / "checkpoints.log"
    content = notes.read_bytes()
    notes.write_bytes(content + b"scribble")
    with pytest.raises(Integrity, match="no checkpoint"):
        import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    notes.write_bytes(content)
    huge = sign_checkpoint(Checkpoint(sample.origin, 10**19, bytes(32)), sample.signing_key)
    notes.write_bytes(content + huge + b"\n")
    with pytest.raises(Integrity, match="a checkpoint over 10000000000000000000 records"):
        import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    notes.write_bytes(content)
    assert exit_status(import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))) == 4


@pytest.mark.parametrize("field", ["version", "index"])
def test_import_refuses_a_number_that_no_column_holds(
    sample: SampleLedger, tmp_path: Path, field: str
) -> None:
    export(sample.directory.root, tmp_path / "out")
    records = tmp_path / "out" / "records.jsonl"
    *lines, last = records.read_bytes().splitlines(keepends=True)
    fields = {**msgspec.json.decode(last), field: 10**19}
    records.write_bytes(b"".join(lines) + msgspec.json.encode(fields) + b"\n")
    with pytest.raises(Integrity, match="seq 30: .* too large .*; nothing was kept"):
        import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))


@pytest.mark.parametrize("name", ["../evil", "../../evil", "/evil", "..\0", "A" * 64, "\x1b[2J"])
def test_an_artifact_is_named_by_a_digest_and_never_by_a_path(
    sample: SampleLedger, tmp_path: Path, name: str
) -> None:
    """A record, signed by the owner, whose artifact is one that lies beside the ledger's folder."""

    def edit(record: dict[str, Any]) -> dict[str, Any]:
        result = {**record["data"]["result"], "digest": name}
        return {**record, "data": {**record["data"], "result": result}}

    sample.rewrite({12: edit})
    sample.sign_again()
    for place in (sample.directory.root, sample.directory.var, tmp_path):
        (place / "evil").write_bytes(b"payload")
    folder = tmp_path / "received" / "bundle"
    folder.parent.mkdir()
    moved = export(sample.directory.root, folder)
    assert moved.altered == (name,)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
    assert not (folder / "evil").exists()
    for place in (folder, folder.parent):
        (place / "evil").write_bytes(b"payload")
    into = tmp_path / "into" / "deep"
    with pytest.raises(Integrity, match="ARTIFACT_ALTERED at seq 12"):
        import_ledger(folder, into / "study", str(sample.key))
    with pytest.raises(Integrity, match="ARTIFACT_ALTERED at seq 12"):
        backup(sample.directory.root, into / "backup")
    assert list(into.iterdir()) == [] and list(into.parent.iterdir()) == [into]


def test_import_follows_no_link(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out")
    secret = tmp_path / "secret"
    secret.write_bytes(b"of another user")
    for name in ("records.jsonl", "checkpoints.log"):
        path = tmp_path / "out" / name
        content = path.read_bytes()
        path.unlink()
        path.symlink_to(secret)
        with pytest.raises(Refused, match="is a link, not a file"):
            import_ledger(tmp_path / "out", tmp_path / "in")
        path.unlink()
        path.write_bytes(content)
    (artifact,) = (tmp_path / "out" / "artifacts").rglob(sample.artifact_of(12).name)
    artifact.unlink()
    artifact.symlink_to(secret)
    with pytest.raises(Integrity, match="ARTIFACT_MISSING"):
        import_ledger(tmp_path / "out", tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_import_wants_an_export(sample: SampleLedger, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="holds no records.jsonl"):
        import_ledger(sample.directory.var, tmp_path / "in")


def test_backup_holds_what_is_in_the_wal(sample: SampleLedger, tmp_path: Path) -> None:
    """A ledger in use: its newest records are not in the main file yet."""
    log = SqliteLog.open(sample.database)
    append_one(log, ProtocolViolated(turn=0, kind="k", detail="in the WAL"))
    report = backup(sample.directory.root, tmp_path / "backup")
    assert report.status == "verified"
    assert report.events == 32
    log.close()
    assert contents(tmp_path / "backup" / "var" / "artifacts") == contents(
        sample.directory.artifacts
    )
    shutil.rmtree(sample.directory.root)
    (tmp_path / "backup").rename(sample.directory.root)
    assert verify(sample.directory.root).status == "verified"
    sample.grow(2)
    assert verify(sample.directory.root).events == 34


def test_backup_of_a_damaged_ledger_is_refused(sample: SampleLedger, tmp_path: Path) -> None:
    sample.rewrite({13: lambda record: {**record, "run": "other"}})
    with pytest.raises(Integrity, match="ROOT_MISMATCH"):
        backup(sample.directory.root, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert leftovers(tmp_path) == []


def test_backup_of_an_imported_ledger_stays_imported(sample: SampleLedger, tmp_path: Path) -> None:
    export(sample.directory.root, tmp_path / "out")
    import_ledger(tmp_path / "out", tmp_path / "in", str(sample.key))
    backup(tmp_path / "in", tmp_path / "backup")
    with pytest.raises(Refused, match="never written"):
        SqliteLog.open(tmp_path / "backup" / "var" / "ledger.db")


def test_what_an_artifact_names_is_found_also_where_it_was_named_plainly_before(
    sample: SampleLedger, tmp_path: Path
) -> None:
    """A task names its files. First something else names the list of tasks, as any bytes."""
    artifacts = Artifacts(sample.directory.artifacts)
    task = a_task(artifacts)
    tasks = artifacts.put(msgspec.json.encode([task]), "application/json")
    log = SqliteLog.open(sample.database)
    called = ToolCalled(turn=0, number=0, tool="read_file", arguments=tasks, result=tasks, ok=True)
    append_one(log, called, "cell/other")
    append_one(log, TasksFrozen(tasks=tasks, count=1, packs={}), "study")
    log.close()
    export(sample.directory.root, tmp_path / "out")
    (copied,) = (tmp_path / "out" / "artifacts").rglob(task.statement.digest)
    copied.unlink()
    report = verify(tmp_path / "out", options=Options(key=str(sample.key), require="self"))
    found = [(finding.code, finding.expected) for finding in report.findings]
    assert found == [("ARTIFACT_MISSING", task.statement.digest)]
