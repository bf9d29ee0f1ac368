"""``ledger power``."""

import click

from ledger.cli.options import json_option, print_json
from ledger.errors import Usage
from schemas.study import Study


@click.command("power")
@click.option("--tasks", type=int, required=True, help="Number of paired tasks.")
@click.option(
    "--new-only", metavar="SHARE", required=True, help="P(only the new arm resolves a task)."
)
@click.option(
    "--baseline-only", metavar="SHARE", required=True, help="P(only the baseline resolves a task)."
)
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
@json_option
def command(
    tasks: int, new_only: str, baseline_only: str, alpha: str, solvable_share: str, as_json: bool
) -> None:
    """Exact power of the two-sided exact McNemar test, by enumeration.

    The preregistered numbers of Study 2:

    \b
        ledger power --tasks 60 --new-only 0.25 --baseline-only 0.05 --alpha 0.05
    """
    import msgspec

    from projections.analyses.power import mcnemar_power

    try:
        result = mcnemar_power(tasks, new_only, baseline_only, alpha, solvable_share)
    except ValueError as error:
        raise Usage(str(error)) from None
    if as_json:
        print_json(msgspec.to_builtins(result))
        return
    print(f"power                    {result.power:.6f}")
    print(f"in the new arm's favour  {result.power_direction_new:.6f}")
    print(f"mid-p (sensitivity)      {result.power_midp:.6f}")


def power_lines(study: Study, tasks: int, solvable: int) -> list[str]:
    """Power of the study's primary contrast, all tasks and at the solvable share."""
    from projections.analyses.power import mcnemar_power

    if not any(contrast.primary for contrast in study.contrasts) or tasks == 0:
        return []
    declared = study.analysis
    lines = []
    for label, share in (
        ("power", "1"),
        (f"  at {solvable}/{tasks} solvable", f"{solvable}/{tasks}"),
    ):
        result = mcnemar_power(
            tasks,
            str(declared.power_new_only),
            str(declared.power_baseline_only),
            str(declared.alpha),
            share,
        )
        lines.append(
            f"{label:<14} {result.power:.3f} (exact McNemar, {tasks} tasks, discordance "
            f"{declared.power_new_only} / {declared.power_baseline_only})"
        )
    return lines
