"""How likely is the exact McNemar test to reject, before any outcome exists?

The counts of n paired tasks (new only, baseline only, concordant) are trinomial. The power is
the total probability of the tables that the test rejects, enumerated exactly:

    power = sum over rejected (b, c) of n!/(b! c! (n-b-c)!) * p_new**b * p_base**c * p_conc**(n-b-c)

All of it in integers. For each number m of discordant pairs the rejected tables are the two
tails min(b, c) <= K(m), and both K(m) and the tail sums follow from those of m - 1 with a few
multiplications, so n = 2,000 needs 2,000 steps and not two million tables.

The study's own figure: 60 tasks, 0.25, 0.05, alpha 0.05 -> 0.797296 (preregistration of
Study 2, "Power and statistical analysis").
"""

import math
from fractions import Fraction

import msgspec

from projections.analyses.admissible_values import (
    Rational,
    admit_count,
    admit_level,
    admit_probability,
)

# Exact integers grow with n: this many tasks take half a minute with sixteen-digit probabilities.
MAX_TASKS = 5_000
MAX_SEARCHED = 400
"""Numbers of tasks that are tried for a target, every one of them: some seconds."""


class McNemarPower(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power of the two-sided exact McNemar test.

    tasks: number of paired tasks n.
    new_only, baseline_only: assumed probabilities that only the new arm, or only the baseline,
        resolves a task, where every task is solvable.
    solvable_share: share of the n tasks to which those probabilities apply; on the others
        neither arm can succeed.
    alpha: two-sided significance level.
    power: probability of rejection in either direction.
    power_direction_new: probability of rejection with more tasks resolved by the new arm.
    power_midp: power of the mid-p test, a sensitivity value (that test may exceed alpha).

    Probabilities are nearest floats of exact rationals, in [0, 1].
    """

    tasks: int
    new_only: float
    baseline_only: float
    solvable_share: float
    alpha: float
    power: float
    power_direction_new: float
    power_midp: float


def mcnemar_power(
    tasks: int,
    new_only: Rational,
    baseline_only: Rational,
    alpha: Rational = "0.05",
    solvable_share: Rational = 1,
) -> McNemarPower:
    """Enumerate the power for `tasks` pairs and the two discordance probabilities.

    `solvable_share` scales both probabilities: a task that no arm can solve is concordant, so
    with 30 % unsolvable tasks (share 0.7) the study's 0.797 falls to 0.59.

    Raises ValueError for tasks outside 1 .. MAX_TASKS, a probability outside [0, 1], a sum of
    the two above 1, alpha outside (0, 1) or a share outside [0, 1].
    """
    n = admit_count(tasks, "tasks", minimum=1)
    if n > MAX_TASKS:
        raise ValueError(f"tasks must be at most {MAX_TASKS:,} for exact enumeration, not {n:,}")
    p_new = admit_probability(new_only, "new_only, P(only the new arm resolves),")
    p_base = admit_probability(baseline_only, "baseline_only, P(only the baseline resolves),")
    if p_new + p_base > 1:
        raise ValueError(
            "new_only and baseline_only are probabilities of exclusive outcomes and must sum to "
            f"at most 1, but {new_only} + {baseline_only} is more"
        )
    level = admit_level(alpha, "alpha")
    share = admit_probability(solvable_share, "solvable_share")

    weights = (p_new * share, p_base * share)
    by_new, by_baseline, tables = _rejecting_weight(n, *weights, level)
    midp_new, midp_baseline, _ = _rejecting_weight(n, *weights, level, midp=True)
    return McNemarPower(
        tasks=n,
        new_only=float(p_new),
        baseline_only=float(p_base),
        solvable_share=float(share),
        alpha=float(level),
        # Quotients of two ints are rounded once, however long the ints are.
        power=(by_new + by_baseline) / tables,
        power_direction_new=by_new / tables,
        power_midp=(midp_new + midp_baseline) / tables,
    )


def smallest_tasks(
    target: Rational,
    new_only: Rational,
    baseline_only: Rational,
    alpha: Rational = "0.05",
    solvable_share: Rational = 1,
) -> int:
    """The smallest number of tasks from which on the power is at least ``target``.

    Where every task is discordant the power is a saw-tooth in n, so that a smaller number may
    reach it and a larger one not: the last tooth below the target counts.

    Raises ValueError as ``mcnemar_power``, and where ``MAX_SEARCHED`` tasks do not reach it.
    """
    wanted = admit_level(target, "the power to reach")
    for n in range(MAX_SEARCHED, 0, -1):
        if mcnemar_power(n, new_only, baseline_only, alpha, solvable_share).power < wanted:
            if n == MAX_SEARCHED:
                raise ValueError(
                    f"{MAX_SEARCHED} tasks do not reach a power of {target}: with such shares the "
                    "arms differ too little, or too few tasks can be solved"
                )
            return n + 1
    return 1


def _rejecting_weight(
    n: int, p_new: Fraction, p_base: Fraction, alpha: Fraction, *, midp: bool = False
) -> tuple[int, int, int]:
    """Weight of the tables rejected with b > c, of those with b < c, and of all tables."""
    scale = math.lcm(p_new.denominator, p_base.denominator)
    new, base = int(p_new * scale), int(p_base * scale)
    concordant = scale - new - base

    # State at m discordant pairs with critical value K (-1: no table of this m rejects), and
    # N(m,k) = n!/(k! (m-k)! (n-m)!):
    #   count    sum_{k<=K} C(m,k)                        last_count  its term k = K
    #   by_new   sum_{k<=K} N(m,k) base^k new^(m-k)       last_new    its term k = K
    #   by_base  sum_{k<=K} N(m,k) new^k base^(m-k)       last_base   its term k = K
    # The two tails of p <= alpha < 1 never meet: K < m/2.
    critical = -1
    count = last_count = by_new = last_new = by_base = last_base = 0
    choose_m = 1  # C(n, m)
    sum_new = sum_base = 0
    for m in range(n + 1):
        if m > 0:
            # A binomial of m draws is at most K if that of m - 1 draws is, unless that one is
            # K and the last draw adds one.
            left = n - m + 1
            choose_m = choose_m * left // m
            count = 2 * count - last_count
            by_new = ((new + base) * by_new - base * last_new) * left // m
            by_base = ((new + base) * by_base - new * last_base) * left // m
            last_count = last_count * m // (m - critical)
            last_new = last_new * new * left // (m - critical)
            last_base = last_base * base * left // (m - critical)
        while True:
            # At a fixed K the p-value never grows with m, so K only moves up.
            k = critical + 1
            next_count = last_count * (m - critical) // k if k else 1
            both_tails = 2 * (count + next_count) - (next_count if midp else 0)
            if both_tails * alpha.denominator > alpha.numerator << m:
                break
            critical = k
            count, last_count = count + next_count, next_count
            last_new = choose_m * next_count * base**k * new ** (m - k)
            last_base = choose_m * next_count * new**k * base ** (m - k)
            by_new += last_new
            by_base += last_base
        # Horner's rule in `concordant` gives table (m, k) its factor concordant^(n-m).
        sum_new = sum_new * concordant + by_new
        sum_base = sum_base * concordant + by_base
    return sum_new, sum_base, scale**n
