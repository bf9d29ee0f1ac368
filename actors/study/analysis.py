"""Analysis and report: what a person orders after the last cell.

Both are functions of the records up to one head. The analysis is written down with that head and
with the digest of its results; the report is rendered from those results and from the same records,
so it can be made again, byte for byte, by whoever has the ledger and this code.
"""

import msgspec

from actors.loop import Context, Done, Handlers, Work
from actors.repair.frozen_study import repair_study
from actors.study.digests import package_files
from actors.study.outdated_analysis import outdated_by
from actors.transfer import analysis as transfer_analysis
from ledger.checkpoint import SignedCheckpoint, parse_checkpoint, split_notes
from ledger.errors import Integrity, Refused
from ledger.log import Fact, NewEvent
from ledger.merkle import Frontier
from ledger.record_source import Damaged, read_checkpoint_log
from projections.amendments import Amendments
from projections.fold import Follower
from projections.progress import Progress
from projections.repair.cells_csv import render_csv
from projections.repair.declaration_history import Declarations
from projections.repair.declared_analyses import analyse
from projections.repair.outcomes import Outcomes
from projections.repair.report import ReportInputs, build_report
from projections.repair.results import ComputedFrom, Results, encode_results
from projections.repair.tasks import MinedTasks
from projections.report.amendments_page import render_amendments
from projections.report.conduct import Conduct
from projections.report.html_page import render_html
from projections.report.markdown_page import render_markdown
from projections.residency import Residency
from projections.transfer.report import interim_sentence
from projections.transfer.results import TransferResults
from projections.transfer.results import encode_results as encode_transfer_results
from schemas.base import Event
from schemas.commands import AnalyseStudy, WriteReport
from schemas.counted import counted
from schemas.events.study import (
    AnalysisCompleted,
    OutcomesInspected,
    ReportWritten,
)
from schemas.events.transfer import FamiliesFrozen
from schemas.identifiers import STUDY_STREAM

AnyResults = Results | TransferResults

JSON = "application/json"
HTML = "text/html; charset=utf-8"
MARKDOWN = "text/markdown; charset=utf-8"

EMITS = (AnalysisCompleted, ReportWritten, *transfer_analysis.EMITS)


def analyse_study(work: Work) -> Done:
    """Compute the declared analyses from the graded cells, or the scores of a transfer study.

    Refused where nothing is frozen, where no inspection is recorded, and where a study that grades
    at the end is not complete.
    """
    results = compute(work.context)
    if not any(isinstance(fact.event, OutcomesInspected) for fact in work.facts(STUDY_STREAM)):
        raise Refused(
            "an analysis shows outcomes, and no inspection is recorded: `ledger analyze --reason "
            '"…"` records one first'
        )
    events: list[Event] = []
    if isinstance(results, TransferResults):
        events.append(transfer_analysis.scored(work.context, results))
    head = results.computed_from
    content = work.artifacts.put(encode(results), JSON)
    events.append(AnalysisCompleted(head=head.head, leaf=head.leaf, results=content))
    return Done([NewEvent(STUDY_STREAM, event) for event in events])


def write_report(work: Work) -> Done:
    """Render the report of the last analysis and record its digests."""
    head, files = report_files(work.context, pages=False)
    event = ReportWritten(
        head=head,
        html=work.artifacts.put(files["report.html"], HTML),
        markdown=work.artifacts.put(files["report.md"], MARKDOWN),
    )
    return Done([NewEvent(STUDY_STREAM, event)])


HANDLERS: Handlers = {AnalyseStudy: analyse_study, WriteReport: write_report}


def encode(results: AnyResults) -> bytes:
    """``results.json``: the same results give the same bytes."""
    if isinstance(results, TransferResults):
        return encode_transfer_results(results)
    return encode_results(results)


def compute(context: Context, head: int | None = None) -> AnyResults:
    """The results from records 0 to ``head`` (the last one by default); writes nothing.

    Raises Refused where there is nothing to analyse yet, with what is missing.
    """
    last = context.log.head()
    if last is None:
        raise Refused("the ledger is empty: there is nothing to analyse")
    seq = last.seq if head is None else head
    if is_transfer(context):
        return transfer_analysis.compute(context, seq, _leaf(context, seq))
    read = context.artifacts.get
    progress, outcomes, residency = Progress(read), Outcomes(read), Residency()
    amendments, declarations = Amendments(read), Declarations(read)
    follower = Follower(context.log, progress, outcomes, residency, amendments, declarations)
    follower.catch_up(seq + 1)
    if progress.frozen is None or progress.study is None:
        raise Refused("the study is not frozen, so nothing is declared yet: `ledger freeze` first")
    study = repair_study(progress.study)
    if progress.study.grading.when == "end" and not progress.completed:
        raise Refused(
            'this study grades at the end ([grading] when = "end") and is not complete: '
            f"{progress.cells_in_words()} ended, {progress.graded()} graded; `ledger run` goes on"
        )
    bound = {
        name.removeprefix("code/"): digest
        for name, digest in amendments.bound().items()
        if name.startswith("code/")
    }
    present = {file.name: file.digest for file in package_files()}
    return analyse(
        study,
        outcomes,
        residency,
        ComputedFrom(study=progress.frozen.digest, head=seq, leaf=_leaf(context, seq)),
        declarations.versions,
        [name for name in bound.keys() | present.keys() if bound.get(name) != present.get(name)],
    )


