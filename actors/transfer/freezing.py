"""Preparing, freezing and amending a study of kind ``transfer``: what ``operator`` hands over here.

One order freezes everything: families, plan and study stand in three neighbouring records.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from actors.families.problems import said_once
from actors.families.review import review_suite
from actors.loop import Work
from actors.transfer.suite import (
    check_commands,
    extend_plan,
    freeze_suite,
    plan_suite,
    present_programs,
    read_families,
)
from ledger.errors import Refused
from projections.fold import fold
from projections.progress import Progress
from projections.transfer.corrections import Corrections
from projections.transfer.frozen_programs import Programs
from projections.transfer.system_identity import driver_digest, memory_digest
from schemas.base import ArtifactRef
from schemas.events.study import FrozenFile, PlanPrepared, TreatmentIdentity
from schemas.events.transfer import FamiliesFrozen
from schemas.plan import Plan
from schemas.transfer.family import Family, FrozenSuite
from schemas.transfer.study import TransferStudy

JSON = "application/json"
MAX_SHOWN = 20


def prepared(work: Work, study: TransferStudy) -> tuple[FrozenSuite, Plan]:
    """Suite and plan from the family files as they stand. Raises Refused with every problem."""
    families = read_families(work.context.directory, study)
    corrections = fold(Corrections(), work.context.log_facts())
    _refuse_problems(families, corrections)
    check_commands(work.context.directory, study)
    suite = freeze_suite(study, families, corrections.standings)
    return suite, plan_suite(study, suite)


def plan_prepared(work: Work, plan: Plan) -> PlanPrepared:
    content = work.artifacts.put(msgspec.json.encode(plan), JSON)
    return PlanPrepared(plan=content, cells=len(plan.cells))


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


def system_identities(
    study: TransferStudy, code: Sequence[FrozenFile]
) -> tuple[TreatmentIdentity, ...]:
    """Memories and drivers with what makes them the ones they are. They have no prompt files of
    their own: what they send is code and is bound with it."""
    none = sha256(b"").hexdigest()
    memories = [(f"memory.{m.id}", memory_digest(m, code)) for m in study.memories]
    drivers = [(f"driver.{d.id}", driver_digest(study, d, code)) for d in study.drivers]
    return tuple(
        TreatmentIdentity(id=name, source=digest, prompts=none)
        for name, digest in (*memories, *drivers)
    )


def amended_plan(
    work: Work, study: TransferStudy, changed: Sequence[FrozenFile], progress: Progress
) -> Plan | None:
    """The plan as the amended study has it; None where it stays. Until the first run has begun it
    is made anew; afterwards the cells of new systems are put at its end.

    Raises Refused for a family that changed: that is a new version of the suite; and for a command
    that would show its program the answers.
    """
    old, suite, plan = progress.study, progress.suite, progress.prepared_plan
    if not isinstance(old, TransferStudy) or suite is None or plan is None:
        raise Refused("the study was frozen as another kind; begin a new study for this one")
    families = [f"documents/{path}" for path in old.suite.families]
    for file in changed:
        if file.name in families:
            raise Refused(
                f"{file.name} changed: another prompt, fixture or predicate is another suite. Put "
                "it back, or begin a new study with another suite.version"
            )
    check_commands(work.context.directory, study)
    amended = plan_suite(study, suite)
    if progress.begun:
        amended = extend_plan(plan, amended)
    return amended if amended != plan else None


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
