"""Do two arms resolve the same tasks equally often? Exact McNemar test on paired tasks.

Of m = b + c discordant pairs, b are resolved by the new arm only and c by the baseline only.
Given m, b is binomial(m, 1/2) if the arms do not differ, and

    p = min(1, 2 * sum_{k <= min(b, c)} C(m, k) / 2**m),   p = 1 when m = 0.

Everything up to the last conversion is integer arithmetic, for any m, so that "p <= alpha" is
never the verdict of a rounding.

McNemar (1947), Psychometrika 12:153-157; the mid-p variant as in Fagerland, Lydersen & Laake
(2013), BMC Medical Research Methodology 13:91.
"""

import math
from fractions import Fraction

import msgspec

from projections.analyses.admissible_values import Rational, admit_count, admit_level

# An exact sum over a million discordant pairs takes some ten seconds; more is an input error.
MAX_DISCORDANT = 1_000_000

# Above this many discordant pairs the fraction has hundreds of digits, which nobody reads.
MAX_DISCORDANT_AS_FRACTION = 1_000

_LEAF_TERMS = 64


class McNemarTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Result of one exact McNemar test.

    new_only, baseline_only: discordant pairs, in tasks.
    discordant: their sum m.
    p_exact: two-sided exact p, nearest float (0.0 below the smallest float, about 5e-324).
    p_exact_fraction: the same p as a reduced fraction such as "247/32768"; None above
        MAX_DISCORDANT_AS_FRACTION discordant pairs.
    p_mid: two-sided mid-p, a sensitivity value; no decision rests on it.
    alpha: significance level, nearest float of what was declared.
    rejected: p_exact <= alpha, decided in integers.
    """

    new_only: int
    baseline_only: int
    discordant: int
    p_exact: float
    p_exact_fraction: str | None
    p_mid: float
    alpha: float
    rejected: bool


def mcnemar_test(new_only: int, baseline_only: int, alpha: Rational = "0.05") -> McNemarTest:
    """Run the two-sided exact test on counts of discordant pairs.

    Raises ValueError for counts that are negative or no whole numbers, for more than
    MAX_DISCORDANT discordant pairs and for alpha outside (0, 1).
    """
    level = admit_level(alpha, "alpha")
    m, tail, observed = _smaller_tail(new_only, baseline_only)
    p = min(Fraction(1), Fraction(2 * tail, 1 << m))
    return McNemarTest(
        new_only=int(new_only),
        baseline_only=int(baseline_only),
        discordant=m,
        p_exact=float(p),
        p_exact_fraction=str(p) if m <= MAX_DISCORDANT_AS_FRACTION else None,
        p_mid=(2 * tail - observed) / (1 << m),
        alpha=float(level),
        rejected=p <= level,
    )


def exact_p_value(new_only: int, baseline_only: int) -> Fraction:
    """Two-sided exact p as a fraction; 1 when there is no discordant pair.

    Raises ValueError for counts that are negative or no whole numbers and for more than
    MAX_DISCORDANT discordant pairs.
    """
    m, tail, _ = _smaller_tail(new_only, baseline_only)
    return min(Fraction(1), Fraction(2 * tail, 1 << m))


def mid_p_value(new_only: int, baseline_only: int) -> Fraction:
    """Two-sided mid-p as a fraction: the observed table counts half in each tail.

    Raises ValueError as `exact_p_value` does.
    """
    m, tail, observed = _smaller_tail(new_only, baseline_only)
    return Fraction(2 * tail - observed, 1 << m)


def _smaller_tail(new_only: int, baseline_only: int) -> tuple[int, int, int]:
    """m = b + c, the sum of C(m, i) for i = 0 .. min(b, c), and its last term."""
    b = admit_count(new_only, "new_only (pairs that only the new arm resolves)")
    c = admit_count(baseline_only, "baseline_only (pairs that only the baseline resolves)")
    m = b + c
    if m > MAX_DISCORDANT:
        raise ValueError(
            f"the exact test takes at most {MAX_DISCORDANT:,} discordant pairs, not {m:,}: "
            "check the counts, or report the score interval of paired_intervals instead"
        )
    # Binary splitting of the hypergeometric series (Haible & Papanikolaou 1998): adding the
    # terms one by one would handle an m-bit integer min(b, c) times.
    product, denominator, numerator = _series(m, 0, min(b, c))
    return m, (denominator + numerator) // denominator, product // denominator


def _series(m: int, start: int, stop: int) -> tuple[int, int, int]:
    """Ratios r_i = (m - i)/(i + 1), i = start .. stop - 1: product of the numerators, product
    Q of the denominators, and T with T/Q = r_start + r_start r_(start+1) + ..."""
    if stop - start <= _LEAF_TERMS:
        denominator, numerator = 1, 0
        for i in range(stop - 1, start - 1, -1):
            numerator = (m - i) * (denominator + numerator)
            denominator *= i + 1
        return math.perm(m - start, stop - start), denominator, numerator
    middle = (start + stop) // 2
    left_product, left_denominator, left = _series(m, start, middle)
    right_product, right_denominator, right = _series(m, middle, stop)
    return (
        left_product * right_product,
        left_denominator * right_denominator,
        left * right_denominator + left_product * right,
    )
