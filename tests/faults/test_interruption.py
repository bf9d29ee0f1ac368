"""Ctrl-C, a termination signal, a second run: everything stops in order and says how to go on."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.log import Fact
from schemas.events.cell import TurnAnswered
from schemas.events.grading import CellGraded, GoldChecked
from schemas.events.mining import CandidateValidated
from schemas.events.run import RunStarted, RunStopped
from schemas.identifiers import RUN_STREAM
from tests.end_to_end.rehearsal_study import (
    PATIENCE,
    StudyOnDisk,
    check_commands,
    check_sound,
    finish,
    make_mined_study,
    take_steps,
)
from tests.faults.conftest import Baseline, Fault, disturbed

INTERRUPTED = (130, -signal.SIGINT)
"""A shell shows both as 130. Python ends itself by the signal where the interrupt had met it in
code that came from a string (a dataclass in the making), however well it was handled since."""

NewStudy = Callable[[str], StudyOnDisk]
Moment = Callable[[list[Fact]], bool]


def seen(kind: type) -> Moment:
    """True once an event of this kind is in the log."""
    return lambda facts: any(isinstance(fact.event, kind) for fact in facts)


def run_until(study: StudyOnDisk, moment: Moment, *words: str) -> "subprocess.Popen[str]":
    """Start a command; returns at the moment."""
    process = study.start(*words)
    deadline = time.monotonic() + PATIENCE
    while not moment(study.facts()):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def interrupt(process: "subprocess.Popen[str]", number: signal.Signals, group: bool) -> None:
    """Send a signal to a command, or as a terminal's Ctrl-C does: to its whole process group."""
    (os.killpg if group else os.kill)(process.pid, number)


def check_stopped_in_order(study: StudyOnDisk, process: "subprocess.Popen[str]", runs: int) -> None:
    ended = finish(process)
    assert ended.status in INTERRUPTED
    assert ended.err.endswith("stopped; `ledger run` resumes from here\n")
    assert "Traceback" not in ended.err
    assert study.processes() == {}
    facts = study.facts()
    stops = [fact.event for fact in facts if isinstance(fact.event, RunStopped)]
    assert [stop.reason for stop in stops] == ["interrupted"] * runs
    assert sum(isinstance(fact.event, RunStarted) for fact in facts) == runs
    assert study.ledger_command("verify-chain").status == 0


def test_an_interrupted_run_says_how_to_go_on_and_goes_on(
    new_study: NewStudy, baseline: Baseline
) -> None:
    study = new_study("interrupted")

    process = run_until(study, seen(TurnAnswered), "run")
    refused = study.ledger_command("run")
    assert refused.status == 1
    assert refused.err.startswith("ledger: another `ledger run` works on ")
    assert "ledger status" in refused.err
    assert process.poll() is None
    interrupt(process, signal.SIGINT, group=True)
    check_stopped_in_order(study, process, runs=1)

    process = run_until(study, seen(CellGraded), "run")
    interrupt(process, signal.SIGTERM, group=False)
    check_stopped_in_order(study, process, runs=2)

    completed = study.ledger_command("run")
    assert completed.status == 0, completed.err
    check_sound(study, baseline.outcomes)
    again = study.ledger_command("run")
    assert (again.status, again.err) == (0, "the study is complete already\n")


def test_a_run_that_is_interrupted_before_it_has_begun_leaves_nothing_open(
    new_study: NewStudy,
) -> None:
    study = new_study("early")
    process = study.start("run")
    while not study.processes():
        time.sleep(0.005)
    lock = study.path / "var" / "run" / "run.lock"
    while not lock.exists():
        assert process.poll() is None, finish(process)
        time.sleep(0.005)
    interrupt(process, signal.SIGINT, group=True)
    ended = finish(process)
    assert ended.status in INTERRUPTED
    assert "goes on" in ended.err and "Traceback" not in ended.err
    assert study.processes() == {}
    facts = study.facts()
    started = sum(isinstance(fact.event, RunStarted) for fact in facts)
    assert started == sum(isinstance(fact.event, RunStopped) for fact in facts)


def test_a_run_that_is_interrupted_as_it_begins_is_recorded_as_stopped(
    new_study: NewStudy,
) -> None:
    """The signal comes when the beginning stands in the log, and before its order has returned."""
    begins = Fault(RUN_STREAM, "after", "interrupt", type=RunStarted.TYPE)
    study = disturbed(new_study("study"), begins)
    check_stopped_in_order(study, study.start("run"), runs=1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(seen(RunStarted), id="started"),
        pytest.param(seen(GoldChecked), id="gold"),
        pytest.param(seen(TurnAnswered), id="turn"),
        pytest.param(seen(CellGraded), id="graded"),
    ],
)
def test_a_run_is_interrupted_at_any_moment(
    new_study: NewStudy, baseline: Baseline, number: signal.Signals, group: bool, moment: Moment
) -> None:
    study = new_study("study")
    process = run_until(study, moment, "run")
    interrupt(process, number, group)
    check_stopped_in_order(study, process, runs=1)
    completed = study.ledger_command("run")
    assert completed.status == 0, completed.err
    check_sound(study, baseline.outcomes)


@pytest.mark.slow
def test_an_interrupted_validation_validates_no_candidate_twice(
    tmp_path: Path,
) -> None:
    """Three candidates; interrupted before the first verdict, after it, killed after the second."""
    study = make_mined_study(tmp_path, "Test leap years around centuries", tasks=3)

    def verdicts(count: int) -> Moment:
        return lambda facts: sum(isinstance(f.event, CandidateValidated) for f in facts) >= count

    first = run_until(study, lambda facts: bool(scratch(study)), "tasks", "validate")
    interrupt(first, signal.SIGINT, group=True)
    second = run_until(study, verdicts(1), "tasks", "validate")
    interrupt(second, signal.SIGTERM, group=False)
    for process in (first, second):
        ended = finish(process)
        assert ended.status in INTERRUPTED
        # Behind the ^C of a terminal stands the end of its line.
        *progress, last = [line for line in ended.err.split("\n") if line]
        assert last == "interrupted; nothing is lost, the same command goes on"
        assert all(line.startswith("validate R001") for line in progress), ended.err
    third = run_until(study, verdicts(2), "tasks", "validate")
    third.kill()
    finish(third)
    take_steps(study, "tasks validate")
    facts = study.facts()
    counts = Counter(f.event.commit for f in facts if isinstance(f.event, CandidateValidated))
    assert sorted(counts.values()) == [1, 1, 1]
    check_commands(facts)
    assert study.processes() == {}
    assert scratch(study) == []
    assert study.ledger_command("verify-chain").status == 0


def scratch(study: StudyOnDisk) -> list[str]:
    """What test runs have lying around at present."""
    folder = study.path / "var" / "scratch" / "miner"
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
