#!/usr/bin/env python3
"""Exact power of the two-sided exact McNemar test, in plain Python without any other program.

    python3 scripts/power_study2.py --tasks 60 --new-only 0.25 --baseline-only 0.05 --alpha 0.05

sums the trinomial probabilities of the tables (new only, baseline only, concordant) that the test
rejects. `ledger power` computes the same in another way.
"""

import argparse
from fractions import Fraction
from math import comb


def power(tasks: int, new_only: Fraction, baseline_only: Fraction, alpha: Fraction) -> Fraction:
    """Probability that p = min(1, 2 sum of C(m, k) / 2^m over k <= min(b, c)) is at most alpha."""
    concordant = 1 - new_only - baseline_only
    total = Fraction(0)
    for discordant in range(1, tasks + 1):
        tail = 0
        for fewer in range(discordant // 2 + 1):
            tail += comb(discordant, fewer)
            if min(Fraction(1), Fraction(2 * tail, 2**discordant)) > alpha:
                break
            more = discordant - fewer
            ways = comb(tasks, discordant) * comb(discordant, fewer)
            by_new = new_only**more * baseline_only**fewer
            by_baseline = new_only**fewer * baseline_only**more if more != fewer else 0
            total += ways * (by_new + by_baseline) * concordant ** (tasks - discordant)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, required=True)
    for name in ("--new-only", "--baseline-only", "--alpha"):
        parser.add_argument(name, type=Fraction, required=True)
    given = parser.parse_args()
    shares = (given.new_only, given.baseline_only)
    if not 1 <= given.tasks <= 500 or min(shares) < 0 or sum(shares) > 1:
        parser.error("1 to 500 tasks; shares of at least 0 with a sum of at most 1")
    print(f"{float(power(given.tasks, *shares, given.alpha)):.6f}")


if __name__ == "__main__":
    main()
