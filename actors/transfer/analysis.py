"""Analysis and report of a transfer study.

The scores are written down with the digest of the scorer and the head that they were computed from.
A later analysis that turns a run's ``unobserved`` into ``pass`` is refused (scoring rule 6): an
upgrade needs a new run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.loop import Context
from actors.study.analysis import Analysis, Recorded, Summary, code_not_as_frozen
from actors.study.components import present_components
from actors.transfer.components import components
from ledger.errors import Integrity, Refused
from projections.amendments import Amendments
from projections.declaration_history import Declarations
from projections.fold import Follower
from projections.progress import Progress
from projections.report.amendments_page import render_amendments
from projections.report.conduct import Conduct
from projections.report.html_page import render_html
from projections.report.markdown_page import render_markdown
from projections.report.model import RUN_PAGES, run_page
from projections.results import ComputedFrom
from projections.transfer.csv_files import render_counts, render_runs
from projections.transfer.frozen_programs import FrozenPrograms
from projections.transfer.remediations import Remediations
from projections.transfer.report.build import build_transfer_report
from projections.transfer.report.inputs import TransferInputs
from projections.transfer.report.result import (
    NOTICE,
    interim_sentence,
    result_sentence,
    system_in_words,
)
from projections.transfer.results import (
    TransferResults,
    transfer_results,
)
from projections.transfer.run_page import build_run_page
from projections.transfer.scores import RunScore, TransferScores
from schemas.base import ArtifactRef
from schemas.counted import first_few
from schemas.events.transfer import TransferScored
from schemas.study import of_kind
from schemas.transfer.study import TransferStudy

JSON = "application/json"


def compute(context: Context, seq: int, leaf: str) -> TransferResults:
    read = context.artifacts.get
    progress, scores = Progress(read), TransferScores(read)
    declarations, amendments = Declarations(TransferStudy, read), Amendments(read)
    remediations, programs = Remediations(), FrozenPrograms(read)
    states = (progress, scores, declarations, amendments, remediations, programs)
    Follower(context.log, *states).catch_up(seq + 1)
    if progress.frozen is None or scores.suite is None or scores.study is None:
        raise Refused("the suite is not frozen, so nothing can be scored: `ledger freeze` first")
    parts = components(scores.study)
    scorer = present_components(parts)["scorer"]
    return transfer_results(
        scores,
        declarations.versions,
        remediations,
        programs,
        ComputedFrom(study=progress.frozen.digest, head=seq, leaf=leaf),
        progress.simulated,
        scorer.digest,
        code_not_as_frozen(amendments, parts),
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


def report(
    context: Context, recorded: Recorded[TransferResults], pages: bool
) -> Mapping[str, bytes]:
    """The report, and with ``pages`` one of every run too."""
    read, results = context.artifacts.get, recorded.results
    progress, scores = Progress(read), TransferScores(read)
    amendments, conduct = Amendments(read), Conduct()
    head = results.computed_from.head
    Follower(context.log, progress, scores, amendments, conduct).catch_up(head + 1)
    assert progress.study is not None  # its results were computed from the frozen study
    study = of_kind(TransferStudy, progress.study)
    page = build_transfer_report(
        TransferInputs(
            results=results,
            study=study,
            amendments=amendments,
            conduct=conduct,
            root=recorded.root,
            checkpoint=recorded.checkpoint,
            analysis=recorded.seq,
            results_digest=recorded.content.digest,
        )
    )
    of_runs = {
        f"{RUN_PAGES}/{run_page(run.cell)}": render_html(
            build_run_page(run, scores.evidence[run.cell], results, study.id, read)
        )
        for run in (results.runs if pages else ())
    }
    return {
        "report.html": render_html(page),
        "report.md": render_markdown(page),
        "runs.csv": render_runs(results),
        "counts.csv": render_counts(results),
        "PROTOCOL_AMENDMENTS.md": render_amendments(amendments),
        **of_runs,
    }


def summary(results: TransferResults) -> Summary:
    boundaries = [
        f"boundary   {run.cell}: {run.boundary_failure}" for run in results.boundary_failures
    ]
    thresholds = [
        f"threshold  {found.id} ({results.label(found.memory, found.driver)}, "
        f"{found.class_ or 'all'}): "
        f"{found.n}/{found.of}{f' (+{found.void} void)' if found.void else ''}, "
        f"{found.limit}: {found.status.replace('_', ' ')}, {found.chosen}"
        for found in results.thresholds
    ]
    changed = [f"changed    {dropped.words}" for dropped in results.dropped]
    missed = [
        f"{'undecided' if found.status == 'not_decided' else 'missed':<10} {found.id}: "
        f"{found.memory} + {found.driver}, {found.class_ or 'all'}: {found.words}"
        for found in results.missed
    ]
    systems = [f"{each.label}: {system_in_words(each, results.runs)}." for each in results.systems]
    return Summary(
        sentence=" ".join([result_sentence(results), *systems]),
        interim=interim_sentence(results),
        body=[_systems(results), *boundaries, *thresholds, *changed, NOTICE],
        missed=results.missed,
        dropped=results.dropped,
        thresholds=[*changed, *missed],
    )


def _systems(results: TransferResults) -> list[dict[str, Any]]:
    return [
        {
            "system": system.label,
            "class": each.class_,
            "verified": f"{each.verified}/{each.runs}"
            + (f" (+{each.void} void)" if each.void else ""),
            "unverified": each.unverified,
            "failed": each.failed,
            "behavioural": f"{each.behavioural}/{each.behavioural_of}",
            "cannot show": ", ".join(system.cannot_show) or "nothing",
        }
        for system in results.systems
        for each in system.classes
    ]


def _as_if_run_by(results: TransferResults, other: TransferResults) -> TransferResults:
    return msgspec.structs.replace(
        results, code_not_as_frozen=other.code_not_as_frozen, scorer=other.scorer
    )


ANALYSIS = Analysis(
    results=TransferResults,
    compute=compute,
    events=lambda context, results: (scored(context, results),),
    report=report,
    summary=summary,
    as_if_run_by=_as_if_run_by,
)
