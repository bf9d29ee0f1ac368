"""Analysis and report of a transfer study; ``actors/study/analysis.py`` hands over where it is one.

The scores are written down with the digest of the scorer and the head that they were computed from.
A later analysis that turns a run's ``unobserved`` into ``pass`` is refused (scoring rule 6): an
upgrade needs a new run.
"""

from collections.abc import Sequence

import msgspec

from actors.loop import Context
from actors.study.digests import package_files
from ledger.errors import Integrity, Refused
from projections.amendments import Amendments
from projections.fold import Follower
from projections.progress import Progress
from projections.repair.results import ComputedFrom
from projections.report.amendments_page import render_amendments
from projections.report.conduct import Conduct
from projections.report.html_page import render_html
from projections.report.markdown_page import render_markdown
from projections.report.model import RUN_PAGES, run_page
from projections.transfer.csv_files import render_counts, render_runs
from projections.transfer.frozen_programs import FrozenPrograms
from projections.transfer.remediations import Repairs
from projections.transfer.report import TransferInputs, build_transfer_report
from projections.transfer.results import (
    DeclarationHistory,
    TransferResults,
    transfer_results,
)
from projections.transfer.run_page import build_run_page
from projections.transfer.scores import RunScore, TransferScores
from projections.transfer.system_identity import scorer_digest
from schemas.base import ArtifactRef
from schemas.counted import first_few
from schemas.events.transfer import TransferScored
from schemas.transfer.study import TransferStudy

EMITS = (TransferScored,)
JSON = "application/json"


def compute(context: Context, seq: int, leaf: str) -> TransferResults:
    """The results from records 0 to ``seq``; writes nothing. Raises Refused before the freeze."""
    read = context.artifacts.get
    progress, scores = Progress(read), TransferScores(read)
    history, amendments, repairs = DeclarationHistory(read), Amendments(read), Repairs()
    programs = FrozenPrograms(read)
    states = (progress, scores, history, amendments, repairs, programs)
    Follower(context.log, *states).catch_up(seq + 1)
    if progress.frozen is None or scores.suite is None or scores.study is None:
        raise Refused("the suite is not frozen, so nothing can be scored: `ledger freeze` first")
    present = package_files()
    bound = {
        name.removeprefix("code/"): digest
        for name, digest in amendments.bound().items()
        if name.startswith("code/")
    }
    now = {file.name: file.digest for file in present}
    return transfer_results(
        scores,
        history,
        repairs,
        programs,
        ComputedFrom(study=progress.frozen.digest, head=seq, leaf=leaf),
        progress.simulated,
        scorer_digest(present),
        [name for name in bound.keys() | now.keys() if bound.get(name) != now.get(name)],
    )


def scored(context: Context, results: TransferResults) -> TransferScored:
    """The event that writes the scores down. Raises Refused for an upgrade without a new run."""
    upgraded = upgrades(recorded_scores(context), results.runs)
    if upgraded:
        raise Refused(
            "this would turn unobserved into pass without a new run: "
            f"{first_few(upgraded, 5, '; ')}. What was not observed stays so (scoring rule 6); to "
            "observe it, run the case again under an amended suite or system"
        )
    return TransferScored(
        scorer=results.scorer,
        head=results.computed_from.head,
        scores=context.artifacts.put(msgspec.json.encode(results.runs), JSON),
    )


def recorded_scores(context: Context) -> list[RunScore]:
    """The runs of every recorded scoring, earlier ones first."""
    runs: list[RunScore] = []
    for fact in context.study_facts():
        if isinstance(fact.event, TransferScored):
            runs += _decode_scores(context, fact.event.scores, fact.seq)
    return runs


def _decode_scores(context: Context, scores: ArtifactRef, seq: int) -> list[RunScore]:
    try:
        return msgspec.json.decode(context.artifacts.get(scores), type=list[RunScore])
    except msgspec.ValidationError as error:
        raise Integrity(
            f"the scores in record {seq} cannot be read ({error}): another version wrote them, and "
            "nothing can be scored beside them"
        ) from None


def upgrades(before: Sequence[RunScore], after: Sequence[RunScore]) -> list[str]:
    """``CELL: STAGE`` wherever the same run was unobserved and is called a pass now."""
    unobserved = {
        (run.cell, run.attempt, stage)
        for run in before
        for stage, found in run.stages.items()
        if found.verdict == "unobserved"
    }
    return [
        f"{run.cell}: {stage}"
        for run in after
        for stage, found in run.stages.items()
        if found.verdict == "pass" and (run.cell, run.attempt, stage) in unobserved
    ]


def report_files(
    context: Context,
    results: TransferResults,
    *,
    analysis: int,
    results_ref: ArtifactRef,
    root: str,
    checkpoint: str,
    pages: bool = True,
) -> dict[str, bytes]:
    """Content by file name of the report of an analysis; with ``pages`` those of every run too."""
    read = context.artifacts.get
    head = results.computed_from.head
    progress, scores = Progress(read), TransferScores(read)
    amendments, conduct = Amendments(read), Conduct()
    Follower(context.log, progress, scores, amendments, conduct).catch_up(head + 1)
    study = progress.study
    if not isinstance(study, TransferStudy):
        raise Integrity(f"record {analysis} analyses records 0 to {head}: no suite there")
    report = build_transfer_report(
        TransferInputs(
            results=results,
            study=study,
            amendments=amendments,
            conduct=conduct,
            root=root,
            checkpoint=checkpoint,
            analysis=analysis,
            results_digest=results_ref.digest,
        )
    )
    of_runs = {
        f"{RUN_PAGES}/{run_page(run.cell)}": render_html(
            build_run_page(run, scores.evidence[run.cell], results, study.id, read)
        )
        for run in (results.runs if pages else ())
    }
    return {
        "report.html": render_html(report),
        "report.md": render_markdown(report),
        "runs.csv": render_runs(results),
        "counts.csv": render_counts(results),
        "results.json": context.artifacts.get(results_ref),
        "PROTOCOL_AMENDMENTS.md": render_amendments(amendments),
        **of_runs,
    }
