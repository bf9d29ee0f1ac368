"""Agreement over seeds against R's psych::ICC and exact counts."""

import json
from pathlib import Path

import pytest

from projections.analyses.reliability import measure_reliability

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "reliability.public.json").read_text())


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda case: case["name"])
def test_oracle(case: dict) -> None:
    expected = case["expected"]
    measures = measure_reliability(case["ratings"], stream="reliability", replicates=2_000)
    tolerance = {"rel": 0, "abs": ORACLE["tolerance"]}
    assert (measures.cells, measures.seeds) == (expected["n_cells"], expected["seeds"])
    assert measures.successes == tuple(expected["dist_successes"])
    assert measures.unanimous == expected["unanimous"]
    assert measures.agreement == pytest.approx(expected["pairwise_agreement"], **tolerance)
    assert measures.mean == pytest.approx(expected["mean"], **tolerance)
    assert measures.within_variance == pytest.approx(expected["within_cell_variance"], **tolerance)
    if expected["icc11"] is None:
        assert measures.icc is measures.icc_lower is measures.icc_upper is None
        assert measures.undefined == measures.replicates
    else:
        assert measures.icc == pytest.approx(expected["icc11"], **tolerance)
        assert measures.icc_lower is not None and measures.icc_upper is not None
        assert measures.icc_lower <= measures.icc <= measures.icc_upper
        assert measures.undefined == 0


def test_resamples_without_variation_are_counted_and_left_out() -> None:
    measures = measure_reliability([[1, 1], [1, 1], [0, 1]], stream="few", replicates=2_000)
    # The third cell is missed by (2/3)^3 of the resamples.
    assert measures.undefined / 2_000 == pytest.approx(8 / 27, abs=0.04)
    assert measures.icc_lower is not None


@pytest.mark.parametrize("ratings", [[], [[0, 1, 1]], [[0], [1]], [[0, 1], [1]], [[0, 2], [1, 1]]])
def test_what_has_no_agreement_is_refused(ratings: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="cell"):
        measure_reliability(ratings, stream="none")
