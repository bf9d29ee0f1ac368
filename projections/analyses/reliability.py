"""Does a cell that is run again at another seed end alike?

Successes per cell, unanimous cells, pairwise agreement, variance within cells and the one-way
intraclass correlation ICC(1,1) = (MSB - MSW)/(MSB + (k - 1) MSW) of Shrout & Fleiss (1979, Psychol.
Bull. 86:420-428), not clipped: a negative one says that seeds differ more within cells than cells
do. At temperature 0 a seed cannot act, so this measures how repeatable the run time is.
"""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from projections.analyses.admissible_values import Rational, admit_level
from projections.analyses.named_stream import draw_index_rows, index_bytes


class ReliabilityMeasures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of n complete cells at k seeds.

    successes: cells with 0, 1 .. k successes. unanimous: cells whose seeds agree.
    agreement: share of agreeing pairs of seeds. within_variance: mean over cells of the variance
    with divisor k - 1. icc: None where nothing varies. icc_lower, icc_upper: percentile interval
    over resampled cells, None where no resample has an estimate; undefined: resamples without one.
    """

    cells: int
    seeds: int
    successes: tuple[int, ...]
    unanimous: int
    agreement: float
    mean: float
    within_variance: float
    icc: float | None
    confidence: float
    icc_lower: float | None
    icc_upper: float | None
    replicates: int
    undefined: int
    stream: str
    index_sha256: str


def measure_reliability(
    outcomes: Sequence[Sequence[int]],
    *,
    stream: str,
    replicates: int = 10_000,
    confidence: Rational = "0.95",
) -> ReliabilityMeasures:
    """Measures over cells without a missing seed.

    outcomes: one row a cell, in the order of the cells' names: 0 or 1 for each of k >= 2 seeds.

    Raises ValueError for fewer than two cells or seeds, rows of unequal length, an outcome other
    than 0 and 1, or confidence outside (0, 1).
    """
    level = admit_level(confidence, "confidence")
    n, k = len(outcomes), len(outcomes[0]) if outcomes else 0
    if n < 2 or k < 2:
        raise ValueError("reliability needs at least two cells at two seeds")
    if any(len(row) != k or not set(row) <= {0, 1} for row in outcomes):
        raise ValueError(f"every cell needs {k} outcomes, each 0 or 1")
    totals = [sum(row) for row in outcomes]
    agreeing = sum(a == b for row in outcomes for a, b in combinations(row, 2))
    pairs = n * k * (k - 1) // 2
    counts = np.array(totals, dtype=np.int64)
    digest = hashlib.sha256()
    correlations = []
    for rows in draw_index_rows(stream, replicates, [n]):
        digest.update(index_bytes(rows))
        correlations.append(_icc(counts[rows], k))
    resampled = np.concatenate(correlations)
    defined = np.sort(resampled[~np.isnan(resampled)])
    lower, upper = (
        (_order_statistic(defined, tail) if len(defined) else None)
        for tail in ((1 - level) / 2, (1 + level) / 2)
    )
    icc = float(_icc(counts[np.newaxis, :], k)[0])
    return ReliabilityMeasures(
        cells=n,
        seeds=k,
        successes=tuple(totals.count(s) for s in range(k + 1)),
        unanimous=totals.count(0) + totals.count(k),
        agreement=agreeing / pairs,
        mean=sum(totals) / (n * k),
        within_variance=sum(s * (k - s) for s in totals) / (n * k * (k - 1)),
        icc=None if np.isnan(icc) else icc,
        confidence=float(level),
        icc_lower=lower,
        icc_upper=upper,
        replicates=replicates,
        undefined=len(resampled) - len(defined),
        stream=stream,
        index_sha256=digest.hexdigest(),
    )


def _icc(totals: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """ICC(1,1) of each row of successes (rows, n); NaN without variation. Sums are integers."""
    n = totals.shape[1]
    total, squares = totals.sum(axis=1), (totals**2).sum(axis=1)
    between = (n * squares - total**2) / (n * k * (n - 1))
    within = (k * total - squares) / (k * n * (k - 1))
    denominator = between + (k - 1) * within
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, (between - within) / denominator, np.nan)


def _order_statistic(ordered: NDArray[np.float64], probability: Fraction) -> float:
    """Smallest value v with F(v) >= probability."""
    rank = -(-probability.numerator * len(ordered) // probability.denominator)
    return float(ordered[max(rank, 1) - 1])
