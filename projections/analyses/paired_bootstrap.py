"""How far does the paired risk difference move when the tasks are resampled?

Percentile bootstrap with the task as cluster: n pairs are drawn with replacement from n, or
within each repository for the stratified form, and the statistic of a replicate is the integer
sum s of (new - baseline). With F the distribution of s, an interval of level 1 - a is

    [ smallest s with F(s) >= a/2 ,  smallest s with F(s) >= 1 - a/2 ] / n

so the endpoints are order statistics, compared in integers and divided last.

Beside the B replicates stands their limit: given the data, s is a sum of independent draws from
{+1, 0, -1}, so its law is trinomial (a convolution of trinomials over strata) and the interval
for B = infinity is exact. Efron & Tibshirani (1993), An Introduction to the Bootstrap, ch. 13.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby

import msgspec
import numpy as np

from projections.analyses.admissible_values import Rational, admit_count, admit_level
from projections.analyses.named_stream import draw_index_rows, index_bytes
from projections.analyses.paired_outcomes import PairedOutcome, in_task_order

DEGENERATE_NOTE = "no sampling variation in the data; see the score interval"


class BootstrapInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Percentile interval of one paired risk difference.

    pairs: complete pairs n, in tasks; pairs with a missing member are dropped.
    new_only, baseline_only: discordant pairs among them.
    risk_difference: (new_only - baseline_only)/n, in [-1, 1]; so are all endpoints.
    confidence: level of both intervals, nearest float.
    lower, upper: endpoints from `replicates` bootstrap replicates.
    exact_lower, exact_upper: endpoints for infinitely many replicates.
    stratum_sizes: pairs per repository in order of its name, or (n,) if unstratified.
    stream, replicates, index_sha256: name of the index stream, number of replicates, and
        SHA-256 of the index matrix (replicates x n, int64 little-endian, row-major).
    degenerate: every resample gives the same difference; the endpoints then say nothing about
        uncertainty and `note` says so. None where there is nothing to note.
    """

    pairs: int
    new_only: int
    baseline_only: int
    risk_difference: float
    confidence: float
    lower: float
    upper: float
    exact_lower: float
    exact_upper: float
    stratum_sizes: tuple[int, ...]
    stream: str
    replicates: int
    index_sha256: str
    degenerate: bool
    note: str | None


def bootstrap_contrasts(
    contrasts: Mapping[str, Iterable[PairedOutcome]],
    *,
    stream: str,
    replicates: int = 10_000,
    confidence: Rational = "0.95",
    stratified: bool = False,
) -> dict[str, BootstrapInterval]:
    """Intervals of several contrasts from one index matrix, in the order of `contrasts`.

    contrasts: name -> pairs, one a task, in any order. Positions follow the task identifier,
        or the repository and then the task if `stratified`.
    stream: name of the index stream, one an analysis.

    Contrasts with the same number of pairs (per stratum) share their resamples. A contrast that
    lost pairs reads the same stream at its own n; its digest shows it.

    Raises ValueError for a contrast without a complete pair, a task that occurs twice in a
    contrast, fewer than one replicate, confidence outside (0, 1) or an empty stream name.
    """
    level = admit_level(confidence, "confidence")
    admit_count(replicates, "replicates", minimum=1)
    differences: dict[str, list[list[int]]] = {}
    by_sizes: dict[tuple[int, ...], list[str]] = {}
    for name, outcomes in contrasts.items():
        strata = _differences_by_stratum(outcomes, stratified)
        if not strata:
            raise ValueError(f"contrast {name!r} has no complete pair: not estimable")
        differences[name] = strata
        by_sizes.setdefault(tuple(len(stratum) for stratum in strata), []).append(name)

    intervals: dict[str, BootstrapInterval] = {}
    for sizes, names in by_sizes.items():
        n = sum(sizes)
        # Column j of `values` is a contrast, row i its difference on the task at position i.
        values = np.array([sum(differences[name], []) for name in names], dtype=np.int64).T
        histogram = np.zeros((len(names), 2 * n + 1), dtype=np.int64)
        digest = hashlib.sha256()
        for rows in draw_index_rows(stream, replicates, sizes):
            digest.update(index_bytes(rows))
            for j in range(len(names)):
                sums = values[:, j][rows].sum(axis=1)
                histogram[j] += np.bincount(sums + n, minlength=2 * n + 1)

        for j, name in enumerate(names):
            strata = differences[name]
            flat = sum(strata, [])
            b, c = flat.count(1), flat.count(-1)
            exact_law = exact_bootstrap_law(
                [(s.count(1), s.count(-1), len(s)) for s in strata],
            )
            lower, upper = percentile_endpoints(histogram[j].tolist(), level)
            exact_lower, exact_upper = percentile_endpoints(exact_law, level)
            degenerate = all(len(set(stratum)) == 1 for stratum in strata)
            intervals[name] = BootstrapInterval(
                pairs=n,
                new_only=b,
                baseline_only=c,
                risk_difference=(b - c) / n,
                confidence=float(level),
                lower=lower / n,
                upper=upper / n,
                exact_lower=exact_lower / n,
                exact_upper=exact_upper / n,
                stratum_sizes=sizes,
                stream=stream,
                replicates=int(replicates),
                index_sha256=digest.hexdigest(),
                degenerate=degenerate,
                note=DEGENERATE_NOTE if degenerate else None,
            )
    return {name: intervals[name] for name in differences}


