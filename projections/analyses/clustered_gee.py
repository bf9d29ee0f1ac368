"""How do treatments change the odds of a success over all tasks? Logistic GEE, tasks as clusters.

Generalised estimating equations with an exchangeable working correlation and sandwich standard
errors (Liang & Zeger 1986, Biometrika 73:13-22), by statsmodels with ``ddof_scale=0``, which equals
R's geepack. Effects are population averages: smaller than those of a model given the task.
"""

import warnings

import msgspec
import numpy as np

from projections.analyses.mean_model import Floats, MeanModel


class GeeFit(msgspec.Struct, frozen=True, kw_only=True):
    """coefficients, standard_errors: (p,), population-averaged log odds; covariance: (p, p), the
    sandwich; correlation: between two cells of a task."""

    coefficients: Floats
    standard_errors: Floats
    covariance: Floats
    correlation: float
    converged: bool


def fit_gee(model: MeanModel) -> GeeFit | None:
    """Fit by estimating equations; ``converged`` is false where the iteration did not settle. None
    where its matrices degenerate, so that there is no number at all."""
    # A second to import, and only models need it.
    from statsmodels.genmod.cov_struct import Exchangeable
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_estimating_equations import GEE

    structure = Exchangeable()
    equations = GEE(model.y, model.x, groups=model.cluster, family=Binomial(), cov_struct=structure)
    # What they warn of stands in the fit, and is judged there.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            fitted = equations.fit(ddof_scale=0, maxiter=200, ctol=1e-9)
        except np.linalg.LinAlgError:
            return None
        covariance = np.asarray(fitted.cov_params())
        fit = GeeFit(
            coefficients=np.asarray(fitted.params),
            standard_errors=np.sqrt(np.diag(covariance)),
            covariance=covariance,
            correlation=float(structure.dep_params),
            converged=bool(fitted.converged),
        )
    numbers = (fit.coefficients, fit.standard_errors, fit.correlation)
    return fit if all(np.isfinite(number).all() for number in numbers) else None
