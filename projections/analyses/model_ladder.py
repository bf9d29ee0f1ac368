"""Which model of all cells stands, and what does it say? The preregistered ladder.

    mixed logistic model  ->  task-clustered GEE  ->  stratified bootstrap, no model p-value

The gates are asked in order and every value that decided stands in the result: ``rank_deficient``,
``separated``, ``singular``, ``nonconvergent`` (preregistration, "Power and statistical analysis";
interpretations 15). Separated data have no finite estimate on either of the two first rungs. The
exact paired tests and their correction never depend on the rung.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from projections.analyses.clustered_gee import GeeFit, fit_gee
from projections.analyses.mean_model import BinaryCell, Floats, MeanModel, mean_model
from projections.analyses.mixed_logistic import (
    CONTROL_NODES,
    DECREMENT,
    MixedFit,
    boundary_score,
    fit_mixed_logistic,
    log_likelihood,
)
from projections.analyses.separation import infinite_terms

Rung = Literal["mixed_logistic", "clustered_gee", "stratified_bootstrap"]
Reason = Literal["", "rank_deficient", "separated", "singular", "nonconvergent", "gee_unavailable"]

MIN_SIGMA = 1e-4
MIN_GAIN = 1e-9
MAX_CONDITION = 1e8
MAX_COEFFICIENT = 15.0
MAX_SIGMA = 10.0
AGREEMENT = 1e-6
MAX_NODE_CHANGE = 1e-4
DIGITS = 8
"""Significant digits of a reported estimate: more of them differ between two machines."""

ESTIMANDS = {
    "mixed_logistic": "log odds ratio within a task (conditional on its random intercept)",
    "clustered_gee": "log odds ratio averaged over tasks (population average)",
    "stratified_bootstrap": "none: risk differences with bootstrap intervals stand alone",
}


class Effect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One term or contrast: log odds, Wald statistic and two-sided p-value."""

    name: str
    log_odds: float
    standard_error: float
    z: float
    p: float


class LikelihoodRatio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Test of the treatment by model interaction within the mixed model."""

    chi_squared: float
    degrees_of_freedom: int
    p: float


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gates saw. None where a gate before had decided.

    infinite_terms: terms without a finite estimate, with their direction.
    boundary_score: derivative by the variance of intercepts at 0. gain: of log-likelihood over the
    plain logistic model. node_change: of log-likelihood with 101 instead of 61 nodes.
    disagreement: largest difference of an estimate between starts.
    """

    cells: int
    tasks: int
    terms: int
    rank: int
    infinite_terms: dict[str, str]
    boundary_score: float | None = None
    sigma: float | None = None
    log_likelihood: float | None = None
    gain: float | None = None
    decrement: float | None = None
    condition: float | None = None
    disagreement: float | None = None
    node_change: float | None = None
    correlation: float | None = None
    gee_converged: bool | None = None


class ModelResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rung that stands with its estimates.

    reason: gate that ruled out the mixed model; reason_gee: why GEE is not available either.
    terms, contrasts, languages: empty on the last rung. interaction: of the mixed model only.
    """

    rung: Rung
    estimand: str
    reason: Reason
    reason_gee: Reason
    reference: tuple[str, str, str]
    diagnostics: Diagnostics
    terms: tuple[Effect, ...] = ()
    contrasts: tuple[Effect, ...] = ()
    languages: tuple[Effect, ...] = ()
    interaction: LikelihoodRatio | None = None


def fit_ladder(
    cells: Iterable[BinaryCell],
    *,
    treatments: Sequence[str],
    models: Sequence[str],
    repositories: Sequence[str],
    languages: Mapping[str, str],
    contrasts: Mapping[str, tuple[str, str, str]],
) -> ModelResult:
    """Climb down the ladder until a rung stands.

    cells: the observed cells, in any order; missing ones are left out.
    treatments, models, repositories: levels, the reference first. languages: of each repository.
    contrasts: name -> (treatment, baseline, model).

    Raises ValueError as ``mean_model`` does.
    """
    model = mean_model(cells, treatments, models, repositories)
    rank = model.rank
    deficient = rank < len(model.terms)
    diagnostics = Diagnostics(
        cells=len(model.y),
        tasks=len(model.starts),
        terms=len(model.terms),
        rank=rank,
        infinite_terms={} if deficient else infinite_terms(model.x, model.y, model.terms),
    )
    last = ModelResult(
        rung="stratified_bootstrap",
        estimand=ESTIMANDS["stratified_bootstrap"],
        reason="rank_deficient" if deficient else "separated",
        reason_gee="rank_deficient" if deficient else "separated",
        reference=(treatments[0], models[0], repositories[0]),
        diagnostics=diagnostics,
    )
    if deficient or diagnostics.infinite_terms:
        return last
    replace = msgspec.structs.replace
    reason, mixed, diagnostics = _mixed(model, diagnostics)
    if mixed is not None:
        stands = replace(last, rung="mixed_logistic", reason="", reason_gee="")
        interaction = _interaction(model, mixed)
        fit: MixedFit | GeeFit = mixed
    else:
        gee = fit_gee(model)
        if gee is not None:
            diagnostics = replace(
                diagnostics, correlation=_rounded(gee.correlation), gee_converged=gee.converged
            )
        if gee is None or not _gee_is_sound(model, gee):
            reasons = {"reason": reason, "reason_gee": "gee_unavailable"}
            return replace(last, **reasons, diagnostics=diagnostics)
        stands = replace(last, rung="clustered_gee", reason=reason, reason_gee="")
        interaction, fit = None, gee
    return replace(
        stands,
        estimand=ESTIMANDS[stands.rung],
        diagnostics=diagnostics,
        terms=_effects(fit, dict(zip(model.terms, np.eye(len(model.terms)), strict=True))),
        contrasts=_effects(
            fit,
            {
                name: model.treatment_effect(new, baseline, agent)
                for name, (new, baseline, agent) in contrasts.items()
            },
        ),
        languages=_effects(fit, _language_weights(model, languages)),
        interaction=interaction,
    )


def _mixed(
    model: MeanModel, diagnostics: Diagnostics
) -> tuple[Reason, MixedFit | None, Diagnostics]:
    """The mixed model where it passes the gates, else the reason why not."""
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    plain = GLM(model.y, model.x, family=Binomial()).fit()
    boundary = boundary_score(model, np.asarray(plain.fittedvalues))
    diagnostics = msgspec.structs.replace(diagnostics, boundary_score=_rounded(boundary))
    if boundary <= 0:
        return "singular", None, diagnostics
    fits = fit_mixed_logistic(model, np.asarray(plain.params))
    fit = max(fits, key=lambda each: each.log_likelihood)
    estimates = [np.append(each.coefficients, each.sigma) for each in fits]
    disagreement = max(float(np.abs(e - estimates[0]).max()) for e in estimates[1:])
    node_change = abs(log_likelihood(model, fit, CONTROL_NODES) - fit.log_likelihood)
    gain = fit.log_likelihood - float(plain.llf)
    diagnostics = msgspec.structs.replace(
        diagnostics,
        sigma=_rounded(fit.sigma),
        log_likelihood=_rounded(fit.log_likelihood),
        gain=_rounded(gain),
        decrement=_order(fit.decrement),
        condition=_rounded(fit.condition) if fit.positive_definite else None,
        disagreement=_order(disagreement),
        node_change=_order(node_change),
    )
    if fit.sigma < MIN_SIGMA or gain < MIN_GAIN:
        return "singular", None, diagnostics
    converged = (
        fit.decrement < DECREMENT
        and fit.positive_definite
        and fit.condition < MAX_CONDITION
        and disagreement < AGREEMENT
        and float(np.abs(fit.coefficients).max()) < MAX_COEFFICIENT
        and fit.sigma < MAX_SIGMA
        and node_change <= MAX_NODE_CHANGE
    )
    return ("", fit, diagnostics) if converged else ("nonconvergent", None, diagnostics)


def _gee_is_sound(model: MeanModel, gee: GeeFit) -> bool:
    spread = np.linalg.eigvalsh(gee.covariance)  # singular where tasks are fewer than terms
    largest = int(np.diff(np.append(model.starts, len(model.y))).max())
    return (
        gee.converged
        and bool(spread[0] * MAX_CONDITION > spread[-1])
        and float(np.abs(gee.coefficients).max()) <= MAX_COEFFICIENT
        and -1 / max(largest - 1, 1) < gee.correlation < 1
    )


def _interaction(model: MeanModel, fit: MixedFit) -> LikelihoodRatio | None:
    nested = model.without_interaction()
    freedom = len(model.terms) - len(nested.terms)
    if freedom == 0:
        return None
    from scipy.stats import chi2

    kept = [model.terms.index(term) for term in nested.terms]
    fits = fit_mixed_logistic(nested, fit.coefficients[kept])
    best = max(each.log_likelihood for each in fits)
    statistic = max(0.0, 2 * (fit.log_likelihood - best))
    return LikelihoodRatio(
        chi_squared=_rounded(statistic),
        degrees_of_freedom=freedom,
        p=_rounded(float(chi2.sf(statistic, freedom))),
    )


def _language_weights(model: MeanModel, languages: Mapping[str, str]) -> dict[str, Floats]:
    """Mean of the repositories of each later language minus that of the first one."""
    by_language: dict[str, list[str]] = {}
    for repository in model.repositories:
        by_language.setdefault(languages[repository], []).append(repository)
    first, *others = by_language
    return {
        f"{language} - {first}": model.repository_effect(
            [
                *((name, 1 / len(by_language[language])) for name in by_language[language]),
                *((name, -1 / len(by_language[first])) for name in by_language[first]),
            ]
        )
        for language in others
    }


def _effects(fit: MixedFit | GeeFit, combinations: Mapping[str, Floats]) -> tuple[Effect, ...]:
    """Wald statistics of linear combinations of the coefficients."""
    from scipy.stats import norm

    effects = []
    for name, weights in combinations.items():
        estimate = float((weights * fit.coefficients).sum())
        error = float(np.sqrt((weights[:, np.newaxis] * weights * fit.covariance).sum()))
        effects.append(
            Effect(
                name=name,
                log_odds=_rounded(estimate),
                standard_error=_rounded(error),
                z=_rounded(estimate / error),
                p=_rounded(float(2 * norm.sf(abs(estimate / error)))),
            )
        )
    return tuple(effects)


def _rounded(value: float) -> float:
    """To ``DIGITS`` significant digits, and to 1e-12 near zero: below it is rounding noise."""
    return float(f"{round(value, 12):.{DIGITS - 1}e}") + 0.0


def _order(value: float) -> float:
    """To one significant digit, not below 1e-12: only the order of magnitude says something."""
    return max(float(f"{value:.0e}"), 1e-12)
