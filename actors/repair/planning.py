"""The order of all cells: a pure function of the study and the frozen tasks.

Preregistration, "Treatments and execution budget"; interpretations 12; the design of the repeats is
in ``docs/statistics.md``.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

from ledger.errors import Refused
from schemas.counted import counted
from schemas.identifiers import CellId
from schemas.plan import Plan, PlannedCell
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


def make_plan(study: RepairStudy, tasks: Sequence[Task]) -> Plan:
    """Matrix first, repeats last and grouped by model.

    The first model of a task is its counter mod M, the counter running on over the repositories:
    A B, B A, A B … Within a block (a repository under a model) row ``i`` is the one at (rows of
    the blocks before + i) of the declared design, so that each treatment stands in each position
    about equally often.
    """
    rows = treatment_orders(study.order.design, [treatment.id for treatment in study.treatments])
    agents = [model.id for model in study.models]
    ordered: list[Task] = []
    cells: list[tuple[CellId, str]] = []
    rows_before = 0
    for repository in study.repositories:
        block = [task for task in tasks if task.repository == repository.id]
        for i, task in enumerate(block):
            for agent in _rotated(agents, len(ordered) + i):
                row = rows_before + agents.index(agent) * len(block) + i
                for arm in rows[row % len(rows)]:
                    cells.append((CellId(unit=task.id, arm=arm, agent=agent, repeat=0), "matrix"))
        ordered += block
        rows_before += len(block) * len(agents)
    repeats = repeat_cells(study, ordered)
    for agent in agents:
        for unit, arm, its_agent in repeats:
            if its_agent == agent:
                for seed in study.repeats.seeds:
                    cells.append((CellId(unit=unit, arm=arm, agent=agent, repeat=seed), "repeat"))
    return Plan(
        cells=tuple(
            PlannedCell(position=position, cell=cell, block="matrix" if b == "matrix" else "repeat")
            for position, (cell, b) in enumerate(cells)
        )
    )


def treatment_orders(
    design: Literal["cyclic", "williams"], treatments: Sequence[str]
) -> list[list[str]]:
    """The rows of a design, to be used one after another.

    ``cyclic``: T rotations. ``williams``: T rows for an even number of treatments, 2 T for an odd
    one, in which every treatment precedes, and directly precedes, every other one equally often
    (Williams 1949, Australian Journal of Scientific Research A 2:149-168).
    """
    number = len(treatments)
    if design == "cyclic":
        return [_rotated(treatments, start) for start in range(number)]
    zigzag = [(-place // 2) % number if place % 2 else place // 2 for place in range(number)]
    rows = [[(place + start) % number for place in zigzag] for start in range(number)]
    if number % 2:
        # Each row with its reverse: what came before now comes after.
        rows = [each for row in rows for each in (row, row[::-1])]
    return [[treatments[place] for place in row] for row in rows]


def repeat_cells(study: RepairStudy, tasks: Sequence[Task]) -> list[tuple[str, str, str]]:
    """(task, treatment, model) of the cells that the reliability audit repeats.

    Strata are model m × repository r × non-oracle treatment t; those with (t + m - r) mod 3 = 0
    are left out. With 2 models, 3 repositories and 6 treatments 24 remain, balanced exactly: 12 a
    model, 8 a repository, 4 a treatment. Per repository the tasks are ranked by
    SHA-256(salt | task id), and the i-th kept stratum takes the i-th task.
    """
    if study.repeats.cells == 0:
        return []
    arms = [treatment.id for treatment in study.treatments if treatment.role != "oracle"]
    chosen = []
    for r, repository in enumerate(study.repositories):
        ranked = sorted(
            (task.id for task in tasks if task.repository == repository.id),
            key=lambda task_id: sha256(f"{study.repeats.salt}|{task_id}".encode()).digest(),
        )
        strata = [
            (arm, model.id)
            for m, model in enumerate(study.models)
            for t, arm in enumerate(arms)
            if (t + m - r) % 3 != 0
        ]
        if len(strata) > len(ranked):
            raise Refused(
                f"repository {repository.id} has {counted(len(ranked), 'task')}; the repeats need "
                f"{len(strata)} (set repeats.cells to 0 or select more tasks)"
            )
        chosen += [(task, arm, agent) for task, (arm, agent) in zip(ranked, strata, strict=False)]
    if len(chosen) != study.repeats.cells:
        raise Refused(
            f"repeats.cells is {study.repeats.cells}; the balanced design of this study has "
            f"{len(chosen)} cells: write that number, or 0 for no repeats"
        )
    return chosen


def _rotated(items: Sequence[str], start: int) -> list[str]:
    first = start % len(items)
    return [*items[first:], *items[:first]]
