"""What a person orders of a repair study: its tasks, plan, freeze, amendments and runs."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.languages.registry import LANGUAGES
from actors.loop import Done, Handlers, Work
from actors.repair.components import components
from actors.repair.declarations import check_declared, listed, texts_digest
from actors.repair.planning import make_plan
from actors.repair.reexecution import execute_again
from actors.sandbox import SandboxReport, probe
from actors.sandbox.ladder import LADDER
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
from actors.test_runs.git_trees import read_snapshot
from actors.test_runs.leak_probe import gold_only_lines, installed_leaks, leak_probe
from actors.test_runs.templates import make_template
from ledger.errors import PreflightMismatch, Refused
from ledger.log import NewEvent
from projections.amendments import not_amendable
from projections.fold import fold
from projections.progress import Progress
from projections.repair.tasks import MinedTasks
from schemas.commands import AmendStudy, FreezeStudy, FreezeTasks, PreparePlan, StartRun
from schemas.counted import counted
from schemas.events.mining import LeakProbed
from schemas.events.study import PlanPrepared, TasksFrozen
from schemas.identifiers import STUDY_STREAM, repository_stream
from schemas.repair.study import RepairStudy, Repository
from schemas.repair.task import Task

PACK = "application/x-git-packed-objects"


def freeze_tasks(work: Work) -> Done:
    """Fix the split: per repository the first valid candidates in mining order."""
    from actors.mining import pack_trees  # pulls in pygit2, which most commands do not need

    _, study = work.context.directory.read_study_of(RepairStudy)
    refuse_if_frozen(work, ", and its tasks with it")
    mined = fold(MinedTasks(work.artifacts.get), work.context.log_facts())
    texts = texts_digest(work.context.directory, study)
    for repository in study.repositories:
        changed = mined.changed_settings(study, repository, texts)
        if changed and repository.id in mined.mined:
            raise Refused(
                f"study.toml is not what the candidates were validated under ({listed(changed)}): "
                "put it back, or `ledger tasks mine` and `ledger tasks validate` again"
            )
    tasks: list[Task] = []
    packs = {}
    probes = []
    for repository in study.repositories:
        valid = mined.valid_tasks(repository.id)[: repository.tasks]
        if len(valid) < repository.tasks:
            raise Refused(
                f"repository {repository.id} has {counted(len(valid), 'valid task')} and the study "
                f"declares {repository.tasks}: {_way_to_more_tasks(mined, repository.id)}"
            )
        tasks += valid
        source = work.context.directory.repository_path(repository.url)
        trees = sorted({task.base_tree for task in valid})
        packs[repository.id] = work.artifacts.put(pack_trees(source, trees), PACK)
        probe_event = probe_for_leaks(work, repository, source, valid)
        probes.append(NewEvent(repository_stream(repository.id), probe_event))
        if probe_event.findings:
            work.commit(probes)
            raise Refused(
                f"lines that only gold has are within reach of a test run: "
                f"{'; '.join(probe_event.findings[:5])}. What is installed comes from a "
                "requirement: declare an older version in a file of layout.requirements, or a "
                f"later tasks.not_before. Anything else: remove {work.context.directory.templates} "
                "and freeze again; if it comes back, this is a fault of the program"
            )
    content = msgspec.json.encode(tasks)
    event = TasksFrozen(tasks=work.artifacts.put(content, JSON), count=len(tasks), packs=packs)
    return Done([*probes, NewEvent(STUDY_STREAM, event)])


def _way_to_more_tasks(mined: MinedTasks, repository: str) -> str:
    if repository not in mined.mined:
        return "`ledger tasks mine`, then `ledger tasks validate`"
    if waiting := mined.waiting(repository):
        return f"`ledger tasks validate` goes on ({counted(len(waiting), 'candidate')} left)"
    return (
        "no candidate is left. Declare fewer (repositories.tasks), or look at what the commits "
        "fail (`ledger tasks audit`) and at the rules in study.toml"
    )


def probe_for_leaks(
    work: Work, repository: Repository, source: Path, tasks: Sequence[Task]
) -> LeakProbed:
    """Search every file and object of the tasks' templates for lines that only gold or the hidden
    tests have, and the files that their environments have installed under the same names. More of
    a repository a test run cannot see."""
    language = LANGUAGES[repository.language]
    findings: list[str] = []
    objects = 0
    for task in tasks:
        template = make_template(source, task.base_tree, work.context.directory.templates)
        base = read_snapshot(template / ".git", task.base_tree)
        told = (*task.gold.write, *task.hidden.write)
        lines = gold_only_lines(
            (entry.content for entry in base), (work.artifacts.get(f.content) for f in told)
        )
        environment = work.context.directory.environments / task.environment
        leaks = leak_probe(template, lines)
        leaks += installed_leaks(language, environment, [file.path for file in told], lines)
        objects += len(base)
        findings += [f"{task.id}: {leak.kind} {leak.place}" for leak in leaks]
    return LeakProbed(
        repository=repository.id, tasks=len(tasks), objects=objects, findings=tuple(findings[:100])
    )


def prepare_plan(work: Work) -> Done:
    """Compute the order of all cells from the study and the frozen tasks."""
    _, study = work.context.directory.read_study_of(RepairStudy)
    refuse_if_frozen(work, ", and its plan with it: `ledger status --cells` lists the cells")
    progress = fold(Progress(work.artifacts.get), work.facts(STUDY_STREAM))
    if not progress.tasks:
        raise Refused("no tasks are frozen: `ledger tasks freeze` first")
    check_declared(work.context.directory, study, contrasts=True)
    _refuse_changed_selection(work, study)
    plan = make_plan(study, list(progress.tasks.values()))
    return Done([NewEvent(STUDY_STREAM, prepared_plan(work, plan))])


def freeze_study(work: Work) -> Done:
    """Bind everything in one event of digests."""
    content, study = work.context.directory.read_study_of(RepairStudy)
    refuse_if_frozen(work, " already")
    facts = work.facts(STUDY_STREAM)
    tasks = [fact.event for fact in facts if isinstance(fact.event, TasksFrozen)]
    plans = [fact.event for fact in facts if isinstance(fact.event, PlanPrepared)]
    if not tasks:
        raise Refused("no tasks are frozen: `ledger tasks freeze` first")
    if not plans:
        raise Refused("there is no plan: `ledger plan` first")
    check_declared(work.context.directory, study, contrasts=True)
    _refuse_changed_selection(work, study)
    plan = make_plan(
        study, msgspec.json.decode(work.artifacts.get(tasks[-1].tasks), type=list[Task])
    )
    if sha256(msgspec.json.encode(plan)).hexdigest() != plans[-1].plan.digest:
        raise Refused(
            "study.toml or the tasks changed after the plan was made: `ledger plan` again"
        )
    frozen = study_frozen(
        work,
        content,
        study,
        components(study),
        tasks=tasks[-1].tasks.digest,
        plan=plans[-1].plan.digest,
    )
    return Done([NewEvent(STUDY_STREAM, frozen)])


def amend_study(work: Work) -> Done:
    """Record what differs from what is frozen; how tasks were selected is open to no amendment."""
    amending = start_amendment(work, RepairStudy)
    mined = fold(MinedTasks(work.artifacts.get), work.context.log_facts())
    problems = not_amendable(amending.study, amending.progress)
    problems += mined.amended_selection(amending.study)
    if problems:
        refuse_amendment(problems)
    changed, removed = amending.differences()
    code = amending.changed_components(components(amending.study), execute_again)
    if not changed and not removed and not code:
        raise nothing_to_amend()
    return amending.recorded(changed, removed, code)


def start_run(work: Work) -> Done:
    """Check that everything is as frozen and that tests can be contained; ask the scheduler."""
    study, progress, waiting = require_as_frozen(work, RepairStudy, components)
    mined = fold(MinedTasks(work.artifacts.get), work.context.log_facts())
    return freezing.start_run(
        work, study, progress, waiting, _probe_as_validated(mined.validated_in())
    )


def _probe_as_validated(kinds: frozenset[str]) -> SandboxReport:
    """Probe for the kind of sandbox in which the tasks were validated, also where a better one has
    come since: what a test sees of the system is part of its environment.

    Raises PreflightMismatch where this host does not offer it. What was validated without any is
    run in whatever there is.
    """
    report = probe()
    if not kinds or "none" in kinds or report.kind in kinds:
        return report
    again = probe(None, [kind for kind in LADDER if kind in kinds])
    if again.kind in kinds:
        return again
    raise PreflightMismatch(
        f"the tasks were validated in the sandbox {' or '.join(sorted(kinds))}, and this host has "
        f"{report.kind} instead (`ledger doctor` says why). {again.remedy}".rstrip()
    )


def _refuse_changed_selection(work: Work, study: RepairStudy) -> None:
    """Raises Refused where the frozen tasks are not what ``study.toml`` would select."""
    mined = fold(MinedTasks(work.artifacts.get), work.context.log_facts())
    changed = mined.changed_since_frozen(study, texts_digest(work.context.directory, study))
    if not changed:
        return
    again = "`ledger tasks freeze` and `ledger plan` again"
    if any(setting.key != "repositories.tasks" for setting in changed):
        again = f"`ledger tasks mine`, `ledger tasks validate`, {again}"
    raise Refused(
        f"study.toml is not what the frozen tasks were selected under ({listed(changed)}): put it "
        f"back, or {again}"
    )


ORDERS: Handlers = {
    FreezeTasks: freeze_tasks,
    PreparePlan: prepare_plan,
    FreezeStudy: freeze_study,
    AmendStudy: amend_study,
    StartRun: start_run,
}
