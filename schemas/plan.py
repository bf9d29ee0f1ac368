"""The order of a study: computed once, frozen, never decided while it runs."""

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import Value
from schemas.identifiers import CellId
from schemas.study import Study
from schemas.study_file import AnyStudy
from schemas.task import Task


class PlannedCell(Value):
    """One line of the plan."""

    position: Annotated[int, Meta(ge=0, description="place in the order of execution, from 0")]
    cell: CellId
    block: Annotated[
        Literal["matrix", "repeat", "added"],
        Meta(description="main matrix, reliability repeats, or added by an amendment"),
    ]


class Plan(Value):
    """Every cell of a study in the order in which it is run."""

    cells: tuple[PlannedCell, ...]


def undeclared(
    study: AnyStudy, plan: Iterable[PlannedCell], tasks: Iterable[Task] = ()
) -> list[str]:
    """What planned cells and frozen tasks rest on and the study does not declare: keys of
    ``study.toml``, each with the id that is missing there."""
    cells = [planned.cell for planned in plan]
    arms = {cell.arm for cell in cells}
    agents = {cell.agent for cell in cells}
    needed: dict[str, tuple[set[str], set[str]]]
    if isinstance(study, Study):
        needed = {
            "repositories": (
                {task.repository for task in tasks},
                {repository.id for repository in study.repositories},
            ),
            "treatments": (arms, {treatment.id for treatment in study.treatments}),
            "models": (agents, {model.id for model in study.models}),
            "repeats.seeds": (
                {str(cell.repeat) for cell in cells},
                {"0", *map(str, study.repeats.seeds)},
            ),
        }
    else:
        needed = {
            "memories": (arms, {memory.id for memory in study.memories}),
            "drivers": (agents, {driver.id for driver in study.drivers}),
            "systems": (
                {f"{cell.arm} + {cell.agent}" for cell in cells},
                {f"{system.memory} + {system.driver}" for system in study.systems},
            ),
        }
    return [
        f"{key}: {missing}"
        for key, (used, declared) in needed.items()
        for missing in sorted(used - declared)
    ]
