"""Every declared analysis of a repair study, computed from its outcomes: numbers, no words.

``analyse`` is a pure function: the same study, outcomes and head give the same bytes, in whatever
order events and rows came. Tests and intervals rest on the cells of the matrix at seed 0; the
repeats serve reliability alone. Missing is what infrastructure kept from being observed and what
was voided, never a failure or a time-out of the agent. The choices are explained in
``docs/statistics.md``; each statistical question has its file in ``projections/analyses/``.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from ledger.log import Fact
from projections.analyses.admissible_values import admit_level
from projections.analyses.holm import HolmAdjustment, holm_adjust
from projections.analyses.mcnemar import McNemarTest, exact_p_value, mcnemar_test
from projections.analyses.missing_pairs import MissingPairsBounds, missing_pairs_bounds
from projections.analyses.paired_bootstrap import BootstrapInterval, bootstrap_contrasts
from projections.analyses.paired_intervals import PairedIntervals, paired_intervals
from projections.analyses.paired_outcomes import (
    PairedOutcome,
    PairedTable,
    pair_by_task,
    tabulate,
)
from projections.fold import ReadArtifact
from projections.outcomes import Outcomes
from projections.residency import Residency
from schemas.base import Count, Digest, Event, Position, Value
from schemas.credentials import without_credentials
from schemas.events.cell import CellClass
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.identifiers import Identifier, parse_cell_id
from schemas.study import Budgets, Contrast, Model, Stopping, Study
from schemas.study_file import parse_repair_study

Part = TypeVar("Part")

STREAM = "paired-risk-difference"
"""The stream of the bootstrap is ``<study id>/paired-risk-difference``; the stratified one has
``-stratified`` behind it."""

# --- what comes out ------------------------------------------------------------------------------


class Share(Value):
    """``n`` of ``of``. Never divided here: 0 of 0 is not estimable."""

    n: Count
    of: Count


class ComputedFrom(Value):
    """Which records the numbers rest on."""

    study: Annotated[Digest, Meta(description="digest of the frozen study")]
    head: Annotated[Position, Meta(description="seq of the last record that was read")]
    leaf: Annotated[Digest, Meta(description="leaf of that record")]


class AnalysedCell(Value):
    """One planned cell with everything that was counted in it. 0 and 1 stand for no and yes."""

    cell: str
    task: Identifier
    treatment: Identifier
    model: Identifier
    repeat: Count
    block: Literal["matrix", "repeat"]
    repository: Identifier
    needs_gold_symbol: Count
    status: Annotated[
        Literal["analysed", "infrastructure", "void", "without_verdict"],
        Meta(description="all but `analysed` are missing observations"),
    ]
    resolved: Annotated[int | None, Meta(description="the primary endpoint; null: missing")]
    resolved_if_submitted: int | None
    verdict: str
    void: int
    ended: str
    fail_to_pass_passed: Count
    fail_to_pass_total: Count
    pass_to_pass_passed: Count
    pass_to_pass_total: Count
    gold_files: Count
    gold_shown: Count
    gold_opened: Count
    gold_edited: Count
    exact_files: int
    empty_patch: int
    turns: Count
    tool_calls: Count
    test_runs: Count
    prompt_tokens: Count
    completion_tokens: Count
    usage_unknown: Annotated[int, Meta(description="answered turns without a token count")]
    model_ns: Count
    cut_answers: Count
    violations: Count
    flagged: Annotated[
        str, Meta(description="what could have deceived the grader; decides nothing, to be read")
    ] = ""

    @property
    def graded(self) -> bool:
        """Whether hidden tests ran on its files."""
        return self.verdict in ("resolved", "failed", "timeout")

    @property
    def passed_fail_to_pass(self) -> bool:
        return self.graded and self.fail_to_pass_passed == self.fail_to_pass_total

    @property
    def passed_pass_to_pass(self) -> bool:
        return self.graded and self.pass_to_pass_passed == self.pass_to_pass_total


class Flow(Value):
    """From planned to analysed; the last four add up to ``planned``."""

    block: Literal["matrix", "repeat"]
    planned: Count
    ended: Annotated[int, Meta(description="cells that ran to an end of any class")]
    void: Count
    infrastructure: Count
    without_verdict: Annotated[int, Meta(description="not ended or not graded yet")]
    analysed: Count


class Completion(Value):
    """A contrast on other outcomes, or on fewer tasks. Null where no pair is complete."""

    table: PairedTable
    risk_difference: float | None
    p_exact: float | None
    tango: tuple[float, float] | None


class WithoutRepository(Value):
    repository: Identifier
    completion: Completion


class Sensitivity(Value):
    """Declared sensitivity lines; no decision rests on them."""

    p_mid: float | None
    if_submitted: Annotated[
        Completion,
        Meta(description="as if cells that ended without submitting had submitted automatically"),
    ]
    stratified: Annotated[
        BootstrapInterval | None,
        Meta(description="bootstrap within repositories; null where there is only one"),
    ]
    without_repository: tuple[WithoutRepository, ...]


class ContrastResult(Value):
    """One declared contrast. Everything but ``table`` and ``missing`` is null without a complete
    pair: then nothing is estimable, and a p-value is not available."""

    id: Identifier
    new: Identifier
    baseline: Identifier
    model: Identifier
    claim: Literal["component", "system", "generalisation", "estimate"]
    primary: bool
    family: Annotated[str, Meta(description="Holm family; empty: primary, or an estimate")]
    standing: Annotated[
        Literal["confirmatory", "exploratory"],
        Meta(description="exploratory: declared, or changed with the code, after the first cell"),
    ]
    changed_at: Annotated[
        Position | None, Meta(description="record of the amendment that made it what it is")
    ]
    table: PairedTable
    new_only_tasks: tuple[Identifier, ...]
    baseline_only_tasks: tuple[Identifier, ...]
    risk_difference: float | None
    test: McNemarTest | None
    p_holm: Annotated[float | None, Meta(description="adjusted within the family")]
    rejected: Annotated[
        bool | None,
        Meta(description="primary: exact p <= alpha; family: adjusted p <= alpha; else null"),
    ]
    bootstrap: BootstrapInterval | None
    intervals: PairedIntervals | None
    missing: MissingPairsBounds
    sensitivity: Sensitivity


class Family(Value):
    """A declared family; ``holm`` is in the order of ``members``."""

    id: str
    members: tuple[Identifier, ...]
    holm: HolmAdjustment


class Withdrawn(Value):
    """A contrast that was frozen or declared, and that an amendment took out."""

    id: Identifier
    primary: bool
    at: Annotated[Position, Meta(description="record of the amendment")]


class FunnelStage(Value):
    """Cells that reached a stage, and those that also reached every stage before it."""

    stage: Literal["shown", "opened", "edited", "fail_to_pass", "resolved"]
    reached: Share
    in_order: Share


class ArmSummary(Value):
    """One treatment with one model over its analysed cells of the matrix. Sums, never means."""

    treatment: Identifier
    model: Identifier
    planned: Count
    resolved: Share
    resolved_if_submitted: Share
    ended: Annotated[
        dict[str, Count], Meta(description="analysed cells by the class they ended in")
    ]
    fail_to_pass: Annotated[Share, Meta(description="cells that passed every fail-to-pass test")]
    pass_to_pass: Annotated[Share, Meta(description="cells that passed every pass-to-pass test")]
    gold_shown: Annotated[Share, Meta(description="gold files that a tool's result showed")]
    gold_opened: Annotated[Share, Meta(description="gold files whose content was read")]
    gold_edited: Annotated[Share, Meta(description="gold files that were changed")]
    exact_files: Annotated[Share, Meta(description="cells that changed exactly the gold files")]
    empty_patch: Share
    applicable: Annotated[
        Share, Meta(description="patches that the policy accepts and that apply, of non-empty ones")
    ]
    turns: Count
    tool_calls: Count
    test_runs: Count
    prompt_tokens: Count
    completion_tokens: Count
    usage_unknown: Annotated[int, Meta(description="answered turns without a token count")]
    model_ns: Count
    violations: Count
    cells_with_violations: Share
    cut_answers: Count
    tokens_per_success: Annotated[
        float | None, Meta(description="sum of tokens / resolved cells; null: none resolved")
    ]
    model_s_per_success: Annotated[
        float | None, Meta(description="sum of model seconds / resolved cells; null: none resolved")
    ]
    funnel: tuple[FunnelStage, ...]


class BySymbol(Value):
    """Resolved cells by whether hidden tests use a symbol that only gold introduces."""

    treatment: Identifier
    model: Identifier
    without_symbol: Share
    with_symbol: Share


class ModelLoads(Value):
    model: Identifier
    loads: Count
    load_ns: Count
    unload_ns: Count


class ModelSwitches(Value):
    """``switches`` counts loads of another model than the one that was loaded before."""

    switches: Count
    lost: Annotated[int, Meta(description="models that were gone when they were needed")]
    most_resident: Count
    models: tuple[ModelLoads, ...]


class RepeatedCell(Value):
    task: Identifier
    treatment: Identifier
    model: Identifier
    resolved: Annotated[tuple[int | None, ...], Meta(description="by seed; null: missing")]


class Reliability(Value):
    """Cells that were run at several seeds. ``successes``, ``unanimous`` rest on cells without a
    missing seed, ``agreement`` on all pairs of observed seeds of one cell."""

    seeds: tuple[Count, ...]
    cells: tuple[RepeatedCell, ...]
    successes: Annotated[
        tuple[Count, ...], Meta(description="how many cells were resolved 0, 1, 2 … times")
    ]
    unanimous: Share
    agreement: Share


class DeclaredModel(Value):
    """A model as it was declared for a while: all that every turn of a cell sent or required."""

    since: Annotated[Position, Meta(description="record of the freeze or of an amendment")]
    cells: Annotated[Count, Meta(description="whose last attempt began while it was declared so")]
    model: Model


class DeclaredBudgets(Value):
    """What a cell could spend, as it was declared for a while."""

    since: Annotated[Position, Meta(description="record of the freeze or of an amendment")]
    cells: Annotated[Count, Meta(description="whose last attempt began while it was declared so")]
    budgets: Budgets


class Results(Value):
    """What one analysis gives. ``encode_results`` makes the bytes that a record names."""

    format: Literal[1]
    study_id: Identifier
    simulated: Annotated[bool, Meta(description="true: simulated agents, not evidence")]
    computed_from: ComputedFrom
    code_not_as_frozen: Annotated[
        tuple[str, ...], Meta(description="frozen files of code that differ from those that ran")
    ]
    alpha: float
    confidence: Annotated[float, Meta(description="1 - alpha, level of every interval")]
    smallest_effect: float
    primary: Annotated[Identifier | None, Meta(description="id of the primary contrast")]
    contrasts: tuple[ContrastResult, ...]
    families: tuple[Family, ...]
    withdrawn: Annotated[
        tuple[Withdrawn, ...], Meta(description="contrasts that are not declared any more")
    ] = ()
    models: Annotated[
        tuple[DeclaredModel, ...],
        Meta(description="as frozen, and as amendments left them: a cell keeps what it began with"),
    ] = ()
    budgets: tuple[DeclaredBudgets, ...] = ()
    flow: tuple[Flow, ...]
    arms: tuple[ArmSummary, ...]
    by_needs_gold_symbol: tuple[BySymbol, ...]
    model_switches: ModelSwitches
    reliability: Reliability | None
    cells: Annotated[tuple[AnalysedCell, ...], Meta(description="sorted by task, arm, model, seed")]

    @property
    def interim(self) -> bool:
        """Whether planned cells have no verdict yet."""
        return any(flow.without_verdict for flow in self.flow)

    def contrast(self, contrast_id: str) -> ContrastResult:
        """Raises KeyError for one that is not declared."""
        return {contrast.id: contrast for contrast in self.contrasts}[contrast_id]


def encode_results(results: Results) -> bytes:
    """JSON for programs and for people: the same results give the same bytes."""
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


# --- what was declared when ----------------------------------------------------------------------


class Declaration(Value):
    """The study as it was frozen, or as an amendment left it."""

    seq: Position
    finding: Literal["frozen", "before_first_cell", "after_first_cell", "after_inspection"]
    study: Study
    beside: Annotated[
        tuple[str, ...],
        Meta(description="what else an amendment changed or removed: code, libraries, documents"),
    ] = ()


class Declarations:
    """Every version of the study from the freeze on, in order."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (StudyFrozen, AmendmentRecorded)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self.versions: list[Declaration] = []

    def apply(self, fact: Fact) -> None:
        event = fact.event
        assert isinstance(event, StudyFrozen | AmendmentRecorded)
        self.versions.append(
            Declaration(
                seq=fact.seq,
                finding="frozen" if isinstance(event, StudyFrozen) else event.finding,
                study=parse_repair_study(self._read(event.study)),
                beside=() if isinstance(event, StudyFrozen) else _beside(event),
            )
        )


