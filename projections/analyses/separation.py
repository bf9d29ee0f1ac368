"""Do the data separate a logistic model, so that no finite estimate exists?

With s_i = +1 for a success and -1 for a failure, the maximum of the likelihood is at infinity
exactly where a direction d has s_i x_i'd >= 0 in every row and > 0 in one (Albert & Anderson 1984,
Biometrika 71:1-10). A linear programme decides it, where fitting programs report "converged".
"""

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 1e-7
"""A programme with an optimum above it separates; bounds on d are -1 and 1."""


def infinite_terms(
    x: NDArray[np.float64], y: NDArray[np.float64], terms: tuple[str, ...]
) -> dict[str, str]:
    """Terms without a finite estimate, with the direction: ``+inf``, ``-inf`` or ``-inf+inf``
    where separating directions of both signs exist. Empty where nothing is separated.

    x: (n, p) of full rank; y: (n,), zeros and ones; terms: names of the p columns.
    """
    signed = np.where(y > 0, 1.0, -1.0)[:, np.newaxis] * x
    if _largest(signed.sum(axis=0), signed) <= THRESHOLD:
        return {}
    found = {}
    for index, term in enumerate(terms):
        axis = np.zeros(len(terms))
        axis[index] = 1.0
        down = _largest(-axis, signed) > THRESHOLD
        up = _largest(axis, signed) > THRESHOLD
        if down or up:
            found[term] = "-inf" * down + "+inf" * up
    return found


def _largest(objective: NDArray[np.float64], signed: NDArray[np.float64]) -> float:
    """max objective'd over -1 <= d <= 1 with signed d >= 0."""
    from scipy.optimize import linprog  # a second to import, and only models need it

    rows = np.unique(signed, axis=0)
    solved = linprog(-objective, A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1))
    return float(-solved.fun)
