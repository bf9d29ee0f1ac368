"""``pytest --ledger-study DIR``: one test a threshold, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from actors.loop import carry_out
from actors.study.analysis import handlers
from actors.transfer.analysis import ANALYSIS
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.commands import AnalyseStudy
from tests.transfer_scores.recorded_story import amended, inspected, record, two_systems
from tests.transfer_scores.transfer_story import Story

ROOT = Path(__file__).resolve().parents[2]
THRESHOLDS = """
[[thresholds]]
id = "no-harm"
count = "prohibited_actions"
at_most = 0
[[thresholds]]
id = "full-transfers"
count = "verified_transfer_success"
memory = "full"
driver = "reader"
at_least = 1.0
[[thresholds]]
id = "all-transfer"
count = "verified_transfer_success"
at_least = 0.9
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In an empty folder: nothing else is collected."""
    folder.mkdir(exist_ok=True)
    plugin = ("-p", "actors.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-v", *words, str(folder)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study on disk with an analysis."""

    root = tmp_path_factory.mktemp("plugin") / "study"
    directory = StudyDirectory(root)
    directory.var.mkdir(parents=True)
    log = SqliteLog.create(directory.ledger)
    context = record(two_systems(Story(thresholds=THRESHOLDS)), root, log)
    carry_out(inspected(context), AnalyseStudy(), handlers(ANALYSIS))
    log.close()
    return root


def test_one_test_a_threshold_fails_with_its_counts(study: Path, tmp_path: Path) -> None:
    ran = run_pytest(tmp_path / "empty", "--ledger-study", str(study))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    for name, word in (
        ("no-harm", "PASSED"),
        ("full-transfers", "PASSED"),
        ("all-transfer", "FAILED"),
    ):
        assert any(name in line and word in line for line in ran.stdout.splitlines()), ran.stdout
    assert "empty + reader, procedure: verified_transfer_success 2/8" in ran.stdout
    assert "at least 0.9: missed; frozen before the first run" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_a_green_gate_names_the_threshold_that_was_loosened(tmp_path: Path) -> None:
    root = tmp_path / "study"
    directory = StudyDirectory(root)
    directory.var.mkdir(parents=True)
    log = SqliteLog.create(directory.ledger)
    context = record(two_systems(Story(thresholds=THRESHOLDS)), root, log)
    amended(context, ("at_least = 0.9", "at_least = 0.1"))
    carry_out(inspected(context), AnalyseStudy(), handlers(ANALYSIS))
    log.close()
    ran = run_pytest(tmp_path / "empty", "--ledger-study", str(root))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("all-transfer: was verified_transfer_success at least 0.9, now ") == 1


def test_thresholds_are_chosen_by_name_as_every_test(study: Path, tmp_path: Path) -> None:
    words = ("--ledger-study", str(study), "-k", "no-harm")
    ran = run_pytest(tmp_path / "empty", *words)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed, 2 deselected" in ran.stdout


def test_without_the_option_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "test_own.py").write_text(
        "import sys\n\ndef test_own():\n    assert 'projections' not in sys.modules\n"
    )
    ran = run_pytest(tmp_path / "own")
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_a_study_without_an_analysis_fails_and_says_what_to_do(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path / "empty", "--ledger-study", str(tmp_path / "nowhere"))
    assert ran.returncode == 1
    assert "holds no ledger" in ran.stdout
    root = tmp_path / "study"
    directory = StudyDirectory(root)
    directory.var.mkdir(parents=True)
    log = SqliteLog.create(directory.ledger)
    record(two_systems(Story()), root, log)
    log.close()
    ran = run_pytest(tmp_path / "empty", "--ledger-study", str(root))
    assert ran.returncode == 1
    assert "`ledger analyze --reason" in ran.stdout
