"""Export, import and backup at the command line: bytes are moved, verified, and never overwritten.

An imported ledger can be read in every way and written in none.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger import export as moving
from ledger.cli.main import COMMANDS
from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE, load_or_create_signing_key
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.events.cell import ProtocolViolated
from tests.cli.conftest import Run
from tests.end_to_end.rehearsal_study import StudyOnDisk, take_steps

pytestmark = pytest.mark.usefixtures("own_home")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def exported(
    completed_study: StudyOnDisk, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The export of a study that was really run and analysed, and its owner's key string."""
    study = completed_study.copy(tmp_path_factory.mktemp("analysed") / "study")
    folder = study.path.parent / "exported"
    take_steps(study, "analyze --reason planned", "report", f"export {folder}")
    key = study.ledger_command("checkpoint", "--json").json["key"]
    return folder, key


@pytest.fixture
def imported(ledger: Run, exported: tuple[Path, str], tmp_path: Path) -> Path:
    """A study made from it by somebody else."""
    ran = ledger("import", exported[0], tmp_path / "imported", "--key", exported[1])
    assert ran.status == 0, ran.err
    return tmp_path / "imported"


# --- import --------------------------------------------------------------------------------------


def test_what_was_imported_exports_to_the_same_bytes(
    ledger: Run, exported: tuple[Path, str], imported: Path, tmp_path: Path
) -> None:
    assert ledger("export", tmp_path / "again", "--study", imported).status == 0
    assert contents(tmp_path / "again") == contents(exported[0])
    assert len(contents(exported[0])) > 50


READING = {
    "status": (),
    "verify-chain": ("--require", "self"),
    "replay": (),
    "show": ("0",),
    "query": ("SELECT count(*) FROM cells",),
    "audit": ("completeness",),
    "prove": ("0",),
    "analyze": ("--check",),
    "register": (),
    "components": (),
    "report": (),
    "gc": (),
    "tasks": ("show",),
    "corrections": ("list",),
    "transfer": ("remediation", "list"),
    "export": ("{new}",),
    "backup": ("{new}",),
}
WRITING = {
    "tasks": (("mine",), ("validate",), ("freeze",)),
    "plan": ((),),
    "freeze": ((),),
    "run": ((),),
    "worker": (("--roles", "cell"),),
    "amend": (("--reason", "x"),),
    "checkpoint": ((),),
    "transfer": (
        ("remediation", "rerun", "R1"),
        ("remediation", "close", "R1", "--limitation", "x"),
        ("remediation", "abandon", "R1", "--reason", "x"),
    ),
    "gc": (("--remove",),),
}
NO_LEDGER = {"retrieval", "demo", "check-proof", "import", "power", "doctor", "docs", "init"}
"""Commands that open no ledger of a study, or make one."""


def test_every_command_is_one_that_reads_or_one_that_writes() -> None:
    assert set(COMMANDS) == set(READING) | set(WRITING) | NO_LEDGER


def test_an_imported_ledger_is_read_and_never_written(
    ledger: Run, imported: Path, tmp_path: Path
) -> None:
    database = StudyDirectory(imported).ledger
    folder = database.parent
    before = contents(folder)
    for name, words in READING.items():
        new = tmp_path / f"new-{name}"
        ran = ledger(
            name, *(word.replace("{new}", str(new)) for word in words), "--study", imported
        )
        assert ran.status == 0, (name, ran.err)
    refused = [(name, words) for name, each in WRITING.items() for words in each]
    for name, words in refused:
        ran = ledger(name, *words, "--study", imported)
        assert (ran.status, ran.out) == (1, ""), (name, ran)
        assert "was imported: " in ran.err and ran.err.count("\n") == 1, (name, ran.err)
    assert ledger("init", imported).status == 1
    reviewed = ledger("transfer", "validate", "--study", imported)
    assert reviewed.status == 2 and "ledger init" not in reviewed.err
    assert "holds an imported ledger" in reviewed.err and "validate FILE" in reviewed.err
    after = contents(folder)
    derived = ("projections/", "reports/", "templates/", "environments/", "run/")
    assert {name: content for name, content in after.items() if not name.startswith(derived)} == (
        before
    )


def test_an_import_needs_an_outside_anchor(
    ledger: Run, exported: tuple[Path, str], imported: Path, tmp_path: Path
) -> None:
    assert ledger("verify-chain", "--study", imported).status == 4
    note = tmp_path / "kept"
    notes = (exported[0] / "checkpoints.log").read_text().split("\n\n")
    note.write_text("\n\n".join(notes[-3:-1]) + "\n")
    verified = ledger("verify-chain", "--study", imported, "--against", note, "--json")
    assert verified.status == 0, verified.out
    assert [a["kind"] for a in verified.json["anchors"] if a["counts"]] == ["copy"]


