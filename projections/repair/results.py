"""What an analysis of a repair study comes to: ``results.json``, numbers and no words.

``projections/repair/declared_analyses.py`` computes it, ``projections/repair/report/`` words it.
"""

from typing import Annotated, Literal

from msgspec import Meta

from projections.analyses.holm import HolmAdjustment
from projections.analyses.mcnemar import McNemarTest
from projections.analyses.missing_pairs import MissingPairsBounds
from projections.analyses.model_ladder import ModelResult
from projections.analyses.paired_bootstrap import BootstrapInterval
from projections.analyses.paired_intervals import PairedIntervals
from projections.analyses.paired_outcomes import PairedTable
from projections.analyses.reliability import ReliabilityMeasures
from projections.results import ComputedFrom, DeclaredModel, Share
from schemas.base import Count, Position, Value
from schemas.identifiers import Identifier
from schemas.repair.study import Budgets


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
    answers_without_call: Annotated[
        int, Meta(ge=0, description="answers, not cut, in which no call was found")
    ]
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
    answers_without_call: Annotated[
        int, Meta(ge=0, description="answers, not cut, in which no call was found")
    ]
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
    """Cells that were run at several seeds. ``agreement`` rests on all pairs of observed seeds of
    one cell, ``measures`` on the cells without a missing seed."""

    seeds: tuple[Count, ...]
    cells: tuple[RepeatedCell, ...]
    agreement: Share
    measures: Annotated[
        ReliabilityMeasures | None, Meta(description="null: fewer than two complete cells")
    ]


class DeclaredBudgets(Value):
    """What a cell could spend, as it was declared for a while."""

    since: Annotated[Position, Meta(description="record of the freeze or of an amendment")]
    cells: Annotated[Count, Meta(description="whose last attempt began while it was declared so")]
    budgets: Budgets


class AsFrozen(Value):
    """The primary contrast as it was declared before the first cell, at its level."""

    alpha: float
    contrast: ContrastResult


class Results(Value):
    """What the analysis of a repair study gives."""

    format: Literal[1]
    study_id: Identifier
    simulated: Annotated[bool, Meta(description="true: simulated agents, not evidence")]
    computed_from: ComputedFrom
    code_not_as_frozen: Annotated[
        tuple[str, ...], Meta(description="components that are not as frozen, in words")
    ]
    alpha: float
    confidence: Annotated[float, Meta(description="1 - alpha, level of every interval")]
    smallest_effect: float
    primary: Annotated[Identifier | None, Meta(description="id of the primary contrast")]
    contrasts: tuple[ContrastResult, ...]
    as_frozen: Annotated[
        AsFrozen | None,
        Meta(description="null: it is declared now as it was before the first cell"),
    ] = None
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
    hierarchical: Annotated[
        ModelResult | None, Meta(description="null: not declared, or no cell was observed")
    ] = None
    reliability: Reliability | None
    cells: Annotated[tuple[AnalysedCell, ...], Meta(description="sorted by task, arm, model, seed")]

    @property
    def interim(self) -> bool:
        """Whether planned cells have no verdict yet."""
        return any(flow.without_verdict for flow in self.flow)

    def contrast(self, contrast_id: str) -> ContrastResult:
        """Raises KeyError for one that is not declared."""
        return {contrast.id: contrast for contrast in self.contrasts}[contrast_id]