def _beside(event: AmendmentRecorded) -> tuple[str, ...]:
    names = {*(file.name for file in event.changed), *event.removed}
    return tuple(sorted(names - {"study.toml"}))


def _declared(study: Study, contrast_id: str) -> object:
    """Everything in ``study.toml`` that can decide about a contrast, as one comparable value."""
    contrast = next((found for found in study.contrasts if found.id == contrast_id), None)
    family = contrast.family if contrast is not None else ""
    members = sorted(other.id for other in study.contrasts if family and other.family == family)
    rest = msgspec.structs.replace(
        study,
        title="",
        question="",
        documents=(),
        contrasts=(),
        stopping=Stopping(),
        server=msgspec.structs.replace(study.server, url="", lms=""),
    )
    return contrast, members, rest


def _standing(
    contrast: Contrast, study: Study, declarations: Sequence[Declaration]
) -> tuple[Literal["confirmatory", "exploratory"], int | None]:
    """Since which record the contrast is what it is, and what that makes it.

    Code, libraries and documents decide about every contrast, so a change of one is a change of
    all.
    """
    now = _declared(study, contrast.id)
    since = None
    for version in reversed(declarations):
        if _declared(version.study, contrast.id) != now:
            break
        since = version
        if version.beside:
            break
    if since is None or since.finding == "frozen":
        return "confirmatory", None
    late = since.finding in ("after_first_cell", "after_inspection")
    return "exploratory" if late else "confirmatory", since.seq


