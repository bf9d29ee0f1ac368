"""Power of what a repair study declares, said when it is frozen."""

from projections.analyses.power import mcnemar_power
from schemas.repair.study import RepairStudy


def power_lines(study: RepairStudy, tasks: int, solvable: int) -> list[str]:
    """Power of the study's primary contrast, all tasks and at the solvable share."""
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
