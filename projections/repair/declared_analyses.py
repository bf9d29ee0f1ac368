"""Every declared analysis of a repair study, computed from its outcomes: numbers, no words.

``analyse`` is a pure function: the same study, outcomes and head give the same bytes, in whatever
order events and rows came. Tests and intervals rest on the cells of the matrix at seed 0; the
repeats serve reliability alone. Missing is what infrastructure kept from being observed and what
was voided, never a failure or a time-out of the agent. The choices are explained in
``docs/statistics.md``; each statistical question has its file in ``projections/analyses/``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal, get_args

import msgspec

from projections.analyses.admissible_values import admit_level
from projections.analyses.holm import holm_adjust
from projections.analyses.mcnemar import exact_p_value, mcnemar_test
from projections.analyses.mean_model import BinaryCell
from projections.analyses.missing_pairs import missing_pairs_bounds
from projections.analyses.model_ladder import ModelResult, fit_ladder
from projections.analyses.paired_bootstrap import BootstrapInterval, bootstrap_contrasts
from projections.analyses.paired_intervals import paired_intervals
from projections.analyses.paired_outcomes import PairedOutcome, pair_by_task, tabulate
from projections.analyses.reliability import measure_reliability
from projections.declaration_history import Declaration, declared_models
from projections.repair.contrast_history import (
    declared_budgets,
    replaced_late,
    standing_of,
    withdrawn_contrasts,
)
from projections.repair.outcomes import Outcomes
from projections.repair.results import (
    AnalysedCell,
    ArmSummary,
    AsFrozen,
    BySymbol,
    Completion,
    ContrastResult,
    Family,
    Flow,
    FunnelStage,
    ModelLoads,
    ModelSwitches,
    Reliability,
    RepeatedCell,
    Results,
    Sensitivity,
    WithoutRepository,
)
from projections.residency import Residency
from projections.results import ComputedFrom, Share
from schemas.events.cell import CellClass
from schemas.identifiers import parse_cell_id
from schemas.repair.study import Contrast, RepairStudy

STREAM = "paired-risk-difference"
"""The stream of the bootstrap is ``<study id>/paired-risk-difference``; the stratified one has
``-stratified`` behind it."""


def analyse(
    study: RepairStudy,
    outcomes: Outcomes,
    residency: Residency,
    computed_from: ComputedFrom,
    declarations: Sequence[Declaration[RepairStudy]] = (),
    code_not_as_frozen: Sequence[str] = (),
) -> Results:
    """Compute everything that the study declares.

    study: the study in force. outcomes, residency: folded up to ``computed_from.head``.
    declarations: its versions in order, to tell what was declared too late to be confirmatory, and
    with which models and budgets cells began.
    code_not_as_frozen: components that are not as frozen or last amended, in words.

    Raises ValueError for contrasts that the analyses cannot admit (see ``projections/analyses``);
    a study that was parsed and a complete plan give none.
    """
    cells = _analysed_cells(outcomes)
    matrix = [cell for cell in cells if cell.block == "matrix" and cell.repeat == 0]
    stratum = {task.id: task.repository for task in outcomes.tasks.values()}
    alpha = admit_level(study.analysis.alpha, "alpha")
    arms = [(arm.id, model.id) for arm in study.treatments for model in study.models]
    primary = next((contrast.id for contrast in study.contrasts if contrast.primary), None)
    contrasts, families = _contrasts(study, matrix, stratum, alpha, declarations)
    return Results(
        format=1,
        study_id=study.id,
        simulated=study.simulated or outcomes.simulated,
        computed_from=computed_from,
        code_not_as_frozen=tuple(sorted(code_not_as_frozen)),
        alpha=float(alpha),
        confidence=float(1 - alpha),
        smallest_effect=study.analysis.smallest_effect,
        primary=primary,
        contrasts=contrasts,
        as_frozen=_as_frozen(study, matrix, stratum, declarations),
        families=families,
        withdrawn=withdrawn_contrasts(study, declarations),
        models=declared_models(
            [(version.seq, version.study.models) for version in declarations],
            [
                (parse_cell_id(name).agent, cell.began)
                for name, cell in outcomes.cells.items()
                if cell.began is not None
            ],
        ),
        budgets=declared_budgets(declarations, outcomes),
        flow=tuple(_flow(block, cells) for block in ("matrix", "repeat")),
        arms=tuple(_arm_summary(arm, model, matrix) for arm, model in arms),
        by_needs_gold_symbol=tuple(_by_symbol(arm, model, matrix) for arm, model in arms),
        model_switches=_model_switches(study, residency),
        hierarchical=_hierarchical(study, matrix),
        reliability=_reliability(study, cells),
        cells=tuple(cells),
    )


def _analysed_cells(outcomes: Outcomes) -> list[AnalysedCell]:
    cells = []
    for row in outcomes.rows():
        status = "analysed"
        if row.void:
            status = "void"
        elif "infrastructure" in (row.ended, row.verdict):
            status = "infrastructure"
        elif row.resolved is None:
            status = "without_verdict"
        missing: dict[str, Any] = {"resolved": None, "resolved_if_submitted": None}
        observed = {} if status == "analysed" else missing
        cells.append(msgspec.convert({**row.as_dict(), "status": status, **observed}, AnalysedCell))
    return sorted(cells, key=lambda cell: (cell.task, cell.treatment, cell.model, cell.repeat))


def _flow(block: Literal["matrix", "repeat"], cells: Sequence[AnalysedCell]) -> Flow:
    of_block = [cell for cell in cells if cell.block == block]
    by_status = Counter(cell.status for cell in of_block)
    return Flow(
        block=block,
        planned=len(of_block),
        ended=sum(cell.ended != "" for cell in of_block),
        void=by_status["void"],
        infrastructure=by_status["infrastructure"],
        without_verdict=by_status["without_verdict"],
        analysed=by_status["analysed"],
    )


# --- contrasts -----------------------------------------------------------------------------------


def _contrasts(
    study: RepairStudy,
    matrix: Sequence[AnalysedCell],
    stratum: dict[str, str],
    alpha: Fraction,
    declarations: Sequence[Declaration[RepairStudy]],
) -> tuple[tuple[ContrastResult, ...], tuple[Family, ...]]:
    confidence = 1 - alpha
    pairs = {c.id: _pairs(c, matrix, stratum, _resolved) for c in study.contrasts}
    estimable = {name: p for name, p in pairs.items() if any(pair.complete for pair in p)}
    several_repositories = len(set(stratum.values())) > 1
    stream = f"{study.id}/{STREAM}"
    resamples = study.analysis.bootstrap_resamples
    bootstrap = bootstrap_contrasts(
        estimable, stream=stream, replicates=resamples, confidence=confidence
    )
    stratified: dict[str, BootstrapInterval] = {}
    if several_repositories:
        stratified = bootstrap_contrasts(
            estimable,
            stream=f"{stream}-stratified",
            replicates=resamples,
            confidence=confidence,
            stratified=True,
        )
    families = _families(study, pairs, alpha)
    holm = {
        member: (adjusted, rejected)
        for family in families
        for member, adjusted, rejected in zip(
            family.members, family.holm.adjusted, family.holm.rejected, strict=True
        )
    }
    results = []
    for contrast in study.contrasts:
        of_contrast = pairs[contrast.id]
        table = tabulate(of_contrast)
        test = mcnemar_test(table.new_only, table.baseline_only, alpha) if table.pairs else None
        p_holm, rejected = holm.get(contrast.id, (None, None))
        if contrast.primary and test is not None:
            rejected = test.rejected
        standing, changed_at = standing_of(contrast, study, declarations)
        submitted = _pairs(contrast, matrix, stratum, _resolved_if_submitted)
        left_out = sorted(set(stratum.values())) if several_repositories else []
        results.append(
            ContrastResult(
                id=contrast.id,
                new=contrast.new,
                baseline=contrast.baseline,
                model=contrast.model,
                claim=contrast.claim,
                primary=contrast.primary,
                family=contrast.family,
                standing=standing,
                changed_at=changed_at,
                table=table,
                new_only_tasks=tuple(
                    pair.task for pair in of_contrast if pair.complete and pair.difference > 0
                ),
                baseline_only_tasks=tuple(
                    pair.task for pair in of_contrast if pair.complete and pair.difference < 0
                ),
                risk_difference=table.risk_difference if table.pairs else None,
                test=test,
                p_holm=p_holm,
                rejected=rejected if table.pairs else None,
                bootstrap=bootstrap.get(contrast.id),
                intervals=paired_intervals(table, confidence) if table.pairs else None,
                missing=missing_pairs_bounds(of_contrast),
                sensitivity=Sensitivity(
                    p_mid=None if test is None else test.p_mid,
                    if_submitted=_completion(submitted, confidence),
                    stratified=stratified.get(contrast.id),
                    without_repository=tuple(
                        WithoutRepository(
                            repository=repository,
                            completion=_completion(
                                (pair for pair in of_contrast if pair.stratum != repository),
                                confidence,
                            ),
                        )
                        for repository in left_out
                    ),
                ),
            )
        )
    return tuple(results), families


def _as_frozen(
    study: RepairStudy,
    matrix: Sequence[AnalysedCell],
    stratum: dict[str, str],
    declarations: Sequence[Declaration[RepairStudy]],
) -> AsFrozen | None:
    before = replaced_late(study, declarations)
    if before is None:
        return None
    alpha = admit_level(before.analysis.alpha, "alpha")
    early = [each for each in declarations if each.finding in ("frozen", "before_first_cell")]
    contrasts, _ = _contrasts(before, matrix, stratum, alpha, early)
    primary = next(contrast for contrast in contrasts if contrast.primary)
    return AsFrozen(alpha=float(alpha), contrast=primary)


def _families(
    study: RepairStudy, pairs: dict[str, tuple[PairedOutcome, ...]], alpha: Fraction
) -> tuple[Family, ...]:
    """Holm over each family at its declared size: a contrast without a p-value keeps its place."""
    names = dict.fromkeys(contrast.family for contrast in study.contrasts if contrast.family)
    families = []
    for name in names:
        members = [contrast.id for contrast in study.contrasts if contrast.family == name]
        p_values = []
        for member in members:
            table = tabulate(pairs[member])
            available = table.pairs > 0
            p = exact_p_value(table.new_only, table.baseline_only) if available else None
            p_values.append(p)
        holm = holm_adjust(p_values, len(members), alpha)
        families.append(Family(id=name, members=tuple(members), holm=holm))
    return tuple(families)


def _resolved(cell: AnalysedCell) -> int | None:
    return cell.resolved


def _resolved_if_submitted(cell: AnalysedCell) -> int | None:
    return cell.resolved_if_submitted


def _pairs(
    contrast: Contrast,
    matrix: Sequence[AnalysedCell],
    stratum: dict[str, str],
    outcome: Callable[[AnalysedCell], int | None],
) -> tuple[PairedOutcome, ...]:
    """One pair for every frozen task, in order of the task's id."""

    def arm(treatment: str) -> dict[str, bool | None]:
        return {
            cell.task: None if (value := outcome(cell)) is None else bool(value)
            for cell in matrix
            if cell.treatment == treatment and cell.model == contrast.model
        }

    return pair_by_task(arm(contrast.new), arm(contrast.baseline), stratum)


