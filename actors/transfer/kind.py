"""The kind ``transfer`` as one record."""

from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from actors.loop import Context, Handlers
from actors.study.kind import FreezeSummary, StudyKind, Template
from actors.study.reexecution import Comparison
from actors.transfer.scheduling import next_step
from ledger.errors import LedgerError
from projections.fold import fold
from projections.progress import Progress
from schemas import commands
from schemas.commands import Role
from schemas.counted import counted, first_few
from schemas.events.cell import CellStarted
from schemas.events.study import CellReexecuted, StudyFrozen
from schemas.events.transfer import FamiliesFrozen, SessionOpened, SystemDescribed
from schemas.identifiers import CellId
from schemas.study import Study, of_kind
from schemas.transfer.study import TransferStudy

if TYPE_CHECKING:
    from actors.study.analysis import Analysis
    from actors.study.components import Component

SHOWN = 5
EXAMPLES = ("F101", "F102", "F103", "F104", "F105", "F106", "F107", "F108")
"""Families that a new study begins with."""


def _orders() -> Handlers:
    from actors.transfer.freezing import ORDERS

    return ORDERS


def _components(study: Study) -> "Sequence[Component]":
    from actors.transfer.components import components

    return components(study)


def _freeze_summary(context: Context, progress: Progress, frozen: StudyFrozen) -> FreezeSummary:
    assert progress.study is not None and progress.suite is not None
    study, suite = of_kind(TransferStudy, progress.study), progress.suite
    cases = sum(len(family.cases) for family in suite.families)
    waivers = [waiver for family in suite.families for waiver in family.waivers]
    unbound = _unbound(context, study)
    lines = [f"waived         {waiver.rule} {waiver.case}: {waiver.reason}" for waiver in waivers]
    if unbound:
        lines += [
            f"not bound      {first_few(unbound, SHOWN)}: a command sees them",
            "               and what runs after one has changed is exploratory; to bind them, list",
            '               them under `documents` in study.toml, then `ledger amend --reason "…"`',
        ]
    return FreezeSummary(
        counts={
            "suite": suite.version,
            "families": len(suite.families),
            "cases": cases,
            "systems": len(study.systems),
            "cells": len(progress.cells),
            "thresholds": len(study.thresholds),
            "waivers": len(waivers),
            "unbound": unbound,
        },
        bound=(
            f"suite {suite.version}: {counted(len(suite.families), 'family')}",
            counted(cases, "case"),
            counted(len(study.systems), "system"),
            counted(len(progress.cells), "cell"),
            counted(len(study.thresholds), "threshold"),
        ),
        lines=lines,
    )


def _status(progress: Progress) -> Sequence[str]:
    assert progress.suite is not None
    families = counted(len(progress.suite.families), "family")
    return (f"suite       {progress.suite.version}, {families}",)


def _unbound(context: Context, study: TransferStudy) -> list[str]:
    """Files of other people's systems that no document binds."""
    from actors.memory_systems.contract import SystemFailure
    from actors.memory_systems.process import unbound_files

    found: set[str] = set()
    for memory in study.memories:
        if memory.command:
            with suppress(LedgerError, SystemFailure, OSError):  # the run says what is wrong there
                found.update(
                    unbound_files(memory.command, context.directory.root, study.bound_documents)
                )
    return sorted(found)


def _workers(context: Context, roles: Collection[Role], closing: ExitStack) -> Handlers:
    from actors.transfer.frozen_study import FrozenTransfer
    from actors.transfer.sessions import MemorySessions

    sessions = MemorySessions(FrozenTransfer(context))
    closing.callback(sessions.close)
    return {commands.AdvanceSession: sessions.advance}


def _before_run(context: Context) -> Sequence[str]:
    """A command brings other files than at the freeze: no document binds them, so that the run
    begins, and its records say so."""
    from actors.transfer.suite import present_programs
    from projections.transfer.frozen_programs import SHOWN, FrozenPrograms

    _, study = context.directory.read_study_of(TransferStudy)
    programs = fold(FrozenPrograms(context.artifacts.get), context.log_facts())
    changed = programs.changed(present_programs(context.directory, study))
    if not changed:
        return ()
    return (
        f"since the freeze {first_few(changed, SHOWN)}: what runs with it is exploratory. Files "
        "that `documents` lists are bound, and no run begins with other ones",
    )


def _execute_again(context: Context, cell: CellId) -> Comparison:
    from actors.transfer.reexecution import execute_again

    return execute_again(context, cell)


def _analysis() -> "Analysis[Any]":
    from actors.transfer.analysis import ANALYSIS

    return ANALYSIS


TRANSFER = StudyKind(
    form=TransferStudy,
    templates={
        "transfer": Template(
            beside={
                f"families/{name}.yaml": ("actors.families", f"examples/{name}.yaml")
                for name in EXAMPLES
            }
        )
    },
    first_command="ledger transfer validate",
    before_freeze=lambda context, study: "`ledger transfer validate`, then `ledger freeze`",
    orders=_orders,
    plan_balance=lambda progress, study: None,
    freeze_summary=_freeze_summary,
    status=_status,
    components=_components,
    roles=("memory_session",),
    workers=_workers,
    next_step=next_step,
    advance=lambda cell: commands.AdvanceSession(cell=cell),
    before_run=_before_run,
    briefs=lambda context: (),  # its agents know what a session tells them
    execute_again=_execute_again,
    analysis=_analysis,
    units_frozen=FamiliesFrozen,
    shown_of_a_cell=(CellStarted, SystemDescribed, SessionOpened, CellReexecuted),
)