def is_transfer(context: Context) -> bool:
    """Whether the study of this ledger is of kind ``transfer``."""
    return any(
        stored.envelope().type == FamiliesFrozen.TYPE
        for stored in context.log.read_stream(STUDY_STREAM)
    )


def last_analysis(context: Context) -> tuple[Fact, AnalysisCompleted]:
    """The last recorded analysis. Raises Refused where there is none."""
    facts = list(context.study_facts())
    for fact in reversed(facts):
        if isinstance(fact.event, AnalysisCompleted):
            return fact, fact.event
    raise Refused('there is no analysis to report: `ledger analyze --reason "…"` first')


def read_results(context: Context, seq: int, analysis: AnalysisCompleted) -> AnyResults:
    """The results that record ``seq`` names. Raises Refused where another version wrote them."""
    form: type[Results] | type[TransferResults] = (
        TransferResults if is_transfer(context) else Results
    )
    try:
        return msgspec.json.decode(context.artifacts.get(analysis.results), type=form)
    except msgspec.ValidationError as error:
        raise Refused(
            f"the results in record {seq} were computed by another version ({error}): "
            '`ledger analyze --reason "…"` again'
        ) from None


def report_files(context: Context, *, pages: bool = True) -> tuple[int, dict[str, bytes]]:
    """(head, content by file name) of the report of the last analysis; writes nothing. Without
    ``pages`` those of single runs are left out.

    Raises Refused where there is no analysis, or where records after it say otherwise.
    """
    fact, analysis = last_analysis(context)
    outdated = outdated_by(context, analysis.head)
    if outdated is not None:
        raise Refused(
            f"record {outdated.seq} ({outdated.event.TYPE}) came after the analysis of records 0 "
            f'to {analysis.head}: `ledger analyze --reason "…"` again'
        )
    results = read_results(context, fact.seq, analysis)
    if isinstance(results, TransferResults):
        root, checkpoint = _root(context, analysis.head)
        return analysis.head, transfer_analysis.report_files(
            context,
            results,
            analysis=fact.seq,
            results_ref=analysis.results,
            root=root,
            checkpoint=checkpoint,
            pages=pages,
        )
    read = context.artifacts.get
    progress, amendments = Progress(read), Amendments(read)
    mined, conduct = MinedTasks(read), Conduct()
    Follower(context.log, progress, amendments, mined, conduct).catch_up(analysis.head + 1)
    if progress.study is None:
        raise Integrity(f"record {fact.seq} analyses records 0 to {analysis.head}: no study there")
    root, checkpoint = _root(context, analysis.head)
    report = build_report(
        ReportInputs(
            results=results,
            study=repair_study(progress.study),
            tasks=progress.tasks,
            amendments=amendments,
            mined=mined.selection(),
            conduct=conduct,
            root=root,
            checkpoint=checkpoint,
            analysis=fact.seq,
            results_digest=analysis.results.digest,
        )
    )
    return analysis.head, {
        "report.html": render_html(report),
        "report.md": render_markdown(report),
        "cells.csv": render_csv(results),
        "results.json": context.artifacts.get(analysis.results),
        "PROTOCOL_AMENDMENTS.md": render_amendments(amendments),
    }


def last_results(context: Context) -> AnyResults:
    """The results of the last recorded analysis. Raises Refused where there is none."""
    fact, analysis = last_analysis(context)
    return read_results(context, fact.seq, analysis)


def interim(results: AnyResults) -> str:
    """That planned cells or runs have no result yet, as one sentence; empty where all have."""
    if isinstance(results, TransferResults):
        return interim_sentence(results)
    waiting = sum(flow.without_verdict for flow in results.flow)
    return f"Interim: {counted(waiting, 'planned cell')} without a verdict yet." if waiting else ""


def _leaf(context: Context, seq: int) -> str:
    stored = next(context.log.read(seq, seq + 1), None)
    if stored is None:
        raise Refused(f"there is no record {seq}")
    return stored.leaf.hex()


def _root(context: Context, head: int) -> tuple[str, str]:
    """Root over records 0 to ``head``, and in words the first signed checkpoint that covers them.

    The first one stays the first, so the report of an analysis never changes. Raises Integrity
    where that checkpoint has another root than the records.
    """
    frontier = Frontier()
    frontier.extend(stored.leaf for stored in context.log.read(0, head + 1))
    root = frontier.root().hex()
    signed = _first_checkpoint(context, head + 1)
    if signed is None:
        return root, ""
    size = signed.checkpoint.size
    frontier.extend(stored.leaf for stored in context.log.read(head + 1, size))
    if (frontier.size, frontier.root()) != (size, signed.checkpoint.root):
        raise Integrity(
            f"the signed checkpoint of {size} records does not fit the log: run "
            "`ledger verify-chain`"
        )
    return root, f"{size} records of {signed.checkpoint.origin}, root {frontier.root().hex()}"


def _first_checkpoint(context: Context, size: int) -> SignedCheckpoint | None:
    """Of the notes beside the log the smallest that covers ``size`` records."""
    try:
        notes, _, _ = split_notes(read_checkpoint_log(context.directory.checkpoints))
    except Damaged:
        return None  # verification finds that
    covering = [signed for signed in map(parse_checkpoint, notes) if signed.checkpoint.size >= size]
    return min(covering, key=lambda signed: signed.checkpoint.size, default=None)
