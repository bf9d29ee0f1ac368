"""Analysis and report of a repair study: the declared analyses of the graded cells."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.loop import Context
from actors.repair.components import components
from actors.study.analysis import Analysis, Recorded, Summary, code_not_as_frozen
from ledger.errors import Refused
from projections.amendments import Amendments
from projections.declaration_history import Declarations
from projections.fold import Follower
from projections.progress import Progress
from projections.repair.cells_csv import render_csv
from projections.repair.declared_analyses import analyse
from projections.repair.outcomes import Outcomes
from projections.repair.report.build import build_report
from projections.repair.report.inputs import ReportInputs
from projections.repair.report.phrases import verdict_word
from projections.repair.report.result import primary_sentence
from projections.repair.results import Results
from projections.repair.tasks import MinedTasks
from projections.report.amendments_page import render_amendments
from projections.report.conduct import Conduct
from projections.report.html_page import render_html
from projections.report.markdown_page import render_markdown
from projections.report.numbers import NONE, difference, interval, p_value
from projections.residency import Residency
from projections.results import ComputedFrom
from schemas.counted import counted
from schemas.repair.study import RepairStudy
from schemas.study import of_kind


def compute(context: Context, seq: int, leaf: str) -> Results:
    read = context.artifacts.get
    progress, outcomes, residency = Progress(read), Outcomes(read), Residency()
    amendments, declarations = Amendments(read), Declarations(RepairStudy, read)
    follower = Follower(context.log, progress, outcomes, residency, amendments, declarations)
    follower.catch_up(seq + 1)
    if progress.frozen is None or progress.study is None:
        raise Refused("the study is not frozen, so nothing is declared yet: `ledger freeze` first")
    study = of_kind(RepairStudy, progress.study)
    if study.grading.when == "end" and not progress.completed:
        raise Refused(
            'this study grades at the end ([grading] when = "end") and is not complete: '
            f"{progress.cells_in_words()} ended, {progress.graded()} graded; `ledger run` goes on"
        )
    return analyse(
        study,
        outcomes,
        residency,
        ComputedFrom(study=progress.frozen.digest, head=seq, leaf=leaf),
        declarations.versions,
        code_not_as_frozen(amendments, components(study)),
    )


def report(context: Context, recorded: Recorded[Results], pages: bool) -> Mapping[str, bytes]:
    read = context.artifacts.get
    progress, amendments = Progress(read), Amendments(read)
    mined, conduct = MinedTasks(read), Conduct()
    head = recorded.results.computed_from.head
    Follower(context.log, progress, amendments, mined, conduct).catch_up(head + 1)
    assert progress.study is not None  # its results were computed from the frozen study
    page = build_report(
        ReportInputs(
            results=recorded.results,
            study=of_kind(RepairStudy, progress.study),
            tasks=progress.tasks,
            plan=progress.prepared_plan.cells if progress.prepared_plan else (),
            amendments=amendments,
            mined=mined.selection(),
            conduct=conduct,
            root=recorded.root,
            checkpoint=recorded.checkpoint,
            analysis=recorded.seq,
            results_digest=recorded.content.digest,
        )
    )
    return {
        "report.html": render_html(page),
        "report.md": render_markdown(page),
        "cells.csv": render_csv(recorded.results),
        "PROTOCOL_AMENDMENTS.md": render_amendments(amendments),
    }


def summary(results: Results) -> Summary:
    waiting = sum(flow.without_verdict for flow in results.flow)
    return Summary(
        sentence=primary_sentence(results),
        interim=f"Interim: {counted(waiting, 'planned cell')} without a verdict yet."
        if waiting
        else "",
        body=[_contrasts(results)] if results.contrasts else [],
    )


def _contrasts(results: Results) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for found in results.contrasts:
        tested = found.primary or bool(found.family)
        p_exact = found.test.p_exact if found.test else None
        rows.append(
            {
                "contrast": found.id,
                "comparison": f"{found.new} - {found.baseline}, {found.model}",
                "claim": found.claim,
                "pairs": f"{found.missing.used}/{found.missing.planned}",
                "only new": found.table.new_only,
                "only baseline": found.table.baseline_only,
                "difference": difference(found.risk_difference),
                "Tango": interval(found.intervals.tango if found.intervals else None),
                "exact p": p_value(p_exact, results.alpha) if tested else NONE,
                "Holm p": p_value(found.p_holm, results.alpha) if found.family else NONE,
                "verdict": verdict_word(found),
            }
        )
    return rows


def _as_if_run_by(results: Results, other: Results) -> Results:
    return msgspec.structs.replace(results, code_not_as_frozen=other.code_not_as_frozen)


ANALYSIS = Analysis(
    results=Results,
    compute=compute,
    events=lambda context, results: (),
    report=report,
    summary=summary,
    as_if_run_by=_as_if_run_by,
)