def _completion(pairs: Iterable[PairedOutcome], confidence: Fraction) -> Completion:
    table = tabulate(pairs)
    if not table.pairs:
        return Completion(table=table, risk_difference=None, p_exact=None, tango=None)
    return Completion(
        table=table,
        risk_difference=table.risk_difference,
        p_exact=float(exact_p_value(table.new_only, table.baseline_only)),
        tango=paired_intervals(table, confidence).tango,
    )


def _hierarchical(study: RepairStudy, matrix: Sequence[AnalysedCell]) -> ModelResult | None:
    """The model of all observed cells of the matrix; the first declared level of each factor is
    its reference, of treatments the primary contrast's baseline."""
    treatments = [treatment.id for treatment in study.treatments]
    models = [model.id for model in study.models]
    repositories = [repository.id for repository in study.repositories]
    observed = [
        BinaryCell(
            task=cell.task,
            repository=cell.repository,
            model=cell.model,
            treatment=cell.treatment,
            success=bool(cell.resolved),
        )
        for cell in matrix
        if cell.resolved is not None
        and cell.treatment in treatments
        and cell.model in models
        and cell.repository in repositories
    ]
    if not study.analysis.hierarchical_model or not observed:
        return None
    primary = next((contrast for contrast in study.contrasts if contrast.primary), None)
    return fit_ladder(
        observed,
        treatments=_first(primary.baseline if primary else None, treatments),
        models=_first(primary.model if primary else None, models),
        repositories=repositories,
        languages={repository.id: repository.language for repository in study.repositories},
        contrasts={c.id: (c.new, c.baseline, c.model) for c in study.contrasts},
    )


