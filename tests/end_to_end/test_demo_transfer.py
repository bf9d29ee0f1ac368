"""The demo of the transfer kind, with one family: killed once, given again, and made anew."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ledger.log import Fact
from schemas.events.study import StudyFrozen
from schemas.events.transfer import CaseFinished
from tests.end_to_end.rehearsal_study import PATIENCE, ROOT, Ran, StudyOnDisk, finish

CASES, SYSTEMS = 7, 8


def start(study: StudyOnDisk) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ledger", "demo", "--transfer", "--quick", "--dir", study.path],
        cwd=ROOT,
        env=study.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def facts(study: StudyOnDisk) -> list[Fact]:
    try:
        return study.facts()
    except Exception:  # not made yet, or in the making
        return []


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    folder = tmp_path_factory.mktemp("demo")
    return StudyOnDisk(folder / "demo", folder / "config")


@pytest.fixture(scope="module")
def done(study: StudyOnDisk) -> Ran:
    """The demo is killed once it has frozen, and given again."""
    process = start(study)
    deadline = time.monotonic() + PATIENCE
    while not any(isinstance(fact.event, StudyFrozen) for fact in facts(study)):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    assert finish(process).status == -signal.SIGKILL
    return finish(start(study))


def test_it_goes_on_to_its_end_and_runs_no_case_twice(study: StudyOnDisk, done: Ran) -> None:
    assert done.status == 0, done.err
    assert "going on with the unfinished demo" in done.err
    assert f"{CASES * SYSTEMS} of {CASES * SYSTEMS} cells" in done.err + done.out
    recorded = facts(study)
    assert sum(isinstance(fact.event, StudyFrozen) for fact in recorded) == 1
    ended = Counter(
        str(fact.event.cell) for fact in recorded if isinstance(fact.event, CaseFinished)
    )
    assert len(ended) == CASES * SYSTEMS


def test_it_says_what_each_system_does_wrong(done: Ran) -> None:
    table = done.out[done.out.index("system  ") : done.out.index("-" * 78)].splitlines()
    _, *titles = re.split("  +", table[0].strip())
    said = {
        system: dict(zip(titles, words, strict=True))
        for system, *words in (re.split("  +", row.strip()) for row in table[2:] if row)
    }
    assert len(said) == SYSTEMS
    wrong = {
        system: {title for title, word in words.items() if word == "yes"}
        for system, words in said.items()
    }
    assert wrong["none + reader"] == {"forgets"}
    assert wrong["everything + reader"] == {"over-applies", "guesses"}
    assert wrong["full + reader"] == set()
    assert wrong["full + over-applier"] == {"guesses"}
    assert {"lies", "false done"} <= wrong["full + liar"]
    assert all(words["cannot show"] == "nothing" for words in said.values())


def test_it_ends_with_the_paths_and_what_was_checked(study: StudyOnDisk, done: Ran) -> None:
    block = done.out[done.out.index("-" * 78) :]
    assert "0 findings" in block and "identical" in block and "without a finding" in block
    report = next(line.split()[-1] for line in block.splitlines() if line.startswith("report "))
    assert Path(report).is_file() and Path(report).is_relative_to(study.path)
    assert len(list((Path(report).parent / "runs").iterdir())) == CASES * SYSTEMS


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    study = StudyOnDisk(tmp_path / "mine", tmp_path / "config")
    study.path.mkdir()
    (study.path / "notes.txt").write_text("mine")
    refused = finish(start(study))
    assert refused.status == 1 and "was not made by the demo" in refused.err
    assert [entry.name for entry in study.path.iterdir()] == ["notes.txt"]
