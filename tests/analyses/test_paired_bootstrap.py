import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.named_stream import draw_index_rows, index_digest
from projections.analyses.paired_bootstrap import (
    DEGENERATE_NOTE,
    BootstrapInterval,
    bootstrap_contrasts,
    exact_bootstrap_law,
    percentile_endpoints,
)
from projections.analyses.paired_outcomes import PairedOutcome

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles/bootstrap_paired.public.json").read_text()
)
LEVEL = Fraction(19, 20)

properties = settings(deadline=None, derandomize=True, max_examples=40)


def pairs_with(n: int, new_only: int, baseline_only: int) -> list[PairedOutcome]:
    members = [(True, False)] * new_only + [(False, True)] * baseline_only
    members += [(True, True)] * (n - len(members))
    return [
        PairedOutcome(task=f"T{i:02}", stratum=f"R{i % 3}", new=new, baseline=baseline)
        for i, (new, baseline) in enumerate(members)
    ]


@pytest.mark.parametrize("replicates", [10_000, 100_000])
@pytest.mark.parametrize(
    "case", ORACLE["cases"], ids=lambda c: f"{c['n']}-{c['new_only']}-{c['baseline_only']}"
)
def test_oracle(case, replicates):
    pairs = pairs_with(case["n"], case["new_only"], case["baseline_only"])
    result = bootstrap_contrasts({"c": pairs}, stream="primary", replicates=replicates)["c"]
    assert result.risk_difference == case["rd"]
    assert [result.exact_lower, result.exact_upper] == case["percentile_exact"]
    acceptable = case["acceptable_monte_carlo_endpoints"][str(replicates)]
    assert round(result.lower, 12) in acceptable["lower"]
    assert round(result.upper, 12) in acceptable["upper"]
    assert result.degenerate == case["degenerate"]
    assert result.note == (DEGENERATE_NOTE if case["degenerate"] else None)


outcomes = st.sampled_from([True, False, None])
rows = st.lists(st.tuples(st.sampled_from(["R1", "R2", "R3"]), outcomes, outcomes), max_size=15)


def named(rows, first=(("R1", True, False),)):
    """At least one complete pair, so that there is something to estimate."""
    return [
        PairedOutcome(task=f"T{i:02}", stratum=stratum, new=new, baseline=baseline)
        for i, (stratum, new, baseline) in enumerate([*first, *rows])
    ]


@properties
@given(rows, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_rows_decides_nothing(rows, stratified, random):
    pairs = named(rows)
    shuffled = random.sample(pairs, len(pairs))
    settings = {"stream": "order", "replicates": 200, "stratified": stratified}
    assert bootstrap_contrasts({"c": shuffled}, **settings) == bootstrap_contrasts(
        {"c": pairs}, **settings
    )


@properties
@given(rows, st.booleans())
def test_results_are_plain_finite_values_in_range(rows, stratified):
    (result,) = bootstrap_contrasts(
        {"c": named(rows)}, stream="s", replicates=100, stratified=stratified
    ).values()
    assert -1 <= result.lower <= result.upper <= 1
    assert -1 <= result.exact_lower <= result.risk_difference <= result.exact_upper <= 1
    assert sum(result.stratum_sizes) == result.pairs
    for value in msgspec.structs.astuple(result):
        assert type(value) in (int, float, str, bool, tuple, type(None))
        assert not isinstance(value, float) or math.isfinite(value)
    assert msgspec.json.decode(msgspec.json.encode(result), type=BootstrapInterval) == result


def law_by_enumeration(differences_by_stratum: list[list[int]]) -> list[int]:
    n = sum(len(stratum) for stratum in differences_by_stratum)
    law = [0] * (2 * n + 1)
    draws = [stratum for stratum in differences_by_stratum for _ in stratum]
    for resample in product(*draws):
        law[sum(resample) + n] += 1
    return law


stratum = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4)


@properties
@given(st.lists(stratum, min_size=1, max_size=2))
def test_the_exact_law_counts_every_resample(strata):
    counts = [(s.count(1), s.count(-1), len(s)) for s in strata]
    assert exact_bootstrap_law(counts) == law_by_enumeration(strata)


@properties
@given(st.lists(stratum, min_size=1, max_size=3))
def test_exchanging_the_arms_mirrors_the_exact_law(strata):
    law = exact_bootstrap_law([(s.count(1), s.count(-1), len(s)) for s in strata])
    mirrored = exact_bootstrap_law([(s.count(-1), s.count(1), len(s)) for s in strata])
    assert mirrored == law[::-1]


