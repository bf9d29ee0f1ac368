import json
import math
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses import mcnemar
from projections.analyses.mcnemar import (
    McNemarTest,
    exact_p_value,
    mcnemar_test,
    mid_p_value,
)

ORACLE = json.loads((Path(__file__).parents[1] / "oracles/mcnemar.public.json").read_text())

properties = settings(deadline=None, derandomize=True, max_examples=80)
counts = st.integers(0, 150)


@pytest.mark.parametrize(
    "case", ORACLE["cases"], ids=lambda c: f"{c['new_only']}-{c['baseline_only']}"
)
def test_oracle(case):
    result = mcnemar_test(case["new_only"], case["baseline_only"])
    assert result.p_exact_fraction == case["p_exact_fraction"]
    assert result.p_exact == case["p_exact"]
    assert result.p_mid == case["p_mid"]
    assert result.p_exact == pytest.approx(case["p_R_binom_test"], rel=1e-12, abs=0)
    assert result.discordant == case["new_only"] + case["baseline_only"]
    assert result.rejected == (case["p_exact"] <= 0.05)


def p_by_definition(b: int, c: int) -> Fraction:
    """Total probability of the splits of m that are at most as likely as the observed one."""
    m = b + c
    likely = math.comb(m, b)
    return Fraction(sum(math.comb(m, k) for k in range(m + 1) if math.comb(m, k) <= likely), 2**m)


@properties
@given(counts, counts)
def test_p_is_the_probability_of_splits_at_most_as_likely(b, c):
    assert exact_p_value(b, c) == p_by_definition(b, c)


@properties
@given(counts, counts)
def test_p_does_not_depend_on_which_arm_is_called_new(b, c):
    assert exact_p_value(b, c) == exact_p_value(c, b)
    assert mid_p_value(b, c) == mid_p_value(c, b)


@properties
@given(counts, counts)
def test_mid_p_leaves_out_half_of_the_observed_probability_in_each_tail(b, c):
    observed = Fraction(math.comb(b + c, b), 2 ** (b + c))
    expected = 1 if b == c else exact_p_value(b, c) - observed
    assert mid_p_value(b, c) == expected


@properties
@given(st.integers(1, 150), counts)
def test_p_falls_as_the_split_moves_away_from_the_middle(m, start):
    smaller = start % (m // 2 + 1)
    ladder = [exact_p_value(k, m - k) for k in range(smaller, m // 2 + 1)]
    assert ladder == sorted(ladder)


@properties
@given(counts, counts, st.fractions(Fraction(1, 1000), Fraction(999, 1000)))
def test_the_decision_is_that_of_the_exact_p(b, c, alpha):
    assert mcnemar_test(b, c, alpha).rejected == (p_by_definition(b, c) <= alpha)


def test_a_p_equal_to_alpha_rejects_and_a_hair_less_alpha_does_not():
    assert mcnemar_test(5, 0, "1/16").rejected
    assert mcnemar_test(5, 0, 0.0625).rejected
    # The float of this alpha is 0.0625 exactly; the decimal is not.
    assert not mcnemar_test(5, 0, "0.06249999999999999999999999999").rejected


def test_no_discordant_pair_has_p_1():
    result = mcnemar_test(0, 0)
    assert (result.p_exact, result.p_exact_fraction, result.p_mid) == (1.0, "1", 1.0)
    assert not result.rejected


@pytest.mark.parametrize(("b", "c"), [(500, 501), (480, 620), (1_040, 960), (50_600, 49_400)])
def test_large_counts_agree_with_logarithms_of_factorials(b, c):
    m, smaller = b + c, min(b, c)
    logs = (
        math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1) - m * math.log(2)
        for k in range(smaller + 1)
    )
    expected = min(1.0, 2 * math.fsum(math.exp(log) for log in logs))
    assert mcnemar_test(b, c).p_exact == pytest.approx(expected, rel=1e-8)


def test_a_fraction_of_hundreds_of_digits_is_left_out():
    assert mcnemar_test(500, 500).p_exact_fraction == "1"
    assert mcnemar_test(400, 600).p_exact_fraction is not None
    assert mcnemar_test(401, 600).p_exact_fraction is None


def test_a_p_below_every_float_prints_zero_and_still_rejects():
    result = mcnemar_test(100_000, 0)
    assert result.p_exact == 0.0
    assert result.rejected
    assert exact_p_value(100_000, 0) == Fraction(1, 2**99_999)


@pytest.mark.parametrize(
    ("b", "c", "message"),
    [
        (-1, 3, "new_only .* at least 0, not -1"),
        (3, -1, "baseline_only .* at least 0, not -1"),
        (2.0, 1, "new_only .* whole number"),
        (True, 1, "new_only .* whole number"),
        (mcnemar.MAX_DISCORDANT, 1, "at most 1,000,000 discordant pairs, not 1,000,001"),
    ],
)
def test_refusals(b, c, message):
    with pytest.raises(ValueError, match=message):
        mcnemar_test(b, c)


@pytest.mark.parametrize("alpha", ["0", "1", "-0.05", 5, float("nan")])
def test_refused_alpha(alpha):
    with pytest.raises(ValueError, match="alpha must"):
        mcnemar_test(3, 1, alpha)


def test_the_result_survives_the_codec():
    result = mcnemar_test(15, 3)
    encoded = msgspec.json.encode(result)
    assert msgspec.json.decode(encoded, type=McNemarTest) == result
