"""What a newcomer does first, and does wrong: the message has to lead to the next step."""

import re
import shlex
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger.artifacts import Artifacts
from ledger.cli.progress_lines import INTERVAL_S, QUIET_S, SHORTEST_S, ProgressLines
from ledger.cli.run import what_runs
from ledger.study_directory import StudyDirectory
from projections.progress import Progress
from schemas.repair.study import RepairStudy
from tests.cli.conftest import Run
from tests.cli.test_bad_input import check_refused, study_of
from tests.end_to_end.rehearsal_study import StudyOnDisk, make_mined_study
from tests.mining.conftest import BASE, FIX, History

HERE = f"3.{sys.version_info.minor}"


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(tmp_path / "repository.git")
    history.commit(BASE, "feat: begin")  # type: ignore[arg-type]
    history.commit(FIX)  # type: ignore[arg-type]
    return history


@pytest.fixture
def mined_here(history: History, tmp_path: Path, config_home: Path) -> Path:
    return study_of(tmp_path / "study", history.path, history.head, config_home)


def replace_in(study: Path, old: str, new: str) -> None:
    toml = study / "study.toml"
    text = toml.read_text(encoding="utf-8")
    assert old in text
    toml.write_text(text.replace(old, new), encoding="utf-8")


# --- init ----------------------------------------------------------------------------------------


def test_the_hint_of_init_can_be_pasted(ledger: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my study; rm -r 'x'"
    made = ledger("init", folder)
    assert made.status == 0
    hint = made.out.splitlines()[-1].partition(", then: ")[2]
    assert shlex.split(hint) == ["cd", str(folder), "&&", "ledger", "tasks", "mine"]
    (folder / "var" / "ledger.db").unlink()
    for command in ("status", "verify-chain", "checkpoint"):
        lost = ledger(command, "--study", folder)
        assert lost.status == 3 and "checkpoints.log beside it says" in lost.err
        assert "put a backup" in lost.err and "`ledger verify-chain`" not in lost.err
    assert "put a backup" in ledger("init", folder).err
    (folder / "var" / "checkpoints.log").unlink()
    said = ledger("status", "--study", folder).err
    hinted = said.partition("`")[2].partition("`")[0]
    assert shlex.split(hinted) == ["ledger", "init", str(folder)]


def test_init_does_not_spill_into_a_folder_that_holds_something_else(
    ledger: Run, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "setup.py").write_text("")
    check_refused(ledger("init", clone), 1, "setup.py", "no study.toml", "name a new folder")
    assert [path.name for path in clone.iterdir()] == ["setup.py"]
    for name in ("new", "empty", "hidden"):
        folder = tmp_path / name
        if name != "new":
            folder.mkdir()
        if name == "hidden":
            (folder / ".gitignore").write_text("var/\n")
        assert ledger("init", folder).status == 0
    (clone / "study.toml").write_text("")
    assert ledger("init", clone).status == 0, "a study.toml that is there already is meant"


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_init_declares_the_python_that_it_runs_in(
    ledger: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    class Version(NamedTuple):
        major: int
        minor: int

    declared = {}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", Version(*version))
        for template in ("repair", "study-2"):
            assert ledger("init", tmp_path / template, "--template", template).status == 0
            _, study = StudyDirectory(tmp_path / template).read_study_of(RepairStudy)
            declared[template] = study.platform.python
    assert declared == {"repair": f"3.{version[1]}", "study-2": "3.11"}


# --- mine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (f'python = "{HERE}"', 'python = "3.99"', ("3.99", "platform.python", f'"{HERE}"')),
        (
            f'python = "{HERE}"',
            'python = "3.99"\n# with files of requirements',
            ("no Python 3.99 on this host", f'python = "{HERE}"', "python3.99"),
        ),
        ('package_roots = ["pkg"]', 'package_roots = ["pgk"]', ("package_roots[0]", "pgk", "pkg")),
        (
            'test_roots = ["tests/unit"]',
            'test_roots = ["test/unit"]',
            ("test_roots[0]: no folder test/unit", "tests/unit"),
        ),
        (
            "requirements = []",
            'requirements = ["requirement.txt"]',
            ("requirements[0]: no file requirement.txt", "near it: requirements.txt"),
        ),
        ("requirements = []", 'requirements = ["pkg"]', ("requirements[0]: no file pkg",)),
        ('package_roots = ["pkg"]', 'package_roots = ["pkg/calc.py"]', ("no folder pkg/calc.py",)),
    ],
)
def test_what_mining_would_fail_at_later_is_said_at_once(
    ledger: Run, mined_here: Path, history: History, old: str, new: str, says: tuple[str, ...]
) -> None:
    replace_in(mined_here, old, new)
    if "with files" in new:
        replace_in(mined_here, "requirements = []", 'requirements = ["requirements.txt"]')
    refused = ledger("tasks", "mine", "--study", mined_here)
    check_refused(refused, 2, *says)
    if ": layout." in refused.err:
        assert history.head[:12] in refused.err


def test_a_path_that_a_walked_commit_has_is_declared_rightly(
    ledger: Run, history: History, tmp_path: Path, config_home: Path
) -> None:
    history.commit({"requirements.txt": None, "pyproject.toml": b"[project]\n"})
    study = study_of(tmp_path / "study", history.path, history.head, config_home)
    replace_in(study, "requirements = []", 'requirements = ["requirements.txt"]')
    assert ledger("tasks", "mine", "--study", study).status == 0


