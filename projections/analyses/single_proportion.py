"""How large can the proportion behind x successes in n trials be?

Wilson's score interval for display (Wilson 1927, JASA 22:209-212) and the exact interval of
Clopper & Pearson (1934), Biometrika 26:404-413, for claims that rest on zero failures.
"""

from fractions import Fraction
from math import sqrt
from statistics import NormalDist

from projections.analyses.admissible_values import Rational, admit_count, admit_level


def wilson_interval(
    successes: int, trials: int, confidence: Rational = "0.95"
) -> tuple[float, float]:
    """Wilson score interval (lower, upper), without continuity correction.

    Raises ValueError for 0/0 (not estimable), successes outside 0 .. trials, counts that are no
    whole numbers, or confidence outside (0, 1).
    """
    x, n = _admit_successes(successes, trials)
    z = two_sided_z(admit_level(confidence, "confidence"))
    centre = x + z * z / 2
    half_width = z * sqrt(x * (n - x) / n + z * z / 4)
    # At the edges one endpoint is the edge itself, which rounding would miss by an ulp.
    lower = 0.0 if x == 0 else (centre - half_width) / (n + z * z)
    upper = 1.0 if x == n else (centre + half_width) / (n + z * z)
    return lower, upper


def clopper_pearson_interval(
    successes: int, trials: int, confidence: Rational = "0.95"
) -> tuple[float, float]:
    """Exact interval (lower, upper); raises ValueError as `wilson_interval`.

    The lower endpoint is the p with P(X >= x) = a/2, the upper the p with P(X <= x) = a/2.
    """
    from scipy.special import betainccinv, betaincinv  # slow to import

    x, n = _admit_successes(successes, trials)
    tail = float((1 - admit_level(confidence, "confidence")) / 2)
    lower = 0.0 if x == 0 else float(betaincinv(x, n - x + 1, tail))
    upper = 1.0 if x == n else float(betainccinv(x + 1, n - x, tail))
    return lower, upper


def two_sided_z(confidence: Fraction) -> float:
    """Standard normal quantile of (1 + confidence)/2, 1.96 for 0.95."""
    return -NormalDist().inv_cdf(float((1 - confidence) / 2))


def _admit_successes(successes: int, trials: int) -> tuple[int, int]:
    x = admit_count(successes, "successes")
    n = admit_count(trials, "trials")
    if n == 0:
        raise ValueError(f"{x}/0 is not estimable: an interval needs at least one trial")
    if x > n:
        raise ValueError(f"successes must be at most trials, but {x} > {n}")
    return x, n
