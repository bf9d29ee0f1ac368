"""The report of a repair study: what is said, in which order and in which words.

Every number is formatted here, once. The numbers are those of the results (and the declared power);
no clock is read: the same records give the same report.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from projections.amendments import Amendments
from projections.analyses.missing_pairs import PairedEstimate
from projections.analyses.paired_bootstrap import DEGENERATE_NOTE, BootstrapInterval
from projections.analyses.power import mcnemar_power
from projections.analyses.single_proportion import wilson_interval
from projections.repair.results import ArmSummary, Completion, ContrastResult, Results
from projections.repair.tasks import MinedTasks
from projections.report.conduct import Conduct
from projections.report.model import (
    BANNER,
    MARK,
    MARKS,
    MISSING,
    NOT_RESOLVED,
    RESOLVED,
    WOULD_HAVE_PASSED,
    Block,
    Code,
    Column,
    Fact,
    Facts,
    ForestPlot,
    ForestRow,
    Group,
    Report,
    Section,
    Table,
    columns,
    day,
    paragraph,
)
from projections.report.numbers import (
    NONE,
    NOT_ESTIMABLE,
    PERCENTAGES_FROM,
    count,
    difference,
    interval,
    level,
    mean,
    p_value,
    ratio,
    seconds,
    share,
)
from projections.report.plain_text import listed
from projections.report.sections import (
    amendments_section,
    declared_models_tables,
    deviations_section,
    readings_section,
    reproduction_section,
)
from projections.results import Share
from schemas.counted import counted
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything that a report is made from, folded up to the head of the results.

    ``root`` is the Merkle root over records 0 to the head; ``checkpoint`` says which signed
    checkpoint covers them, empty where none is at hand. ``analysis`` is the record that names the
    results, ``results_digest`` the SHA-256 of ``results.json``.
    """

    results: Results
    study: RepairStudy
    tasks: Mapping[str, Task]
    amendments: Amendments
    mined: MinedTasks
    conduct: Conduct
    root: str
    checkpoint: str
    analysis: int
    results_digest: str


def build_report(inputs: ReportInputs) -> Report:
    """The whole report. The order of its sections is that of ``docs/statistics.md``."""
    results, study, conduct = inputs.results, inputs.study, inputs.conduct
    head = results.computed_from
    remarks = _remarks(inputs)
    primary = results.contrast(results.primary) if results.primary else None
    return Report(
        title=study.title,
        study_id=study.id,
        banner=BANNER if results.simulated else "",
        mark=MARK if results.simulated else "",
        question=study.question,
        result_title="Primary result" if primary else "Result",
        result=primary_sentence(results),
        remarks=remarks,
        check=(
            "Check it: ",
            Code(text="ledger verify-chain"),
            " tests every byte of the ledger, ",
            Code(text="ledger replay --check"),
            " derives every table again from record 0, ",
            Code(text="ledger analyze --check"),
            " computes every number again.",
        ),
        facts=(
            Fact(term="Study digest", value=head.study, is_code=True),
            Fact(term="Frozen", value=day(conduct.frozen_at)),
            Fact(term="Completed", value=day(conduct.completed_at) or "not complete"),
            Fact(term="Computed from", value=f"records 0 to {head.head}"),
        ),
        sections=tuple(
            section
            for section in (
                deviations_section(conduct, inputs.amendments, results.code_not_as_frozen),
                _flow(results),
                _primary(results, study, inputs.tasks),
                _outcome_matrix(results, study, inputs.tasks),
                _contrasts(results),
                _forest_plot(results),
                _secondary_outcomes(results),
                _resources(results, study, inputs.tasks),
                _reliability(results, study),
                _funnel(results),
                _by_symbol(results),
                _robustness(results),
                _models(results),
                _isolation(conduct),
                _task_funnel(inputs.mined, inputs.tasks, study),
                readings_section(study.readings),
                amendments_section(inputs.amendments),
                _reproduction(inputs),
            )
            if section.blocks
        ),
        computed_from=f"record {head.head}, leaf {head.leaf}",
    )


# --- the primary result in words -----------------------------------------------------------------


