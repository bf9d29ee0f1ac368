"""Between which values does the paired risk difference lie? Closed-form and score intervals.

Tango's score interval is the one to read: it keeps its level in small samples and has a width
also when there is no discordant pair. The others are printed as a robustness check.

Tango (1998), Statistics in Medicine 17:891-908; Newcombe (1998), ibid. 17:2635-2650, method 10;
Bonett & Price (2012), British Journal of Mathematical and Statistical Psychology 65:479-488.
"""

from math import sqrt

import msgspec

from projections.analyses.admissible_values import Rational, admit_level
from projections.analyses.paired_outcomes import PairedTable
from projections.analyses.single_proportion import two_sided_z, wilson_interval

Interval = tuple[float, float]


class PairedIntervals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two-sided intervals of (new only - baseline only)/pairs, each (lower, upper) in [-1, 1].

    pairs: complete pairs n, in tasks.
    risk_difference: the estimate, in [-1, 1].
    confidence: level, nearest float.
    tango: score interval.
    newcombe10: hybrid of two Wilson intervals with the paired correlation.
    wald: large-sample interval; None where its standard error is 0 and it would claim
        certainty.
    bonett_price: Wald interval with Laplace-adjusted discordance.
    """

    pairs: int
    risk_difference: float
    confidence: float
    tango: Interval
    newcombe10: Interval
    wald: Interval | None
    bonett_price: Interval


def paired_intervals(table: PairedTable, confidence: Rational = "0.95") -> PairedIntervals:
    """All four intervals of one table.

    Raises ValueError for a table without a pair and for confidence outside (0, 1).
    """
    level = admit_level(confidence, "confidence")
    return PairedIntervals(
        pairs=table.pairs,
        risk_difference=table.risk_difference,
        confidence=float(level),
        tango=tango_interval(table, level),
        newcombe10=newcombe10_interval(table, level),
        wald=wald_interval(table, level),
        bonett_price=bonett_price_interval(table, level),
    )


def tango_interval(table: PairedTable, confidence: Rational = "0.95") -> Interval:
    """Differences d that the score test does not reject: |score(d)| <= z.

    With b new only, c baseline only and q the maximum-likelihood P(baseline only) given d,
    score(d) = (b - c - n d) / sqrt(n (2 q + d (1 - d))) falls from the left of the estimate to
    its right, so each endpoint is the one crossing on its side, bisected to the last bit.

    Raises ValueError as `paired_intervals` does.
    """
    z = two_sided_z(admit_level(confidence, "confidence"))
    n, b, c = table.pairs, table.new_only, table.baseline_only

    def accepted(d: float) -> bool:
        linear = (2 * n - b + c) * d - b - c
        discriminant = linear * linear + 8 * n * c * d * (1 - d)
        q = (sqrt(max(discriminant, 0.0)) - linear) / (4 * n)
        variance = n * (2 * q + d * (1 - d))
        # Squared and multiplied out: the variance is 0 at the ends of the scale.
        return (b - c - n * d) ** 2 <= z * z * max(variance, 0.0)

    def endpoint(bound: float) -> float:
        inside, outside = table.risk_difference, bound
        while True:
            d = (inside + outside) / 2
            if d in (inside, outside):
                return inside
            inside, outside = (d, outside) if accepted(d) else (inside, d)

    return endpoint(-1.0), endpoint(1.0)


def newcombe10_interval(table: PairedTable, confidence: Rational = "0.95") -> Interval:
    """Newcombe's method 10: Wilson limits of both margins, joined by a corrected phi.

    Raises ValueError as `paired_intervals` does.
    """
    level = admit_level(confidence, "confidence")
    n, difference = table.pairs, table.risk_difference
    new, baseline = table.both + table.new_only, table.both + table.baseline_only
    new_lower, new_upper = wilson_interval(new, n, level)
    baseline_lower, baseline_upper = wilson_interval(baseline, n, level)

    association = table.both * table.neither - table.new_only * table.baseline_only
    corrected = max(association - n / 2, 0.0) if association > 0 else float(association)
    margins = new * (n - new) * baseline * (n - baseline)
    phi = corrected / sqrt(margins) if margins > 0 else 0.0

    def distance(first: float, second: float) -> float:
        return sqrt(max(first * first - 2 * phi * first * second + second * second, 0.0))

    below = distance(new / n - new_lower, baseline_upper - baseline / n)
    above = distance(baseline / n - baseline_lower, new_upper - new / n)
    return max(difference - below, -1.0), min(difference + above, 1.0)


def wald_interval(table: PairedTable, confidence: Rational = "0.95") -> Interval | None:
    """Estimate plus or minus z standard errors, cut at -1 and 1.

    None when the standard error is 0 (all pairs differ alike, or none does). Raises ValueError
    as `paired_intervals` does.
    """
    z = two_sided_z(admit_level(confidence, "confidence"))
    n, difference = table.pairs, table.risk_difference
    b, c = table.new_only, table.baseline_only
    spread = n * (b + c) - (b - c) ** 2  # n^3 times the squared standard error
    if spread == 0:
        return None
    half_width = z * sqrt(spread / n) / n
    return max(difference - half_width, -1.0), min(difference + half_width, 1.0)


def bonett_price_interval(table: PairedTable, confidence: Rational = "0.95") -> Interval:
    """Wald interval with one pair added to each discordant count, cut at -1 and 1.

    Raises ValueError as `paired_intervals` does.
    """
    z = two_sided_z(admit_level(confidence, "confidence"))
    if table.pairs == 0:
        raise ValueError("no complete pair: the risk difference is not estimable")
    total = table.pairs + 2
    new_only, baseline_only = (table.new_only + 1) / total, (table.baseline_only + 1) / total
    difference = new_only - baseline_only
    half_width = z * sqrt((new_only + baseline_only - difference**2) / total)
    return max(difference - half_width, -1.0), min(difference + half_width, 1.0)
