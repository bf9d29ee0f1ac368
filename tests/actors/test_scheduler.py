"""What is requested next, from hand-made progress: nothing twice, nothing early."""

from collections.abc import Sequence

import msgspec
import pytest

from actors.loop import Done
from actors.repair.scheduling import next_step
from ledger.errors import SafetyStop
from projections.progress import CellProgress, Progress
from schemas.commands import (
    AdvanceCell,
    AskModel,
    CheckGold,
    Command,
    EnsureResident,
    GradeCell,
    ReleaseModels,
)
from schemas.events.cell import CellVoided
from schemas.events.run import StudyCompleted
from schemas.identifiers import CellId
from schemas.plan import Plan, PlannedCell
from tests.actors.test_model_server import STUDY
from tests.actors.test_planning import REFERENCE

TASKS = ("T1", "T2")


def progress(when: str = "end", gold_every: int = 0) -> Progress:
    """Two tasks × one arm × two models, nothing begun."""
    cells = [
        CellId(unit=unit, arm="H000", agent=agent, repeat=0)
        for unit in TASKS
        for agent in ("M002", "M003")
    ]
    planned = tuple(
        PlannedCell(position=n, cell=cell, block="matrix") for n, cell in enumerate(cells)
    )
    grading = msgspec.structs.replace(STUDY.grading, when=when, gold_every_cells=gold_every)
    study = msgspec.structs.replace(STUDY, grading=grading, preregistered=when == "end")
    return Progress(
        read=lambda ref: b"",
        study=study,
        prepared_plan=Plan(cells=planned),
        cells={str(one.cell): CellProgress(one) for one in planned},
    )


def at_start(state: Progress) -> Progress:
    state.gold.update({(task, 0): True for task in TASKS})
    return state


def end(state: Progress, *positions: int, status: str = "ended") -> None:
    for position in positions:
        cell = list(state.cells.values())[position]
        cell.status, cell.ended = status, "submitted"


def requests(state: Progress, pending: Sequence[Command] = ()) -> list[Command]:
    return list(next_step(state, pending).requests)


def names(commands: Sequence[Command]) -> list[str]:
    return [c.cell if isinstance(c, GradeCell) else f"{c.task} {c.number}" for c in commands]  # type: ignore[union-attr]


def test_gold_is_checked_before_the_first_cell() -> None:
    state = progress()
    asked = requests(state)
    assert asked == [CheckGold(task=task, number=0) for task in TASKS]
    assert requests(state, asked) == []  # asked twice, requested once
    state.gold["T1", 0] = True
    assert requests(state, [asked[1]]) == []


def test_a_broken_test_environment_stops_the_study_before_the_first_cell() -> None:
    state = progress()
    state.gold.update({("T1", 0): True, ("T2", 0): False})
    with pytest.raises(SafetyStop, match="T2"):
        next_step(state, [])


def test_one_cell_at_a_time_and_its_task_begins_with_a_fresh_model() -> None:
    state = at_start(progress())
    first = EnsureResident(model="M002", cell="T1/H000/M002/0", fresh=True)
    assert requests(state) == [first]
    for working in (
        first,
        AdvanceCell(cell=first.cell),
        AskModel(cell=first.cell, turn=0, model="M002", request=REFERENCE),
    ):
        assert requests(state, [working]) == []
    end(state, 0)
    assert requests(state) == [EnsureResident(model="M003", cell="T1/H000/M003/0", fresh=False)]
    end(state, 1)
    assert requests(state) == [EnsureResident(model="M002", cell="T2/H000/M002/0", fresh=True)]


def test_a_cell_that_was_begun_is_taken_up_without_a_reload() -> None:
    state = at_start(progress())
    state.cells["T1/H000/M002/0"].status = "running"
    assert requests(state) == [EnsureResident(model="M002", cell="T1/H000/M002/0", fresh=False)]


def test_an_infrastructure_failure_is_run_again_at_most_the_declared_number_of_times() -> None:
    state = at_start(progress())
    cell = state.cells["T1/H000/M002/0"]
    limit = STUDY.budgets.infrastructure_attempts
    cell.status, cell.ended = "ended", "infrastructure"
    for attempt in range(limit):
        cell.attempt = attempt
        wanted = "T1/H000/M002/0" if attempt + 1 < limit else "T1/H000/M003/0"
        asked = requests(state)[0]
        assert isinstance(asked, EnsureResident) and asked.cell == wanted


def test_grading_waits_for_the_last_cell_and_for_the_model_to_be_gone() -> None:
    state = at_start(progress())
    state.resident = "M002"
    end(state, 0, 1, 2)
    assert not any(isinstance(c, GradeCell) for c in requests(state))
    end(state, 3)
    assert requests(state) == [ReleaseModels()]
    assert requests(state, [ReleaseModels()]) == []
    state.resident = ""
    asked = requests(state)
    assert asked == [GradeCell(cell=name) for name in state.cells]
    assert requests(state, asked) == []


def test_beside_grading_begins_with_the_first_ended_cell() -> None:
    state = at_start(progress(when="beside"))
    end(state, 0)
    assert requests(state) == [
        EnsureResident(model="M003", cell="T1/H000/M003/0", fresh=False),
        GradeCell(cell="T1/H000/M002/0"),
    ]


def test_gold_is_checked_between_portions_of_grading() -> None:
    state = at_start(progress(gold_every=2))
    end(state, 0, 1, 2, 3)
    portion = requests(state)
    assert names(portion) == ["T1/H000/M002/0", "T1/H000/M003/0"]
    assert requests(state, portion) == []
    end(state, 0, status="graded")
    assert requests(state, portion[1:]) == []
    end(state, 1, status="graded")
    assert names(requests(state)) == ["T1 1", "T2 1"]
    state.gold.update({(task, 1): True for task in TASKS})
    assert names(requests(state)) == ["T2/H000/M002/0", "T2/H000/M003/0"]


def finished(state: Progress, gold: dict[str, bool]) -> Done:
    end(state, 0, 1, 2, 3, status="graded")
    assert names(requests(state)) == ["T1 1", "T2 1"]
    state.gold.update({(task, 1): passed for task, passed in gold.items()})
    return next_step(state, [])


def test_the_study_is_complete_after_the_last_gold_check() -> None:
    done = finished(at_start(progress()), {"T1": True, "T2": True})
    assert [new.event for new in done.events] == [StudyCompleted(cells=4, graded=4)]
    assert done.requests == ()


def test_a_task_whose_gold_fails_afterwards_voids_its_cells() -> None:
    done = finished(at_start(progress()), {"T1": True, "T2": False})
    voided = [new.event.cell for new in done.events if isinstance(new.event, CellVoided)]
    assert [str(cell) for cell in voided] == ["T2/H000/M002/0", "T2/H000/M003/0"]
    assert done.events[-1].event == StudyCompleted(cells=4, graded=2)