def primary_sentence(results: Results) -> str:
    """What the primary contrast found, with the verdict that fits alpha."""
    if results.primary is None:
        gone = [contrast for contrast in results.withdrawn if contrast.primary]
        if gone:
            return (
                f"This study declares no primary contrast any more: {gone[-1].id} was taken out by "
                f"an amendment (record {gone[-1].at})."
            )
        return "This study declares no primary contrast."
    found = results.contrast(results.primary)
    what = f"{found.new} against {found.baseline} with {found.model}"
    late = ""
    if found.standing == "exploratory":
        late = f"Exploratory, changed after the first cell (record {found.changed_at}). "
    if found.test is None or found.intervals is None or found.bootstrap is None:
        return (
            f"{late}{what}: {NOT_ESTIMABLE}, because none of the {found.missing.planned} pairs is "
            "complete."
        )
    table = found.table
    new = Share(n=table.both + table.new_only, of=table.pairs)
    baseline = Share(n=table.both + table.baseline_only, of=table.pairs)
    at, tango = level(results.confidence), interval(found.intervals.tango)
    spread = f"{at} bootstrap interval {_bootstrap(found.bootstrap)}, Tango {tango}"
    if found.bootstrap.degenerate:
        spread = f"no sampling variation in the data; {at} Tango {tango}"
    sign = "\u2264" if found.rejected else ">"
    if not found.rejected:
        verdict = "no difference is shown at this level, which does not show that there is none"
    else:
        more = "more" if table.new_only > table.baseline_only else "fewer"
        verdict = f"{found.new} resolves {more} tasks, by a test at this level"
    return (
        f"{late}{what}: {share(new)} of the tasks resolved against {share(baseline)}; risk "
        f"difference {difference(found.risk_difference)} ({spread}). Exact McNemar p = "
        f"{p_value(found.test.p_exact, results.alpha)} {sign} {results.alpha:g}: {verdict}."
    )


def _effect_sentence(found: ContrastResult, results: Results) -> str:
    """The interval against the smallest effect of interest."""
    if found.intervals is None or found.bootstrap is None:
        return ""
    lower, upper = found.bootstrap.lower, found.bootstrap.upper
    name = "bootstrap"
    if found.bootstrap.degenerate:
        (lower, upper), name = found.intervals.tango, "Tango"
    smallest = results.smallest_effect
    where = f"the smallest effect of interest ({difference(smallest)})"
    if lower >= smallest:
        return f"The whole {name} interval is at least {where}."
    if upper < smallest:
        return f"The whole {name} interval lies below {where}."
    return f"The {name} interval contains {where}: whether the effect is that large stays open."


def too_few_pairs(pairs: int, alpha: float) -> str:
    """Words where even pairs that all differ in one direction leave the exact p above alpha.

    With n such pairs the two-sided exact McNemar p is 2 · 0.5^n.
    """
    smallest = 2.0 ** (1 - pairs)
    if pairs == 0 or smallest <= alpha:
        return ""
    needed = next(n for n in range(pairs, 1100) if 2.0 ** (1 - n) <= alpha)
    return (
        f"With {counted(pairs, 'pair')} no result could reach p \u2264 {alpha:g}: "
        f"the smallest possible exact p is {p_value(smallest, alpha)}. It takes {needed} pairs at "
        "least."
    )


def _remarks(inputs: ReportInputs) -> tuple[str, ...]:
    """What a reader must know together with the result."""
    results = inputs.results
    remarks = []
    if results.primary:
        remarks.append(_effect_sentence(results.contrast(results.primary), results))
        missing = results.contrast(results.primary).missing
        remarks.append(too_few_pairs(missing.used, results.alpha))
        if missing.dropped:
            remarks.append(
                f"{len(missing.dropped)} of {missing.planned} pairs lost a member and are left "
                "out; the bounds under Robustness show what they could change."
            )
    waiting = sum(flow.without_verdict for flow in results.flow)
    if waiting:
        remarks.append(f"Interim: {counted(waiting, 'planned cell')} without a verdict yet.")
    if results.withdrawn:
        names = listed([f"{each.id} (record {each.at})" for each in results.withdrawn])
        remarks.append(f"Contrasts that were declared and that amendments took out: {names}.")
    if results.code_not_as_frozen:
        remarks.append(
            f"Not as frozen: {counted(len(results.code_not_as_frozen), 'file')} of the code that "
            "computed this; see Deviations."
        )
    late = [row for row in inputs.amendments.recorded if row["finding"] != "before_first_cell"]
    if late:
        records = listed([row["seq"] for row in late])
        remarks.append(
            f"Exploratory amendments after the first cell: {len(late)} (records {records}); see "
            "Deviations."
        )
    return tuple(remark for remark in remarks if remark)


# --- sections ------------------------------------------------------------------------------------


