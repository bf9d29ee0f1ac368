"""``ledger plan``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, print_table, study_option, writing
from schemas.counted import counted

SHOWN = 10


@click.command("plan")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """Compute the order of all cells from study.toml and the frozen tasks, or from the families.

    Treatments rotate over the tasks, models alternate (A B, B A, …), repeats come last. The plan
    is prepared, not frozen: `ledger freeze` binds it.
    """
    from actors.loop import carry_out
    from actors.study_kinds import orders_in
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import PreparePlan

    with writing(study) as context:
        carry_out(context, PreparePlan(), orders_in(context))
        plan = fold(Progress(context.artifacts.get), context.log_facts()).prepared_plan
    assert plan is not None
    rows = [
        {"position": cell.position, "cell": str(cell.cell), "block": cell.block}
        for cell in plan.cells
    ]
    if as_json:
        print_json({"cells": rows})
        return
    print_table(rows[:SHOWN])
    if len(rows) > SHOWN:
        print(f"… and {len(rows) - SHOWN} more: `ledger plan --json` lists all")
    print(f"{counted(len(rows), 'cell')} planned; next: `ledger freeze`")
