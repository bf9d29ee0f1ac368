"""``ledger plan``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, print_json, print_table, study_option, writing
from schemas.counted import counted

if TYPE_CHECKING:
    from projections.plan_balance import PlanBalance

SHOWN = 10


@click.command("plan")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """Compute the order of all cells from study.toml and the frozen tasks, or from the families.

    Treatments rotate over the tasks ([order] design), models alternate (A B, B A, …), repeats come
    last. Prints the margins, how often each treatment has each position, on how many tasks each
    contrast's new treatment runs first, and what is uneven. The plan is prepared, not frozen:
    `ledger freeze` binds it.
    """
    import msgspec

    from actors.loop import carry_out
    from actors.study_kinds import kind_of, orders_in
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import PreparePlan

    with writing(study) as context:
        carry_out(context, PreparePlan(), orders_in(context))
        progress = fold(Progress(context.artifacts.get), context.log_facts())
        _, declared = context.directory.read_study()
        balance = kind_of(declared).plan_balance(progress, declared)
    plan = progress.prepared_plan
    assert plan is not None
    rows = [
        {"position": cell.position, "cell": str(cell.cell), "block": cell.block}
        for cell in plan.cells
    ]
    if as_json:
        print_json({"cells": rows, "balance": msgspec.to_builtins(balance)})
        return
    print_table(rows[:SHOWN])
    if len(rows) > SHOWN:
        print(f"… and {len(rows) - SHOWN} more: `ledger plan --json` lists all")
    if balance is not None:
        _print_balance(balance)
    print(f"{counted(len(rows), 'cell')} planned; next: `ledger freeze`")


def _print_balance(balance: "PlanBalance") -> None:
    print()
    for margin in balance.margins:
        cells = ", ".join(f"{name} {count}" for name, count in margin.cells.items())
        print(f"cells by {margin.factor:<11} {cells}")
    print()
    print_table(
        [
            {
                "treatment": each.treatment,
                **{f"position {n + 1}": count for n, count in enumerate(each.counts)},
            }
            for each in balance.positions
        ]
    )
    if balance.pair_orders:
        print()
        print_table(
            [
                {
                    "contrast": pair.contrast,
                    "runs first": pair.new,
                    "before": pair.baseline,
                    "with": pair.model,
                    "on tasks": f"{pair.new_first} of {pair.tasks}",
                }
                for pair in balance.pair_orders
            ]
        )
    print()
    for sentence in balance.uneven:
        print(f"uneven: {sentence}")
    if not balance.uneven:
        print("balanced: every margin, position and pair order is as even as it can be")