def _first(reference: str | None, levels: Sequence[str]) -> list[str]:
    """The levels with the reference in front."""
    return sorted(levels, key=lambda level: level != reference)


# --- descriptions --------------------------------------------------------------------------------


def _arm_summary(treatment: str, model: str, matrix: Sequence[AnalysedCell]) -> ArmSummary:
    planned = [cell for cell in matrix if (cell.treatment, cell.model) == (treatment, model)]
    cells = [cell for cell in planned if cell.status == "analysed"]
    not_empty = [cell for cell in cells if not cell.empty_patch]

    def share(holds: Callable[[AnalysedCell], object], of: Sequence[AnalysedCell] = cells) -> Share:
        return Share(n=sum(bool(holds(cell)) for cell in of), of=len(of))

    def total(of: Callable[[AnalysedCell], int]) -> int:
        return sum(of(cell) for cell in cells)

    gold_files = total(lambda cell: cell.gold_files)
    resolved = share(lambda cell: cell.resolved)
    tokens = total(lambda cell: cell.prompt_tokens + cell.completion_tokens)
    model_ns = total(lambda cell: cell.model_ns)
    ended = Counter(cell.ended for cell in cells)
    return ArmSummary(
        treatment=treatment,
        model=model,
        planned=len(planned),
        resolved=resolved,
        resolved_if_submitted=share(lambda cell: cell.resolved_if_submitted),
        ended={name: ended[name] for name in get_args(CellClass) if ended[name]},
        fail_to_pass=share(lambda cell: cell.passed_fail_to_pass),
        pass_to_pass=share(lambda cell: cell.passed_pass_to_pass),
        gold_shown=Share(n=total(lambda cell: cell.gold_shown), of=gold_files),
        gold_opened=Share(n=total(lambda cell: cell.gold_opened), of=gold_files),
        gold_edited=Share(n=total(lambda cell: cell.gold_edited), of=gold_files),
        exact_files=share(lambda cell: cell.exact_files),
        empty_patch=share(lambda cell: cell.empty_patch),
        applicable=share(
            lambda cell: cell.ended not in ("policy_rejected", "apply_failed"), not_empty
        ),
        turns=total(lambda cell: cell.turns),
        tool_calls=total(lambda cell: cell.tool_calls),
        test_runs=total(lambda cell: cell.test_runs),
        prompt_tokens=total(lambda cell: cell.prompt_tokens),
        completion_tokens=total(lambda cell: cell.completion_tokens),
        usage_unknown=total(lambda cell: cell.usage_unknown),
        model_ns=model_ns,
        violations=total(lambda cell: cell.violations),
        cells_with_violations=share(lambda cell: cell.violations),
        cut_answers=total(lambda cell: cell.cut_answers),
        answers_without_call=total(lambda cell: cell.answers_without_call),
        tokens_per_success=tokens / resolved.n if resolved.n else None,
        model_s_per_success=model_ns / (resolved.n * 10**9) if resolved.n else None,
        funnel=_funnel(cells),
    )