def test_the_template_of_study_2_says_what_this_version_lacks(ledger: Run, tmp_path: Path) -> None:
    assert ledger("init", tmp_path / "two", "--template", "study-2").status == 0
    text = (tmp_path / "two" / "study.toml").read_text(encoding="utf-8")
    assert "dense retrieval" in text and "has no vectors yet" in text
    refused = ledger("tasks", "mine", "--study", tmp_path / "two")
    assert refused.status == 2
    assert "actors/" not in refused.err, "nobody has to edit this program"


# --- what has become of a commit -----------------------------------------------------------------


def test_audit_query_and_show_agree(ledger: Run, validated_study: StudyOnDisk) -> None:
    study = validated_study.path
    audited = ledger("tasks", "audit", "--study", study, "--json").json["commits"]
    asked = ledger(
        "query",
        "SELECT commit_id, verdict, criterion, reason FROM commits",
        *("--study", study, "--json"),
    ).json["rows"]
    assert {r["commit"]: (r["verdict"], r["criterion"], r["reason"]) for r in audited} == {
        row["commit_id"]: (row["verdict"], row["criterion"], row["reason"]) for row in asked
    }
    assert {row["verdict"] for row in audited} >= {"valid", "rejected"}
    assert all(row["reason"] for row in audited if row["verdict"] == "rejected")
    shown = ledger("tasks", "show", "--study", study, "--json").json["tasks"]
    valid = [row["commit"] for row in audited if row["verdict"] == "valid"]
    assert [task["commit"] for task in shown] == valid
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in valid)


def test_audit_for_people_says_why_and_counts(ledger: Run, validated_study: StudyOnDisk) -> None:
    study = validated_study.path
    rows = ledger("tasks", "audit", "--study", study, "--json").json["commits"]
    shown = ledger("tasks", "audit", "--study", study).out.splitlines()
    assert shown[0].split() == ["commit", "date", "verdict", "criterion", "reason", "subject"]
    first = next(row for row in rows if row["reason"])
    assert any(first["commit"][:12] in line and first["reason"][:20] in line for line in shown)
    counts = {line.split()[1]: int(line.split()[0]) for line in shown[2 + len(rows) :]}
    assert sum(counts.values()) == len(rows)
    assert counts["valid"] == 1
    one = ledger("tasks", "audit", "--study", study, "--criterion", first["criterion"], "--json")
    assert {row["criterion"] for row in one.json["commits"]} == {first["criterion"]}
    unknown = ledger("tasks", "audit", "--study", study, "--criterion", "foo")
    check_refused(unknown, 2, "'foo'", "no_test_file", "gold_fails")
    check_refused(ledger("tasks", "audit", "--study", study, "--repository", "X"), 2, "R001")


# --- without a terminal --------------------------------------------------------------------------


def test_lines_come_per_item_and_at_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = ProgressLines()
    said = []
    for seconds, item in [
        (0.0, "a"), (SHORTEST_S, "a"), (1.0, "a"), (1.0, "b"), (0.1, "c"), (INTERVAL_S, "c"),
        (INTERVAL_S - 0.5, "c"), (1.0, "c"),
    ]:  # fmt: skip
        now += seconds
        lines.say(item, f"{item} at {now:.1f}")
        said.append(capsys.readouterr().err)
    assert said == [
        "",
        "a at 1002.0\n",
        "",
        "b at 1004.0\n",
        "",
        "c at 1014.1\n",
        "",
        "c at 1024.6\n",
    ]
    for seconds, err in ((QUIET_S - 1, ""), (1.0, "c at 1024.6\n")):
        now += seconds
        lines.say("c", "c at 1024.6")
        assert capsys.readouterr().err == err, "nothing new is said seldom"


def test_validation_shows_what_it_waits_for(tmp_path: Path) -> None:
    ran = make_mined_study(tmp_path).ledger_command("tasks", "validate")
    assert ran.status == 0
    assert re.search(r"^validate R001 [0-9a-f]{8}: 0 of 1$", ran.err, re.MULTILINE), ran.err


def test_a_run_says_what_it_does_between_cells(completed_study: StudyOnDisk) -> None:
    """Gold checks before the first cell, then cells, then grading: no bar stands still unnamed."""
    progress = Progress(Artifacts(StudyDirectory(completed_study.path).artifacts).get)
    said: list[str] = []
    for fact in completed_study.facts():
        progress.apply(fact)
        if progress.runs and not progress.completed and not progress.stopped:
            what = what_runs(progress).split(" ")[0].partition("/")[0]
            said += [what] if said[-1:] != [what] else []
    cells = said[1:-2]
    assert (said[0], said[-2:]) == ("gold", ["grading", "gold"])
    assert set(cells) == {"R001-001", "between"}


def test_a_long_command_shows_life_in_a_log_file(frozen_study: StudyOnDisk, tmp_path: Path) -> None:
    study = frozen_study.copy(tmp_path / "copy")
    ran = study.ledger_command("run")
    assert ran.status == 0
    assert re.search(r"^\d of 2 cells, \d graded; ", ran.err, re.MULTILINE), ran.err


def test_the_status_of_a_study_that_cannot_be_read_names_the_key(
    ledger: Run, tmp_path: Path
) -> None:
    study = tmp_path / "mine"
    assert ledger("init", study).status == 0
    replace_in(study, "alpha = 0.05", "alpha = 5")
    for words in ((), ("--json",)):
        refused = ledger("status", "--study", study, *words)
        assert refused.status == 2 and "analysis.alpha" in refused.err