def _flow(results: Results) -> Section:
    names = {"matrix": "matrix (seed 0)", "repeat": "repeats (reliability)"}
    rows = tuple(
        (
            names[flow.block],
            count(flow.planned),
            count(flow.ended),
            count(flow.infrastructure),
            count(flow.void),
            count(flow.without_verdict),
            count(flow.analysed),
        )
        for flow in results.flow
        if flow.planned
    )
    table = Table(
        caption="Cells from plan to analysis",
        columns=columns(
            "block",
            *("planned", "ran to an end", "infrastructure", "void", "no verdict", "analysed"),
            numbers=True,
        ),
        rows=rows,
        note="Only infrastructure failures and voids are missing observations. A failure or "
        "time-out of the agent is an observed failure.",
    )
    return Section(id="flow", title="Flow", blocks=(table,))


def _primary(results: Results, study: RepairStudy, tasks: Mapping[str, Task]) -> Section:
    if results.primary is None:
        return Section(id="primary", title="Primary contrast", blocks=())
    found = results.contrast(results.primary)
    table = found.table
    new_yes, new_no = (f"{found.new} {word}" for word in ("resolved", "not resolved"))
    two_by_two = Table(
        caption=f"Tasks by outcome, {found.new} against {found.baseline} with {found.model}",
        columns=columns("", new_yes, new_no, "all", numbers=True),
        rows=(
            (
                f"{found.baseline} resolved",
                count(table.both),
                count(table.baseline_only),
                count(table.both + table.baseline_only),
            ),
            (
                f"{found.baseline} not resolved",
                count(table.new_only),
                count(table.neither),
                count(table.new_only + table.neither),
            ),
            (
                "all",
                count(table.both + table.new_only),
                count(table.baseline_only + table.neither),
                count(table.pairs),
            ),
        ),
    )
    facts = [
        Fact(term="Pairs used", value=f"{found.missing.used}/{found.missing.planned}"),
        Fact(term=f"Only {found.new}", value=_named(found.new_only_tasks)),
        Fact(term=f"Only {found.baseline}", value=_named(found.baseline_only_tasks)),
        Fact(term="Risk difference", value=difference(found.risk_difference)),
    ]
    if found.test and found.bootstrap and found.intervals:
        at = level(results.confidence)
        exact = (found.bootstrap.exact_lower, found.bootstrap.exact_upper)
        fraction = found.test.p_exact_fraction
        p = p_value(found.test.p_exact, results.alpha)
        if found.bootstrap.degenerate:
            facts.append(Fact(term=f"{at} bootstrap", value=DEGENERATE_NOTE))
        else:
            replicates = count(found.bootstrap.replicates)
            facts += [
                Fact(
                    term=f"{at} bootstrap, {replicates} resamples",
                    value=_bootstrap(found.bootstrap),
                ),
                Fact(term=f"{at} bootstrap, exact limit", value=interval(exact)),
            ]
        facts += [
            Fact(term=f"{at} Tango score", value=interval(found.intervals.tango)),
            Fact(
                term="Exact McNemar p",
                value=f"{p} (= {fraction})"
                if fraction and "/" in fraction and len(fraction) < 40
                else p,
            ),
            Fact(term="Level \u03b1", value=f"{results.alpha:g}"),
        ]
    facts.append(Fact(term="Claim", value=found.claim))
    facts.append(Fact(term="Standing", value=found.standing))
    facts += _power_facts(study, tasks, found)
    blocks: list[Block] = [two_by_two, Facts(items=tuple(facts))]
    if found.bootstrap and not found.bootstrap.degenerate:
        blocks.append(paragraph(EXACT_LIMIT))
    return Section(id="primary", title="Primary contrast", blocks=tuple(blocks))


def _power_facts(
    study: RepairStudy, tasks: Mapping[str, Task], found: ContrastResult
) -> list[Fact]:
    """Power as it was declared, and at the share of tasks that can be solved from statements."""
    planned = found.missing.planned
    solvable = sum(task.needs_gold_symbol == 0 for task in tasks.values())
    new_only, baseline_only = study.analysis.power_new_only, study.analysis.power_baseline_only
    facts = []
    for term, part in (("Power as declared", planned), ("Power where solvable", solvable)):
        try:
            power = mcnemar_power(
                planned, new_only, baseline_only, study.analysis.alpha, f"{part}/{planned}"
            )
        except ValueError as error:
            return [Fact(term=term, value=f"{NOT_ESTIMABLE}: {error}")]
        assumed = f"{part}/{planned} tasks, discordance {new_only:g} / {baseline_only:g}"
        facts.append(Fact(term=term, value=f"{power.power:.3f} ({assumed})"))
    return facts


