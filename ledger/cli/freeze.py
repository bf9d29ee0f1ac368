"""``ledger freeze``."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, print_json, printable, study_option, writing
from ledger.errors import LedgerError
from schemas.counted import counted, first_few
from schemas.events.study import StudyFrozen
from schemas.repair.study import RepairStudy
from schemas.study import of_kind
from schemas.transfer.study import TransferStudy

if TYPE_CHECKING:
    from projections.progress import Progress

SHOWN = 5


@click.command("freeze")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """Bind documents, study.toml, tasks, plan, code and library versions in one event of digests.

    `ledger run` refuses before this and whenever something frozen differs, naming the file. Prints
    the study digest and the power of the primary contrast, also at the solvable share of tasks.

    Of a transfer study it binds the families instead of tasks: prompts, fixtures, predicates,
    required stages and thresholds, after all that `ledger transfer validate` checks. Of a command
    that brings its own driver it binds the files that `documents` lists; it names those that the
    command sees too.
    """
    from actors.loop import carry_out
    from actors.study_kinds import orders_in
    from ledger.cli.power import power_lines
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import FreezeStudy

    with writing(study) as context:
        carry_out(context, FreezeStudy(), orders_in(context))
        progress = fold(Progress(context.artifacts.get), context.log_facts())
    frozen = progress.frozen
    assert frozen is not None and progress.study is not None
    if isinstance(progress.study, TransferStudy):
        _print_suite(progress, frozen, _unbound(study, progress.study), as_json)
        return
    declared = of_kind(RepairStudy, progress.study)
    primary = next((contrast.id for contrast in declared.contrasts if contrast.primary), None)
    solvable = sum(task.needs_gold_symbol == 0 for task in progress.tasks.values())
    if as_json:
        print_json(
            {
                "study": frozen.digest,
                "tasks": len(progress.tasks),
                "cells": len(progress.cells),
                "solvable_tasks": solvable,
                "files": len(frozen.code),
                "primary": primary,
                "commit": frozen.commit,
                "dirty": frozen.dirty,
            }
        )
        return
    print(f"study digest   {frozen.digest}")
    print(
        f"bound          {counted(len(frozen.documents), 'document')}, "
        f"{counted(len(progress.tasks), 'task')}, {counted(len(progress.cells), 'cell')}, "
        f"{len(frozen.code)} files of code"
    )
    if primary is None:
        print("note           no primary contrast: whatever this study finds is exploratory")
    _print_note(frozen)
    for line in power_lines(declared, len(progress.tasks), solvable):
        print(line)
    print("next           ledger run")


def _unbound(root: Path, study: TransferStudy) -> list[str]:
    """Files of other people's systems that no document binds."""
    from actors.memory_systems.contract import SystemFailure
    from actors.memory_systems.process import unbound_files

    found: set[str] = set()
    for memory in study.memories:
        if memory.command:
            with suppress(LedgerError, SystemFailure, OSError):  # the run says what is wrong there
                found.update(unbound_files(memory.command, root, study.bound_documents))
    return sorted(found)


def _print_suite(
    progress: "Progress", frozen: StudyFrozen, unbound: list[str], as_json: bool
) -> None:
    """What a transfer study bound."""
    suite = progress.suite
    assert suite is not None and isinstance(progress.study, TransferStudy)
    cases = sum(len(family.cases) for family in suite.families)
    waivers = [waiver for family in suite.families for waiver in family.waivers]
    if as_json:
        print_json(
            {
                "study": frozen.digest,
                "suite": suite.version,
                "families": len(suite.families),
                "cases": cases,
                "systems": len(progress.study.systems),
                "cells": len(progress.cells),
                "thresholds": len(progress.study.thresholds),
                "waivers": len(waivers),
                "unbound": unbound,
                "files": len(frozen.code),
                "commit": frozen.commit,
                "dirty": frozen.dirty,
            }
        )
        return
    print(f"study digest   {frozen.digest}")
    print(
        f"bound          suite {suite.version}: {counted(len(suite.families), 'family')}, "
        f"{counted(cases, 'case')}, {counted(len(progress.study.systems), 'system')}, "
        f"{counted(len(progress.cells), 'cell')}, "
        f"{counted(len(progress.study.thresholds), 'threshold')}, {len(frozen.code)} files of code"
    )
    for waiver in waivers:
        print(f"waived         {waiver.rule} {waiver.case}: {printable(waiver.reason)}")
    if unbound:
        print(f"not bound      {printable(first_few(unbound, SHOWN))}: a command sees them")
        print(
            "               and what runs after one has changed is exploratory; to bind them, list"
        )
        print(
            '               them under `documents` in study.toml, then `ledger amend --reason "…"`'
        )
    _print_note(frozen)
    print("next           ledger run")


def _print_note(frozen: StudyFrozen) -> None:
    if frozen.dirty:
        print("note           the checkout has uncommitted changes; the event says so")
