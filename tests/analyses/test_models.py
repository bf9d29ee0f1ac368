"""The mixed model, its fall-backs and the ladder against lme4 and geepack."""

import csv
import json
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.clustered_gee import fit_gee
from projections.analyses.mean_model import BinaryCell, MeanModel, mean_model
from projections.analyses.mixed_logistic import fit_mixed_logistic
from projections.analyses.model_ladder import Effect, ModelResult, fit_ladder
from projections.analyses.separation import infinite_terms

ORACLES = Path(__file__).parents[1] / "oracles"
TREATMENTS = ("H000", "H003", "H007", "H011", "H018", "A001", "A002")
MODELS = ("M002", "M003")
REPOSITORIES = ("R1", "R2", "R3")
LANGUAGES = {"R1": "go", "R2": "go", "R3": "python"}
CONTRASTS = {f"{t}-H000@{m}": (t, "H000", m) for t in TREATMENTS[1:] for m in MODELS}


def oracle(topic: str) -> dict[str, dict]:
    cases = json.loads((ORACLES / f"{topic}.public.json").read_text())["cases"]
    return {case["dataset"]: case for case in cases}


GLMM, GEE = oracle("glmm"), oracle("gee")


def cells_of(dataset: str) -> list[BinaryCell]:
    with open(ORACLES / "inputs/public" / f"{dataset}.csv", newline="") as file:
        return [
            BinaryCell(
                task=row["task"],
                repository=row["repository"],
                model=row["model"],
                treatment=row["treatment"],
                success=row["success"] == "1",
            )
            for row in csv.DictReader(file)
        ]


def model_of(dataset: str) -> MeanModel:
    return mean_model(cells_of(dataset), TREATMENTS, MODELS, REPOSITORIES)


def ladder_of(cells: list[BinaryCell]) -> ModelResult:
    return fit_ladder(
        cells,
        treatments=TREATMENTS,
        models=MODELS,
        repositories=REPOSITORIES,
        languages=LANGUAGES,
        contrasts=CONTRASTS,
    )


def as_r_names(term: str) -> str:
    for factor in ("treatment", "model", "repository"):
        term = term.replace(f"{factor} ", factor)
    return term


def named(effects: tuple[Effect, ...]) -> dict[str, Effect]:
    return {effect.name: effect for effect in effects}


@pytest.mark.parametrize("dataset", ["d1_wellbehaved", "d6_missing"])
def test_the_mixed_model_reproduces_lme4_with_25_nodes(dataset: str) -> None:
    case, result = GLMM[dataset], ladder_of(cells_of(dataset))
    tolerance, expected = case["tolerance"], case["lme4_nAGQ25"]
    assert (result.rung, result.reason) == ("mixed_logistic", "")
    terms = {as_r_names(effect.name): effect for effect in result.terms}
    assert terms.keys() == expected["coef"].keys()
    for name, effect in terms.items():
        assert effect.log_odds == pytest.approx(expected["coef"][name], abs=tolerance["coef"])
        assert effect.standard_error == pytest.approx(expected["se"][name], abs=tolerance["se"])
    assert result.diagnostics.sigma == pytest.approx(expected["sigma"], abs=tolerance["sigma"])
    assert result.diagnostics.log_likelihood == pytest.approx(
        expected["logLik"], abs=tolerance["logLik"]
    )
    assert result.diagnostics.boundary_score == pytest.approx(case["boundary_score"], rel=1e-7)
    contrasts = {**named(result.contrasts), "python - mean(go,go)": result.languages[0]}
    for name, values in case["contrasts_lme4_nAGQ25"].items():
        assert contrasts[name].log_odds == pytest.approx(values["logOR"], abs=1e-4)
        assert contrasts[name].p == pytest.approx(values["p"], abs=1e-4)
    interaction = result.interaction
    assert interaction is not None and interaction.degrees_of_freedom == 6
    for field, key in (("chi_squared", "chisq"), ("p", "p")):
        assert getattr(interaction, field) == pytest.approx(
            case["interaction_lrt_lme4_nAGQ25"][key], abs=1e-4
        )


@pytest.mark.parametrize("dataset", ["d1_wellbehaved", "d2_singular", "d6_missing"])
def test_gee_reproduces_geepack(dataset: str) -> None:
    model, expected = model_of(dataset), GEE[dataset]["geepack_exchangeable"]
    fitted = fit_gee(model)
    assert fitted.converged
    assert fitted.correlation == pytest.approx(expected["alpha"], abs=1e-8)
    for index, term in enumerate(map(as_r_names, model.terms)):
        assert fitted.coefficients[index] == pytest.approx(expected["coef"][term], abs=1e-8)
        assert fitted.standard_errors[index] == pytest.approx(expected["se"][term], abs=1e-8)


