"""kill -9 at any moment, of any process or of all: the same command goes on, and nothing is lost.

After every kill ``ledger run`` is given again until the study is complete. It must then have come
to what it comes to when nobody kills anything: the same cells, each once, with the same patches and
verdicts; no model call repeated but as a recorded attempt; and chain, replay and audits must agree.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from tests.end_to_end.rehearsal_study import PATIENCE, StudyOnDisk, check_sound, finish
from tests.faults.conftest import INJECTION, Append, Baseline, Fault, disturbed, marker
from tests.faults.fault_points import count
from tests.faults.killed_runs import (
    RUNS,
    kill,
    run_to_the_end,
    wait_for_a_moment,
    wait_until_all_have_ended,
)

AT_ONCE = 2
"""Studies that are killed at the same time: one alone leaves a processor idle half of the time."""
KILLS_A_STUDY = 4


def check_undisturbed_end(study: StudyOnDisk, baseline: Baseline) -> None:
    check_sound(study, baseline.outcomes)
    wait_until_all_have_ended(study)


def all_pass(trials: Sequence[tuple[str, Callable[[], int]]]) -> int:
    """Carry out named trials, some at a time; how many kills there were in all of them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [(name, pool.submit(trial)) for name, trial in trials]
    failed = {name: one.exception() for name, one in running if one.exception() is not None}
    assert failed == {}, "\n".join(f"{name}: {error}" for name, error in failed.items())
    return sum(one.result() for _, one in running)


# --- at commit boundaries ------------------------------------------------------------------------


def kill_at(
    frozen: StudyOnDisk, place: Path, baseline: Baseline, faults: Sequence[Fault]
) -> Callable[[], int]:
    """A trial in which processes are killed at these appends."""

    def trial() -> int:
        study = disturbed(frozen.copy(place), *faults)
        run_to_the_end(study)
        for number in range(len(faults)):
            assert marker(study, number).exists(), f"nobody was killed by {faults[number]}"
        check_undisturbed_end(study, baseline)
        shutil.rmtree(place)
        return len(faults)

    return trial


def after(append: Append, how: Literal["kill", "kill-set"]) -> Fault:
    return Fault(append.stream, "after", how, append.version)


def before(append: Append, how: Literal["kill", "kill-set"]) -> Fault:
    return Fault(append.stream, "before", how, append.version)


def test_killed_at_three_commit_boundaries(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path
) -> None:
    first, second = baseline.appends.values()
    answer = next(a for a in first if "turn.answered.v1" in a.events)
    faults = [
        after(answer, "kill"),
        before(second[-1], "kill-set"),
        Fault(first[0].stream, "before", "kill", type="cell.graded.v1"),
    ]
    assert kill_at(frozen_study, tmp_path / "study", baseline, faults)() == len(faults)


@pytest.mark.slow
def test_killed_at_every_commit_boundary_of_a_cell(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path
) -> None:
    """Every append of the first cell: its process alone is killed right after it, and in another
    study its process with the supervisor. In the same studies the second cell is killed too, so
    that two crashes meet in one study, and there also right before the append."""
    first, second = baseline.appends.values()
    trials = []
    for number, append in enumerate(first):
        other = second[number % len(second)]
        for name, faults in (
            ("alone", [after(append, "kill"), after(other, "kill-set")]),
            ("set", [after(append, "kill-set"), before(other, "kill")]),
        ):
            place = tmp_path / f"{number:02}-{name}"
            trials.append((place.name, kill_at(frozen_study, place, baseline, faults)))
    kills = all_pass(trials)
    assert kills == 4 * len(first)
    count("kill -9 at a commit boundary, a worker or the whole set", range(kills))


# --- at random moments ---------------------------------------------------------------------------


