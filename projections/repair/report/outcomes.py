"""Secondary outcomes of every arm, the mechanism, and tasks that need a gold symbol."""

from projections.repair.report.phrases import arm_name, wilson
from projections.repair.results import Results
from projections.report.model import (
    Section,
    Table,
    columns,
)
from projections.report.numbers import (
    count,
    level,
    share,
)
from projections.results import Share


def secondary_outcomes_section(results: Results) -> Section:
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
                arm_name(arm),
                share(arm.resolved),
                wilson(arm.resolved, results),
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
            (arm_name(arm), share(arm.gold_shown), share(arm.gold_opened), share(arm.gold_edited))
            for arm in results.arms
        ),
        note="In files of the gold production patches, over all analysed cells.",
    )
    classes = list(dict.fromkeys(name for arm in results.arms for name in arm.ended))
    ended = Table(
        caption="How cells ended",
        columns=columns("arm", *(name.replace("_", " ") for name in classes), numbers=True),
        rows=tuple(
            (arm_name(arm), *(f"{arm.ended.get(name, 0)}/{arm.resolved.of}" for name in classes))
            for arm in results.arms
        ),
    )
    protocol = Table(
        caption="Protocol violations, cut answers and answers without a call",
        columns=columns(
            "arm",
            "violations",
            "cells with a violation",
            "cut answers",
            "answers without a call",
            numbers=True,
        ),
        rows=tuple(
            (
                arm_name(arm),
                count(arm.violations),
                share(arm.cells_with_violations),
                count(arm.cut_answers),
                count(arm.answers_without_call),
            )
            for arm in results.arms
        ),
    )
    return Section(
        id="secondary", title="Secondary outcomes", blocks=(outcomes, recall, ended, protocol)
    )


_STAGES = {
    "shown": "gold file shown",
    "opened": "opened",
    "edited": "edited",
    "fail_to_pass": "fail-to-pass passed",
    "resolved": "resolved",
}


def mechanism_section(results: Results) -> Section:
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
            (arm_name(arm), *(cell(stage.in_order, stage.reached) for stage in arm.funnel))
            for arm in results.arms
        ),
        note="Cells that reached a stage and every stage before it. "
        + ("“In any order” also counts cells that skipped a stage before it. " if skipped else "")
        + "Of several gold files one is enough.",
    )
    return Section(id="funnel", title="Mechanism", blocks=(table,))


def gold_symbol_section(results: Results) -> Section:
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