def _withdrawn(study: Study, declarations: Sequence[Declaration]) -> tuple[Withdrawn, ...]:
    """What was declared once and is not now, by the record that took it out last."""
    declared = {contrast.id for contrast in study.contrasts}
    found: dict[str, Withdrawn] = {}
    for before, after in pairwise(declarations):
        kept = {contrast.id for contrast in after.study.contrasts}
        for contrast in before.study.contrasts:
            if contrast.id not in kept and contrast.id not in declared:
                found[contrast.id] = Withdrawn(
                    id=contrast.id, primary=contrast.primary, at=after.seq
                )
    return tuple(found.values())


def declared_models(
    versions: Sequence[tuple[int, Sequence[Model]]], began: Sequence[tuple[str, int]]
) -> tuple[DeclaredModel, ...]:
    """By model, in the order in which the study names them first, every form that it had.

    versions: (record, models of the study from there on). began: (model, record) of every cell's
    last attempt.
    """
    forms: dict[str, list[tuple[int, Model | None]]] = {}
    for seq, models in versions:
        declared = {model.id: model for model in models}
        for name in declared:
            forms.setdefault(name, [])
        for name, known in forms.items():
            known.append((seq, declared.get(name)))
    return tuple(
        DeclaredModel(
            since=since,
            cells=sum(agent == name and since <= seq < until for agent, seq in began),
            model=_without_credentials(model),
        )
        for name, known in forms.items()
        for since, until, model in _spans(known)
        if model is not None
    )