def _outcome_matrix(results: Results, study: RepairStudy, tasks: Mapping[str, Task]) -> Section:
    arms = [(arm.treatment, arm.model) for arm in results.arms]
    marks = {
        (cell.task, cell.treatment, cell.model): _mark(cell.resolved, cell.resolved_if_submitted)
        for cell in results.cells
        if cell.block == "matrix" and cell.repeat == 0
    }
    order = {repository.id: place for place, repository in enumerate(study.repositories)}
    names = sorted(tasks, key=lambda task: (order[tasks[task].repository], task))
    rows = [(task, *(marks.get((task, *arm), MISSING) for arm in arms)) for task in names]
    totals = ("resolved", *(f"{arm.resolved.n}/{arm.resolved.of}" for arm in results.arms))
    table = Table(
        caption="Every task with every treatment and model",
        columns=(
            Column(title="task"),
            *(Column(title=f"{treatment} {model}", kind="mark") for treatment, model in arms),
        ),
        rows=(*rows, totals),
        note="; ".join(f"{sign} {meaning}" for sign, meaning in MARKS.items()) + ".",
    )
    return Section(id="matrix", title="Outcome of every pair", blocks=(table,))


def _mark(resolved: int | None, if_submitted: int | None) -> str:
    if resolved is None:
        return MISSING
    if resolved:
        return RESOLVED
    return WOULD_HAVE_PASSED if if_submitted else NOT_RESOLVED


EXACT_LIMIT = (
    "The exact limit is the interval that ever more resamples come to; it is computed without "
    "drawing any."
)

_CLAIMS = {
    "component": "Component claims",
    "system": "System comparisons",
    "generalisation": "Generalisation",
    "estimate": "Estimates",
}
"""The claim types in the order in which they are shown, apart from each other."""


def _contrasts(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="contrasts", title="All declared contrasts", blocks=())
    ordered = _by_claim(results)
    table = Table(
        caption="Discordant pairs, effects and tests",
        columns=(
            Column(title="contrast"),
            Column(title="comparison"),
            *columns(
                *("pairs", "both", "only new", "only baseline", "neither", "difference"),
                f"{level(results.confidence)} bootstrap",
                *("exact p", "Holm p"),
                numbers=True,
                first="number",
            ),
            Column(title="verdict"),
        ),
        rows=tuple(_contrast_row(contrast, results) for contrast in ordered),
        groups=tuple(
            Group(title=title, rows=rows)
            for claim, title in _CLAIMS.items()
            if (rows := sum(contrast.claim == claim for contrast in ordered))
        ),
        note=_degenerate_note(results),
    )
    notes = [
        f"Family {family.id}: Holm over {family.holm.family_size} declared contrasts at "
        f"{family.holm.alpha:g}; the primary contrast is in no family."
        for family in results.families
    ]
    return Section(
        id="contrasts",
        title="All declared contrasts",
        blocks=(table, *(paragraph(note) for note in notes)),
    )


def _by_claim(results: Results) -> list[ContrastResult]:
    """One claim type after the other, the primary contrast first, else as declared."""
    claims = list(_CLAIMS)
    return sorted(
        results.contrasts, key=lambda found: (claims.index(found.claim), not found.primary)
    )


def _degenerate_note(results: Results) -> str:
    degenerate = (found.bootstrap and found.bootstrap.degenerate for found in results.contrasts)
    return f"{DEGENERATE_NOTE.capitalize()}." if any(degenerate) else ""


def _contrast_row(found: ContrastResult, results: Results) -> tuple[str, ...]:
    tested = found.primary or bool(found.family)
    p_exact = found.test.p_exact if found.test else None
    return (
        found.id,
        _comparison(found),
        f"{found.missing.used}/{found.missing.planned}",
        count(found.table.both),
        count(found.table.new_only),
        count(found.table.baseline_only),
        count(found.table.neither),
        difference(found.risk_difference),
        _bootstrap(found.bootstrap),
        p_value(p_exact, results.alpha) if tested else NONE,
        p_value(found.p_holm, results.alpha) if found.family else NONE,
        verdict_word(found),
    )


def verdict_word(found: ContrastResult) -> str:
    """``shown``, ``not shown``, ``estimate``, ``not estimable``; exploratory ones say so."""
    if found.test is None:
        word = NOT_ESTIMABLE
    elif found.rejected is None:
        word = "estimate"
    else:
        word = "shown" if found.rejected else "not shown"
    return f"{word}, exploratory" if found.standing == "exploratory" else word


