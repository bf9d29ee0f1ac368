"""The model of all cells: which rung of the ladder stands, why, and what it says."""

from projections.analyses.model_ladder import Diagnostics, Effect, ModelResult
from projections.repair.report.phrases import comparison_name
from projections.repair.results import Results
from projections.report.model import Block, Fact, Facts, Section, Table, columns, paragraph
from projections.report.numbers import NONE, count, p_value

_RUNGS = {
    "mixed_logistic": "logistic model with a random intercept for each task",
    "clustered_gee": "estimating equations (GEE), tasks as clusters",
    "stratified_bootstrap": "stratified bootstrap of risk differences, no model p-value",
}
_REASONS = {
    "": "",
    "rank_deficient": "cells of a treatment or model are missing altogether",
    "separated": "a treatment always or never succeeds, so that its effect has no finite estimate",
    "singular": "the tasks do not differ more than by chance",
    "nonconvergent": "its estimate is not stable",
    "gee_unavailable": "they do not converge to finite estimates",
}


def hierarchical_section(results: Results) -> Section:
    """Nothing where the study does not declare it."""
    found = results.hierarchical
    blocks: tuple[Block, ...] = ()
    if found is not None:
        blocks = (
            Facts(items=tuple(_facts(found))),
            *_tables(found, results),
            paragraph(
                "Sensitivity to the model never reaches the exact paired tests and their "
                "correction: they do not depend on the rung."
            ),
        )
    return Section(id="hierarchical", title="Model of all cells", blocks=blocks)


def _facts(found: ModelResult) -> list[Fact]:
    treatment, model, repository = found.reference
    facts = [
        Fact(term="Rung", value=_RUNGS[found.rung]),
        Fact(term="Estimand", value=found.estimand),
        Fact(term="Reference", value=f"{treatment}, {model}, {repository}"),
    ]
    if found.reason:
        facts.append(Fact(term="Not the mixed model", value=_REASONS[found.reason]))
    if found.rung == "stratified_bootstrap":
        facts.append(Fact(term="Not the estimating equations", value=_REASONS[found.reason_gee]))
    if found.interaction is not None:
        test = found.interaction
        facts.append(
            Fact(
                term="Treatment by model",
                value=f"likelihood ratio {test.chi_squared:.3f}, {test.degrees_of_freedom} degrees "
                f"of freedom, p = {p_value(test.p, 0.05)}",
            )
        )
    return facts


def _tables(found: ModelResult, results: Results) -> list[Table]:
    named = {contrast.id: comparison_name(contrast) for contrast in results.contrasts}
    effects = [
        *((named.get(each.name, each.name), each) for each in found.contrasts),
        *((f"language: {each.name}", each) for each in found.languages),
    ]
    tables = [
        Table(
            caption="Diagnostics of the ladder",
            columns=columns("what the gates saw", "value", numbers=True),
            rows=tuple(_diagnostics(found.diagnostics)),
        )
    ]
    if effects:
        tables.insert(
            0,
            Table(
                caption="Declared contrasts, log odds",
                columns=columns(
                    "comparison", "log odds ratio", "standard error", "z", "p (Wald)", numbers=True
                ),
                rows=tuple((name, *_numbers(each)) for name, each in effects),
                note="Wald statistics of one model, not adjusted for their number. Language is a "
                "function of the repository: it is a contrast of repository effects.",
            ),
        )
    return tables


def _numbers(effect: Effect) -> tuple[str, str, str, str]:
    return (
        f"{effect.log_odds:+.3f}",
        f"{effect.standard_error:.3f}",
        f"{effect.z:+.2f}",
        p_value(effect.p, 0.05),
    )


def _diagnostics(seen: Diagnostics) -> list[tuple[str, str]]:
    infinite = ", ".join(f"{term} {way}" for term, way in seen.infinite_terms.items())
    values: list[tuple[str, float | None]] = [
        ("boundary score", seen.boundary_score),
        ("standard deviation of task intercepts", seen.sigma),
        ("log-likelihood", seen.log_likelihood),
        ("gain over the plain logistic model", seen.gain),
        ("Newton decrement", seen.decrement),
        ("condition of the information", seen.condition),
        ("disagreement between starts", seen.disagreement),
        ("change with 101 nodes", seen.node_change),
        ("working correlation", seen.correlation),
    ]
    return [
        ("cells, tasks", f"{count(seen.cells)}, {count(seen.tasks)}"),
        ("terms, rank", f"{seen.terms}, {seen.rank}"),
        ("terms without a finite estimate", infinite or NONE),
        *((name, NONE if value is None else f"{value:.6g}") for name, value in values),
    ]
