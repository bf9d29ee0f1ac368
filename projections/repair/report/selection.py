"""Which tasks and cells there were, and what became of each."""

from collections import Counter
from collections.abc import Iterable, Mapping

from projections.repair.report.phrases import mark
from projections.repair.results import Results
from projections.repair.tasks import MinedTasks
from projections.report.model import (
    MARKS,
    MISSING,
    Column,
    Section,
    Table,
    columns,
)
from projections.report.numbers import (
    count,
)
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


def flow_section(results: Results) -> Section:
    names = {"matrix": "matrix (seed 0)", "repeat": "repeats (reliability)"}
    rows = tuple(
        (
            names[flow.block],
            count(flow.planned),
            count(flow.ended),
            count(flow.infrastructure),
            count(flow.void),
            count(flow.without_verdict),
            count(flow.analysed),
        )
        for flow in results.flow
        if flow.planned
    )
    table = Table(
        caption="Cells from plan to analysis",
        columns=columns(
            "block",
            *("planned", "ran to an end", "infrastructure", "void", "no verdict", "analysed"),
            numbers=True,
        ),
        rows=rows,
        note="Only infrastructure failures and voids are missing observations. A failure or "
        "time-out of the agent is an observed failure.",
    )
    return Section(id="flow", title="Flow", blocks=(table,))


def outcome_matrix_section(
    results: Results, study: RepairStudy, tasks: Mapping[str, Task]
) -> Section:
    arms = [(arm.treatment, arm.model) for arm in results.arms]
    marks = {
        (cell.task, cell.treatment, cell.model): mark(cell.resolved, cell.resolved_if_submitted)
        for cell in results.cells
        if cell.block == "matrix" and cell.repeat == 0
    }
    order = {repository.id: place for place, repository in enumerate(study.repositories)}
    names = sorted(tasks, key=lambda task: (order[tasks[task].repository], task))
    rows = [(task, *(marks.get((task, *arm), MISSING) for arm in arms)) for task in names]
    totals = ("resolved", *(f"{arm.resolved.n}/{arm.resolved.of}" for arm in results.arms))
    table = Table(
        caption="Every task with every treatment and model",
        columns=(
            Column(title="task"),
            *(Column(title=f"{treatment} {model}", kind="mark") for treatment, model in arms),
        ),
        rows=(*rows, totals),
        note="; ".join(f"{sign} {meaning}" for sign, meaning in MARKS.items()) + ".",
    )
    return Section(id="matrix", title="Outcome of every pair", blocks=(table,))


def task_funnel_section(
    mined: MinedTasks, tasks: Mapping[str, Task], study: RepairStudy
) -> Section:
    repositories = [each.id for each in study.repositories if each.id in mined.mined]
    if not repositories:
        return Section(id="tasks", title="Tasks", blocks=())
    walked = [mined.mined[repository] for repository in repositories]
    judged = [list(mined.validated.get(repository, {}).values()) for repository in repositories]
    executed = [Counter(each.criterion for each in of if not each.valid) for of in judged]
    static = sorted({criterion for event in walked for criterion in event.rejected})
    tried = sorted({criterion for counts in executed for criterion in counts})
    selected = Counter(task.repository for task in tasks.values())

    def row(name: str, numbers: Iterable[int]) -> tuple[str, ...]:
        return (name, *map(count, numbers))

    table = Table(
        caption="Commits by the first criterion that they fail",
        columns=columns("step", *repositories, numbers=True),
        rows=(
            row("commits walked", (event.walked for event in walked)),
            *(
                row(f"static: {name}", (event.rejected.get(name, 0) for event in walked))
                for name in static
            ),
            row("candidates", (event.candidates for event in walked)),
            row("candidates executed", (len(of) for of in judged)),
            *(row(f"executed: {name}", (counts[name] for counts in executed)) for name in tried),
            row("valid", (sum(each.valid for each in of) for of in judged)),
            row("selected", (selected[repository] for repository in repositories)),
        ),
        note="Newest commits first; execution ends when enough candidates are valid.",
    )
    return Section(id="tasks", title="Task selection", blocks=(table,))
