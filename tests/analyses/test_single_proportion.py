import json
from fractions import Fraction
from math import comb
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.single_proportion import (
    clopper_pearson_interval,
    two_sided_z,
    wilson_interval,
)

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles/single_proportion.public.json").read_text()
)

properties = settings(deadline=None, derandomize=True, max_examples=60)
counts = st.integers(1, 120).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda c: f"{c['x']}-of-{c['n']}")
def test_oracle(case):
    for name, interval in (
        ("wilson", wilson_interval),
        ("clopper_pearson", clopper_pearson_interval),
    ):
        assert interval(case["x"], case["n"]) == pytest.approx(
            tuple(case[name]), rel=0, abs=ORACLE["tolerance"]
        )


def lower_tail(x: int, n: int, p: Fraction) -> Fraction:
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(x + 1))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(counts, st.sampled_from(["0.95", "0.999", "0.1"]))
def test_clopper_pearson_endpoints_leave_half_of_alpha_in_each_exact_tail(count, confidence):
    x, n = count
    tail = (1 - float(confidence)) / 2
    lower, upper = clopper_pearson_interval(x, n, confidence)
    if x > 0:
        above = 1 - lower_tail(x - 1, n, Fraction(lower))
        assert float(above) == pytest.approx(tail, rel=1e-9)
    if x < n:
        below = lower_tail(x, n, Fraction(upper))
        assert float(below) == pytest.approx(tail, rel=1e-9)


@properties
@given(counts)
def test_wilson_endpoints_solve_the_score_equation(count):
    x, n = count
    z = two_sided_z(Fraction(19, 20))
    for p in wilson_interval(x, n):
        assert (x - n * p) ** 2 == pytest.approx(z * z * n * p * (1 - p), rel=1e-9, abs=1e-9)


@properties
@given(counts)
def test_failures_mirror_successes(count):
    x, n = count
    for interval in (wilson_interval, clopper_pearson_interval):
        lower, upper = interval(x, n)
        assert interval(n - x, n) == pytest.approx((1 - upper, 1 - lower), abs=1e-12)
        assert 0 <= lower <= x / n <= upper <= 1


def test_zero_failures_in_n_trials_have_the_closed_form():
    for n in (1, 10, 60, 5_000):
        assert clopper_pearson_interval(0, n) == pytest.approx((0, 1 - 0.025 ** (1 / n)), rel=1e-9)


@pytest.mark.parametrize("confidence", ["0.002", "0.95", "0.999"])
def test_edges_are_exact_and_not_an_ulp_away(confidence):
    for n in (1, 7, 60):
        for interval in (wilson_interval, clopper_pearson_interval):
            assert interval(0, n, confidence)[0] == 0.0
            assert interval(n, n, confidence)[1] == 1.0


def test_a_million_trials_do_not_underflow():
    lower, upper = clopper_pearson_interval(500_000, 1_000_000)
    wilson_lower, wilson_upper = wilson_interval(500_000, 1_000_000)
    assert lower == pytest.approx(wilson_lower, abs=2e-6)
    assert upper == pytest.approx(wilson_upper, abs=2e-6)


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (0, 0, "0/0 is not estimable"),
        (3, 2, "successes must be at most trials, but 3 > 2"),
        (-1, 2, "successes must be a whole number"),
        (1, -2, "trials must be a whole number"),
        (1.5, 2, "successes must be a whole number"),
    ],
)
def test_refusals(x, n, message):
    for interval in (wilson_interval, clopper_pearson_interval):
        with pytest.raises(ValueError, match=message):
            interval(x, n)
    with pytest.raises(ValueError, match="confidence must lie strictly"):
        wilson_interval(1, 2, 0)