def _forest_plot(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="forest", title="Effects", blocks=())
    ordered = _by_claim(results)
    at = level(results.confidence)
    rows = []
    for contrast in ordered:
        bootstrap = contrast.bootstrap
        varies = bootstrap is not None and not bootstrap.degenerate
        role: Literal["secondary", "estimate"] = "secondary" if contrast.family else "estimate"
        rows.append(
            ForestRow(
                label=_comparison(contrast),
                value=difference(contrast.risk_difference),
                group=_CLAIMS[contrast.claim],
                role="primary" if contrast.primary else role,
                estimate=contrast.risk_difference,
                bootstrap=(bootstrap.lower, bootstrap.upper) if bootstrap and varies else None,
                tango=contrast.intervals.tango if contrast.intervals else None,
            )
        )
    table = Table(
        caption="The numbers of the figure",
        columns=columns(
            "comparison",
            *("difference", f"{at} bootstrap", f"{at} bootstrap, exact limit"),
            f"{at} Tango score",
            numbers=True,
        ),
        rows=tuple(
            (
                row.label,
                row.value,
                _bootstrap(contrast.bootstrap),
                _exact_bootstrap(contrast.bootstrap),
                interval(row.tango),
            )
            for row, contrast in zip(rows, ordered, strict=True)
        ),
        note=f"{EXACT_LIMIT} {_degenerate_note(results)}".strip(),
    )
    plot = ForestPlot(
        title="Paired risk differences of all declared contrasts",
        description=f"One row a contrast. Diamond: the primary contrast; square: a contrast of a "
        f"family; circle: an estimate. Thick line: {at} task-cluster bootstrap interval; thin line "
        f"with ends: {at} Tango score interval. Right of zero the new arm resolves more tasks. The "
        f"dashed line is the smallest effect of interest, {difference(results.smallest_effect)}.",
        rows=tuple(rows),
        smallest_effect=results.smallest_effect,
        smallest_effect_label=f"smallest effect {difference(results.smallest_effect)}",
        table=table,
    )
    return Section(id="forest", title="Effects", blocks=(plot,))


def _secondary_outcomes(results: Results) -> Section:
    outcomes = Table(
        caption="Outcomes by treatment and model",
        columns=columns(
            "arm",
            *("resolved", f"{level(results.confidence)} Wilson", "all fail-to-pass"),
            *("all pass-to-pass", "exactly the gold files", "empty patch", "patch applies"),
            numbers=True,
        ),
        rows=tuple(
            (
                _arm(arm),
                share(arm.resolved),
                _wilson(arm.resolved, results),
                share(arm.fail_to_pass),
                share(arm.pass_to_pass),
                share(arm.exact_files),
                share(arm.empty_patch),
                share(arm.applicable),
            )
            for arm in results.arms
        ),
        note="An empty patch is not graded and counts as no success; whether a patch applies is "
        "asked of the others. Intervals are shown from ten observations on.",
    )
    recall = Table(
        caption="Gold files that were found",
        columns=columns("arm", "shown by a tool", "opened", "edited", numbers=True),
        rows=tuple(
            (_arm(arm), share(arm.gold_shown), share(arm.gold_opened), share(arm.gold_edited))
            for arm in results.arms
        ),
        note="In files of the gold production patches, over all analysed cells.",
    )
    classes = list(dict.fromkeys(name for arm in results.arms for name in arm.ended))
    ended = Table(
        caption="How cells ended",
        columns=columns("arm", *(name.replace("_", " ") for name in classes), numbers=True),
        rows=tuple(
            (_arm(arm), *(f"{arm.ended.get(name, 0)}/{arm.resolved.of}" for name in classes))
            for arm in results.arms
        ),
    )
    protocol = Table(
        caption="Protocol violations and cut answers",
        columns=columns("arm", "violations", "cells with a violation", "cut answers", numbers=True),
        rows=tuple(
            (
                _arm(arm),
                count(arm.violations),
                share(arm.cells_with_violations),
                count(arm.cut_answers),
            )
            for arm in results.arms
        ),
    )
    return Section(
        id="secondary", title="Secondary outcomes", blocks=(outcomes, recall, ended, protocol)
    )


