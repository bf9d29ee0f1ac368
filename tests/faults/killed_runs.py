"""Runs that are killed again and again, and given again until the study is complete."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress

import pytest

from tests.end_to_end.rehearsal_study import PATIENCE, StudyOnDisk

RUNS = 12
"""More runs than kills in any test here: a study that needs more makes no progress."""


def run_to_the_end(study: StudyOnDisk) -> None:
    """Give ``ledger run`` until it says that the study is complete. A run that was killed itself
    says nothing. One ends with a message where what was killed had no worker that could be started
    again: the stand-in while it began (status 5), or ``lms`` while it was asked (status 6)."""
    for _ in range(RUNS):
        ran = study.ledger_command("run")
        if ran.status == 0:
            return
        assert ran.status in (-signal.SIGKILL, 5, 6), ran
        assert "Traceback" not in ran.err
    pytest.fail(f"not complete after {RUNS} runs")


def wait_for_a_moment(
    study: StudyOnDisk, process: "subprocess.Popen[str]", draw: random.Random, records: int
) -> None:
    """Wait for a random number of records, or for a random time: records come in bursts, and most
    of the time is spent between them."""
    pause = draw.uniform(0.1, 4.0)
    if draw.random() < 0.5:
        wanted = len(study.facts()) + draw.randrange(1, records // 2)
        pause = draw.uniform(0.0, 0.2)
        while process.poll() is None and len(study.facts()) < wanted:
            time.sleep(0.02)
    end = time.monotonic() + pause
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)


def kill(pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, signal.SIGKILL)


def wait_until_all_have_ended(study: StudyOnDisk) -> None:
    """Workers end with their supervisor, in a moment."""
    deadline = time.monotonic() + PATIENCE
    while study.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert study.processes() == {}
