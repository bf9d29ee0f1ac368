"""What a study needs next, found from its ledger: the one place that gives hints."""

import sys

from actors.loop import Context
from actors.repair.declarations import texts_digest
from actors.study.declarations import edited, in_short
from actors.study.outdated_analysis import outdated_by
from ledger.cli.printable import printable
from projections.amendments import Amendments
from projections.fold import fold
from projections.progress import Progress
from projections.repair.tasks import MinedTasks
from schemas.counted import counted
from schemas.events.study import (
    AnalysisCompleted,
    PlanPrepared,
    ReportWritten,
    StudyFrozen,
    TasksFrozen,
)
from schemas.repair.study import RepairStudy
from schemas.study import Study, of_kind
from schemas.transfer.study import TransferStudy


def next_step(context: Context, study: Study) -> str:
    """A command in backquotes with what it is for, or what stands in its way."""
    facts = list(context.log_facts())
    last = {type(fact.event): fact.seq for fact in facts}
    if StudyFrozen in last:
        return after_freeze(context, fold(Progress(context.artifacts.get), facts))
    if isinstance(study, TransferStudy):
        return "`ledger transfer validate`, then `ledger freeze`"
    study = of_kind(RepairStudy, study)
    mined = fold(MinedTasks(context.artifacts.get), facts)
    texts = texts_digest(context.directory, study)
    if TasksFrozen in last and not mined.changed_since_frozen(study, texts):
        planned = last.get(PlanPrepared, -1) > last[TasksFrozen]
        return "`ledger freeze`" if planned else "`ledger plan`"
    return _towards_tasks(study, mined, texts)


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


def _towards_tasks(study: RepairStudy, mined: MinedTasks, texts: str) -> str:
    unfinished = False
    several = bool(mined.mined) and len(study.repositories) > 1
    for repository in study.repositories:
        # What is mined already need not be mined again for the sake of another repository.
        mine = f"`ledger tasks mine{f' --repository {repository.id}' if several else ''}`"
        if repository.id not in mined.mined:
            return f"{mine} ({repository.id} is not mined yet)"
        if mined.changed_settings(study, repository, texts):
            return f"{mine} (study.toml changed since {repository.id} was mined)"
        valid = sum(verdict.valid for verdict in mined.validated[repository.id].values())
        if valid >= repository.tasks:
            continue
        waiting = len(mined.waiting(repository.id))
        if valid + waiting < repository.tasks:
            return (
                f"{repository.id} has {counted(valid, 'valid task')} of the {repository.tasks} "
                f"declared, and {counted(waiting, 'candidate')} to validate: declare fewer "
                "(repositories.tasks), or look at what commits fail (`ledger tasks audit`), change "
                f"the rules in study.toml and {mine} again"
            )
        unfinished = True
    return "`ledger tasks validate`" if unfinished else "`ledger tasks freeze`"


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
