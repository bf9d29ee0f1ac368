"""Contrasts computed end to end from cells: pairing, dropping, exact law, p and Holm."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import pytest

from projections.analyses.holm import holm_adjust
from projections.analyses.mcnemar import exact_p_value
from projections.analyses.paired_bootstrap import bootstrap_contrasts
from projections.analyses.paired_outcomes import PairedOutcome, pair_by_task, tabulate

ORACLES = Path(__file__).parents[1] / "oracles"
ORACLE = json.loads((ORACLES / "contrasts_bootstrap_holm.public.json").read_text())
PRIMARY = "H007-H000@M002"
FAMILY_SIZE = 11


def contrasts_of(dataset: str, names: list[str]) -> dict[str, tuple[PairedOutcome, ...]]:
    with open(ORACLES / "inputs/public" / f"{dataset}.csv", newline="") as file:
        cells = list(csv.DictReader(file))
    repository = {cell["task"]: cell["repository"] for cell in cells}
    contrasts = {}
    for name in names:
        arms, model = name.split("@")
        new, baseline = (
            {
                cell["task"]: cell["success"] == "1"
                for cell in cells
                if (cell["treatment"], cell["model"]) == (arm, model)
            }
            for arm in arms.split("-")
        )
        contrasts[name] = pair_by_task(new, baseline, repository)
    return contrasts


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda c: c["dataset"])
def test_oracle(case):
    expected = case["contrasts"]
    contrasts = contrasts_of(case["dataset"], list(expected))
    tolerance = {"rel": 0, "abs": ORACLE["tolerance"]}

    plain = bootstrap_contrasts(contrasts, stream="primary", replicates=2_000)
    stratified = bootstrap_contrasts(
        contrasts, stream="fallback-stratified", replicates=2_000, stratified=True
    )
    p_values: dict[str, Fraction] = {}
    for name, values in expected.items():
        table = tabulate(contrasts[name])
        p_values[name] = exact_p_value(table.new_only, table.baseline_only)
        assert (table.pairs, table.new_only, table.baseline_only) == (
            values["pairs"],
            values["new_only"],
            values["baseline_only"],
        )
        assert float(p_values[name]) == pytest.approx(values["p_exact_mcnemar"], **tolerance)
        for result, key in ((plain, "unstratified"), (stratified, "stratified")):
            interval = result[name]
            assert interval.risk_difference == pytest.approx(values["rd"], **tolerance)
            assert [interval.exact_lower, interval.exact_upper] == pytest.approx(
                values[f"{key}_percentile_exact"], **tolerance
            )
            assert interval.degenerate == values["degenerate"]
            # Monte Carlo endpoints of 2,000 replicates miss the limit by a task or two.
            assert abs(interval.lower - interval.exact_lower) <= 2.01 / table.pairs
            assert abs(interval.upper - interval.exact_upper) <= 2.01 / table.pairs

    secondary = [name for name in expected if name != PRIMARY]
    assert len(secondary) == FAMILY_SIZE
    adjusted = holm_adjust([p_values[name] for name in secondary], FAMILY_SIZE).adjusted
    assert adjusted == pytest.approx(
        [expected[name]["p_holm_family11"] for name in secondary], **tolerance
    )
    assert "p_holm_family11" not in expected[PRIMARY]
