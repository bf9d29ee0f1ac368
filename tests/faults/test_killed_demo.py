"""The demo is killed at every stage and given again: it goes on where it stopped, to its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.log import Fact
from schemas.events.cell import CellFinished
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import PlanPrepared, StudyFrozen, TasksFrozen
from tests.end_to_end.rehearsal_study import (
    PATIENCE,
    ROOT,
    Ran,
    StudyOnDisk,
    check_commands,
    finish,
)


def start_demo(study: StudyOnDisk) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ledger", "demo", "--quick", "--dir", str(study.path)],
        cwd=ROOT,
        env=study.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_demo_at(study: StudyOnDisk, moment: Callable[[], bool]) -> Ran:
    process = start_demo(study)
    deadline = time.monotonic() + PATIENCE
    while not moment():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    return finish(process)


def count(study: StudyOnDisk, kind: type) -> int:
    try:
        facts: list[Fact] = study.facts()
    except Exception:  # not made yet, or in the making
        return 0
    return sum(isinstance(fact.event, kind) for fact in facts)


@pytest.mark.slow
def test_a_demo_that_is_killed_at_every_stage_comes_to_its_end(tmp_path: Path) -> None:
    study = StudyOnDisk(tmp_path / "demo", tmp_path / "config")
    stages: list[Callable[[], bool]] = [
        lambda: (study.path / "made-by-ledger-demo").exists(),
        lambda: (study.path / "study.toml").exists(),
        lambda: study.ledger.exists(),
        lambda: count(study, RepositoryMined) > 0,
        lambda: count(study, CandidateValidated) > 0,
        lambda: count(study, TasksFrozen) > 0,
        lambda: count(study, PlanPrepared) > 0,
        lambda: count(study, StudyFrozen) > 0,
        lambda: count(study, CellFinished) > 0,
        lambda: count(study, CellFinished) > 4,
    ]
    for stage in stages:
        ended = kill_demo_at(study, stage)
        assert ended.status == -signal.SIGKILL
        assert "Traceback" not in ended.err
    done = finish(start_demo(study))
    assert done.status == 0, done.err
    assert "going on with the unfinished demo" in done.err
    facts = study.facts()
    commits = [f.event.commit for f in facts if isinstance(f.event, CandidateValidated)]
    assert len(commits) == len(set(commits))
    cells = [str(f.event.cell) for f in facts if isinstance(f.event, CellFinished)]
    assert len(cells) == len(set(cells)) == 8
    check_commands(facts)
    for words in (["verify-chain"], ["replay", "--check"], ["audit"]):
        assert study.ledger_command(*words).status == 0