def _resources(results: Results, study: RepairStudy, tasks: Mapping[str, Task]) -> Section:
    spent = Table(
        caption="What the cells spent",
        columns=columns(
            "arm",
            *("cells", "turns", "tool calls", "test runs", "prompt tokens", "completion tokens"),
            *("turns without a token count", "model time"),
            numbers=True,
        ),
        rows=tuple(
            (
                _arm(arm),
                count(arm.resolved.of),
                mean(arm.turns, arm.resolved.of),
                mean(arm.tool_calls, arm.resolved.of),
                mean(arm.test_runs, arm.resolved.of),
                mean(arm.prompt_tokens, arm.resolved.of),
                mean(arm.completion_tokens, arm.resolved.of),
                count(arm.usage_unknown),
                seconds(arm.model_ns),
            )
            for arm in results.arms
        ),
        note="Sums over analysed cells, their last attempt only.",
    )
    cost = Table(
        caption="Cost of a resolved task, as a ratio of sums",
        columns=columns("arm", "resolved", "tokens", "model seconds", numbers=True),
        rows=tuple(
            (
                _arm(arm),
                share(arm.resolved),
                ratio(arm.tokens_per_success),
                ratio(arm.model_s_per_success),
            )
            for arm in results.arms
        ),
    )
    switches = results.model_switches
    loads = Table(
        caption="Model loads",
        columns=columns("model", "loads", "time to load", "time to unload", numbers=True),
        rows=tuple(
            (each.model, count(each.loads), seconds(each.load_ns), seconds(each.unload_ns))
            for each in switches.models
        ),
        note=f"Loads of another model than before: {count(switches.switches)}; models lost: "
        f"{switches.lost}; most resident at once: {switches.most_resident}.",
    )
    return Section(
        id="resources",
        title="Resources",
        blocks=(spent, cost, loads, *_repository_sizes(results, study, tasks)),
    )


def _repository_sizes(
    results: Results, study: RepairStudy, tasks: Mapping[str, Task]
) -> list[Block]:
    """Whether the whole repository would have fitted into a prompt."""
    rows = []
    for repository in study.repositories:
        sizes = [task.size for task in tasks.values() if task.repository == repository.id]
        if sizes:
            rows.append(
                (
                    repository.id,
                    count(len(sizes)),
                    _range(size.bytes for size in sizes),
                    _range(size.source_files for size in sizes),
                    _range(size.source_lines for size in sizes),
                    _range(size.estimated_tokens for size in sizes),
                )
            )
    return [
        Table(
            caption="Size of the base trees",
            columns=columns(
                "repository",
                *("tasks", "bytes", "source files", "source lines", "estimated tokens"),
                numbers=True,
            ),
            rows=tuple(rows),
            note=f"Smallest to largest. {_contexts(results)}".strip(),
        )
    ]


def _contexts(results: Results) -> str:
    """Every context that was declared; the record that made it so where there are several."""
    contexts: dict[str, list[tuple[int, str]]] = {}
    for each in results.models:
        of_model = contexts.setdefault(each.model.id, [])
        tokens = count(each.model.context_length)
        if not of_model or of_model[-1][1] != tokens:
            of_model.append((each.since, tokens))
    words = [
        f"{name} {first}" + "".join(f", from record {seq} on {tokens}" for seq, tokens in later)
        for name, ((_, first), *later) in contexts.items()
    ]
    return f"Context of the models in tokens: {'; '.join(words)}." if words else ""


def _reliability(results: Results, study: RepairStudy) -> Section:
    found = results.reliability
    if found is None:
        return Section(id="reliability", title="Reliability", blocks=())
    cells = Table(
        caption="Repeated cells by seed",
        columns=(
            Column(title="task"),
            Column(title="arm"),
            *(Column(title=f"seed {seed}", kind="mark") for seed in found.seeds),
        ),
        rows=tuple(
            (
                cell.task,
                f"{cell.treatment} {cell.model}",
                *(_mark(resolved, None) for resolved in cell.resolved),
            )
            for cell in found.cells
        ),
        note="; ".join(f"{sign} {MARKS[sign]}" for sign in (RESOLVED, NOT_RESOLVED, MISSING)) + ".",
    )
    complete = sum(found.successes)
    by_count = ", ".join(
        f"{times} times: {count(cells_)}/{complete}" for times, cells_ in enumerate(found.successes)
    )
    summary = Facts(
        items=(
            Fact(term="Resolved", value=by_count),
            Fact(term="Unanimous cells", value=share(found.unanimous)),
            Fact(term="Pairs of seeds that agree", value=share(found.agreement)),
        )
    )
    blocks: list[Block] = [cells, summary]
    if all(model.generation.temperature == 0 for model in study.models):
        blocks.append(
            paragraph(
                "At temperature 0 seeds cannot act: this measures how repeatable the run time is."
            )
        )
    return Section(id="reliability", title="Reliability", blocks=tuple(blocks))


_STAGES = {
    "shown": "gold file shown",
    "opened": "opened",
    "edited": "edited",
    "fail_to_pass": "fail-to-pass passed",
    "resolved": "resolved",
}


