"""All declared contrasts: their tests, and their effects as a figure."""

from typing import Literal

from projections.repair.report.phrases import (
    CLAIMS,
    EXACT_LIMIT,
    bootstrap_interval,
    by_claim,
    comparison_name,
    degenerate_note,
    exact_bootstrap_interval,
    verdict_word,
)
from projections.repair.results import ContrastResult, Results
from projections.report.model import (
    Column,
    ForestPlot,
    ForestRow,
    Group,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import (
    NONE,
    count,
    difference,
    interval,
    level,
    p_value,
)


def contrasts_section(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="contrasts", title="All declared contrasts", blocks=())
    ordered = by_claim(results)
    table = Table(
        caption="Discordant pairs, effects and tests",
        columns=(
            Column(title="contrast"),
            Column(title="comparison"),
            *columns(
                *("pairs", "both", "only new", "only baseline", "neither", "difference"),
                f"{level(results.confidence)} bootstrap",
                *("exact p", "Holm p"),
                numbers=True,
                first="number",
            ),
            Column(title="verdict"),
        ),
        rows=tuple(_contrast_row(contrast, results) for contrast in ordered),
        groups=tuple(
            Group(title=title, rows=rows)
            for claim, title in CLAIMS.items()
            if (rows := sum(contrast.claim == claim for contrast in ordered))
        ),
        note=degenerate_note(results),
    )
    notes = [
        f"Family {family.id}: Holm over {family.holm.family_size} declared contrasts at "
        f"{family.holm.alpha:g}; the primary contrast is in no family."
        for family in results.families
    ]
    return Section(
        id="contrasts",
        title="All declared contrasts",
        blocks=(table, *(paragraph(note) for note in notes)),
    )


def _contrast_row(found: ContrastResult, results: Results) -> tuple[str, ...]:
    tested = found.primary or bool(found.family)
    p_exact = found.test.p_exact if found.test else None
    return (
        found.id,
        comparison_name(found),
        f"{found.missing.used}/{found.missing.planned}",
        count(found.table.both),
        count(found.table.new_only),
        count(found.table.baseline_only),
        count(found.table.neither),
        difference(found.risk_difference),
        bootstrap_interval(found.bootstrap),
        p_value(p_exact, results.alpha) if tested else NONE,
        p_value(found.p_holm, results.alpha) if found.family else NONE,
        verdict_word(found),
    )


def effects_section(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="forest", title="Effects", blocks=())
    ordered = by_claim(results)
    at = level(results.confidence)
    rows = []
    for contrast in ordered:
        bootstrap = contrast.bootstrap
        varies = bootstrap is not None and not bootstrap.degenerate
        role: Literal["secondary", "estimate"] = "secondary" if contrast.family else "estimate"
        rows.append(
            ForestRow(
                label=comparison_name(contrast),
                value=difference(contrast.risk_difference),
                group=CLAIMS[contrast.claim],
                role="primary" if contrast.primary else role,
                estimate=contrast.risk_difference,
                bootstrap=(bootstrap.lower, bootstrap.upper) if bootstrap and varies else None,
                tango=contrast.intervals.tango if contrast.intervals else None,
            )
        )
    table = Table(
        caption="The numbers of the figure",
        columns=columns(
            "comparison",
            *("difference", f"{at} bootstrap", f"{at} bootstrap, exact limit"),
            f"{at} Tango score",
            numbers=True,
        ),
        rows=tuple(
            (
                row.label,
                row.value,
                bootstrap_interval(contrast.bootstrap),
                exact_bootstrap_interval(contrast.bootstrap),
                interval(row.tango),
            )
            for row, contrast in zip(rows, ordered, strict=True)
        ),
        note=f"{EXACT_LIMIT} {degenerate_note(results)}".strip(),
    )
    plot = ForestPlot(
        title="Paired risk differences of all declared contrasts",
        description=f"One row a contrast. Diamond: the primary contrast; square: a contrast of a "
        f"family; circle: an estimate. Thick line: {at} task-cluster bootstrap interval; thin line "
        f"with ends: {at} Tango score interval. Right of zero the new arm resolves more tasks. The "
        f"dashed line is the smallest effect of interest, {difference(results.smallest_effect)}.",
        rows=tuple(rows),
        smallest_effect=results.smallest_effect,
        smallest_effect_label=f"smallest effect {difference(results.smallest_effect)}",
        table=table,
    )
    return Section(id="forest", title="Effects", blocks=(plot,))
