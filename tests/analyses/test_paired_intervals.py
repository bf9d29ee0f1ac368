import json
import math
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.paired_intervals import (
    PairedIntervals,
    bonett_price_interval,
    paired_intervals,
    tango_interval,
    wald_interval,
)
from projections.analyses.paired_outcomes import PairedTable
from projections.analyses.single_proportion import two_sided_z

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles/paired_intervals.public.json").read_text()
)

properties = settings(deadline=None, derandomize=True, max_examples=100)
count = st.integers(0, 40)
tables = st.builds(
    PairedTable, both=count, new_only=count, baseline_only=count, neither=count
).filter(lambda table: table.pairs > 0)


@pytest.mark.parametrize(
    "case",
    ORACLE["cases"],
    ids=lambda c: f"{c['both']}-{c['new_only']}-{c['baseline_only']}-{c['neither']}",
)
def test_oracle(case):
    table = PairedTable(
        both=case["both"],
        new_only=case["new_only"],
        baseline_only=case["baseline_only"],
        neither=case["neither"],
    )
    result = paired_intervals(table)
    assert result.risk_difference == case["rd"]
    compared = [m for m in ("tango", "newcombe10", "wald", "bonett_price") if m in case]
    assert {"tango", "newcombe10"} <= set(compared)
    for method in compared:
        assert getattr(result, method) == pytest.approx(
            tuple(case[method]), rel=0, abs=ORACLE["tolerance"]
        )
    if "tango_R_numeric" in case:
        assert result.tango == pytest.approx(tuple(case["tango_R_numeric"]), rel=0, abs=1e-8)


@properties
@given(tables)
def test_intervals_lie_on_the_scale_and_cover_the_estimate(table):
    result = paired_intervals(table)
    for interval in (result.tango, result.newcombe10, result.wald):
        if interval is not None:
            assert -1 <= interval[0] <= result.risk_difference <= interval[1] <= 1
    # Bonett and Price centre on a shrunken estimate, not on the observed one.
    assert -1 <= result.bonett_price[0] < result.bonett_price[1] <= 1
    assert result.tango[0] < result.tango[1]
    assert msgspec.json.decode(msgspec.json.encode(result), type=PairedIntervals) == result


@properties
@given(tables)
def test_exchanging_the_arms_mirrors_every_interval(table):
    mirrored = PairedTable(
        both=table.both,
        new_only=table.baseline_only,
        baseline_only=table.new_only,
        neither=table.neither,
    )
    one, other = paired_intervals(table), paired_intervals(mirrored)
    for method in ("tango", "newcombe10", "bonett_price"):
        lower, upper = getattr(one, method)
        assert getattr(other, method) == pytest.approx((-upper, -lower), abs=1e-9)


@properties
@given(tables)
def test_the_score_at_a_tango_endpoint_is_the_normal_quantile(table):
    n, b, c = table.pairs, table.new_only, table.baseline_only
    z = two_sided_z(Fraction(19, 20))
    for d in tango_interval(table):
        if abs(d) > 1 - 1e-9:
            continue
        # P(baseline only) that maximises the likelihood given P(new only) = it + d: a grid of
        # the log-likelihood, refined, and not the closed form.
        low, high = max(0.0, -d), (1 - d) / 2

        def log_likelihood(q: float, d: float = d) -> float:
            parts = ((b, q + d), (c, q), (n - b - c, 1 - 2 * q - d))
            return sum(k * math.log(max(p, 1e-300)) for k, p in parts if k)

        for _ in range(200):
            left, right = (2 * low + high) / 3, (low + 2 * high) / 3
            if log_likelihood(left) < log_likelihood(right):
                low = left
            else:
                high = right
        variance = n * (low + high + d * (1 - d))
        assert abs(b - c - n * d) / math.sqrt(variance) == pytest.approx(z, abs=1e-4)


def test_no_discordant_pair_leaves_tango_a_width_and_wald_none():
    table = PairedTable(both=30, new_only=0, baseline_only=0, neither=30)
    z = two_sided_z(Fraction(19, 20))
    bound = z * z / (60 + z * z)
    assert tango_interval(table) == pytest.approx((-bound, bound), abs=1e-12)
    assert wald_interval(table) is None


def test_an_arm_that_wins_every_pair_has_upper_endpoint_1():
    table = PairedTable(both=0, new_only=12, baseline_only=0, neither=0)
    lower, upper = tango_interval(table)
    assert upper == 1.0
    assert 0 < lower < 1
    assert wald_interval(table) is None


@properties
@given(tables)
def test_more_confidence_is_a_wider_interval(table):
    narrow, wide = tango_interval(table, "0.9"), tango_interval(table, "0.99")
    assert wide[0] <= narrow[0]
    assert narrow[1] <= wide[1]


def test_refusals():
    empty = PairedTable(both=0, new_only=0, baseline_only=0, neither=0)
    for interval in (paired_intervals, tango_interval, wald_interval, bonett_price_interval):
        with pytest.raises(ValueError, match="not estimable"):
            interval(empty)
    with pytest.raises(ValueError, match="confidence must lie strictly"):
        tango_interval(PairedTable(both=1, new_only=1, baseline_only=0, neither=0), "1.0")
