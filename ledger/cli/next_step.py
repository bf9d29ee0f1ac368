"""What a study needs next, found from its ledger: the one place that gives hints."""

import sys

from actors.loop import Context
from actors.study.declarations import edited, in_short
from actors.study.outdated_analysis import outdated_by
from actors.study_kinds import kind_of
from ledger.cli.printable import printable
from projections.amendments import Amendments
from projections.fold import fold
from projections.progress import Progress
from schemas.events.study import (
    AnalysisCompleted,
    ReportWritten,
    StudyFrozen,
)
from schemas.study import Study


def next_step(context: Context, study: Study) -> str:
    """A command in backquotes with what it is for, or what stands in its way."""
    facts = list(context.log_facts())
    if any(isinstance(fact.event, StudyFrozen) for fact in facts):
        return after_freeze(context, fold(Progress(context.artifacts.get), facts))
    return kind_of(study).before_freeze(context, study)


def after_freeze(context: Context, progress: Progress) -> str:
    """``progress``: folded up to the end of the log."""
    if not progress.completed:
        return "`ledger run`"
    analysed, reported = -1, False
    for fact in context.study_facts():
        if isinstance(fact.event, AnalysisCompleted):
            analysed, reported = fact.event.head, False
        reported |= isinstance(fact.event, ReportWritten)
    if analysed < 0 or outdated_by(context, analysed) is not None:
        return '`ledger analyze --reason "…"`'
    if not reported:
        return "`ledger report`"
    return "nothing: the report of the last analysis is written (`ledger report` writes it again)"


def as_bound(context: Context) -> Amendments | None:
    """What the freeze and later amendments bound; None for an imported copy, which has all that it
    needs in its ledger."""
    if context.directory.is_imported:
        return None
    return fold(Amendments(context.artifacts.get), context.study_facts())


def warn_of_edits(context: Context, what: str) -> None:
    """One line on standard error where study.toml or a document is not as frozen: ``what`` is shown
    of the frozen study all the same."""
    amendments = as_bound(context)
    names = edited(context.directory, amendments) if amendments else []
    if names:
        print(
            f"ledger: {what} is of the study as it was frozen or last amended, without what has "
            f"changed since in {printable(in_short(names))}",
            file=sys.stderr,
        )