def test_an_altered_export_is_refused_and_nothing_is_kept(
    ledger: Run, study: Path, tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    ledger("export", exported, "--study", study)
    records = exported / "records.jsonl"
    whole = records.read_bytes()
    for content in (
        whole.replace(b'"actor":"operator"', b'"actor":"operetta"', 1),
        whole[: whole.rindex(b"\n", 0, -1) + 1],
        whole + b"{}\n",
        b"",
    ):
        records.write_bytes(content)
        ran = ledger("import", exported, tmp_path / "imported")
        assert ran.status == 3, ran
        assert "nothing was kept" in ran.err or "not a record" in ran.err
        assert sorted(os.listdir(tmp_path)) == ["exported", "home", "study"]
    records.write_bytes(whole)
    artifact = next(path for path in exported.rglob("?" * 64) if path.is_file())
    artifact.write_bytes(artifact.read_bytes()[:-1])
    ran = ledger("import", exported, tmp_path / "imported")
    assert ran.status == 3 and "ARTIFACT_ALTERED" in ran.err


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("checkpoints.log", lambda whole: b"something else\n"),
        ("checkpoints.log", lambda whole: whole[:40]),
        ("records.jsonl", lambda whole: b""),
        ("records.jsonl", lambda whole: whole.replace(b'"seq":0', b'"seq":null', 1)),
        ("records.jsonl", lambda whole: b"null\n" + whole),
    ],
    ids=["no notes", "half a note", "no records", "no position", "a line too much"],
)
def test_a_finding_without_a_place_names_none(
    ledger: Run, study: Path, tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """No message and no JSON shows Python's None where a finding is about no record."""
    exported = tmp_path / "exported"
    ledger("export", exported, "--study", study)
    file = exported / name
    file.write_bytes(damage(file.read_bytes()))
    for words in (("import", exported, tmp_path / "in"), ("verify-chain", "--path", exported)):
        for as_json in ((), ("--json",)):
            ran = ledger(*words, *as_json)
            assert ran.status in (3, 4, 5), ran
            assert "None" not in ran.out + ran.err
            shutil.rmtree(tmp_path / "in", ignore_errors=True)


def test_an_import_under_another_key_is_refused(ledger: Run, study: Path, tmp_path: Path) -> None:
    ledger("export", tmp_path / "exported", "--study", study)
    origin = (tmp_path / "exported" / "checkpoints.log").read_text().partition("\n")[0]
    key = load_or_create_signing_key(tmp_path / "somebody").verifier(origin)
    ran = ledger("import", tmp_path / "exported", tmp_path / "imported", "--key", str(key))
    assert ran.status == 3 and "KEY_UNKNOWN" in ran.err
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder", "a study"])
def test_what_is_no_export(ledger: Run, study: Path, tmp_path: Path, what: str) -> None:
    source = tmp_path / "source"
    if what == "a file":
        source.write_text("x")
    elif what == "an empty folder":
        source.mkdir()
    elif what == "a study":
        source = study
    ran = ledger("import", source, tmp_path / "imported")
    assert ran.status in (1, 2) and ran.err.count("Traceback") == 0
    assert not (tmp_path / "imported").exists()


# --- backup --------------------------------------------------------------------------------------


def test_a_backup_is_a_study_that_can_be_gone_on_with(
    ledger: Run, completed_study: StudyOnDisk, tmp_path: Path
) -> None:
    study = completed_study.copy(tmp_path / "original")
    place = tmp_path / "backup"
    made = study.ledger_command("backup", str(place), "--json")
    assert (made.status, made.json["status"]) == (0, "verified"), made.err
    assert made.json["events"] == made.json["signed"] == len(study.facts())
    for name in ("study.toml", "var/checkpoints.log"):
        assert (place / name).read_bytes() == (study.path / name).read_bytes()
    shutil.rmtree(study.path)
    place.rename(study.path)
    assert study.ledger_command("amend", "--reason", "none").status == 1  # nothing has changed
    assert study.ledger_command("verify-chain").status == 0
    assert study.ledger_command("replay", "--check").status == 0
    assert study.ledger_command("run").err == "the study is complete already\n"


def test_a_backup_says_whose_key_signed_what_it_copied(
    ledger: Run, exported: tuple[Path, str], study: Path, tmp_path: Path
) -> None:
    """Of somebody else's ledger nothing more is said than of whom the user took the key."""
    folder, key = exported
    said = {}
    for name, words in (("unknown", ()), ("known", ("--key", key))):
        assert ledger("import", folder, tmp_path / name, *words).status == 0
        said[name] = ledger("backup", tmp_path / f"of {name}", "--study", tmp_path / name)
    said["own"] = ledger("backup", tmp_path / "of own", "--study", study)
    assert ", your own key; nothing is proven" in said["own"].out
    assert f"by {key}, which is not your own; nothing is proven" in said["known"].out
    assert said["unknown"].status == 4 and " they are those that were " not in said["unknown"].out
    assert "and no key is known: give its verifier string" in said["unknown"].out
    counted = ledger("backup", tmp_path / "b", "--json", "--study", tmp_path / "unknown").json
    assert counted["signed"] == 0


def test_findings_of_one_kind_are_one_line(ledger: Run, study: Path, tmp_path: Path) -> None:
    other = load_or_create_signing_key(tmp_path / "somebody").verifier("somebody/else")
    words = ("verify-chain", "--study", study, "--key", str(other), "--no-last-seen")
    found = ledger(*words, "--json").json["findings"]
    assert {one["code"] for one in found} == {"KEY_UNKNOWN"} and len(found) > 1
    lines = [line for line in ledger(*words).out.splitlines() if line.startswith("finding")]
    assert len(lines) == 1
    assert f"KEY_UNKNOWN at {found[0]['seq']} and {len(found) - 1} more: expected" in lines[0]


def test_a_backup_overwrites_nothing(ledger: Run, study: Path, tmp_path: Path) -> None:
    place = tmp_path / "there"
    place.mkdir()
    (place / "precious").write_text("mine")
    for command in ("backup", "export"):
        ran = ledger(command, place, "--study", study)
        assert ran.status == 1 and "not empty" in ran.err
    assert contents(place) == {"precious": b"mine"}


def test_a_backup_beside_a_writer_is_one_moment_of_it(
    ledger: Run, study: Path, tmp_path: Path
) -> None:
    """Records are appended all the while, in the WAL and not in the main file."""
    log = SqliteLog.open(StudyDirectory(study).ledger)
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            event = ProtocolViolated(turn=number, kind="later", detail="beside a backup")
            log.append(Batch(events=[NewEvent("cell/notes", event)], actor="operator", run="run"))
            number += 1

    before = log.head()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [
            ledger("backup", tmp_path / f"backup-{n}", "--study", study, "--json") for n in range(3)
        ]
    finally:
        done.set()
        writer.join()
    records = [stored.record for stored in log.read()]
    log.close()
    assert before is not None and [ran.status for ran in reports] == [0, 0, 0]
    sizes = [ran.json["events"] for ran in reports]
    assert before.seq < sizes[0] < sizes[1] < sizes[2] <= len(records)
    for n, size in enumerate(sizes):
        copy = SqliteLog.open_read_only(StudyDirectory(tmp_path / f"backup-{n}").ledger)
        assert [stored.record for stored in copy.read()] == records[:size]
        copy.close()


def test_an_interrupted_backup_goes_on(
    ledger: Run, completed_study: StudyOnDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has copied is looked at again: whole artifacts stay, a torn one is copied anew, and
    what nobody names goes."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(completed_study.config))
    with monkeypatch.context() as patch:
        patch.setattr(moving, "_verified", interrupt)
        assert ledger("backup", tmp_path / "backup", "--study", completed_study.path).status == 130
    unfinished = tmp_path / ".unfinished-backup"
    assert not (tmp_path / "backup").exists() and unfinished.is_dir()
    copied = list((unfinished / "var" / "artifacts").rglob("?" * 64))
    inodes = {path.name: path.stat().st_ino for path in copied}
    torn = copied[0]
    torn.write_bytes(torn.read_bytes()[:5])
    stranger = unfinished / "var" / "artifacts" / "00" / ("0" * 64)
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(b"nobody names me")
    (unfinished / "scribble").write_text("x")
    made = ledger("backup", tmp_path / "backup", "--study", completed_study.path)
    assert made.status == 0 and not unfinished.exists(), made.err
    now = {path.name: path for path in (tmp_path / "backup" / "var" / "artifacts").rglob("?" * 64)}
    assert set(now) == set(inodes)
    kept = [name for name, inode in inodes.items() if now[name].stat().st_ino == inode]
    assert len(kept) > len(inodes) / 2
    assert not (tmp_path / "backup" / "scribble").exists()
    original = StudyDirectory(completed_study.path).artifacts / torn.name[:2] / torn.name
    assert now[torn.name].read_bytes() == original.read_bytes()


def test_two_backups_to_one_place(
    ledger: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def meanwhile(*words: Any) -> Any:
        seen.append(ledger("backup", tmp_path / "backup", "--study", study))
        return verified(*words)

    verified = moving._verified
    monkeypatch.setattr(moving, "_verified", meanwhile)
    assert ledger("backup", tmp_path / "backup", "--study", study).status == 0
    assert seen[0].status == 1 and "another program is writing" in seen[0].err


def test_a_damaged_ledger_gives_no_backup(ledger: Run, study: Path, tmp_path: Path) -> None:
    artifacts = StudyDirectory(study).artifacts
    next(path for path in artifacts.rglob("?" * 64)).unlink()
    ran = ledger("backup", tmp_path / "backup", "--study", study)
    assert ran.status == 3 and "ARTIFACT_MISSING" in ran.err
    assert sorted(os.listdir(tmp_path)) == ["home", "study"]