def _funnel(cells: Sequence[AnalysedCell]) -> tuple[FunnelStage, ...]:
    """Gold file shown → opened → edited → fail-to-pass passed → resolved, in cells; of a task with
    several gold files one is enough."""
    stages: tuple[tuple[str, Callable[[AnalysedCell], object]], ...] = (
        ("shown", lambda cell: cell.gold_shown),
        ("opened", lambda cell: cell.gold_opened),
        ("edited", lambda cell: cell.gold_edited),
        ("fail_to_pass", lambda cell: cell.passed_fail_to_pass),
        ("resolved", lambda cell: cell.resolved),
    )
    in_order = list(cells)
    funnel = []
    for stage, reached in stages:
        in_order = [cell for cell in in_order if reached(cell)]
        funnel.append(
            {
                "stage": stage,
                "reached": {"n": sum(bool(reached(cell)) for cell in cells), "of": len(cells)},
                "in_order": {"n": len(in_order), "of": len(cells)},
            }
        )
    return msgspec.convert(funnel, tuple[FunnelStage, ...])


def _by_symbol(treatment: str, model: str, matrix: Sequence[AnalysedCell]) -> BySymbol:
    cells = [
        cell
        for cell in matrix
        if (cell.treatment, cell.model) == (treatment, model) and cell.status == "analysed"
    ]

    def resolved(with_symbol: bool) -> Share:
        of = [cell for cell in cells if (cell.needs_gold_symbol > 0) is with_symbol]
        return Share(n=sum(cell.resolved or 0 for cell in of), of=len(of))

    return BySymbol(
        treatment=treatment,
        model=model,
        without_symbol=resolved(False),
        with_symbol=resolved(True),
    )


