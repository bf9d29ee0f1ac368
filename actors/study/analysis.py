"""Analysis and report: what a person orders after the last cell.

Both are functions of the records up to one head. The analysis is written down with that head and
with the digest of its results; the report is rendered from those results and from the same records,
so it can be made again, byte for byte, by whoever has the ledger and this code. What is computed
and how it is worded is its kind's: one :class:`Analysis` each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from actors.loop import Context, Done, Handlers, Work
from actors.study.components import Component, all_differences, present_components
from actors.study.declarations import in_words
from actors.study.outdated_analysis import outdated_by
from ledger.checkpoint import SignedCheckpoint, parse_checkpoint, split_notes
from ledger.errors import Integrity, Refused
from ledger.log import Fact, NewEvent
from ledger.merkle import Frontier
from ledger.record_source import Damaged, read_checkpoint_log
from projections.amendments import Amendments
from projections.results import StudyResults, encode_results
from schemas.base import ArtifactRef, Event, Value
from schemas.commands import AnalyseStudy, WriteReport
from schemas.events.study import AnalysisCompleted, OutcomesInspected, ReportWritten
from schemas.identifiers import STUDY_STREAM

JSON = "application/json"
HTML = "text/html; charset=utf-8"
MARKDOWN = "text/markdown; charset=utf-8"


R = TypeVar("R", bound=StudyResults)


@dataclass(frozen=True)
class Recorded(Generic[R]):
    """A recorded analysis with what vouches for it: the root over the records that it read, and in
    words the first signed checkpoint that covers them (empty: none does)."""

    seq: int
    results: R
    content: ArtifactRef
    root: str
    checkpoint: str


Table = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Summary:
    """What the command line says of results."""

    sentence: str
    interim: str
    """That planned cells or runs have no result yet; empty where all have."""
    body: Sequence[str | Table]
    """Lines and tables of what was found."""
    missed: Sequence[Value] = ()
    """Thresholds that are not met: where there is one, ``ledger report`` ends with status 8."""
    dropped: Sequence[Value] = ()
    """Thresholds that were declared and stand no more as they did."""
    thresholds: Sequence[str] = ()
    """Both in words."""


@dataclass(frozen=True)
class Analysis(Generic[R]):
    """How studies of one kind are analysed and reported."""

    results: type[R]
    compute: Callable[[Context, int, str], R]
    """From records 0 to a head, with the leaf of that record; writes nothing. Raises Refused where
    there is nothing to analyse yet, with what is missing."""
    events: Callable[[Context, R], Sequence[Event]]
    """What is recorded with the results. Raises Refused for results that may not be recorded."""
    report: Callable[[Context, Recorded[R], bool], Mapping[str, bytes]]
    """Content by file name; without the flag pages of single runs are left out."""
    summary: Callable[[R], Summary]
    as_if_run_by: Callable[[R, R], R]
    """The first results, with what the second say of the code that computed them."""


def handlers(analysis: Analysis[Any]) -> Handlers:
    """Handlers of the orders to analyse and to report."""

    def analyse_study(work: Work) -> Done:
        """Refused where nothing is frozen, where no inspection is recorded, and where a study that
        grades at the end is not complete."""
        results = compute(work.context, analysis)
        if not any(isinstance(fact.event, OutcomesInspected) for fact in work.facts(STUDY_STREAM)):
            raise Refused(
                "an analysis shows outcomes, and no inspection is recorded: `ledger analyze "
                '--reason "…"` records one first'
            )
        head = results.computed_from
        content = work.artifacts.put(encode_results(results), JSON)
        events = [
            *analysis.events(work.context, results),
            AnalysisCompleted(head=head.head, leaf=head.leaf, results=content),
        ]
        return Done([NewEvent(STUDY_STREAM, event) for event in events])

    def write_report(work: Work) -> Done:
        """Render the report of the last analysis and record its digests."""
        head, files = report_files(work.context, analysis, pages=False)
        event = ReportWritten(
            head=head,
            html=work.artifacts.put(files["report.html"], HTML),
            markdown=work.artifacts.put(files["report.md"], MARKDOWN),
        )
        return Done([NewEvent(STUDY_STREAM, event)])

    return {AnalyseStudy: analyse_study, WriteReport: write_report}


def compute(context: Context, analysis: Analysis[R], head: int | None = None) -> R:
    """The results from records 0 to ``head`` (the last one by default); writes nothing.

    Raises Refused where there is nothing to analyse yet, with what is missing.
    """
    last = context.log.head()
    if last is None:
        raise Refused("the ledger is empty: there is nothing to analyse")
    seq = last.seq if head is None else head
    return analysis.compute(context, seq, _leaf(context, seq))


def code_not_as_frozen(amendments: Amendments, components: Sequence[Component]) -> list[str]:
    """``grader: actors/repair/grading.py differs`` for every component that is not as it was frozen
    or last amended."""
    present = present_components(components)
    return in_words(all_differences(amendments.components, present, amendments.read))


def last_analysis(context: Context) -> tuple[Fact, AnalysisCompleted]:
    """The last recorded analysis. Raises Refused where there is none."""
    facts = list(context.study_facts())
    for fact in reversed(facts):
        if isinstance(fact.event, AnalysisCompleted):
            return fact, fact.event
    raise Refused('there is no analysis to report: `ledger analyze --reason "…"` first')


def read_results(context: Context, seq: int, completed: AnalysisCompleted, form: type[R]) -> R:
    """The results that record ``seq`` names. Raises Refused where another version wrote them."""
    try:
        return msgspec.json.decode(context.artifacts.get(completed.results), type=form)
    except msgspec.ValidationError as error:
        raise Refused(
            f"the results in record {seq} were computed by another version ({error}): "
            '`ledger analyze --reason "…"` again'
        ) from None


def report_files(
    context: Context, analysis: Analysis[R], *, pages: bool = True
) -> tuple[int, dict[str, bytes]]:
    """(head, content by file name) of the report of the last analysis; writes nothing. Without
    ``pages`` those of single runs are left out.

    Raises Refused where there is no analysis, or where records after it say otherwise.
    """
    fact, completed = last_analysis(context)
    outdated = outdated_by(context, completed.head)
    if outdated is not None:
        raise Refused(
            f"record {outdated.seq} ({outdated.event.TYPE}) came after the analysis of records 0 "
            f'to {completed.head}: `ledger analyze --reason "…"` again'
        )
    root, checkpoint = _root(context, completed.head)
    recorded = Recorded(
        seq=fact.seq,
        results=read_results(context, fact.seq, completed, analysis.results),
        content=completed.results,
        root=root,
        checkpoint=checkpoint,
    )
    files = {**analysis.report(context, recorded, pages)}
    files["results.json"] = context.artifacts.get(completed.results)
    return completed.head, files


def last_results(context: Context, form: type[R]) -> R:
    """The results of the last recorded analysis. Raises Refused where there is none."""
    fact, completed = last_analysis(context)
    return read_results(context, fact.seq, completed, form)


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
