"""How do treatments change the odds of a success within a task? Logistic model, random intercept.

    logit P(y_ij = 1 | u_i) = x_ij'b + s u_i,   u_i ~ N(0, 1),   i a task

The likelihood of a task is an integral over u_i, taken by adaptive Gauss-Hermite quadrature: nodes
are centred at the mode of the integrand and scaled by its curvature (Liu & Pierce 1994, Biometrika
81:624-629). (b, s) is found by damped Newton steps with the score after Fisher's identity and the
observed information after Louis (1982, JRSS B 44:226-233), both posterior means over the nodes of a
task. Standard errors come from the joint information of (b, s). s is free in sign; |s| is reported.
"""

import msgspec
import numpy as np
from numpy.polynomial.hermite import hermgauss

from projections.analyses.mean_model import Floats, MeanModel

NODES = 61
CONTROL_NODES = 101
STARTS = (0.3, 1.0, 3.0)
MAX_STEPS = 100
DECREMENT = 1e-10
"""Newton decrement g'I^-1 g at which the iteration has converged."""


class MixedFit(msgspec.Struct, frozen=True, kw_only=True):
    """One maximum of the likelihood of p terms.

    coefficients, standard_errors: (p,), log odds given the task. sigma: standard deviation of the
    intercepts of tasks. covariance: (p, p) of the coefficients. condition: of the information.
    """

    coefficients: Floats
    standard_errors: Floats
    covariance: Floats
    sigma: float
    log_likelihood: float
    decrement: float
    condition: float
    positive_definite: bool


def fit_mixed_logistic(model: MeanModel, start: Floats) -> list[MixedFit]:
    """The maxima that Newton's method reaches from ``start`` (p,) with each of ``STARTS``.

    A caller compares them: they agree where the likelihood has one maximum. A start from which the
    information degenerates gives a fit that is not positive definite.
    """
    return [_fit(model, np.append(start, sigma)) for sigma in STARTS]


def log_likelihood(model: MeanModel, fit: MixedFit, nodes: int) -> float:
    """Of a fit, with another number of nodes: a control of the quadrature."""
    return _Likelihood(model, nodes)(np.append(fit.coefficients, fit.sigma))[0]


def boundary_score(model: MeanModel, fitted: Floats) -> float:
    """Derivative of the log-likelihood by the variance of the intercepts, at variance 0.

    1/2 sum over tasks of [(sum of residuals)^2 - sum of p(1 - p)] at the probabilities ``fitted``
    (n,) of the plain logistic model. Zero or less: the data ask for no random intercept.
    """
    residuals = model.per_task(model.y - fitted)
    variances = model.per_task(fitted * (1 - fitted))
    return float((residuals**2 - variances).sum() / 2)


def _fit(model: MeanModel, theta: Floats) -> MixedFit:
    likelihood = _Likelihood(model, NODES)
    value, score, information = likelihood(theta)
    decrement = np.inf
    for _ in range(MAX_STEPS):
        step = _ascent(score, information)
        decrement = float(score @ step)
        if decrement < DECREMENT:
            break
        damping = 1.0
        while damping > 1e-10:
            candidate = likelihood(theta + damping * step)
            if candidate[0] > value or (decrement < 1e-6 and candidate[0] >= value - 1e-12):
                break
            damping /= 2
        else:
            break
        theta = theta + damping * step
        value, score, information = candidate
    eigenvalues = np.linalg.eigvalsh(information)
    definite = bool(eigenvalues[0] > 0)
    covariance: Floats = np.full(information.shape, np.nan)
    if definite:
        covariance[:] = np.linalg.inv(information)
    covariance = covariance[:-1, :-1]
    return MixedFit(
        coefficients=theta[:-1],
        standard_errors=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        sigma=abs(float(theta[-1])),
        log_likelihood=value,
        decrement=decrement,
        condition=float(eigenvalues[-1] / eigenvalues[0]) if definite else float("inf"),
        positive_definite=definite,
    )


def _ascent(score: Floats, information: Floats) -> Floats:
    """Newton's step, with negative curvature turned around so that it always climbs."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
    step: Floats = vectors @ ((vectors.T @ score) / values)
    return step


class _Likelihood:
    """(log-likelihood, score, observed information) at (b, s)."""

    def __init__(self, model: MeanModel, nodes: int) -> None:
        self._model = model
        self._cluster = model.cluster
        points, weights = hermgauss(nodes)
        self._points: Floats = points
        self._log_weights: Floats = np.log(weights) + points**2

    def __call__(self, theta: Floats) -> tuple[float, Floats, Floats]:
        model, cluster = self._model, self._cluster
        fixed, sigma = model.x @ theta[:-1], float(theta[-1])
        mode, scale = self._mode(fixed, sigma)
        u = mode[:, np.newaxis] + np.sqrt(2.0) * scale[:, np.newaxis] * self._points
        linear = fixed[:, np.newaxis] + sigma * u[cluster]
        log_terms = (
            self._log_weights
            + np.log(scale)[:, np.newaxis]
            - u**2 / 2
            - np.log(np.pi) / 2
            + model.per_task(model.y[:, np.newaxis] * linear - np.logaddexp(0.0, linear))
        )
        largest = log_terms.max(axis=1, keepdims=True)
        terms = np.exp(log_terms - largest)
        total = terms.sum(axis=1, keepdims=True)
        value = float((np.log(total) + largest).sum())
        posterior = terms / total

        # Complete-data score of a task at a node: (sum x r, sum r u). Posterior means of it and of
        # its products give score and information.
        probability = _logistic(linear)
        residual = model.y[:, np.newaxis] - probability
        gradient = np.concatenate(
            (
                model.per_task(model.x[:, :, np.newaxis] * residual[:, np.newaxis, :]),
                (model.per_task(residual) * u)[:, np.newaxis, :],
            ),
            axis=1,
        )
        mean = (gradient * posterior[:, np.newaxis, :]).sum(axis=2)
        weight = probability * (1 - probability) * posterior[cluster]
        first = (weight * u[cluster]).sum(axis=1)
        second = (weight * u[cluster] ** 2).sum(axis=1)
        size = len(theta)
        information = np.empty((size, size))
        information[:-1, :-1] = (model.x * weight.sum(axis=1)[:, np.newaxis]).T @ model.x
        information[:-1, -1] = information[-1, :-1] = model.x.T @ first
        information[-1, -1] = second.sum()
        spread = np.sqrt(posterior)[:, np.newaxis, :] * (gradient - mean[:, :, np.newaxis])
        spread = spread.transpose(1, 0, 2).reshape(size, -1)
        return value, mean.sum(axis=0), information - spread @ spread.T

    def _mode(self, fixed: Floats, sigma: float) -> tuple[Floats, Floats]:
        """(mode, scale) of the integrand of every task: (tasks,) each. It is log-concave."""
        model, cluster = self._model, self._cluster
        u = np.zeros(len(model.starts))
        for _ in range(100):
            probability = _logistic(fixed + sigma * u[cluster])
            slope = sigma * model.per_task(model.y - probability) - u
            curvature = 1 + sigma**2 * model.per_task(probability * (1 - probability))
            step = np.clip(slope / curvature, -2.0, 2.0)
            u = u + step
            if np.abs(step).max() < 1e-12:
                break
        probability = _logistic(fixed + sigma * u[cluster])
        curvature = 1 + sigma**2 * model.per_task(probability * (1 - probability))
        return u, 1 / np.sqrt(curvature)


def _logistic(linear: Floats) -> Floats:
    result: Floats = np.exp(-np.logaddexp(0.0, -linear))
    return result
