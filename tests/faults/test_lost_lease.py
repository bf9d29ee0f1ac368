"""A process that stands still for longer than its lease: another one takes its command over, and
when it goes on it writes nothing a second time."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.log import Fact
from schemas.events.cell import TurnAbandoned
from tests.end_to_end.rehearsal_study import PATIENCE, StudyOnDisk, check_sound, finish
from tests.faults.conftest import Append, Baseline, Fault, disturbed, marker

LEASE_SECONDS = "1.0"


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("role", "event"),
    [
        ("model_server", "turn.answered.v1"),
        pytest.param("cell", "tool.called.v1", marks=pytest.mark.slow),
        pytest.param("cell", "cell.finished.v1", marks=pytest.mark.slow),
        pytest.param("test_run", "test_run.finished.v1", marks=pytest.mark.slow),
        pytest.param("grader", "cell.graded.v1", marks=pytest.mark.slow),
    ],
)
def test_a_command_that_was_taken_over_is_done_once(
    new_study: Callable[[str], StudyOnDisk], baseline: Baseline, role: str, event: str
) -> None:
    (first, *_), *_ = baseline.appends.values()
    stop = Fault(first.stream, "before", "stop", type=event)
    study = disturbed(new_study("study"), stop)
    study.variables["LEDGER_LEASE_SECONDS"] = LEASE_SECONDS
    process = study.start("run")
    wait_until(lambda: marker(study, 0).exists() and marker(study, 0).read_bytes() != b"", process)
    pid = int(marker(study, 0).read_bytes())
    wait_until(lambda: stopped(pid), process)
    before = events(study.facts(), first, event)

    helper = study.start("worker", "--roles", role)
    wait_until(lambda: events(study.facts(), first, event) > before, process)
    os.kill(pid, signal.SIGCONT)
    ended = finish(process)
    assert ended.status == 0, ended.err
    helper.terminate()
    assert finish(helper).status == 130

    facts = study.facts()
    check_sound(study, baseline.outcomes)
    takers = Counter(fact.event.attempt for fact in facts if isinstance(fact.event, TurnAbandoned))
    assert takers == ({0: 1} if role == "model_server" else {})
    diagnostics = (study.path / "var" / "diagnostics").glob("*.log")
    said = "".join(log.read_text() for log in diagnostics)
    assert "Traceback" not in said
    # The cell's step is a function of the log: the same records again are no news, and no loss.
    assert ("lease lost" in said) == (role != "cell")


def events(facts: list[Fact], append: Append, kind: str) -> int:
    return sum(fact.stream == append.stream and kind == fact.event.TYPE for fact in facts)
