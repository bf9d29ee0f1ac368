"""How large can the proportion behind x successes in n trials be?

Wilson's score interval for display (Wilson 1927, JASA 22:209-212) and the exact interval of
Clopper & Pearson (1934), Biometrika 26:404-413, for claims that rest on zero failures.
"""

from fractions import Fraction
from math import sqrt
from statistics import NormalDist

import msgspec

from projections.analyses.admissible_values import Rational, admit_count, admit_level


class ProportionIntervals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two-sided intervals of one proportion.

    successes, trials: the counts x and n.
    proportion: x/n, in [0, 1]; so are the (lower, upper) endpoints.
    confidence: level, nearest float.
    wilson: score interval, without continuity correction.
    clopper_pearson: exact interval; its level is at least the nominal one.
    """

    successes: int
    trials: int
    proportion: float
    confidence: float
    wilson: tuple[float, float]
    clopper_pearson: tuple[float, float]


def proportion_intervals(
    successes: int, trials: int, confidence: Rational = "0.95"
) -> ProportionIntervals:
    """Both intervals of one count.

    Raises ValueError for 0/0 (not estimable), successes outside 0 .. trials, counts that are no
    whole numbers, or confidence outside (0, 1).
    """
    x, n = _admit_successes(successes, trials)
    level = admit_level(confidence, "confidence")
    return ProportionIntervals(
        successes=x,
        trials=n,
        proportion=x / n,
        confidence=float(level),
        wilson=wilson_interval(x, n, level),
        clopper_pearson=clopper_pearson_interval(x, n, level),
    )


def wilson_interval(
    successes: int, trials: int, confidence: Rational = "0.95"
) -> tuple[float, float]:
    """Wilson score interval (lower, upper); raises ValueError as `proportion_intervals`."""
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
    """Exact interval (lower, upper); raises ValueError as `proportion_intervals`.

    The lower endpoint is the p with P(X >= x) = a/2, the upper the p with P(X <= x) = a/2.
    """
    x, n = _admit_successes(successes, trials)
    tail = float((1 - admit_level(confidence, "confidence")) / 2)
    lower = 0.0 if x == 0 else 1.0 - _largest_p_with_lower_tail(n - x, n, tail)
    upper = 1.0 if x == n else _largest_p_with_lower_tail(x, n, tail)
    return lower, upper


def two_sided_z(confidence: Fraction) -> float:
    """Standard normal quantile of (1 + confidence)/2, 1.96 for 0.95."""
    return -NormalDist().inv_cdf(float((1 - confidence) / 2))


def _largest_p_with_lower_tail(x: int, n: int, tail: float) -> float:
    """The p with P(X <= x; n, p) = tail for x < n, by bisection to the last bit."""
    low, high = 0.0, 1.0
    while True:
        p = (low + high) / 2
        if p in (low, high):
            return low
        if _lower_tail(x, n, p) >= tail:
            low = p
        else:
            high = p


def _lower_tail(x: int, n: int, p: float) -> float:
    """P(X <= x) of a binomial, 0 < p < 1.

    Terms are taken relative to the largest one: no logarithm or power, so no underflow, and
    only operations that IEEE 754 rounds alike on every machine.
    """
    mode = min(int((n + 1) * p), n)
    odds = p / (1.0 - p)
    inside = outside = 0.0
    term, k = 1.0, mode
    while k <= n and term > 1e-30:
        inside, outside = (inside + term, outside) if k <= x else (inside, outside + term)
        term *= (n - k) / (k + 1) * odds
        k += 1
    term, k = mode / (n - mode + 1) / odds, mode - 1
    while k >= 0 and term > 1e-30:
        inside, outside = (inside + term, outside) if k <= x else (inside, outside + term)
        term *= k / (n - k + 1) / odds
        k -= 1
    return inside / (inside + outside)


def _admit_successes(successes: int, trials: int) -> tuple[int, int]:
    x = admit_count(successes, "successes")
    n = admit_count(trials, "trials")
    if n == 0:
        raise ValueError(f"{x}/0 is not estimable: an interval needs at least one trial")
    if x > n:
        raise ValueError(f"successes must be at most trials, but {x} > {n}")
    return x, n
