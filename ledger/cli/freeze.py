"""``ledger freeze``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, study_option, writing


@click.command("freeze")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """Bind documents, study.toml, tasks, plan, code and library versions in one event of digests.

    `ledger run` refuses before this and whenever something frozen differs, naming the file. Prints
    the study digest and the power of the primary contrast, also at the solvable share of tasks.
    """
    from actors.frozen_study import repair_study
    from actors.loop import carry_out
    from actors.operator import HANDLERS
    from ledger.cli.power import power_lines
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import FreezeStudy

    with writing(study) as context:
        carry_out(context, FreezeStudy(), HANDLERS)
        progress = fold(Progress(context.artifacts.get), context.log_facts())
    frozen = progress.frozen
    assert frozen is not None and progress.study is not None
    declared = repair_study(progress.study)
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
        f"bound          {len(frozen.documents)} documents, {len(progress.tasks)} tasks, "
        f"{len(progress.cells)} cells, {len(frozen.code)} files of code"
    )
    if primary is None:
        print("note           no primary contrast: whatever this study finds is exploratory")
    if frozen.dirty:
        print("note           the checkout has uncommitted changes; the event says so")
    for line in power_lines(declared, len(progress.tasks), solvable):
        print(line)
    print("next           ledger run")
