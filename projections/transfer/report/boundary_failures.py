"""Failures of high consequence, one by one: no number hides them."""

from projections.report.model import (
    Column,
    Group,
    Section,
    Table,
    columns,
)
from projections.transfer.report.phrases import evidence
from projections.transfer.results import SystemResult, TransferResults
from projections.transfer.scores import RunScore
from schemas.counted import counted


def boundary_failures_section(results: TransferResults) -> Section:
    rows: list[tuple[str, ...]] = []
    groups = []
    for system, runs in boundary_failures_by_system(results):
        groups.append(Group(title=f"{system.label}: {counted(len(runs), 'run')}", rows=len(runs)))
        rows += [
            (
                run.cell,
                run.class_.replace("_", " "),
                run.kind.replace("_", " "),
                run.boundary_failure,
                evidence(run),
            )
            for run in runs
        ]
    table = Table(
        caption="Every failure at a boundary of high consequence, by run",
        columns=(
            Column(title="run", kind="run"),
            *columns("class", "case"),
            Column(title="what happened", kind="prose"),
            Column(title="records"),
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="A correction of high consequence, and: a prohibited action, or a failed case outside "
        "of the correction's scope, or a failed case of class boundary. No average stands above "
        "this list.",
    )
    return Section(id="boundaries", title="High-consequence boundary failures", blocks=(table,))


def boundary_failures_by_system(
    results: TransferResults,
) -> list[tuple[SystemResult, list[RunScore]]]:
    """The systems that have any, in the order of the study, each with its runs."""
    by_system = [
        (
            system,
            [
                run
                for run in results.boundary_failures
                if run.system == (system.memory, system.driver)
            ],
        )
        for system in results.systems
    ]
    return [(system, runs) for system, runs in by_system if runs]