def _declared_budgets(
    declarations: Sequence[Declaration], outcomes: Outcomes
) -> tuple[DeclaredBudgets, ...]:
    began = [cell.began for cell in outcomes.cells.values() if cell.began is not None]
    return tuple(
        DeclaredBudgets(
            since=since, cells=sum(since <= seq < until for seq in began), budgets=budgets
        )
        for since, until, budgets in _spans(
            [(version.seq, version.study.budgets) for version in declarations]
        )
    )


def _spans(versions: Sequence[tuple[int, Part]]) -> list[tuple[int, float, Part]]:
    """(record that made it so, record that ended it, part), one for each time that it changed."""
    changes: list[tuple[int, Part]] = []
    for seq, part in versions:
        if not changes or changes[-1][1] != part:
            changes.append((seq, part))
    if not changes:
        return []
    ends = [*(seq for seq, _ in changes[1:]), math.inf]
    return [(seq, end, part) for (seq, part), end in zip(changes, ends, strict=True)]


def _without_credentials(model: Model) -> Model:
    """Results are handed on, and these names may be addresses."""
    return msgspec.structs.replace(
        model,
        key=without_credentials(model.key),
        variant=without_credentials(model.variant),
        quantization=without_credentials(model.quantization),
    )


# --- the analysis --------------------------------------------------------------------------------