def test_a_singular_mixed_model_gives_way_to_gee() -> None:
    case, result = GLMM["d2_singular"], ladder_of(cells_of("d2_singular"))
    assert (result.rung, result.reason) == ("clustered_gee", "singular")
    assert result.diagnostics.boundary_score == pytest.approx(case["boundary_score"], rel=1e-7)
    assert result.interaction is None
    expected = GEE["d2_singular"]["geepack_exchangeable"]
    for effect in result.terms:
        name = as_r_names(effect.name)
        assert effect.log_odds == pytest.approx(expected["coef"][name], abs=1e-6)
        assert effect.standard_error == pytest.approx(expected["se"][name], abs=1e-6)
    fits = fit_mixed_logistic(model_of("d2_singular"), np.zeros(16))
    assert [fit.sigma for fit in fits] == pytest.approx([0, 0, 0], abs=1e-4)
    assert fits[0].log_likelihood == pytest.approx(case["lme4_nAGQ25"]["logLik"], abs=1e-5)


def test_separated_data_get_no_model_p_value() -> None:
    case, cells = GLMM["d4_separation_treatment"], cells_of("d4_separation_treatment")
    result = ladder_of(cells)
    assert (result.rung, result.reason) == ("stratified_bootstrap", "separated")
    assert result.reason_gee == "separated"
    infinite = result.diagnostics.infinite_terms
    assert {as_r_names(term): way for term, way in infinite.items()} == case["infinite_terms"]
    assert result.terms == result.contrasts == result.languages == ()
    assert result.interaction is None


def test_a_missing_level_is_rank_deficient() -> None:
    cells = [c for c in cells_of("d1_wellbehaved") if (c.treatment, c.model) != ("A002", "M003")]
    result = ladder_of(cells)
    assert (result.rung, result.reason) == ("stratified_bootstrap", "rank_deficient")
    assert (result.diagnostics.rank, result.diagnostics.terms) == (15, 16)


@pytest.mark.parametrize("dataset", ["d1_wellbehaved", "d2_singular"])
def test_the_order_of_rows_changes_no_byte(dataset: str) -> None:
    cells = cells_of(dataset)
    shuffled = random.Random(7).sample(cells, len(cells))
    assert msgspec.json.encode(ladder_of(shuffled)) == msgspec.json.encode(ladder_of(cells))


def test_one_hundred_per_cent_in_one_arm_separates() -> None:
    """Each arm under each model that always or never succeeds has an infinite term."""
    for success in (True, False):
        cells = [
            msgspec.structs.replace(cell, success=success)
            if (cell.treatment, cell.model) == ("H011", "M003")
            else cell
            for cell in cells_of("d1_wellbehaved")
        ]
        model = mean_model(cells, TREATMENTS, MODELS, REPOSITORIES)
        way = "+inf" if success else "-inf"
        assert infinite_terms(model.x, model.y, model.terms) == {"treatment H011:model M003": way}


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_no_small_matrix_breaks_the_ladder(data: st.DataObject) -> None:
    """Whatever was observed, a rung stands, and what it prints is finite."""
    tasks = data.draw(st.integers(1, 6))
    cells = [
        BinaryCell(
            task=f"T{task}",
            repository=REPOSITORIES[task % 2],
            model=model,
            treatment=treatment,
            success=success,
        )
        for task in range(tasks)
        for model in MODELS
        for treatment in TREATMENTS[:2]
        if (success := data.draw(st.sampled_from([True, False, None]))) is not None
    ]
    if not cells:
        return
    result = fit_ladder(
        cells,
        treatments=TREATMENTS[:2],
        models=MODELS,
        repositories=REPOSITORIES[:2],
        languages=LANGUAGES,
        contrasts={"H003-H000@M003": ("H003", "H000", "M003")},
    )
    decoded = msgspec.json.decode(msgspec.json.encode(result), type=ModelResult)
    assert decoded == result  # JSON has no NaN: every number is finite
    if result.diagnostics.infinite_terms:
        assert result.terms == ()


def test_cells_that_contradict_each_other_are_refused() -> None:
    cell = cells_of("d1_wellbehaved")[0]
    with pytest.raises(ValueError, match="two cells of one treatment"):
        mean_model([cell, cell], TREATMENTS, MODELS, REPOSITORIES)
    moved = msgspec.structs.replace(cell, repository="R2", treatment="H003")
    with pytest.raises(ValueError, match="two repositories"):
        mean_model([cell, moved], TREATMENTS, MODELS, REPOSITORIES)
    with pytest.raises(ValueError, match="not a declared level"):
        mean_model([cell], TREATMENTS[1:], MODELS, REPOSITORIES)
    with pytest.raises(ValueError, match="no cell"):
        mean_model([], TREATMENTS, MODELS, REPOSITORIES)
