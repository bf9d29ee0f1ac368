"""kill -9 of every actor, right before and right after each of its commits.

A whole study is carried out once, from mining to the amendment after its report. Then each of its
commands is given again from the state before it, its process is killed at each of its appends, and
another process takes over: it must come to what the undisturbed command came to.
"""

from collections.abc import Iterator

import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE
from schemas.events.cell import CellStarted
from schemas.events.run import StudyCompleted
from schemas.repair.study import RepairStudy
from schemas.study import of_kind
from tests.end_to_end.rehearsal_study import check_commands, make_mined_study, outcomes
from tests.faults.actor_crashes import (
    Laboratory,
    Step,
    amendment,
    anchor,
    orders_after_the_run,
    orders_before_the_run,
)
from tests.faults.fault_points import count

pytestmark = pytest.mark.slow
KIND = "kill -9 at a commit boundary of an actor"
ROLES = {"operator", "miner", "scheduler", "model_server", "cell", "test_run", "grader"}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    place = tmp_path_factory.mktemp("laboratory")
    study = make_mined_study(place / "work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(study.config))
        found = Laboratory(study, place / "copies")
        _, declared = found.directory.read_study()
        for command in orders_before_the_run(of_kind(RepairStudy, declared).repositories[0].id):
            found.order(command)
        found.work()
        cells = [f.event.cell for f in found.facts() if isinstance(f.event, CellStarted)]
        for command in orders_after_the_run(str(cells[0])):
            found.order(command)
        found.order(anchor(found.directory, place / "note"))
        found.order(amendment(found.directory))
        yield found


def test_all_actors_take_part(laboratory: Laboratory) -> None:
    assert {step.role for step in laboratory.steps} == ROLES
    assert all(step.appends >= 1 for step in laboratory.steps)
    facts = laboratory.facts()
    assert any(isinstance(fact.event, StudyCompleted) for fact in facts)
    check_commands(facts)


def one_of_each(steps: list[Step]) -> list[Step]:
    """The first command of every kind."""
    first: dict[str, Step] = {}
    for step in steps:
        first.setdefault(type(step.command).__name__, step)
    return list(first.values())


def test_every_actor_is_killed_at_every_commit(laboratory: Laboratory) -> None:
    count(KIND, laboratory.kill_at_every_append(laboratory.steps))


def test_after_a_kill_of_each_actor_the_study_comes_to_the_same_end(
    laboratory: Laboratory,
) -> None:
    undisturbed = outcomes(laboratory.facts())
    for step in one_of_each([step for step in laboratory.steps if not step.ordered]):
        laboratory.kill(step, step.appends - 1, "before")
        facts = laboratory.finish()
        assert outcomes(facts) == undisturbed, step.name
        assert sum(isinstance(fact.event, StudyCompleted) for fact in facts) == 1
        check_commands(facts)
        laboratory.check_sound()
