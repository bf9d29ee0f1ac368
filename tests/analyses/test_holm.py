import json
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.holm import HolmAdjustment, holm_adjust

ORACLE = json.loads((Path(__file__).parents[1] / "oracles/holm.public.json").read_text())

properties = settings(deadline=None, derandomize=True, max_examples=100)
p_value = st.floats(0, 1)
families = st.lists(st.none() | p_value, max_size=12)


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda c: c["name"])
def test_oracle(case):
    result = holm_adjust(case["p"], case["family_size"])
    assert result.adjusted == pytest.approx(tuple(case["adjusted"]), rel=0, abs=ORACLE["tolerance"])
    assert result.family_size == case["family_size"]


@properties
@given(st.lists(p_value, min_size=1, max_size=12), st.integers(0, 3), st.sampled_from([0.05, 0.2]))
def test_rejections_are_those_of_the_step_down_procedure(p_values, undeclared, alpha):
    size = len(p_values) + undeclared
    result = holm_adjust(p_values, size, alpha)
    stepped_down = [False] * len(p_values)
    level = Fraction(str(alpha))
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if Fraction(p_values[place]) > level / (size - rank):
            break
        stepped_down[place] = True
    assert list(result.rejected) == stepped_down


@properties
@given(families, st.integers(1, 5))
def test_an_unavailable_p_counts_as_one_and_prints_null(p_values, more):
    size = len(p_values) + more
    as_one = holm_adjust([1.0 if p is None else p for p in p_values] + [1.0] * more, size)
    result = holm_adjust(p_values, size)
    for p, adjusted, when_one in zip(p_values, result.adjusted, as_one.adjusted, strict=False):
        assert adjusted == (None if p is None else when_one)
    assert not any(
        rejected for p, rejected in zip(p_values, result.rejected, strict=True) if p is None
    )


@properties
@given(st.lists(p_value, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_members_decides_nothing(p_values, random):
    order = random.sample(range(len(p_values)), len(p_values))
    straight = holm_adjust(p_values, 12).adjusted
    shuffled = holm_adjust([p_values[i] for i in order], 12).adjusted
    assert shuffled == tuple(straight[i] for i in order)


@properties
@given(st.lists(p_value, min_size=1, max_size=12))
def test_adjusted_values_are_no_smaller_capped_and_in_the_order_of_p(p_values):
    adjusted = holm_adjust(p_values, len(p_values)).adjusted
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    by_p = [a for _, a in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


def test_a_hair_above_the_boundary_is_not_rejected_where_floats_cannot_tell():
    boundary = Fraction(1, 220)
    hair = boundary + Fraction(1, 10**30)
    assert float(hair) == float(boundary)
    assert holm_adjust([boundary], 11, "0.05").rejected == (True,)
    assert holm_adjust([hair], 11, "0.05").rejected == (False,)


def test_a_family_of_unavailable_values_is_all_null():
    assert holm_adjust([None, None], 2).adjusted == (None, None)
    assert holm_adjust([], 3).adjusted == ()


@pytest.mark.parametrize(
    ("p_values", "size", "message"),
    [
        ([0.1, 0.2], 1, "2 p-values for a family declared with 1 members"),
        ([], 0, "family_size must be a whole number of at least 1"),
        ([1.1], 1, "a p-value must lie between 0 and 1"),
        ([-0.1], 1, "a p-value must lie between 0 and 1"),
        ([float("nan")], 1, "a p-value must lie between 0 and 1"),
    ],
)
def test_refusals(p_values, size, message):
    with pytest.raises(ValueError, match=message):
        holm_adjust(p_values, size)


def test_the_result_survives_the_codec():
    result = holm_adjust([0.01, None], 11)
    assert msgspec.json.decode(msgspec.json.encode(result), type=HolmAdjustment) == result