@properties
@given(st.lists(stratum, min_size=1, max_size=3))
def test_the_exact_law_has_the_mean_and_variance_of_the_data(strata):
    law = exact_bootstrap_law([(s.count(1), s.count(-1), len(s)) for s in strata])
    n = sum(len(s) for s in strata)
    total = sum(law)
    mean = Fraction(sum(w * (i - n) for i, w in enumerate(law)), total)
    second = Fraction(sum(w * (i - n) ** 2 for i, w in enumerate(law)), total)
    assert total == math.prod(len(s) ** len(s) for s in strata)
    assert mean == sum(sum(s) for s in strata)
    assert second - mean**2 == sum(
        sum(d * d for d in s) - Fraction(sum(s) ** 2, len(s)) for s in strata
    )


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        # F(-1) = 1/40 reaches 0.025 exactly; F(0) = 39/40 reaches 0.975 exactly.
        ([1, 38, 1], (-1, 0)),
        ([1, 39, 1], (0, 0)),
        ([0, 0, 1], (1, 1)),
        ([0, 40, 0, 0, 0], (-1, -1)),
    ],
)
def test_endpoints_are_the_smallest_sums_that_reach_the_probability(law, expected):
    assert percentile_endpoints(law, LEVEL) == expected


def test_contrasts_share_one_index_matrix_and_a_shorter_one_reads_its_own():
    pairs = pairs_with(12, 4, 2)
    shorter = [*pairs[:-1], msgspec.structs.replace(pairs[-1], new=None)]
    result = bootstrap_contrasts(
        {"short": shorter, "c": pairs, "same": list(reversed(pairs))}, stream="s", replicates=500
    )
    assert list(result) == ["short", "c", "same"]
    assert result["c"] == result["same"]
    assert result["c"].index_sha256 == index_digest("s", 500, [12])
    assert result["short"].index_sha256 == index_digest("s", 500, [11])
    assert (result["short"].pairs, result["c"].pairs) == (11, 12)
    alone = bootstrap_contrasts({"c": pairs}, stream="s", replicates=500)
    assert alone["c"] == result["c"]


def test_the_interval_is_that_of_the_indices_of_the_named_stream():
    pairs = pairs_with(9, 3, 1)
    result = bootstrap_contrasts({"c": pairs}, stream="by-hand", replicates=999)["c"]
    difference = [1, 1, 1, -1, 0, 0, 0, 0, 0]
    (indices,) = draw_index_rows("by-hand", 999, [9])
    sums = sorted(sum(difference[i] for i in row) for row in indices.tolist())
    # Order statistics ceil(999 * 0.025) = 25 and ceil(999 * 0.975) = 975.
    assert (result.lower, result.upper) == (sums[24] / 9, sums[974] / 9)


def test_strata_without_variation_inside_are_degenerate_together():
    pairs = [
        PairedOutcome(task=f"T{i}", stratum=f"R{i % 2}", new=i % 2 == 1, baseline=False)
        for i in range(8)
    ]
    plain = bootstrap_contrasts({"c": pairs}, stream="s", replicates=100)["c"]
    stratified = bootstrap_contrasts({"c": pairs}, stream="s", replicates=100, stratified=True)["c"]
    assert (plain.stratum_sizes, stratified.stratum_sizes) == ((8,), (4, 4))
    assert not plain.degenerate
    assert stratified.degenerate
    assert stratified.note == DEGENERATE_NOTE
    assert stratified.lower == stratified.upper == stratified.exact_lower == 0.5


def test_one_pair_is_degenerate():
    result = bootstrap_contrasts({"c": pairs_with(1, 1, 0)}, stream="s", replicates=10)["c"]
    assert result.degenerate
    assert result.risk_difference == 1.0


@pytest.mark.parametrize(
    ("pairs", "settings", "message"),
    [
        ([], {}, "contrast 'c' has no complete pair"),
        (
            [PairedOutcome(task="t", stratum="R", new=None, baseline=True)],
            {},
            "contrast 'c' has no complete pair",
        ),
        (pairs_with(2, 1, 0) * 2, {}, "occurs twice"),
        (pairs_with(2, 1, 0), {"replicates": 0}, "replicates must be"),
        (pairs_with(2, 1, 0), {"confidence": 1}, "confidence must lie strictly"),
        (pairs_with(2, 1, 0), {"stream": ""}, "a stream needs a name"),
    ],
)
def test_refusals(pairs, settings, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_contrasts({"c": pairs}, **{"stream": "s", **settings})


@pytest.mark.parametrize("strata", [[], [(0, 0, 0)], [(2, 1, 2)], [(-1, 0, 2)]])
def test_impossible_strata_are_refused(strata):
    with pytest.raises(ValueError, match="stratum|cannot be among|new_only"):
        exact_bootstrap_law(strata)


@pytest.mark.parametrize("law", [[], [0, 0, 0], [1, 1]])
def test_a_law_without_weight_or_middle_is_refused(law):
    with pytest.raises(ValueError, match="a law needs weights"):
        percentile_endpoints(law, LEVEL)
