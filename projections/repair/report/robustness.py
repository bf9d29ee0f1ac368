"""Every contrast under the declared sensitivity analyses."""

from projections.analyses.missing_pairs import PairedEstimate
from projections.repair.report.phrases import bootstrap_interval, comparison_name
from projections.repair.results import Completion, ContrastResult, Results
from projections.report.model import (
    Group,
    Section,
    Table,
    columns,
)
from projections.report.numbers import (
    NONE,
    difference,
    interval,
    level,
    p_value,
)


def robustness_section(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="robustness", title="Robustness", blocks=())
    rows: list[tuple[str, ...]] = []
    groups = []
    for found in results.contrasts:
        own = _sensitivity(found, results)
        groups.append(Group(title=comparison_name(found), rows=len(own)))
        rows += own
    table = Table(
        caption="Sensitivity of every contrast",
        columns=columns(
            "analysis", "difference", f"{level(results.confidence)} interval", "p", numbers=True
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="All but the first row declared as sensitivity: no decision rests on it, and its "
        "p-values are exact McNemar (but mid-p) and not adjusted. All missing for, or against: as "
        "if every pair that lost a member had spoken for, or against, the new arm.",
    )
    return Section(id="robustness", title="Robustness", blocks=(table,))


def _sensitivity(found: ContrastResult, results: Results) -> list[tuple[str, ...]]:
    """(analysis, difference, interval, p) of one contrast; a dash where an analysis gives none."""

    def row(
        name: str, risk_difference: float | None, p: float | None, spread: str = NONE
    ) -> tuple[str, ...]:
        shown = NONE if risk_difference is None else p_value(p, results.alpha)
        return (name, difference(risk_difference), spread, shown)

    def completed(name: str, completion: Completion | PairedEstimate) -> tuple[str, ...]:
        return row(name, completion.risk_difference, completion.p_exact)

    more = found.sensitivity
    tango = found.intervals.tango if found.intervals else None
    newcombe = found.intervals.newcombe10 if found.intervals else None
    p_exact = found.test.p_exact if found.test else None
    rows = [
        row("as declared", found.risk_difference, p_exact, bootstrap_interval(found.bootstrap)),
        ("mid-p", NONE, NONE, p_value(more.p_mid, results.alpha)),
        ("Tango score", NONE, interval(tango), NONE),
        ("Newcombe 10", NONE, interval(newcombe), NONE),
        completed("submitted automatically", more.if_submitted),
        completed("all missing for", found.missing.all_for),
        completed("all missing against", found.missing.all_against),
    ]
    if more.without_repository:
        rows.append(("stratified bootstrap", NONE, bootstrap_interval(more.stratified), NONE))
    return rows + [
        completed(f"without {left.repository}", left.completion) for left in more.without_repository
    ]
