"""What a person orders of a transfer study: its plan, freeze, amendments and runs.

One order freezes everything: families, plan and study stand in three neighbouring records.
"""

from collections.abc import Sequence

import msgspec

from actors.families.problems import said_once
from actors.families.review import review_suite
from actors.loop import Done, Handlers, Work
from actors.sandbox import probe
from actors.study import freezing
from actors.study.freezing import (
    JSON,
    nothing_to_amend,
    prepared_plan,
    refuse_amendment,
    refuse_if_frozen,
    require_as_frozen,
    start_amendment,
    study_frozen,
)
from actors.transfer.components import components
from actors.transfer.reexecution import execute_again
from actors.transfer.suite import (
    check_commands,
    extend_plan,
    freeze_suite,
    plan_suite,
    present_programs,
    read_families,
)
from ledger.errors import Refused
from ledger.log import NewEvent
from projections.amendments import not_amendable
from projections.fold import fold
from projections.progress import Progress
from projections.transfer.corrections import Corrections
from projections.transfer.frozen_programs import FrozenPrograms, Programs
from schemas.base import ArtifactRef
from schemas.commands import AmendStudy, FreezeStudy, PreparePlan, StartRun
from schemas.events.study import FrozenFile
from schemas.events.transfer import FamiliesFrozen
from schemas.identifiers import STUDY_STREAM
from schemas.plan import Plan
from schemas.transfer.family import Family, FrozenSuite
from schemas.transfer.study import TransferStudy

MAX_SHOWN = 20


def prepared(work: Work, study: TransferStudy) -> tuple[FrozenSuite, Plan]:
    """Suite and plan from the family files as they stand. Raises Refused with every problem."""
    families = read_families(work.context.directory, study)
    corrections = fold(Corrections(), work.context.log_facts())
    _refuse_problems(families, corrections)
    check_commands(work.context.directory, study)
    suite = freeze_suite(study, families, corrections.standings)
    return suite, plan_suite(study, suite)


def put_programs(work: Work, programs: Programs) -> ArtifactRef:
    return work.artifacts.put(msgspec.json.encode(programs, order="sorted"), JSON)


def families_event(work: Work, study: TransferStudy, suite: FrozenSuite) -> FamiliesFrozen:
    head = work.log.head()
    programs = present_programs(work.context.directory, study)
    return FamiliesFrozen(
        suite=work.artifacts.put(msgspec.json.encode(suite), JSON),
        version=suite.version,
        families=len(suite.families),
        cases=sum(len(family.cases) for family in suite.families),
        position=-1 if head is None else head.seq,
        programs=put_programs(work, programs) if programs else None,
    )


def prepare_plan(work: Work) -> Done:
    """Compute the order of all cells from the families."""
    _, study = work.context.directory.read_study_of(TransferStudy)
    refuse_if_frozen(work, ", and its plan with it: `ledger status --cells` lists the cells")
    _, plan = prepared(work, study)
    return Done([NewEvent(STUDY_STREAM, prepared_plan(work, plan))])


def freeze_study(work: Work) -> Done:
    """Bind families, plan and study in three neighbouring records."""
    content, study = work.context.directory.read_study_of(TransferStudy)
    refuse_if_frozen(work, " already")
    suite, plan = prepared(work, study)
    families, planned = families_event(work, study, suite), prepared_plan(work, plan)
    frozen = study_frozen(
        work,
        content,
        study,
        components(study),
        tasks=families.suite.digest,
        plan=planned.plan.digest,
    )
    return Done([NewEvent(STUDY_STREAM, event) for event in (families, planned, frozen)])


def amend_study(work: Work) -> Done:
    """Record what differs from what is frozen, and the plan where systems were added; families are
    open to no amendment."""
    amending = start_amendment(work, TransferStudy)
    if problems := not_amendable(amending.study, amending.progress):
        refuse_amendment(problems)
    changed, removed = amending.differences()
    code = amending.changed_components(components(amending.study), execute_again)
    present = present_programs(work.context.directory, amending.study)
    recorded = fold(FrozenPrograms(work.artifacts.get), work.context.log_facts()).recorded
    if not changed and not removed and not code and (not recorded or present == recorded):
        raise nothing_to_amend()
    _refuse_changed_families(amending.before, changed)
    check_commands(work.context.directory, amending.study)
    return amending.recorded(
        changed,
        removed,
        code,
        plan=_amended_plan(amending.study, amending.progress),
        programs=put_programs(work, present) if present else None,
    )


def _refuse_changed_families(before: TransferStudy, changed: Sequence[FrozenFile]) -> None:
    families = [f"documents/{path}" for path in before.suite.families]
    for file in changed:
        if file.name in families:
            raise Refused(
                f"{file.name} changed: another prompt, fixture or predicate is another suite. Put "
                "it back, or begin a new study with another suite.version"
            )


def _amended_plan(study: TransferStudy, progress: Progress) -> Plan | None:
    """The plan as the amended study has it; None where it stays. Until the first run has begun it
    is made anew; afterwards the cells of new systems are put at its end."""
    assert progress.suite is not None and progress.prepared_plan is not None
    amended = plan_suite(study, progress.suite)
    if progress.begun:
        amended = extend_plan(progress.prepared_plan, amended)
    return amended if amended != progress.prepared_plan else None


def start_run(work: Work) -> Done:
    """Check that everything is as frozen and that no command sees the answers; ask the
    scheduler."""
    study, progress, waiting = require_as_frozen(work, TransferStudy, components)
    check_commands(work.context.directory, study)  # files may have moved since the freeze
    return freezing.start_run(work, study, progress, waiting, probe())


def _refuse_problems(families: Sequence[Family], corrections: Corrections) -> None:
    lines = [
        f"{family_id}: {problem}"
        for family_id, problems in review_suite(families, corrections).items()
        for problem in said_once(problems)
        if not problem.waived
    ]
    if lines:
        more = len(lines) - MAX_SHOWN
        if more > 0:
            lines[MAX_SHOWN:] = [f"and {more} more: `ledger transfer validate` shows all"]
        raise Refused("the suite is not ready to be frozen:\n" + "\n".join(lines))


ORDERS: Handlers = {
    PreparePlan: prepare_plan,
    FreezeStudy: freeze_study,
    AmendStudy: amend_study,
    StartRun: start_run,
}