def _model_switches(study: RepairStudy, residency: Residency) -> ModelSwitches:
    loaded = [step.model for step in residency.history if step.what == "loaded"]

    def time_of(what: str, model: str) -> int:
        return sum(
            step.duration_ns
            for step in residency.history
            if (step.what, step.model) == (what, model)
        )

    return ModelSwitches(
        switches=sum(before != after for before, after in zip(loaded, loaded[1:], strict=False)),
        lost=sum(step.what == "lost" for step in residency.history),
        most_resident=residency.most_resident,
        models=tuple(
            ModelLoads(
                model=model.id,
                loads=loaded.count(model.id),
                load_ns=time_of("loaded", model.id),
                unload_ns=time_of("unloaded", model.id),
            )
            for model in study.models
        ),
    )


def _reliability(study: RepairStudy, cells: Sequence[AnalysedCell]) -> Reliability | None:
    """Repeated cells together with their seed-0 cell of the matrix; None where nothing repeats."""
    repeated = {(cell.task, cell.treatment, cell.model) for cell in cells if cell.block == "repeat"}
    if not repeated:
        return None
    seeds = (0, *study.repeats.seeds)
    resolved = {
        (cell.task, cell.treatment, cell.model, cell.repeat): cell.resolved for cell in cells
    }
    rows = [
        RepeatedCell(
            task=task,
            treatment=treatment,
            model=model,
            resolved=tuple(resolved.get((task, treatment, model, seed)) for seed in seeds),
        )
        for task, treatment, model in sorted(repeated)
    ]
    complete = [
        [value for value in row.resolved if value is not None]
        for row in rows
        if None not in row.resolved
    ]
    pairs = [
        first == second
        for row in rows
        for first, second in combinations([value for value in row.resolved if value is not None], 2)
    ]
    return Reliability(
        seeds=seeds,
        cells=tuple(rows),
        agreement=Share(n=sum(pairs), of=len(pairs)),
        measures=measure_reliability(
            complete,
            stream=f"{study.id}/reliability",
            replicates=study.analysis.bootstrap_resamples,
            confidence=1 - admit_level(study.analysis.alpha, "alpha"),
        )
        if len(complete) > 1
        else None,
    )