def _funnel(results: Results) -> Section:
    def cell(in_order: Share, reached: Share) -> str:
        also = f", {reached.n} in any order" if reached.n != in_order.n else ""
        return f"{in_order.n}/{in_order.of}{also}"

    skipped = any(
        stage.reached.n != stage.in_order.n for arm in results.arms for stage in arm.funnel
    )
    table = Table(
        caption="How far cells came",
        columns=columns("arm", *_STAGES.values(), numbers=True),
        rows=tuple(
            (_arm(arm), *(cell(stage.in_order, stage.reached) for stage in arm.funnel))
            for arm in results.arms
        ),
        note="Cells that reached a stage and every stage before it. "
        + ("“In any order” also counts cells that skipped a stage before it. " if skipped else "")
        + "Of several gold files one is enough.",
    )
    return Section(id="funnel", title="Mechanism", blocks=(table,))


def _by_symbol(results: Results) -> Section:
    table = Table(
        caption="Resolved cells by what hidden tests need",
        columns=columns("arm", "no gold symbol", "a gold symbol", numbers=True),
        rows=tuple(
            (f"{each.treatment} {each.model}", share(each.without_symbol), share(each.with_symbol))
            for each in results.by_needs_gold_symbol
        ),
        note="Hidden tests of some tasks use a name that only the gold change introduces and no "
        "statement tells.",
    )
    return Section(id="gold-symbol", title="Tasks that need a gold symbol", blocks=(table,))


