"""What a reader should know beside the numbers, found in the records."""

import msgspec
import pytest

from ledger.log import Fact
from projections.report.conduct import Conduct, Deviation
from projections.report.plain_text import listed
from schemas.base import ArtifactRef, Event
from schemas.events.cell import CellFinished, CellStarted, CellVoided, TurnAbandoned, TurnFailed
from schemas.events.grading import GoldChecked
from schemas.events.mining import LeakProbed, SandboxProbed
from schemas.events.run import RunStarted, RunStopped
from schemas.events.server import ModelLost, ServerMismatched
from schemas.events.study import OutcomesInspected
from schemas.events.transfer import CaseFinished
from schemas.identifiers import parse_cell_id
from tests.projections.tiny_study import digest_of

CELL = "R001-001/H000/M002/0"
NOTHING = ArtifactRef(digest=digest_of(""), length=0, media_type="text/plain")


def started(attempt: int) -> CellStarted:
    return CellStarted(
        cell=parse_cell_id(CELL),
        attempt=attempt,
        unit=digest_of("task"),
        arm=digest_of("arm"),
        agent=digest_of("model"),
        simulated=False,
    )


def finished(ended: str, detail: str = "") -> CellFinished:
    plain = {
        "cell": msgspec.to_builtins(parse_cell_id(CELL)),
        "attempt": 0,
        "ended": ended,
        "detail": detail,
        "turns": 0,
        "tool_calls": 0,
        "test_runs": 0,
        "overlay": msgspec.to_builtins(NOTHING),
        "patch": msgspec.to_builtins(NOTHING),
        "tree": "",
        "changed_paths": [],
        "submitted": False,
    }
    return msgspec.convert(plain, CellFinished)


def run(resumed: bool = False, dirty: bool = False) -> RunStarted:
    return RunStarted(
        study=digest_of("study"),
        python="3.11.7",
        platform="Linux x86_64",
        program=None,
        commit="",
        dirty=dirty,
        resumed=resumed,
    )


def failed(retry: bool) -> TurnFailed:
    return TurnFailed(
        turn=0, attempt=0, kind="transport", detail="reset", response=NOTHING, retry=retry
    )


def deviations(*events: Event, stream: str = f"cell/{CELL}") -> list[Deviation]:
    conduct = Conduct()
    for seq, event in enumerate(events):
        fact = Fact(seq, "id", stream, seq, "2026-07-18T09:30:00.000000Z", "test", None, "", event)
        conduct.apply(fact)
    return list(conduct.deviations())


@pytest.mark.parametrize(
    ("event", "what", "detail"),
    [
        (run(resumed=True), "run went on where an earlier one had stopped", ""),
        (run(dirty=True), "run with uncommitted changes", "in the checkout"),
        (
            RunStopped(reason="safety", detail="disk", cells_finished=3),
            "run stopped: safety",
            "disk",
        ),
        (
            SandboxProbed(kind="none", enforced={}, accepted_unsafe=True),
            "tests ran without a sandbox",
            "accepted by who started the run",
        ),
        (
            CellVoided(cell=parse_cell_id(CELL), reason="drift"),
            "cell voided",
            f"{CELL}: drift",
        ),
        (
            GoldChecked(task="R001-001", number=1, passed=False, reason="absent", runs=()),
            "gold patch did not pass any more",
            "R001-001: absent",
        ),
        (
            LeakProbed(repository="R001", tasks=1, objects=1, findings=("blob 1",)),
            "gold was seen in a workspace",
            "R001: blob 1",
        ),
        (ModelLost(model="M002", instance="i", evidence=()), "a loaded model was gone", "M002"),
        (
            ServerMismatched(model="", problem="just-in-time loading is on", evidence=()),
            "preflight stopped a run",
            "just-in-time loading is on",
        ),
    ],
)
def test_every_deviation_is_found(event: Event, what: str, detail: str) -> None:
    assert deviations(event) == [Deviation(what=what, records=(0,), detail=detail)]


def test_what_went_as_planned_is_no_deviation() -> None:
    assert (
        deviations(
            run(),
            SandboxProbed(kind="bubblewrap", enforced={}, accepted_unsafe=False),
            started(0),
            failed(retry=False),
            finished("timeout"),
            GoldChecked(task="R001-001", number=0, passed=True, reason="", runs=()),
            LeakProbed(repository="R001", tasks=1, objects=1, findings=()),
            RunStopped(reason="complete", detail="", cells_finished=1),
        )
        == []
    )


def test_a_rerun_says_why() -> None:
    found = deviations(started(0), finished("infrastructure", "no sandbox"), started(1))
    assert found == [
        Deviation(
            what="cell run again after an infrastructure failure",
            records=(2,),
            detail=f"{CELL}: no sandbox",
        )
    ]


def test_a_case_that_a_stop_of_the_run_abandoned_is_no_failure_of_ours() -> None:
    cell = started(0).cell
    lost = CaseFinished(cell=cell, attempt=0, ended="void", detail="abandoned", uncertainty=())
    stopped = msgspec.structs.replace(lost, stopped=True)
    whats = [each.what for each in deviations(stopped, started(1), lost, started(2))]
    assert whats == [
        "cell run again after a stop of the run",
        "cell run again after an infrastructure failure",
    ]


def test_outcomes_that_came_after_an_inspection_are_counted_once_a_cell() -> None:
    done = CaseFinished(cell=started(0).cell, attempt=0, ended="completed", uncertainty=())
    void = msgspec.structs.replace(done, ended="void")
    look = OutcomesInspected(reason="a look", graded=1)
    assert deviations(done, look, void) == []
    assert deviations(look, done, look, done) == [
        Deviation(
            what="outcomes that came after an inspection: exploratory",
            records=(3,),
            detail="1 cell",
        )
    ]


def test_turns_asked_again_are_counted_together() -> None:
    abandoned = TurnAbandoned(turn=0, attempt=0, reason="the process is gone")
    found = deviations(failed(retry=True), abandoned, failed(retry=True))
    assert found == [
        Deviation(
            what="turns asked again after a transport failure",
            records=(0, 2),
            detail="2 in 1 cells",
        ),
        Deviation(
            what="turns asked again after a process was lost", records=(1,), detail="1 in 1 cells"
        ),
    ]


def test_long_lists_say_how_much_is_left_out() -> None:
    assert listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listed(range(100)).endswith("10, 11 and 88 more")
    assert listed(()) == ""
