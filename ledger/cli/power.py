"""``ledger power``."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, print_json, print_table, reading, study_option
from ledger.errors import Refused, Usage
from schemas.repair.study import RepairStudy

if TYPE_CHECKING:
    from projections.analyses.simulated_power import SimulatedPower


@click.command("power")
@click.option("--tasks", type=int, help="Number of paired tasks.")
@click.option("--new-only", metavar="SHARE", help="P(only the new arm resolves a task).")
@click.option("--baseline-only", metavar="SHARE", help="P(only the baseline resolves a task).")
@click.option(
    "--alpha", metavar="LEVEL", default="0.05", show_default=True, help="Two-sided level."
)
@click.option(
    "--solvable-share",
    metavar="SHARE",
    default="1",
    show_default=True,
    help="Share of the tasks that can be solved at all; discordance scales with it.",
)
@click.option(
    "--table", metavar="FROM:TO:STEP", help="Power for several numbers of tasks, like 20:120:20."
)
@click.option("--target", metavar="POWER", help="The smallest number of tasks with this power.")
@click.option(
    "--simulate",
    type=click.IntRange(10, 100_000),
    metavar="DRAWS",
    help="Power of the mixed model too: draw the outcomes of the study's plan so many times.",
)
@click.option(
    "--baseline-share", type=float, default=0.35, show_default=True, help="Simulated successes."
)
@click.option(
    "--odds-ratio", type=float, default=3.0, show_default=True, help="Simulated effect, in a task."
)
@click.option(
    "--task-sd", type=float, default=1.4, show_default=True, help="Simulated spread of the tasks."
)
@study_option
@json_option
def command(
    tasks: int | None,
    new_only: str | None,
    baseline_only: str | None,
    alpha: str,
    solvable_share: str,
    table: str | None,
    target: str | None,
    simulate: int | None,
    baseline_share: float,
    odds_ratio: float,
    task_sd: float,
    study: Path,
    as_json: bool,
) -> None:
    """Power before any outcome exists: exact for the paired test, simulated for the mixed model.

    The preregistered numbers of Study 2, a table over the number of tasks, and the smallest number
    for a power of 80 %:

    \b
        ledger power --tasks 60 --new-only 0.25 --baseline-only 0.05 --alpha 0.05
        ledger power --table 20:120:20 --new-only 0.25 --baseline-only 0.05
        ledger power --target 0.8 --new-only 0.25 --baseline-only 0.05

    With a plan (`ledger plan`), 200 draws of all its cells, analysed as declared:

    \b
        ledger power --simulate 200 --baseline-share 0.35 --odds-ratio 3 --task-sd 1.4
    """
    import msgspec

    from projections.analyses.power import mcnemar_power, smallest_tasks

    if [tasks, table, target, simulate].count(None) != 3:
        raise Usage("say one of --tasks, --table, --target and --simulate; `ledger power --help`")
    try:
        if simulate is not None:
            simulated = _simulated(
                study, simulate, alpha, (baseline_share, odds_ratio, task_sd), quiet=as_json
            )
            _print_simulated(simulated, as_json)
            return
        if new_only is None or baseline_only is None:
            raise Usage("--new-only and --baseline-only are missing: shares such as 0.25 and 0.05")
        shares = (new_only, baseline_only, alpha, solvable_share)
        if target is not None:
            smallest = smallest_tasks(target, *shares)
            if as_json:
                print_json({"target": target, "tasks": smallest})
            else:
                print(f"{smallest} tasks, and any more, have a power of at least {target}")
            return
        if table is not None:
            results = [mcnemar_power(n, *shares) for n in _numbers(table)]
            if as_json:
                print_json([msgspec.to_builtins(result) for result in results])
                return
            print_table(
                [
                    {
                        "tasks": result.tasks,
                        "power": f"{result.power:.6f}",
                        "new arm's favour": f"{result.power_direction_new:.6f}",
                        "mid-p": f"{result.power_midp:.6f}",
                    }
                    for result in results
                ]
            )
            return
        assert tasks is not None
        result = mcnemar_power(tasks, *shares)
    except ValueError as error:
        raise Usage(str(error)) from None
    if as_json:
        print_json(msgspec.to_builtins(result))
        return
    print(f"power                    {result.power:.6f}")
    print(f"in the new arm's favour  {result.power_direction_new:.6f}")
    print(f"mid-p (sensitivity)      {result.power_midp:.6f}")


def _numbers(table: str) -> range:
    """``FROM:TO:STEP`` with both ends."""
    try:
        first, last, step = map(int, table.split(":"))
    except ValueError:
        raise Usage(f"--table {table}: three whole numbers, like 20:120:20") from None
    if not (0 < first <= last and step > 0):
        raise Usage(f"--table {table}: FROM is at least 1, TO at least FROM, STEP at least 1")
    return range(first, last + 1, step)


def _simulated(
    study: Path,
    draws: int,
    alpha: str,
    effect: tuple[float, float, float],
    *,
    quiet: bool,
) -> "SimulatedPower":
    """Draw the outcomes of the study's plan, with its primary contrast as the true effect."""
    from rich.console import Console
    from rich.progress import track

    from projections.analyses.simulated_power import (
        AssumedEffect,
        PlannedOutcome,
        simulate,
        summarise,
    )
    from projections.fold import fold
    from projections.progress import Progress

    with reading(study) as context:
        progress = fold(Progress(context.artifacts.get), context.log_facts())
        _, declared = context.directory.read_study_of(RepairStudy)
    plan = progress.prepared_plan
    if plan is None:
        raise Refused("there is no plan to draw the outcomes of: `ledger plan` first")
    primary = next((contrast for contrast in declared.contrasts if contrast.primary), None)
    if primary is None:
        raise Refused("study.toml declares no primary contrast (`primary = true`) to simulate")
    baseline_share, odds_ratio, task_sd = effect
    assumed = AssumedEffect(
        new=primary.new,
        baseline=primary.baseline,
        model=primary.model,
        baseline_share=baseline_share,
        odds_ratio=odds_ratio,
        task_sd=task_sd,
    )
    cells = [
        PlannedOutcome(
            task=planned.cell.unit,
            repository=progress.tasks[planned.cell.unit].repository,
            model=planned.cell.agent,
            treatment=planned.cell.arm,
        )
        for planned in plan.cells
        if planned.block == "matrix"
    ]
    languages = {r.id: r.language for r in declared.repositories}
    stream = f"{declared.id}/simulated-power"
    drawn = list(
        track(
            islice(simulate(cells, assumed, languages, stream=stream, alpha=alpha), draws),
            "simulating",
            total=draws,
            console=Console(stderr=True),
            disable=quiet,
            transient=True,
        )
    )
    return summarise(drawn, len(cells), assumed, alpha, stream)


def _print_simulated(result: "SimulatedPower", as_json: bool) -> None:
    import msgspec

    if as_json:
        print_json(msgspec.to_builtins(result))
        return
    assumed = result.assumed
    margin = 1 / (2 * result.draws**0.5)
    print(
        f"{assumed.new} against {assumed.baseline} with {assumed.model}, {result.cells} cells, "
        f"{result.draws} draws (shares within ±{2 * margin:.3f})"
    )
    print(f"mixed model rejects   {result.model_rejects / result.draws:.3f}")
    print(f"exact McNemar rejects {result.paired_rejects / result.draws:.3f}")
    for rung, count in result.rungs.items():
        print(f"  {rung:<21} {count} draws")