def _robustness(results: Results) -> Section:
    if not results.contrasts:
        return Section(id="robustness", title="Robustness", blocks=())
    rows: list[tuple[str, ...]] = []
    groups = []
    for found in results.contrasts:
        own = _sensitivity(found, results)
        groups.append(Group(title=_comparison(found), rows=len(own)))
        rows += own
    table = Table(
        caption="Sensitivity of every contrast",
        columns=columns(
            "analysis", "difference", f"{level(results.confidence)} interval", "p", numbers=True
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="All but the first row declared as sensitivity: no decision rests on it, and its "
        "p-values are exact McNemar (but mid-p) and not adjusted. All missing for, or against: as "
        "if every pair that lost a member had spoken for, or against, the new arm.",
    )
    return Section(id="robustness", title="Robustness", blocks=(table,))


def _sensitivity(found: ContrastResult, results: Results) -> list[tuple[str, ...]]:
    """(analysis, difference, interval, p) of one contrast; a dash where an analysis gives none."""

    def row(
        name: str, risk_difference: float | None, p: float | None, spread: str = NONE
    ) -> tuple[str, ...]:
        shown = NONE if risk_difference is None else p_value(p, results.alpha)
        return (name, difference(risk_difference), spread, shown)

    def completed(name: str, completion: Completion | PairedEstimate) -> tuple[str, ...]:
        return row(name, completion.risk_difference, completion.p_exact)

    more = found.sensitivity
    tango = found.intervals.tango if found.intervals else None
    newcombe = found.intervals.newcombe10 if found.intervals else None
    p_exact = found.test.p_exact if found.test else None
    rows = [
        row("as declared", found.risk_difference, p_exact, _bootstrap(found.bootstrap)),
        ("mid-p", NONE, NONE, p_value(more.p_mid, results.alpha)),
        ("Tango score", NONE, interval(tango), NONE),
        ("Newcombe 10", NONE, interval(newcombe), NONE),
        completed("submitted automatically", more.if_submitted),
        completed("all missing for", found.missing.all_for),
        completed("all missing against", found.missing.all_against),
    ]
    if more.without_repository:
        rows.append(("stratified bootstrap", NONE, _bootstrap(more.stratified), NONE))
    return rows + [
        completed(f"without {left.repository}", left.completion) for left in more.without_repository
    ]


def _models(results: Results) -> Section:
    """What was asked, how, and what a cell could spend: as frozen and as amendments left it."""
    budgets = Table(
        caption="Budgets of a cell",
        columns=columns(
            "since record",
            *("cells", "turns", "tool calls", "test runs", "bytes of a patch", "attempts"),
            numbers=True,
            first="number",
        ),
        rows=tuple(
            (
                str(each.since),
                count(each.cells),
                count(each.budgets.turns),
                count(each.budgets.tool_calls),
                count(each.budgets.test_runs),
                count(each.budgets.patch_bytes),
                count(each.budgets.infrastructure_attempts),
            )
            for each in results.budgets
        ),
    )
    models = declared_models_tables(results.models)
    blocks = (*models, budgets) if models else ()
    return Section(id="models", title="Models and budgets", blocks=blocks)


def _isolation(conduct: Conduct) -> Section:
    probes: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    for seq, _, probe in conduct.probes:
        title = f"{probe.kind}, accepted as unsafe" if probe.accepted_unsafe else probe.kind
        probes.setdefault((title, tuple(probe.enforced.items())), []).append(seq)
    if not probes:
        return Section(id="isolation", title="Isolation of test runs", blocks=())
    names = dict.fromkeys(name for _, enforced in probes for name, _ in enforced)
    table = Table(
        caption="What contained the tests, found by trying",
        columns=columns(
            "isolation",
            *(f"{title}, record {listed(records)}" for (title, _), records in probes.items()),
        ),
        rows=tuple(
            (name, *(dict(enforced).get(name, NONE) for _, enforced in probes)) for name in names
        ),
    )
    return Section(id="isolation", title="Isolation of test runs", blocks=(table,))


def _task_funnel(mined: MinedTasks, tasks: Mapping[str, Task], study: RepairStudy) -> Section:
    repositories = [each.id for each in study.repositories if each.id in mined.mined]
    if not repositories:
        return Section(id="tasks", title="Tasks", blocks=())
    walked = [mined.mined[repository] for repository in repositories]
    judged = [list(mined.validated.get(repository, {}).values()) for repository in repositories]
    executed = [Counter(each.criterion for each in of if not each.valid) for of in judged]
    static = sorted({criterion for event in walked for criterion in event.rejected})
    tried = sorted({criterion for counts in executed for criterion in counts})
    selected = Counter(task.repository for task in tasks.values())

    def row(name: str, numbers: Iterable[int]) -> tuple[str, ...]:
        return (name, *map(count, numbers))

    table = Table(
        caption="Commits by the first criterion that they fail",
        columns=columns("step", *repositories, numbers=True),
        rows=(
            row("commits walked", (event.walked for event in walked)),
            *(
                row(f"static: {name}", (event.rejected.get(name, 0) for event in walked))
                for name in static
            ),
            row("candidates", (event.candidates for event in walked)),
            row("candidates executed", (len(of) for of in judged)),
            *(row(f"executed: {name}", (counts[name] for counts in executed)) for name in tried),
            row("valid", (sum(each.valid for each in of) for of in judged)),
            row("selected", (selected[repository] for repository in repositories)),
        ),
        note="Newest commits first; execution ends when enough candidates are valid.",
    )
    return Section(id="tasks", title="Task selection", blocks=(table,))


def _reproduction(inputs: ReportInputs) -> Section:
    return reproduction_section(
        inputs.results.computed_from,
        inputs.conduct,
        root=inputs.root,
        checkpoint=inputs.checkpoint,
        analysis=inputs.analysis,
        results_digest=inputs.results_digest,
        tables=_index_streams(inputs.results),
    )


def _index_streams(results: Results) -> list[Block]:
    streams = {
        (interval_.stream, interval_.replicates, interval_.pairs, interval_.index_sha256)
        for contrast in results.contrasts
        for interval_ in (contrast.bootstrap, contrast.sensitivity.stratified)
        if interval_ is not None
    }
    if streams:
        return [
            Table(
                caption="Index streams of the bootstrap",
                columns=(
                    Column(title="stream"),
                    *columns("replicates", "pairs", numbers=True, first="number"),
                    Column(title="SHA-256 of the index matrix", kind="code"),
                ),
                rows=tuple(
                    (name, count(replicates), count(pairs), digest)
                    for name, replicates, pairs, digest in sorted(streams)
                ),
            )
        ]
    return []


# --- small words ---------------------------------------------------------------------------------


def _arm(arm: ArmSummary) -> str:
    return f"{arm.treatment} {arm.model}"


def _comparison(contrast: ContrastResult) -> str:
    primary = " (primary)" if contrast.primary else ""
    return f"{contrast.new} \u2212 {contrast.baseline}, {contrast.model}{primary}"


def _bootstrap(found: BootstrapInterval | None) -> str:
    """Never a bare point: without sampling variation the interval would be one."""
    if found is None:
        return NOT_ESTIMABLE
    return "no sampling variation" if found.degenerate else interval((found.lower, found.upper))


def _exact_bootstrap(found: BootstrapInterval | None) -> str:
    if found is None or found.degenerate:
        return _bootstrap(found)
    return interval((found.exact_lower, found.exact_upper))


def _wilson(part: Share, results: Results) -> str:
    if part.of < PERCENTAGES_FROM:
        return NONE
    return interval(wilson_interval(part.n, part.of, results.confidence)).replace("+", "")


def _named(tasks: Sequence[str]) -> str:
    return f"{len(tasks)}: {', '.join(tasks)}" if tasks else "none"


def _range(values: Iterable[int]) -> str:
    ordered = sorted(values)
    low, high = count(ordered[0]), count(ordered[-1])
    return low if low == high else f"{low} to {high}"
