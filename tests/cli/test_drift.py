"""What is not as frozen is said by every command that tells of the study; amending is for a study
that nobody works on."""

from collections.abc import Callable
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest

from actors.study.components import Component, Identity, identity
from actors.study.declarations import Changes, differs
from ledger.study_directory import StudyDirectory
from schemas.study_file import parse_study
from tests.cli.conftest import Run, facts_of, record
from tests.projections.tiny_study import STUDY_TOML, TinyStudy

LINE = "not as frozen: "


def edit(study: Path) -> None:
    (study / "study.toml").write_text("this is no TOML any more")


def edit_document(study: Path) -> None:
    (study / "protocol.md").write_text("Another protocol.\n")


def test_a_study_as_it_was_frozen_says_nothing(ledger: Run, running: Path) -> None:
    ran = ledger("status", "--study", running)
    assert ran.status == 0 and "not as frozen" not in ran.out + ran.err
    assert ledger("status", "--json", "--study", running).json["not_as_frozen"] == []


@pytest.mark.parametrize(
    ("change", "name", "bound"),
    [
        (edit, "study.toml", "study.toml"),
        (edit_document, "protocol.md", "documents/protocol.md"),
    ],
)
def test_the_status_tells_of_an_edit(
    ledger: Run, running: Path, change: Callable[[Path], None], name: str, bound: str
) -> None:
    change(running)
    ran = ledger("status", "--study", running)
    assert ran.status == 0
    *_, changed, step = ran.out.splitlines()
    assert changed == (
        f"changed     {LINE}{name}. Put it back, or record the change with "
        '`ledger amend --reason "…"`'
    )
    assert step == "next        put that back or amend it, then `ledger run`"
    assert ledger("status", "--json", "--study", running).json["not_as_frozen"] == [bound]


def test_status_and_run_tell_alike_of_another_program(ledger: Run, tmp_path: Path) -> None:
    def write(tiny: TinyStudy) -> None:
        here = identity(Component("grader", ("actors.repair.grading",)))
        tiny.other = {
            "grader": Identity(here.files, {**here.libraries, "msgspec": "0.1"}),
            "gone": Identity({}, {}),
        }
        tiny.mine()
        tiny.freeze()

    study = record(tmp_path / "study", write)
    found = ledger("status", "--json", "--study", study).json["not_as_frozen"]
    version = metadata.version("msgspec")
    assert found == [
        "gone: it is no component of the study any more",
        f"grader: msgspec 0.1 -> {version}",
    ]
    said = ledger("status", "--study", study).out.partition("changed     ")[2].splitlines()[0]
    assert said == (
        f"not as frozen: gone: it is no component of the study any more; grader: msgspec 0.1 -> "
        f"{version}. Put it back (the program: install what it was frozen with), or record the "
        'change with `ledger amend --reason "…"`'
    )
    assert ledger("run", "--study", study).err == (
        f"ledger: not as frozen: grader: msgspec 0.1 -> {version}. {said.partition('. ')[2]}\n"
        if ". " not in version
        else said
    )


def test_components_lists_files_libraries_and_what_changed(ledger: Run, tmp_path: Path) -> None:
    def write(tiny: TinyStudy) -> None:
        tiny.other = {"arm H018": Identity({"harnesses/gone.py": "0" * 64}, {})}
        tiny.mine()
        tiny.freeze()

    study = record(tmp_path / "study", write)
    found = ledger("components", "--json", "--study", study).json
    rows = {row["component"]: row for row in found["rows"]}
    assert found["frozen"] is True
    assert [name for name, row in rows.items() if not row["as_frozen"]] == ["arm H018"]
    assert "harnesses/gone.py is gone" in rows["arm H018"]["differences"]
    assert "harnesses/h000_exact_search.py" in rows["arm H000"]["files"]
    assert "harnesses/prompts/h000_system.md" in rows["arm H000"]["files"]
    assert rows["arm H000"]["libraries"]["google-re2"] == metadata.version("google-re2")
    out = ledger("components", "--study", study).out
    assert "1 component not as frozen" in out and "as frozen" in out


def test_a_family_can_only_be_put_back() -> None:
    """Amending is no way out where nothing but families has changed."""
    suite = parse_study((files("actors.rehearsal") / "templates" / "transfer.toml").read_bytes())
    families = [f"documents/{name}" for name in suite.bound_documents if "families/" in name][:1]
    assert families and "amend" not in differs(Changes(families), suite)
    assert "can only be put back" in differs(Changes(families), suite)
    assert "amend" in differs(Changes(["study.toml", *families]), suite)


def test_the_status_tells_a_run_at_work_from_a_killed_one(ledger: Run, running: Path) -> None:
    """A run holds its lock for as long as it lives, and whoever looks leaves it alone."""
    killed = ledger("status", "--study", running)
    assert "no run is at work here, and the last one was killed" in killed.out
    assert "next        `ledger run`" in killed.out
    with StudyDirectory(running).exclusive("run", "taken"):
        for _ in range(2):
            at_work = ledger("status", "--study", running)
            assert "state       running (" in at_work.out
            assert "next        wait for the end of `ledger run`" in at_work.out
        assert ledger("status", "--json", "--study", running).json["running"] is True
    assert ledger("status", "--json", "--study", running).json["running"] is False
    (running / "var" / "imported").touch()
    copied = ledger("status", "--study", running)
    assert "next        nothing: an imported ledger is never written" in copied.out


def test_a_file_that_is_gone_is_an_edit(ledger: Run, running: Path) -> None:
    (running / "protocol.md").unlink()
    found = ledger("status", "--json", "--study", running).json["not_as_frozen"]
    assert found == ["documents/protocol.md"]


def test_an_imported_copy_has_no_files_beside_it(ledger: Run, running: Path) -> None:
    (running / "var" / "imported").touch()
    (running / "study.toml").unlink()
    assert ledger("status", "--json", "--study", running).json["not_as_frozen"] == []


def test_a_worker_that_is_left_keeps_its_study_as_it_is(ledger: Run, running: Path) -> None:
    edited = STUDY_TOML.replace("A study for tests", "Another title")
    (running / "study.toml").write_text(edited)
    before = len(facts_of(running))
    with StudyDirectory(running).shared("workers"):
        ran = ledger("amend", "--reason", "a title", "--study", running)
        assert ran.status == 1 and "a worker is still at work" in ran.err
        assert len(facts_of(running)) == before
    ran = ledger("amend", "--reason", "a title", "--study", running)
    assert ran.status == 0 and ", before the first cell\n" in ran.out
    assert '    title: "A study for tests" \u2192 "Another title"\n' in ran.out
    assert ran.out.rstrip().endswith("next       `ledger run`")


def test_the_status_of_a_complete_study_tells_what_comes_next(ledger: Run, study: Path) -> None:
    assert "next        `ledger report`" in ledger("status", "--study", study).out
