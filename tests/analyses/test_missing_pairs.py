from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.missing_pairs import MissingPairsBounds, missing_pairs_bounds
from projections.analyses.paired_outcomes import PairedOutcome, PairedTable, tabulate

properties = settings(deadline=None, derandomize=True, max_examples=60)
outcome = st.sampled_from([True, False, None])
rows = st.lists(st.tuples(outcome, outcome), min_size=1, max_size=20)


def named(rows):
    return [
        PairedOutcome(task=f"T{i:02}", stratum="R1", new=new, baseline=baseline)
        for i, (new, baseline) in enumerate(rows)
    ]


def test_each_kind_of_missing_pair():
    result = missing_pairs_bounds(
        named(
            [(True, False), (None, True), (None, False), (True, None), (False, None), (None, None)]
        )
    )
    assert (result.planned, result.used) == (6, 1)
    assert result.dropped == ("T01", "T02", "T03", "T04", "T05")
    assert result.observed.table == PairedTable(both=0, new_only=1, baseline_only=0, neither=0)
    # For: (1,1) (1,0) (1,0) (0,0) (1,0); against: (0,1) (0,0) (1,1) (0,1) (0,1).
    assert result.all_for.table == PairedTable(both=1, new_only=4, baseline_only=0, neither=1)
    assert result.all_against.table == PairedTable(both=1, new_only=1, baseline_only=3, neither=1)
    assert result.all_for.risk_difference == 4 / 6
    assert result.all_against.risk_difference == -2 / 6
    assert result.all_for.p_exact == 0.125
    assert result.all_against.p_exact == 0.625


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.tuples(outcome, outcome), min_size=1, max_size=4))
def test_the_bounds_are_the_extremes_over_all_completions(rows):
    result = missing_pairs_bounds(named(rows))
    options = [(True, False) if member is None else (member,) for pair in rows for member in pair]
    completions = [
        tabulate(named(zip(members[::2], members[1::2], strict=True))).risk_difference
        for members in product(*options)
    ]
    assert result.all_for.risk_difference == max(completions)
    assert result.all_against.risk_difference == min(completions)


@properties
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_decides_nothing(rows, random):
    pairs = named(rows)
    assert missing_pairs_bounds(random.sample(pairs, len(pairs))) == missing_pairs_bounds(pairs)


@properties
@given(rows)
def test_used_and_dropped_make_up_the_plan(rows):
    result = missing_pairs_bounds(named(rows))
    assert result.used + len(result.dropped) == result.planned == len(rows)
    assert (result.observed is None) == (result.used == 0)
    assert msgspec.json.decode(msgspec.json.encode(result), type=MissingPairsBounds) == result


@properties
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_without_missing_cells_both_bounds_are_the_observation(rows):
    result = missing_pairs_bounds(named(rows))
    assert result.all_for == result.all_against == result.observed
    assert result.dropped == ()


def test_no_planned_pair_is_refused():
    with pytest.raises(ValueError, match="no planned pair"):
        missing_pairs_bounds([])
