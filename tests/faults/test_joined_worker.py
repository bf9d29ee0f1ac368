"""Workers that somebody else starts join a run: they find its server, and what they refuse ends it
with their message and status."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.events.command import CommandRefused
from schemas.events.run import RunStopped, StudyCompleted
from tests.end_to_end.rehearsal_study import PATIENCE, StudyOnDisk, check_sound, finish
from tests.faults.conftest import Baseline

NewStudy = Callable[[str], StudyOnDisk]


@contextmanager
def run_without_its_model_server(study: StudyOnDisk) -> Iterator["subprocess.Popen[str]"]:
    """``ledger run`` whose own model server worker stands still until the block ends, from before
    its first command: the checks of the gold patches come first."""
    process = study.start("run")
    deadline = time.monotonic() + PATIENCE
    pid = None
    while pid is None:
        assert process.poll() is None and time.monotonic() < deadline
        found = [p for p, words in study.processes().items() if "--roles model_server" in words]
        pid = found[0] if found else None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield process
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)


def wait_for(study: StudyOnDisk, kind: type) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(isinstance(fact.event, kind) for fact in study.facts()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_joined_worker_refuses_ends_the_run(new_study: NewStudy) -> None:
    study = new_study("study")
    nobody = ["--server-url", "http://127.0.0.1:9", "--lms", "false"]
    with run_without_its_model_server(study) as process:
        joined = study.start("worker", "--roles", "model_server", *nobody)
        wait_for(study, CommandRefused)
    run, worker = finish(process), finish(joined)
    (refused,) = [f.event for f in study.facts() if isinstance(f.event, CommandRefused)]
    assert (run.status, worker.status) == (6, 6), run
    assert run.err.endswith(f"ledger: {refused.reason}\n") and "Traceback" not in run.err
    assert refused.reason in worker.err
    (stopped,) = [f.event for f in study.facts() if isinstance(f.event, RunStopped)]
    assert (stopped.reason, stopped.detail) == ("failed", refused.reason)
    assert study.processes() == {}


def test_without_a_run_there_is_no_server_to_find(new_study: NewStudy) -> None:
    alone = new_study("study").ledger_command("worker", "--roles", "model_server")
    assert alone.status == 5
    assert "start that first" in alone.err and "Traceback" not in alone.err


@pytest.mark.slow
def test_a_joined_worker_finds_the_server_of_the_run(
    new_study: NewStudy, baseline: Baseline
) -> None:
    study = new_study("study")
    with run_without_its_model_server(study) as process:
        joined = study.start("worker", "--roles", "model_server")
        wait_for(study, StudyCompleted)
        assert process.poll() is None and joined.poll() is None
    ended = finish(process)
    assert ended.status == 0, ended.err
    joined.terminate()
    assert finish(joined).status == 130
    check_sound(study, baseline.outcomes)