def analyse(
    study: Study,
    outcomes: Outcomes,
    residency: Residency,
    computed_from: ComputedFrom,
    declarations: Sequence[Declaration] = (),
    code_not_as_frozen: Sequence[str] = (),
) -> Results:
    """Compute everything that the study declares.

    study: the study in force. outcomes, residency: folded up to ``computed_from.head``.
    declarations: its versions in order, to tell what was declared too late to be confirmatory, and
    with which models and budgets cells began.
    code_not_as_frozen: names of frozen files of code that are not those that now run.

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
        families=families,
        withdrawn=_withdrawn(study, declarations),
        models=declared_models(
            [(version.seq, version.study.models) for version in declarations],
            [
                (parse_cell_id(name).agent, cell.began)
                for name, cell in outcomes.cells.items()
                if cell.began is not None
            ],
        ),
        budgets=_declared_budgets(declarations, outcomes),
        flow=tuple(_flow(block, cells) for block in ("matrix", "repeat")),
        arms=tuple(_arm_summary(arm, model, matrix) for arm, model in arms),
        by_needs_gold_symbol=tuple(_by_symbol(arm, model, matrix) for arm, model in arms),
        model_switches=_model_switches(study, residency),
        reliability=_reliability(study, cells),
        cells=tuple(cells),
    )


def _analysed_cells(outcomes: Outcomes) -> list[AnalysedCell]:
    cells = []
    for row in outcomes.rows():
        status = "analysed"
        if row["void"]:
            status = "void"
        elif "infrastructure" in (row["ended"], row["verdict"]):
            status = "infrastructure"
        elif row["resolved"] is None:
            status = "without_verdict"
        missing: dict[str, Any] = {"resolved": None, "resolved_if_submitted": None}
        observed = {} if status == "analysed" else missing
        cells.append(msgspec.convert({**row, "status": status, **observed}, AnalysedCell))
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
    study: Study,
    matrix: Sequence[AnalysedCell],
    stratum: dict[str, str],
    alpha: Fraction,
    declarations: Sequence[Declaration],
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
        standing, changed_at = _standing(contrast, study, declarations)
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


def _families(
    study: Study, pairs: dict[str, tuple[PairedOutcome, ...]], alpha: Fraction
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


def _model_switches(study: Study, residency: Residency) -> ModelSwitches:
    loaded = [step["model"] for step in residency.history if step["what"] == "loaded"]

    def time_of(what: str, model: str) -> int:
        return sum(
            step["duration_ns"]
            for step in residency.history
            if (step["what"], step["model"]) == (what, model)
        )

    return ModelSwitches(
        switches=sum(before != after for before, after in zip(loaded, loaded[1:], strict=False)),
        lost=sum(step["what"] == "lost" for step in residency.history),
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


def _reliability(study: Study, cells: Sequence[AnalysedCell]) -> Reliability | None:
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
    successes = Counter(sum(values) for values in complete)
    pairs = [
        first == second
        for row in rows
        for first, second in combinations([value for value in row.resolved if value is not None], 2)
    ]
    return Reliability(
        seeds=seeds,
        cells=tuple(rows),
        successes=tuple(successes[count] for count in range(len(seeds) + 1)),
        unanimous=Share(
            n=sum(len(set(values)) == 1 for values in complete),
            of=len(complete),
        ),
        agreement=Share(n=sum(pairs), of=len(pairs)),
    )