def exact_bootstrap_law(strata: Sequence[tuple[int, int, int]]) -> list[int]:
    """Number of equally likely resamples for each sum s = -n .. n, as exact integers.

    strata: (new only, baseline only, pairs) of each stratum; n is the total of the pairs and
        the returned list has length 2n + 1. One stratum is the plain bootstrap.

    Raises ValueError for no stratum, an empty one, or discordant counts that exceed its pairs.
    """
    if not strata:
        raise ValueError("the bootstrap law needs at least one stratum")
    law = [1]
    for new_only, baseline_only, pairs in strata:
        b = admit_count(new_only, "new_only")
        c = admit_count(baseline_only, "baseline_only")
        n = admit_count(pairs, "pairs of a stratum", minimum=1)
        if b + c > n:
            raise ValueError(f"{b} + {c} discordant pairs cannot be among {n} pairs")
        power = _trinomial_power(c, n - b - c, b, n)
        product = [0] * (len(law) + len(power) - 1)
        for i, left in enumerate(law):
            for j, right in enumerate(power):
                product[i + j] += left * right
        law = product
    return law


def percentile_endpoints(law: Sequence[int], confidence: Fraction) -> tuple[int, int]:
    """Smallest sums s with F(s) >= a/2 and with F(s) >= 1 - a/2, where a = 1 - confidence.

    law: weights (counts of replicates or of resamples) of s = -n .. n, length 2n + 1.

    Raises ValueError when the weights sum to 0 or have no middle.
    """
    total = sum(law)
    if total <= 0 or len(law) % 2 == 0:
        raise ValueError("a law needs weights for -n .. n with a positive sum")
    lower_tail = (1 - confidence) / 2
    endpoints = []
    for probability in (lower_tail, 1 - lower_tail):
        cumulated = 0
        for position, weight in enumerate(law):
            cumulated += weight
            if cumulated * probability.denominator >= probability.numerator * total:
                endpoints.append(position - len(law) // 2)
                break
    return endpoints[0], endpoints[1]


def _differences_by_stratum(outcomes: Iterable[PairedOutcome], stratified: bool) -> list[list[int]]:
    complete = [outcome for outcome in in_task_order(outcomes) if outcome.complete]
    if not stratified:
        return [[outcome.difference for outcome in complete]] if complete else []
    complete.sort(key=lambda outcome: outcome.stratum)  # stable: tasks stay in order
    return [
        [outcome.difference for outcome in group]
        for _, group in groupby(complete, key=lambda outcome: outcome.stratum)
    ]


def _trinomial_power(low: int, middle: int, high: int, n: int) -> list[int]:
    """Coefficients of (low + middle x + high x^2)^n, lowest power first, length 2n + 1."""
    if low == 0:
        # A factor x out of every bracket leaves a binomial.
        binomial = _trinomial_power(middle, high, 0, n) if middle else [0] * n + [high**n]
        return [0] * n + binomial[: n + 1]
    # J. C. P. Miller's recurrence (Knuth, TAOCP 2, 4.7): two products a coefficient.
    coefficients = [low**n]
    for k in range(1, 2 * n + 1):
        value = (n - k + 1) * middle * coefficients[k - 1]
        if k >= 2:
            value += (2 * n - k + 2) * high * coefficients[k - 2]
        coefficients.append(value // (k * low))
    return coefficients