def victims(processes: dict[int, str], draw: random.Random) -> list[int]:
    """One process of the set, all of them, the stand-in server, or a run of tests."""
    chosen = draw.choice(("one", "one", "all", "stand_in_server", "bwrap"))
    if chosen == "all":
        return sorted(processes)
    fitting = [pid for pid, command in sorted(processes.items()) if chosen in command]
    return [draw.choice(fitting or sorted(processes))]


def kill_at_random(
    frozen: StudyOnDisk, place: Path, baseline: Baseline, seed: int, kills: int
) -> Callable[[], int]:
    """A trial in which up to ``kills`` random kills meet one study."""

    def trial() -> int:
        draw = random.Random(seed)
        study = frozen.copy(place)
        done = 0
        process = study.start("run")
        for _ in range(kills):
            if process.poll() is not None:
                assert "Traceback" not in finish(process).err
                process = study.start("run")
            wait_for_a_moment(study, process, draw, baseline.records)
            processes = study.processes()
            if process.poll() == 0 or not processes:
                break
            done += 1
            kill(victims(processes, draw))
        assert "Traceback" not in finish(process).err
        run_to_the_end(study)
        check_undisturbed_end(study, baseline)
        shutil.rmtree(place)
        return done

    return trial


def test_killed_at_two_random_moments(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path
) -> None:
    assert kill_at_random(frozen_study, tmp_path / "study", baseline, seed=7, kills=2)() > 0


@pytest.mark.slow
def test_killed_at_forty_random_moments(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path
) -> None:
    kills, seed = 0, 100
    while kills < 40:
        seeds = range(seed, seed + 2 * AT_ONCE)
        seed = seeds.stop
        kills += all_pass(
            [
                (
                    f"seed {one}",
                    kill_at_random(frozen_study, tmp_path / f"{one}", baseline, one, KILLS_A_STUDY),
                )
                for one in seeds
            ]
        )
    count("kill -9 at a random moment of a run", range(kills))


# --- what is not a worker -------------------------------------------------------------------------


def killed_while_it_runs(
    study: StudyOnDisk, process: "subprocess.Popen[str]", part: str, baseline: Baseline
) -> bool:
    """Kill the first process of the study whose command has ``part``; False where the run ended
    before one was seen."""
    first = next(iter(baseline.appends.values()))[0]
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < deadline
        if part == "stand_in_server" and not any(f.stream == first.stream for f in study.facts()):
            continue  # in the middle of a cell, not while it starts
        for pid, command in study.processes().items():
            if part in command:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(pid, signal.SIGKILL)
                    return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        pytest.param("bwrap", id="a run of tests"),
        pytest.param("stand_in_server", id="the model server"),
    ],
)
def test_something_that_a_worker_uses_is_killed(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path, part: str
) -> None:
    """Tests that were killed are run again. A server that died is started again with its set."""
    for number in range(RUNS):
        study = frozen_study.copy(tmp_path / f"study-{number}")
        process = study.start("run")
        if killed_while_it_runs(study, process, part, baseline):
            break
        assert finish(process).status == 0  # it lives for a moment, and was not seen
    else:
        pytest.fail(f"{part} was never seen in {RUNS} runs")
    ended = finish(process)
    assert ended.status == 0, ended.err
    check_undisturbed_end(study, baseline)


@pytest.mark.slow
def test_the_tool_of_the_model_server_is_killed(
    frozen_study: StudyOnDisk, baseline: Baseline, tmp_path: Path
) -> None:
    """A tool that fails says that something is not as it should be: the run stops, and goes on. It
    lives for too short a time to be seen and killed from outside on a busy machine."""
    study = frozen_study.copy(tmp_path / "study")
    killed = tmp_path / "killed"
    study.variables |= {"PYTHONPATH": str(INJECTION), "LEDGER_KILLED_TOOL": str(killed)}
    stopped = study.ledger_command("run")
    assert killed.exists()
    assert stopped.status == 6 and "`lms ps --json` failed with exit status -9" in stopped.err
    assert study.ledger_command("run").status == 0
    check_undisturbed_end(study, baseline)
