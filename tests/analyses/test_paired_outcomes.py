import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.paired_outcomes import (
    PairedOutcome,
    PairedTable,
    in_task_order,
    pair_by_task,
    tabulate,
)

properties = settings(deadline=None, derandomize=True, max_examples=60)
outcome = st.sampled_from([True, False, None])
cells = st.dictionaries(st.sampled_from("abcdefghij"), st.tuples(outcome, outcome))


def pairs_of(cells):
    return [
        PairedOutcome(task=task, stratum="R1", new=new, baseline=baseline)
        for task, (new, baseline) in cells.items()
    ]


@properties
@given(cells, st.randoms(use_true_random=False))
def test_the_table_does_not_depend_on_the_order_of_rows(cells, random):
    pairs = pairs_of(cells)
    shuffled = random.sample(pairs, len(pairs))
    assert tabulate(shuffled) == tabulate(pairs)
    assert in_task_order(shuffled) == in_task_order(pairs)


@properties
@given(cells)
def test_every_complete_pair_is_counted_once(cells):
    table = tabulate(pairs_of(cells))
    assert table.pairs == sum(None not in members for members in cells.values())
    assert table.new_only == sum(members == (True, False) for members in cells.values())
    assert table.baseline_only == sum(members == (False, True) for members in cells.values())
    assert table.both == sum(members == (True, True) for members in cells.values())


def test_pairing_covers_every_planned_task():
    pairs = pair_by_task(
        {"t2": True, "t1": None}, {"t1": False, "t2": False}, {"t3": "R2", "t2": "R1", "t1": "R1"}
    )
    assert pairs == (
        PairedOutcome(task="t1", stratum="R1", new=None, baseline=False),
        PairedOutcome(task="t2", stratum="R1", new=True, baseline=False),
        PairedOutcome(task="t3", stratum="R2", new=None, baseline=None),
    )
    assert tabulate(pairs) == PairedTable(both=0, new_only=1, baseline_only=0, neither=0)


def test_an_outcome_of_an_unplanned_task_is_refused():
    with pytest.raises(ValueError, match="not planned: t8, t9"):
        pair_by_task({"t9": True}, {"t8": True}, {"t1": "R1"})


def test_a_task_that_occurs_twice_is_refused():
    twice = [PairedOutcome(task="t1", stratum=s, new=True, baseline=True) for s in ("R1", "R2")]
    with pytest.raises(ValueError, match="'t1' occurs twice"):
        tabulate(twice)


def test_a_missing_member_has_no_difference():
    pair = PairedOutcome(task="t1", stratum="R1", new=True, baseline=None)
    with pytest.raises(ValueError, match="'t1' has a missing member"):
        _ = pair.difference


def test_an_empty_table_has_no_risk_difference():
    with pytest.raises(ValueError, match="not estimable"):
        _ = tabulate([]).risk_difference


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="neither must be a whole number"):
        PairedTable(both=1, new_only=0, baseline_only=0, neither=-1)
