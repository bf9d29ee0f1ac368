"""The primary contrast: its table, its tests, its power."""

from collections.abc import Mapping

from projections.analyses.paired_bootstrap import DEGENERATE_NOTE
from projections.analyses.power import mcnemar_power
from projections.repair.report.phrases import EXACT_LIMIT, bootstrap_interval, named_tasks
from projections.repair.results import ContrastResult, Results
from projections.report.model import (
    Block,
    Fact,
    Facts,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import (
    NOT_ESTIMABLE,
    count,
    difference,
    interval,
    level,
    p_value,
)
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


def primary_section(results: Results, study: RepairStudy, tasks: Mapping[str, Task]) -> Section:
    if results.primary is None:
        return Section(id="primary", title="Primary contrast", blocks=())
    found = results.contrast(results.primary)
    table = found.table
    new_yes, new_no = (f"{found.new} {word}" for word in ("resolved", "not resolved"))
    two_by_two = Table(
        caption=f"Tasks by outcome, {found.new} against {found.baseline} with {found.model}",
        columns=columns("", new_yes, new_no, "all", numbers=True),
        rows=(
            (
                f"{found.baseline} resolved",
                count(table.both),
                count(table.baseline_only),
                count(table.both + table.baseline_only),
            ),
            (
                f"{found.baseline} not resolved",
                count(table.new_only),
                count(table.neither),
                count(table.new_only + table.neither),
            ),
            (
                "all",
                count(table.both + table.new_only),
                count(table.baseline_only + table.neither),
                count(table.pairs),
            ),
        ),
    )
    facts = [
        Fact(term="Pairs used", value=f"{found.missing.used}/{found.missing.planned}"),
        Fact(term=f"Only {found.new}", value=named_tasks(found.new_only_tasks)),
        Fact(term=f"Only {found.baseline}", value=named_tasks(found.baseline_only_tasks)),
        Fact(term="Risk difference", value=difference(found.risk_difference)),
    ]
    if found.test and found.bootstrap and found.intervals:
        at = level(results.confidence)
        exact = (found.bootstrap.exact_lower, found.bootstrap.exact_upper)
        fraction = found.test.p_exact_fraction
        p = p_value(found.test.p_exact, results.alpha)
        if found.bootstrap.degenerate:
            facts.append(Fact(term=f"{at} bootstrap", value=DEGENERATE_NOTE))
        else:
            replicates = count(found.bootstrap.replicates)
            facts += [
                Fact(
                    term=f"{at} bootstrap, {replicates} resamples",
                    value=bootstrap_interval(found.bootstrap),
                ),
                Fact(term=f"{at} bootstrap, exact limit", value=interval(exact)),
            ]
        facts += [
            Fact(term=f"{at} Tango score", value=interval(found.intervals.tango)),
            Fact(
                term="Exact McNemar p",
                value=f"{p} (= {fraction})"
                if fraction and "/" in fraction and len(fraction) < 40
                else p,
            ),
            Fact(term="Level \u03b1", value=f"{results.alpha:g}"),
        ]
    facts.append(Fact(term="Claim", value=found.claim))
    facts.append(Fact(term="Standing", value=found.standing))
    facts += _power_facts(study, tasks, found)
    blocks: list[Block] = [two_by_two, Facts(items=tuple(facts))]
    if found.bootstrap and not found.bootstrap.degenerate:
        blocks.append(paragraph(EXACT_LIMIT))
    return Section(id="primary", title="Primary contrast", blocks=tuple(blocks))


def _power_facts(
    study: RepairStudy, tasks: Mapping[str, Task], found: ContrastResult
) -> list[Fact]:
    """Power as it was declared, and at the share of tasks that can be solved from statements."""
    planned = found.missing.planned
    solvable = sum(task.needs_gold_symbol == 0 for task in tasks.values())
    new_only, baseline_only = study.analysis.power_new_only, study.analysis.power_baseline_only
    facts = []
    for term, part in (("Power as declared", planned), ("Power where solvable", solvable)):
        try:
            power = mcnemar_power(
                planned, new_only, baseline_only, study.analysis.alpha, f"{part}/{planned}"
            )
        except ValueError as error:
            return [Fact(term=term, value=f"{NOT_ESTIMABLE}: {error}")]
        assumed = f"{part}/{planned} tasks, discordance {new_only:g} / {baseline_only:g}"
        facts.append(Fact(term=term, value=f"{power.power:.3f} ({assumed})"))
    return facts
