"""The shipped stream gives the recorded history, and that history is what a miner needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from actors.rehearsal import example_repository
from actors.rehearsal.example_repository import BRANCH, RECORDED_HEAD, STREAM, create
from ledger.errors import Integrity, Refused, Unfinished

VERDICTS = json.loads(
    Path(__file__).with_name("example_repository_verdicts.json").read_text(encoding="utf-8")
)
VALID = [row["commit"] for row in VERDICTS if row["expected"] == "valid"]
RULE_DATE = date(2023, 1, 1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    destination = tmp_path_factory.mktemp("example") / "ferial"
    create(destination)
    return destination


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def run_suite(root: Path, *paths: str, seed: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths],
        cwd=root,
        env={
            "LC_ALL": "C.UTF-8",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the suite needs pytest and nothing else
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": str(seed),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_recorded_head_is_checked_out(repository: Path, tmp_path: Path) -> None:
    recorded = RECORDED_HEAD.read_text(encoding="ascii").strip()
    assert create(tmp_path / "again") == recorded
    assert git(repository, "rev-parse", "HEAD").strip() == recorded
    assert git(repository, "symbolic-ref", "--short", "HEAD").strip() == BRANCH
    assert git(repository, "status", "--porcelain", "--ignored") == ""
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""


def test_the_history_is_long_and_has_merges(repository: Path) -> None:
    rows = git(repository, "log", "--first-parent", "--format=%P|%cs|%s|%b%x00", BRANCH)
    commits = [row.strip().split("|", 3) for row in rows.split("\0") if row.strip()]
    assert len(commits) >= 40
    assert sum(len(parents.split()) == 2 for parents, *_ in commits) >= 3
    dates = [date.fromisoformat(day) for _, day, *_ in commits]
    assert dates == sorted(dates, reverse=True)
    assert dates[-1] < RULE_DATE < dates[0] <= date(2026, 6, 30)


def test_every_commit_since_the_rule_date_has_a_verdict_in_walk_order(repository: Path) -> None:
    rows = git(repository, "log", "--first-parent", "--format=%H %cs", BRANCH).splitlines()
    walked = [
        commit
        for commit, day in map(str.split, rows)
        if date.fromisoformat(day) >= RULE_DATE  # committer date, as the rule has it
    ]
    assert [row["commit"] for row in VERDICTS] == walked


def test_verdicts_cover_tasks_and_many_reasons_for_rejection() -> None:
    verdicts = Counter(row["expected"] for row in VERDICTS)
    assert verdicts.pop("valid") >= 14
    assert set(verdicts) == {
        "dependency_only",
        "documentation_only",
        "empty",
        "formatting_only",
        "generated_only",
        "mixed",
        "no_fail_to_pass",
        "no_production_file",
        "no_test_file",
        "revert",
        "too_many_production_files",
        "too_many_production_lines",
        "too_many_test_files",
    }
    assert sum(row["expected"] == "valid" for row in VERDICTS[:25]) >= 8


def test_tasks_change_production_and_tests_in_many_modules(repository: Path) -> None:
    modules: Counter[str] = Counter()
    two_files = 0
    for commit in VALID:
        changed = git(repository, "diff", "--name-only", f"{commit}^1", commit).split()
        production = [path for path in changed if re.fullmatch(r"ferial/\w+\.py", path)]
        tests = [path for path in changed if re.fullmatch(r"tests/test_\w+\.py", path)]
        assert production and tests, commit
        assert len(production) + len(tests) == len(changed), commit
        modules.update(production)
        two_files += len(production) == 2
    assert len(modules) >= 6
    assert two_files >= 2


def test_statements_do_not_name_what_the_gold_patch_introduces(repository: Path) -> None:
    for commit in VALID:
        base = f"{commit}^1"
        known = set(re.findall(r"\w+", git(repository, "grep", "-hI", "", base)))
        added = re.findall(r"^\+(.*)", git(repository, "diff", base, commit, "--", "ferial"), re.M)
        new = set(re.findall(r"[A-Za-z_]\w+", "\n".join(added))) - known
        statement = git(repository, "log", "-1", "--format=%B", commit)
        assert new.isdisjoint(re.findall(r"\w+", statement)), commit
        assert ".py" not in statement, commit


def test_the_package_is_worth_searching(repository: Path) -> None:
    sources = [path.read_text(encoding="utf-8") for path in repository.glob("ferial/*.py")]
    assert sum(source.count("\n") for source in sources) >= 1_000
    assert STREAM.stat().st_size < 1_000_000


def test_the_suite_passes_at_the_head(repository: Path) -> None:
    done = run_suite(repository)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed in", done.stdout, re.M)
    assert passed is not None and int(passed[1]) >= 300
    assert git(repository, "status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("commit", VALID[:2])
def test_new_tests_of_a_task_fail_without_its_gold_patch(
    repository: Path, tmp_path: Path, commit: str
) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(repository, root)
    tests = git(root, "diff", "--name-only", f"{commit}^1", commit, "--", "tests").split()
    git(root, "checkout", "--quiet", "--detach", f"{commit}^1")
    assert run_suite(root, *tests).returncode == 0
    git(root, "checkout", "--quiet", commit, "--", *tests)
    assert run_suite(root, *tests, seed=1).returncode == 1
    git(root, "checkout", "--quiet", "--force", "--detach", commit)
    assert run_suite(root, *tests, seed=1).returncode == 0


def test_configuration_of_the_machine_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".config/git").mkdir(parents=True)
    hooks = home / "hooks"
    hooks.mkdir()
    hook = hooks / "post-checkout"
    hook.write_text("#!/bin/sh\necho ran > hook-ran\n", encoding="ascii")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\tautocrlf = true\n\thooksPath = {hooks}\n[init]\n\tdefaultBranch = trunk\n",
        encoding="ascii",
    )
    (home / ".config/git/attributes").write_text("* text eol=crlf\n", encoding="ascii")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    destination = tmp_path / "ferial"
    assert create(destination) == RECORDED_HEAD.read_text(encoding="ascii").strip()
    files = [path for path in destination.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert len(files) > 30
    assert not any(b"\r" in path.read_bytes() for path in files)
    assert not (destination / "hook-ran").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_an_occupied_destination_is_left_alone(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text("mine", encoding="ascii")
    for destination in (tmp_path, note):
        with pytest.raises(Refused, match="choose another place"):
            create(destination)
    with pytest.raises(Unfinished, match="create it first"):
        create(tmp_path / "absent" / "ferial")
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
    assert note.read_text(encoding="ascii") == "mine"


def test_a_stream_that_was_cut_short_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = STREAM.read_bytes()
    end_of_a_commit = stream.index(b"\ncommit ", len(stream) // 2)
    short = tmp_path / "short.fast-import"
    short.write_bytes(stream[: end_of_a_commit + 1])
    monkeypatch.setitem(example_repository.LANGUAGES, "python", (short, RECORDED_HEAD))
    with pytest.raises(Unfinished, match="fast-import"):
        create(tmp_path / "ferial")
    assert [path.name for path in tmp_path.iterdir()] == [short.name]


def test_another_history_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "changed.fast-import"
    changed.write_bytes(STREAM.read_bytes().replace(b"author Ines Aalto", b"author Ines Aalta"))
    monkeypatch.setitem(example_repository.LANGUAGES, "python", (changed, RECORDED_HEAD))
    with pytest.raises(Integrity, match="recorded is"):
        create(tmp_path / "ferial")
    assert not (tmp_path / "ferial").exists()


def test_a_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unfinished, match="install git"):
        create(tmp_path / "ferial")
