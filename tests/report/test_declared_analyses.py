"""The numbers of the small study, counted by hand, and what must not change them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest

from actors.repair.analysis import ANALYSIS
from actors.study.analysis import compute
from projections.analyses.named_stream import index_digest
from projections.analyses.paired_bootstrap import DEGENERATE_NOTE
from projections.analyses.paired_intervals import tango_interval
from projections.analyses.paired_outcomes import PairedTable
from projections.fold import fold
from projections.repair.declared_analyses import analyse
from projections.repair.outcomes import Outcomes
from projections.repair.report.result import primary_sentence
from projections.repair.results import (
    ArmSummary,
    ContrastResult,
    Results,
    Withdrawn,
)
from projections.residency import Residency
from projections.results import ComputedFrom, Share, encode_results
from schemas.events.study import AmendmentRecorded
from tests.projections.tiny_study import of_type
from tests.report.conftest import Make, context_of, reported
from tests.report.small_study import FAILED, NOTHING, RAN, RESOLVED, TOML, Ran, SmallStudy

HEAD = ComputedFrom(study="0" * 64, head=7, leaf="1" * 64)


def results_of(study: SmallStudy) -> Results:
    """Without a log in between: what the folds give, at a head that never changes."""
    outcomes = fold(Outcomes(study.artifacts.get), study.facts())
    residency = fold(Residency(), study.facts())
    return analyse(study.study, outcomes, residency, HEAD)


def arm(results: Results, treatment: str, model: str) -> ArmSummary:
    found = [one for one in results.arms if (one.treatment, one.model) == (treatment, model)]
    assert len(found) == 1
    return found[0]


def paired(
    make: Make, new: Mapping[str, bool], baseline: Mapping[str, bool], toml: str = TOML
) -> ContrastResult:
    """The primary contrast of a study with these outcomes at M002."""
    ran: dict[str, Ran] = {}
    for unit in new:
        ran[f"{unit}/H018/M002/0"] = RESOLVED if new[unit] else FAILED
        ran[f"{unit}/H000/M002/0"] = RESOLVED if baseline[unit] else FAILED
    study = make(ran=ran, toml=toml)
    study.write_complete()
    return results_of(study).contrast("primary")


# --- contrasts -----------------------------------------------------------------------------------


def test_the_primary_contrast(results: Results) -> None:
    found = results.contrast("primary")
    assert results.primary == "primary"
    assert found.table == PairedTable(both=1, new_only=2, baseline_only=0, neither=0)
    assert found.new_only_tasks == ("R001-001", "R001-002")
    assert found.baseline_only_tasks == ()
    assert found.risk_difference == 2 / 3
    assert found.test is not None and found.test.p_exact_fraction == "1/2"
    assert (found.rejected, found.p_holm, found.family) == (False, None, "")
    assert found.sensitivity.p_mid == 0.25
    assert found.intervals is not None
    assert found.intervals.tango == tango_interval(found.table, Fraction(19, 20))


def test_the_bootstrap_names_its_stream_and_its_indices(results: Results) -> None:
    found = results.contrast("primary").bootstrap
    assert found is not None
    assert (found.stream, found.replicates) == ("small/paired-risk-difference", 1000)
    assert found.index_sha256 == index_digest("small/paired-risk-difference", 1000, [3])
    # Given 2 of 3 discordant, the law of the sum is binomial(3, 2/3): P(0) = 1/27 >= 0.025.
    assert (found.exact_lower, found.exact_upper) == (0.0, 1.0)
    stratified = results.contrast("primary").sensitivity.stratified
    assert stratified is not None
    assert stratified.stream == "small/paired-risk-difference-stratified"
    assert stratified.stratum_sizes == (2, 1)


def test_contrasts_with_as_many_pairs_share_their_resamples(results: Results) -> None:
    digests = {
        found.bootstrap.index_sha256
        for found in results.contrasts
        if found.bootstrap is not None and found.bootstrap.pairs == 3
    }
    assert len(digests) == 1


def test_missing_cells_drop_their_pairs_and_are_bounded(results: Results) -> None:
    found = results.contrast("replication")
    assert (found.missing.planned, found.missing.used) == (3, 1)
    assert found.missing.dropped == ("R001-001", "R002-001")
    assert found.table == PairedTable(both=0, new_only=0, baseline_only=0, neither=1)
    # For: R001-001 resolved against a missing failure, R002-001 a missing success against failure.
    assert found.missing.all_for.table == PairedTable(
        both=0, new_only=2, baseline_only=0, neither=1
    )
    assert found.missing.all_for.p_exact == 0.5
    # Against: R001-001 resolved by both, R002-001 by none.
    assert found.missing.all_against.table == PairedTable(
        both=1, new_only=0, baseline_only=0, neither=2
    )
    assert found.missing.all_against.risk_difference == 0


def test_degenerate_data_say_so(results: Results) -> None:
    found = results.contrast("replication")
    assert found.bootstrap is not None and found.bootstrap.degenerate
    assert found.bootstrap.note == DEGENERATE_NOTE
    assert found.test is not None and found.test.p_exact == 1
    assert found.intervals is not None
    lower, upper = found.intervals.tango
    assert lower < 0 < upper


def test_a_time_out_and_an_exhausted_budget_are_failures(results: Results) -> None:
    cells = {cell.cell: cell for cell in results.cells}
    assert cells["R001-002/H018/M003/0"].resolved == 0
    assert cells["R001-002/H000/M003/0"].resolved == 0
    assert cells["R001-002/H000/M003/0"].resolved_if_submitted == 1
    # Submitted automatically, the baseline would have resolved the one complete pair.
    completion = results.contrast("replication").sensitivity.if_submitted
    assert completion.table == PairedTable(both=0, new_only=0, baseline_only=1, neither=0)
    assert completion.risk_difference == -1


def test_one_repository_is_left_out_at_a_time(results: Results) -> None:
    left = {
        each.repository: each.completion
        for each in results.contrast("primary").sensitivity.without_repository
    }
    assert left["R001"].table == PairedTable(both=1, new_only=0, baseline_only=0, neither=0)
    assert left["R002"].table == PairedTable(both=0, new_only=2, baseline_only=0, neither=0)
    assert (left["R002"].risk_difference, left["R002"].p_exact) == (1.0, 0.5)
    replication = results.contrast("replication").sensitivity.without_repository
    assert [each.completion.risk_difference for each in replication] == [None, 0.0]


def test_with_one_repository_there_is_nothing_to_leave_out(make: Make) -> None:
    found = paired(make, {"R001-001": True}, {"R001-001": False})
    assert found.sensitivity.without_repository == ()
    assert found.sensitivity.stratified is None


@pytest.mark.parametrize(
    ("alpha", "rejected"), [("0.03125", True), ("0.0312", False), ("0.05", True), ("0.01", False)]
)
def test_the_verdict_is_decided_in_integers(make: Make, alpha: str, rejected: bool) -> None:
    # Six pairs for the new arm, none against: p = 2/64 = 0.03125 exactly.
    units = [f"R001-00{number}" for number in range(1, 7)]
    toml = TOML.replace("[analysis]", f"[analysis]\nalpha = {alpha}")
    found = paired(make, dict.fromkeys(units, True), dict.fromkeys(units, False), toml)
    assert found.test is not None and found.test.p_exact == 2 / 64
    assert found.rejected is rejected


def test_the_family_has_its_declared_size(results: Results) -> None:
    (family,) = results.families
    assert family.members == ("replication", "reversed")
    assert family.holm.family_size == 2
    assert results.contrast("reversed").p_holm == 1.0  # 2 * 1/2
    assert results.contrast("primary").id not in family.members
    assert results.contrast("gap").p_holm is None
    assert results.contrast("gap").rejected is None


def test_an_unavailable_p_keeps_its_place_in_the_family(make: Make) -> None:
    ran = {
        name: replace(one, void=True) if "/H000/M003/" in name else one for name, one in RAN.items()
    }
    study = make(ran=ran)
    study.write_complete()
    results = results_of(study)
    replication = results.contrast("replication")
    assert (replication.test, replication.bootstrap, replication.intervals) == (None, None, None)
    assert (replication.risk_difference, replication.p_holm) == (None, None)
    assert replication.rejected is None
    assert replication.missing.observed is None
    (family,) = results.families
    assert family.holm.family_size == 2
    assert family.holm.adjusted == (None, 1.0)  # not 1/2, as in a family of one


# --- descriptions --------------------------------------------------------------------------------


def test_outcomes_of_an_arm(results: Results) -> None:
    found = arm(results, "H000", "M002")
    assert found.planned == 3
    assert found.resolved == Share(n=1, of=3)
    assert found.fail_to_pass == Share(n=1, of=3)
    assert found.pass_to_pass == Share(n=2, of=3)  # the empty patch was not graded
    assert (found.gold_shown, found.gold_opened) == (Share(n=2, of=3), Share(n=1, of=3))
    assert found.gold_edited == Share(n=1, of=3)
    assert found.exact_files == Share(n=1, of=3)
    assert found.empty_patch == Share(n=1, of=3)
    assert found.applicable == Share(n=2, of=2)
    assert found.ended == {"submitted": 3}
    assert (found.violations, found.cells_with_violations) == (2, Share(n=1, of=3))


def test_resources_of_an_arm_are_sums_and_ratios_of_sums(results: Results) -> None:
    found = arm(results, "H000", "M002")
    assert (found.turns, found.tool_calls, found.test_runs) == (6, 3, 0)
    assert (found.prompt_tokens, found.completion_tokens, found.usage_unknown) == (400, 40, 2)
    assert found.model_ns == 12_000_000_000
    assert (found.tokens_per_success, found.model_s_per_success) == (440.0, 12.0)
    better = arm(results, "H018", "M002")
    assert (better.turns, better.cut_answers, better.answers_without_call) == (9, 1, 1)
    assert better.tokens_per_success == 990 / 3
    worse = arm(results, "H000", "M003")
    assert (worse.tokens_per_success, worse.model_s_per_success) == (None, None)


def test_missing_cells_are_in_no_sum(results: Results) -> None:
    found = arm(results, "H018", "M003")
    assert (found.planned, found.resolved) == (3, Share(n=1, of=2))
    assert found.turns == 4
    assert "infrastructure" not in found.ended


def test_policy_and_failed_application_are_patches_that_do_not_apply(make: Make) -> None:
    rejected = replace(FAILED, ended="policy_rejected")
    unapplied = replace(FAILED, ended="apply_failed")
    ran = {
        "R001-001/H000/M002/0": rejected,
        "R001-002/H000/M002/0": unapplied,
        "R002-001/H000/M002/0": FAILED,
        "R001-003/H000/M002/0": NOTHING,
    }
    study = make(ran=ran)
    study.write_complete()
    assert arm(results_of(study), "H000", "M002").applicable == Share(n=1, of=3)


def test_the_funnel_counts_in_order_and_in_all(make: Make) -> None:
    ran = dict(RAN)
    ran["R001-001/H018/M002/0"] = replace(RESOLVED, opened=())
    study = make(ran=ran)
    study.write_complete()
    funnel = {stage.stage: stage for stage in arm(results_of(study), "H018", "M002").funnel}
    assert list(funnel) == ["shown", "opened", "edited", "fail_to_pass", "resolved"]
    assert [stage.reached.n for stage in funnel.values()] == [3, 2, 3, 3, 3]
    assert [stage.in_order.n for stage in funnel.values()] == [3, 2, 2, 2, 2]
    assert {stage.reached.of for stage in funnel.values()} == {3}


def test_outcomes_by_the_need_of_a_gold_symbol(results: Results) -> None:
    found = {(each.treatment, each.model): each for each in results.by_needs_gold_symbol}
    assert found["H000", "M002"].without_symbol == Share(n=0, of=2)
    assert found["H000", "M002"].with_symbol == Share(n=1, of=1)
    assert found["H018", "M003"].with_symbol == Share(n=0, of=0)  # infrastructure


def test_model_switches(results: Results) -> None:
    found = results.model_switches
    assert (found.switches, found.lost, found.most_resident) == (1, 0, 1)
    assert [(each.model, each.loads) for each in found.models] == [("M002", 1), ("M003", 1)]
    assert {each.load_ns for each in found.models} == {5_000_000_000}
    assert {each.unload_ns for each in found.models} == {1_000_000_000}


def test_the_flow_adds_up(results: Results) -> None:
    matrix, repeats = results.flow
    assert (matrix.planned, matrix.ended, matrix.analysed) == (12, 12, 10)
    assert (matrix.void, matrix.infrastructure, matrix.without_verdict) == (1, 1, 0)
    assert (repeats.planned, repeats.analysed) == (0, 0)
    assert not results.interim


def test_the_model_of_all_cells_is_computed_where_it_is_declared(make: Make) -> None:
    study = make()
    study.write_complete()
    found = results_of(study).hierarchical
    assert found is not None
    # H018 resolved all of its tasks with M002: its effect has no finite estimate.
    assert (found.rung, found.reason) == ("stratified_bootstrap", "separated")
    assert found.reference == ("H000", "M002", "R001")
    assert found.diagnostics.cells == 10 and found.diagnostics.infinite_terms
    undeclared = make(toml=TOML.replace("hierarchical_model = true\n", ""))
    undeclared.write_complete()
    assert results_of(undeclared).hierarchical is None


def test_repeats_serve_reliability_alone(make: Make) -> None:
    ran = {
        **RAN,
        "R001-001/H000/M002/1": FAILED,
        "R001-001/H000/M002/2": RESOLVED,
        "R002-001/H018/M002/1": RESOLVED,
        "R002-001/H018/M002/2": RESOLVED,
        "R001-002/H018/M002/1": Ran(ended="infrastructure"),
        "R001-002/H018/M002/2": FAILED,
    }
    study = make(ran=ran)
    study.write_complete()
    with_repeats = results_of(study)
    found = with_repeats.reliability
    assert found is not None
    assert found.seeds == (0, 1, 2)
    by_cell = {(cell.task, cell.treatment): cell.resolved for cell in found.cells}
    assert by_cell == {
        ("R001-001", "H000"): (0, 0, 1),
        ("R001-002", "H018"): (1, None, 0),
        ("R002-001", "H018"): (1, 1, 1),
    }
    measures = found.measures
    assert measures is not None
    assert (measures.cells, measures.successes, measures.unanimous) == (2, (0, 1, 0, 1), 1)
    # MSB 2/3 and MSW 1/6, of one cell with 1 success in 3 and one with 3.
    assert measures.icc == pytest.approx((2 / 3 - 1 / 6) / (2 / 3 + 2 / 6))
    # 1 of 3 pairs of seeds, 0 of 1 observed pair, 3 of 3.
    assert found.agreement == Share(n=4, of=7)
    alone = make()
    alone.write_complete()
    without = results_of(alone)
    assert without.reliability is None
    assert with_repeats.contrasts == without.contrasts
    assert with_repeats.arms == without.arms


# --- what must not matter ------------------------------------------------------------------------


def test_the_order_of_events_and_rows_does_not_matter(make: Make) -> None:
    forwards, backwards = make(), make(ran={name: RAN[name] for name in sorted(RAN, reverse=True)})
    for study in (forwards, backwards):
        study.write_complete()
    expected = encode_results(results_of(forwards))
    assert encode_results(results_of(backwards)) == expected

    outcomes = fold(Outcomes(forwards.artifacts.get), forwards.facts())
    outcomes.cells = dict(sorted(outcomes.cells.items(), key=lambda item: item[0][::-1]))
    outcomes.tasks = dict(reversed(outcomes.tasks.items()))
    residency = fold(Residency(), forwards.facts())
    assert encode_results(analyse(forwards.study, outcomes, residency, HEAD)) == expected


def test_results_are_read_back_as_they_were_written(results: Results) -> None:
    content = encode_results(results)
    assert content.endswith(b"}\n")
    assert msgspec.json.decode(content, type=Results) == results


def test_a_study_may_declare_no_contrast(make: Make) -> None:
    before, _, after = TOML.partition("[[contrasts]]")
    toml = before + after[after.index("[analysis]") :]
    study = make(toml=toml)
    study.write_complete()
    found = results_of(study)
    assert (found.primary, found.contrasts, found.families) == (None, (), ())
    assert found.arms[0].resolved == Share(n=1, of=3)


# --- standing ------------------------------------------------------------------------------------


def standings(study: SmallStudy) -> dict[str, tuple[str, bool]]:
    """Of every contrast its standing and whether an amendment made it what it is."""
    found = compute(context_of(study), ANALYSIS).contrasts
    return {contrast.id: (contrast.standing, contrast.changed_at is not None) for contrast in found}


def test_what_was_frozen_is_confirmatory(complete: SmallStudy) -> None:
    assert set(standings(complete).values()) == {("confirmatory", False)}


def test_a_level_changed_after_the_first_cell_makes_everything_exploratory(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML.replace("[analysis]", "[analysis]\nalpha = 0.6"), "after_first_cell")
    assert set(standings(study).values()) == {("exploratory", True)}


def test_a_study_that_is_not_preregistered_confirms_nothing(make: Make) -> None:
    study = make(toml=TOML.replace("simulated = true", "simulated = true\npreregistered = false"))
    study.write_complete()
    assert set(standings(study).values()) == {("exploratory", False)}
    markdown = reported(study)["report.md"].decode()
    assert "Exploratory: this study is not preregistered. H018 against" in markdown
    assert "confirmatory" not in markdown


def test_a_change_before_the_first_cell_stays_confirmatory(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML.replace("[analysis]", "[analysis]\nalpha = 0.01"), "before_first_cell")
    assert set(standings(study).values()) == {("confirmatory", True)}


def test_a_contrast_that_leaves_its_family_late_changes_the_family_only(make: Make) -> None:
    study = make()
    study.write_complete()
    start = TOML.index('[[contrasts]]\nid = "reversed"')
    end = TOML.index('[[contrasts]]\nid = "gap"')
    study.amend_to(TOML[:start] + TOML[end:], "after_inspection")
    assert standings(study) == {
        "primary": ("confirmatory", False),
        "replication": ("exploratory", True),
        "gap": ("confirmatory", False),
    }


def test_a_contrast_that_is_taken_out_is_told_of(make: Make) -> None:
    study = make()
    study.write_complete()
    assert compute(context_of(study), ANALYSIS).withdrawn == ()
    start = TOML.index('[[contrasts]]\nid = "primary"')
    end = TOML.index('[[contrasts]]\nid = "replication"')
    study.amend_to(TOML[:start] + TOML[end:], "after_inspection")
    results = compute(context_of(study), ANALYSIS)
    at = next(of_type(study.facts(), AmendmentRecorded)).seq
    assert results.withdrawn == (Withdrawn(id="primary", primary=True, at=at),)
    sentence = primary_sentence(results)
    assert sentence.startswith("As frozen: H018 against H000 with M002: ")
    assert sentence.endswith(
        " As amended: This study declares no primary contrast any more: primary was taken out by "
        f"an amendment (record {at})."
    )
    page = reported(study)["report.md"].decode()
    assert f"amendments took out: primary (record {at})." in page
    # Put back, it is there, and exploratory.
    study.amend_to(TOML, "after_inspection")
    assert compute(context_of(study), ANALYSIS).withdrawn == ()
    assert standings(study)["primary"] == ("exploratory", True)


def test_a_title_may_be_corrected_late(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML.replace("Do file names help?", "Do names help?"), "after_inspection")
    assert set(standings(study).values()) == {("confirmatory", False)}


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("changed", "documents/protocol.md"),
        ("removed", "documents/protocol.md"),
        ("components", "kernel"),
        ("components", "grader"),
        ("components", "language python"),
        ("components", "server stand_in"),
        ("components", "analysis"),
        ("components", "program"),
    ],
)
def test_what_every_contrast_rests_on_makes_all_exploratory_when_it_changes_late(
    make: Make, name: str, how: str
) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML, "after_first_cell", **{how: [name]})
    assert set(standings(study).values()) == {("exploratory", True)}
    amended = compute(context_of(study), ANALYSIS).contrast("primary").changed_at
    # What is put back later was another thing while cells ran.
    study.amend_to(TOML, "after_first_cell", changed=["documents/other.md"])
    later = compute(context_of(study), ANALYSIS).contrast("primary").changed_at
    assert amended is not None and later is not None and later > amended


def test_other_code_before_the_first_cell_stays_confirmatory(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML, "before_first_cell", components=["kernel"])
    assert set(standings(study).values()) == {("confirmatory", True)}


def test_another_arm_or_the_miner_leaves_a_contrast_confirmatory(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML, "after_first_cell", components=["miner", "arm H999"])
    assert set(standings(study).values()) == {("confirmatory", False)}
    study.amend_to(TOML, "after_first_cell", components=["arm H018"])
    own = {c.id for c in study.study.contrasts if "H018" in (c.new, c.baseline)}
    found = standings(study)
    assert own and {found[name] for name in own} == {("exploratory", True)}
    assert {found[name] for name in found.keys() - own} <= {("confirmatory", False)}


def test_code_whose_finished_cells_execute_again_to_the_same_bytes_demotes_nothing(
    make: Make,
) -> None:
    study = make()
    study.write_complete()
    study.amend_to(
        TOML, "after_inspection", components=["kernel", "arm H018"], reexecuted=["R001-001/H018"]
    )
    assert set(standings(study).values()) == {("confirmatory", False)}


# --- simulation ----------------------------------------------------------------------------------

REAL = (
    TOML.replace("simulated = true", "")
    .replace('kind = "stand_in"', 'kind = "lmstudio"')
    .replace('rehearsal = { competence_per_mille = 800, seed = "strong" }', "")
    .replace('rehearsal = { competence_per_mille = 400, seed = "weak" }', "")
)


def test_no_amendment_makes_evidence_of_a_rehearsal(make: Make) -> None:
    """Not even one that another program wrote: this one refuses it."""
    study = make()
    study.write_complete()
    study.amend_to(REAL, "after_first_cell")
    assert compute(context_of(study), ANALYSIS).simulated


def test_one_cell_that_a_stand_in_answered_makes_a_study_simulated(make: Make) -> None:
    study = make(toml=REAL, stand_in_answers=True)
    study.write_complete()
    assert study.frozen.simulated is False
    assert compute(context_of(study), ANALYSIS).simulated
