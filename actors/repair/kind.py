"""The kind ``repair`` as one record."""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from actors.loop import Context, Handlers
from actors.repair.scheduling import next_step
from actors.study.kind import FreezeSummary, StudyKind, Template
from actors.study.reexecution import Comparison
from projections.fold import fold
from projections.plan_balance import PlanBalance, plan_balance
from projections.progress import Progress
from schemas import commands
from schemas.commands import Role
from schemas.counted import counted
from schemas.events.study import PlanPrepared, StudyFrozen, TasksFrozen
from schemas.identifiers import CellId
from schemas.repair.study import RepairStudy
from schemas.study import Study, of_kind

if TYPE_CHECKING:
    from actors.study.analysis import Analysis
    from actors.study.components import Component
    from projections.repair.tasks import MinedTasks


def _before_freeze(context: Context, study: Study) -> str:
    from actors.repair.declarations import texts_digest
    from projections.repair.tasks import MinedTasks

    declared = of_kind(RepairStudy, study)
    facts = list(context.log_facts())
    last = {type(fact.event): fact.seq for fact in facts}
    mined = fold(MinedTasks(context.artifacts.get), facts)
    texts = texts_digest(context.directory, declared)
    if TasksFrozen in last and not mined.changed_since_frozen(declared, texts):
        planned = last.get(PlanPrepared, -1) > last[TasksFrozen]
        return "`ledger freeze`" if planned else "`ledger plan`"
    return _towards_tasks(declared, mined, texts)


def _towards_tasks(study: RepairStudy, mined: "MinedTasks", texts: str) -> str:
    unfinished = False
    several = bool(mined.mined) and len(study.repositories) > 1
    for repository in study.repositories:
        # What is mined already need not be mined again for the sake of another repository.
        mine = f"`ledger tasks mine{f' --repository {repository.id}' if several else ''}`"
        if repository.id not in mined.mined:
            return f"{mine} ({repository.id} is not mined yet)"
        if mined.changed_settings(study, repository, texts):
            return f"{mine} (study.toml changed since {repository.id} was mined)"
        valid = sum(verdict.valid for verdict in mined.validated[repository.id].values())
        if valid >= repository.tasks:
            continue
        waiting = len(mined.waiting(repository.id))
        if valid + waiting < repository.tasks:
            return (
                f"{repository.id} has {counted(valid, 'valid task')} of the {repository.tasks} "
                f"declared, and {counted(waiting, 'candidate')} to validate: declare fewer "
                "(repositories.tasks), or look at what commits fail (`ledger tasks audit`), change "
                f"the rules in study.toml and {mine} again"
            )
        unfinished = True
    return "`ledger tasks validate`" if unfinished else "`ledger tasks freeze`"


def _orders() -> Handlers:
    from actors.repair.freezing import ORDERS

    return ORDERS


def _plan_balance(progress: Progress, study: Study) -> PlanBalance:
    plan = progress.prepared_plan
    assert plan is not None
    return plan_balance(
        plan.cells,
        {task.id: task.repository for task in progress.tasks.values()},
        of_kind(RepairStudy, study).compared,
    )


def _components(study: Study) -> "Sequence[Component]":
    from actors.repair.components import components

    return components(study)


def _freeze_summary(context: Context, progress: Progress, frozen: StudyFrozen) -> FreezeSummary:
    from actors.repair.planned_power import power_lines

    assert progress.study is not None
    study = of_kind(RepairStudy, progress.study)
    primary = next((contrast.id for contrast in study.contrasts if contrast.primary), None)
    solvable = sum(task.needs_gold_symbol == 0 for task in progress.tasks.values())
    unregistered = "note           no primary contrast: whatever this study finds is exploratory"
    return FreezeSummary(
        counts={
            "tasks": len(progress.tasks),
            "cells": len(progress.cells),
            "solvable_tasks": solvable,
            "primary": primary,
        },
        bound=(
            counted(len(frozen.documents), "document"),
            counted(len(progress.tasks), "task"),
            counted(len(progress.cells), "cell"),
        ),
        lines=[
            *([unregistered] if primary is None else []),
            *power_lines(study, len(progress.tasks), solvable),
        ],
    )


def _workers(context: Context, roles: Collection[Role], closing: ExitStack) -> Handlers:
    from actors.repair.cells import CellActor
    from actors.repair.frozen_study import FrozenRepair
    from actors.repair.grading import Grader

    frozen = FrozenRepair(context)
    handlers: Handlers = {}
    if "cell" in roles:
        handlers = {commands.AdvanceCell: CellActor(frozen).advance}
    if {"test_run", "grader"} & set(roles):
        grader = Grader(frozen)
        handlers = {
            **handlers,
            commands.RunPublicTests: grader.run_public_tests,
            commands.GradeCell: grader.grade_cell,
            commands.CheckGold: grader.check_gold,
        }
    return handlers


def _briefs(context: Context) -> Sequence[Any]:
    from actors.repair.briefs import briefs

    return briefs(context)


def _execute_again(context: Context, cell: CellId) -> Comparison:
    from actors.repair.reexecution import execute_again

    return execute_again(context, cell)


def _analysis() -> "Analysis[Any]":
    from actors.repair.analysis import ANALYSIS

    return ANALYSIS


REPAIR = StudyKind(
    form=RepairStudy,
    templates={
        "repair": Template(present_python=True),
        "study-2": Template(
            beside={  # the protocol names this command line
                "scripts/power_study2.py": ("actors.rehearsal", "templates/power_study2.py")
            }
        ),
    },
    first_command="ledger tasks mine",
    before_freeze=_before_freeze,
    orders=_orders,
    plan_balance=_plan_balance,
    freeze_summary=_freeze_summary,
    status=lambda progress: (),
    components=_components,
    roles=("cell", "test_run", "grader"),
    workers=_workers,
    next_step=next_step,
    advance=lambda cell: commands.AdvanceCell(cell=cell),
    before_run=lambda context: (),
    briefs=_briefs,
    execute_again=_execute_again,
    analysis=_analysis,
    units_frozen=TasksFrozen,
    shown_of_a_cell=None,
)
