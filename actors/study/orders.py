"""What a person orders: freezing, amending, opening outcomes, starting and stopping runs.

The command line carries these out in its own process, through the same path as every other actor
(``actors.loop.carry_out``).
"""

import platform
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.loop import Done, Handlers, Work
from actors.repair.planning import make_plan
from actors.sandbox import SandboxReport, probe
from actors.sandbox.ladder import LADDER
from actors.study.declarations import (
    check_declared,
    differs,
    listed,
    not_as_frozen,
    texts_digest,
)
from actors.study.digests import (
    checkout,
    combined,
    grader_digest,
    library_versions,
    lock_digest,
    package_files,
)
from actors.test_runs.task_runs import accepted_sandbox
from actors.test_runs.workspaces import (
    gold_only_lines,
    installed_leaks,
    leak_probe,
    make_template,
    read_snapshot,
)
from actors.transfer.freezing import (
    amended_plan,
    families_event,
    plan_prepared,
    prepared,
    put_programs,
    system_identities,
)
from actors.transfer.suite import check_commands, present_programs
from harnesses import registry
from ledger.errors import PreflightMismatch, Refused
from ledger.log import NewEvent
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments, not_amendable
from projections.fold import Follower, fold
from projections.progress import Progress
from projections.repair.tasks import MinedTasks
from projections.transfer.frozen_programs import FrozenPrograms
from projections.transfer.system_identity import scorer_digest
from schemas.commands import (
    AmendStudy,
    AnchorCheckpoint,
    ContinueStudy,
    FreezeStudy,
    FreezeTasks,
    InspectOutcomes,
    PreparePlan,
    RecordReexecution,
    StartRun,
    StopRun,
)
from schemas.counted import counted
from schemas.events.ledger import CheckpointAnchored
from schemas.events.mining import LeakProbed, SandboxProbed
from schemas.events.run import RunStarted, RunStopped
from schemas.events.study import (
    AmendmentRecorded,
    CellReexecuted,
    FrozenFile,
    OutcomesInspected,
    PlanPrepared,
    StudyFrozen,
    TasksFrozen,
    TreatmentIdentity,
)
from schemas.events.transfer import FamiliesFrozen
from schemas.identifiers import (
    LEDGER_STREAM,
    RUN_STREAM,
    STUDY_STREAM,
    parse_cell_id,
    repository_stream,
)
from schemas.study import Study
from schemas.study_file import AnyStudy
from schemas.task import Task
from schemas.transfer.study import TransferStudy

JSON = "application/json"
TOML = "application/toml"
PACK = "application/x-git-packed-objects"

EMITS = (
    CheckpointAnchored,
    TasksFrozen,
    FamiliesFrozen,
    PlanPrepared,
    StudyFrozen,
    AmendmentRecorded,
    OutcomesInspected,
    RunStarted,
    RunStopped,
    SandboxProbed,
    LeakProbed,
    CellReexecuted,
)


def freeze_tasks(work: Work) -> Done:
    """Fix the split: per repository the first valid candidates in mining order."""
    from actors.mining import pack_trees  # pulls in pygit2, which most commands do not need

    _, study = work.context.directory.read_repair_study()
    _refuse_if_frozen(work, ", and its tasks with it")
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
        probe_event = probe_for_leaks(work, repository.id, source, valid)
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


def probe_for_leaks(work: Work, repository: str, source: Path, tasks: Sequence[Task]) -> LeakProbed:
    """Search every file and object of the tasks' templates for lines that only gold or the hidden
    tests have, and the files that their environments have installed under the same names. More of
    a repository a test run cannot see."""
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
        leaks += installed_leaks(environment, [file.path for file in told], lines)
        objects += len(base)
        findings += [f"{task.id}: {leak.kind} {leak.place}" for leak in leaks]
    return LeakProbed(
        repository=repository, tasks=len(tasks), objects=objects, findings=tuple(findings[:100])
    )


def prepare_plan(work: Work) -> Done:
    """Compute the order of all cells from the study and the frozen tasks, or from the families."""
    _, study = work.context.directory.read_study()
    _refuse_if_frozen(work, ", and its plan with it: `ledger status --cells` lists the cells")
    if isinstance(study, TransferStudy):
        _, plan = prepared(work, study)
        return Done([NewEvent(STUDY_STREAM, plan_prepared(work, plan))])
    progress = fold(Progress(work.artifacts.get), work.facts(STUDY_STREAM))
    if not progress.tasks:
        raise Refused("no tasks are frozen: `ledger tasks freeze` first")
    check_declared(work.context.directory, study, contrasts=True)
    _refuse_changed_selection(work, study)
    plan = make_plan(study, list(progress.tasks.values()))
    return Done([NewEvent(STUDY_STREAM, plan_prepared(work, plan))])


def freeze_study(work: Work) -> Done:
    """Bind everything in one event of digests."""
    content, study = work.context.directory.read_study()
    _refuse_if_frozen(work, " already")
    code = package_files()
    if isinstance(study, TransferStudy):
        suite, plan = prepared(work, study)
        families, planned = families_event(work, study, suite), plan_prepared(work, plan)
        frozen = _study_frozen(
            work,
            content,
            study,
            code,
            tasks=families.suite.digest,
            plan=planned.plan.digest,
            treatments=system_identities(study, code),
            grader=scorer_digest(code),
        )
        events = (families, planned, frozen)
        return Done([NewEvent(STUDY_STREAM, event) for event in events])
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
    frozen = _study_frozen(
        work,
        content,
        study,
        code,
        tasks=tasks[-1].tasks.digest,
        plan=plans[-1].plan.digest,
        treatments=_treatments(study),
        grader=grader_digest(code),
    )
    return Done([NewEvent(STUDY_STREAM, frozen)])


def _study_frozen(
    work: Work,
    content: bytes,
    study: AnyStudy,
    code: tuple[FrozenFile, ...],
    *,
    tasks: str,
    plan: str,
    treatments: tuple[TreatmentIdentity, ...],
    grader: str,
) -> StudyFrozen:
    """The event of the freeze, with the digest over all of it as the study's name."""
    names = study.bound_documents
    documents = [work.context.directory.document(name) for name in names]
    commit, dirty = checkout()
    frozen = StudyFrozen(
        study=work.artifacts.put(content, TOML),
        digest="0" * 64,
        documents=_named(names, documents),
        document_contents=tuple(
            work.artifacts.put(document, "application/octet-stream") for document in documents
        ),
        tasks=tasks,
        plan=plan,
        treatments=treatments,
        code=code,
        grader=grader,
        lock=lock_digest(),
        commit=commit,
        dirty=dirty,
        simulated=study.simulated,
    )
    digest = sha256(msgspec.json.encode(frozen, order="sorted")).hexdigest()
    return msgspec.structs.replace(frozen, digest=digest)


def amend_study(work: Work) -> Done:
    """Record what differs from what is frozen; the ledger finds the amendment's class itself."""
    command: AmendStudy = work.command
    read = work.artifacts.get
    amendments, progress, mined = Amendments(read), Progress(read), MinedTasks(read)
    programs = FrozenPrograms(read)
    Follower(work.log, amendments, progress, mined, programs).catch_up()
    if amendments.frozen is None:
        raise Refused("the study is not frozen yet: change it freely, then `ledger freeze`")
    content, study = work.context.directory.read_study()
    if problems := not_amendable(study, progress, mined):
        raise Refused(
            f"no amendment changes this: {'; '.join(problems)}. Put it back; another study has a "
            "folder of its own (`ledger init`)"
        )
    changed, removed = frozen_differences(work.context.directory, study, content, amendments)
    present = None
    if isinstance(study, TransferStudy):
        present = present_programs(work.context.directory, study)
    if not changed and not removed and (not programs.recorded or present == programs.recorded):
        raise Refused(
            "nothing that is frozen has changed, so there is nothing to record: change study.toml, "
            "a document that it names, or the program first"
        )
    plan = None
    if isinstance(study, TransferStudy):
        plan = amended_plan(work, study, changed, progress)
    event = AmendmentRecorded(
        reason=command.reason,
        changes_claim=command.changes_claim,
        finding=amendments.finding(),
        inspections=tuple(amendments.inspections),
        changed=changed,
        removed=removed,
        study=work.artifacts.put(content, TOML),
        plan=work.artifacts.put(msgspec.json.encode(plan), JSON) if plan else None,
        programs=put_programs(work, present) if present else None,
    )
    return Done([NewEvent(STUDY_STREAM, event)])


def inspect_outcomes(work: Work) -> Done:
    """Write down that outcomes are about to be shown. The caller shows them afterwards."""
    command: InspectOutcomes = work.command
    progress = fold(Progress(work.artifacts.get), work.context.log_facts())
    if progress.frozen is None or progress.study is None:
        raise Refused("the study is not frozen: there are no outcomes")
    if progress.study.grading.when == "end" and not progress.completed:
        left = len(progress.cells) - progress.done_cells()
        if left == 0:
            raise Refused(
                "every cell has ended, but grading or the last gold checks have not: "
                "`ledger run` finishes them"
            )
        raise Refused(
            'this study grades at the end ([grading] when = "end"): outcomes do not exist before '
            f"its last cell ({counted(left, 'cell')} to go, then grading)"
        )
    known = progress.with_outcome()
    return Done([NewEvent(STUDY_STREAM, OutcomesInspected(reason=command.reason, graded=known))])


def start_run(work: Work) -> Done:
    """Check that everything is as frozen and that tests can be contained; ask the scheduler."""
    command: StartRun = work.command
    directory = work.context.directory
    read = work.artifacts.get
    progress, amendments, mined = Progress(read), Amendments(read), MinedTasks(read)
    Follower(work.log, progress, amendments, mined).catch_up()
    if progress.frozen is None:
        raise Refused("the study is not frozen: `ledger freeze` first")
    _, study = directory.read_study()
    if changed := not_as_frozen(directory, amendments):
        raise Refused(differs(changed, amendments.study))
    if isinstance(study, TransferStudy):
        check_commands(directory, study)  # an earlier version froze without, or files have moved
    unsafe = command.allow_unsafe_sandbox or not study.runs_foreign_code
    probed = accepted_sandbox(_probe_as_validated(mined.validated_in()), unsafe)
    commit, dirty = checkout()
    libraries = {
        name: version
        for name, version in library_versions().items()
        if name in ("numpy", "google-re2", "msgspec", "pygit2", "pytest")
    }
    started = RunStarted(
        study=progress.frozen.digest,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        libraries=libraries,
        commit=commit,
        dirty=dirty,
        resumed=progress.runs > 0,
    )
    return Done([NewEvent(RUN_STREAM, started), NewEvent(RUN_STREAM, probed)], [ContinueStudy()])


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


def stop_run(work: Work) -> Done:
    command: StopRun = work.command
    progress = fold(Progress(work.artifacts.get), work.context.log_facts())
    event = RunStopped(
        reason=command.reason, detail=command.detail, cells_finished=progress.done_cells()
    )
    return Done([NewEvent(RUN_STREAM, event)])


def record_reexecution(work: Work) -> Done:
    command: RecordReexecution = work.command
    event = CellReexecuted(
        cell=command.cell,
        identical=command.identical,
        compared=command.compared,
        first_difference=command.first_difference,
    )
    return Done([NewEvent(parse_cell_id(command.cell).stream, event)])


def anchor_checkpoint(work: Work) -> Done:
    command: AnchorCheckpoint = work.command
    event = CheckpointAnchored(
        size=command.size,
        note=command.note,
        kind=command.kind,
        where=command.where,
        receipt=command.receipt,
    )
    return Done([NewEvent(LEDGER_STREAM, event)])


def frozen_differences(
    directory: StudyDirectory, study: AnyStudy, content: bytes, amendments: Amendments
) -> tuple[tuple[FrozenFile, ...], tuple[str, ...]]:
    """(changed or new files with their present digests, names that are gone), against what the
    freeze and later amendments bound."""
    bound = amendments.bound()
    present = {
        "study.toml": sha256(content).hexdigest(),
        **{
            f"documents/{name}": sha256(directory.document(name)).hexdigest()
            for name in study.bound_documents
        },
        **{f"code/{file.name}": file.digest for file in package_files()},
        "libraries": lock_digest(),
    }
    changed = tuple(
        FrozenFile(name=name, digest=digest)
        for name, digest in sorted(present.items())
        if bound.get(name) != digest
    )
    return changed, tuple(sorted(set(bound) - set(present)))


def _refuse_if_frozen(work: Work, what: str) -> None:
    if any(isinstance(fact.event, StudyFrozen) for fact in work.facts(STUDY_STREAM)):
        raise Refused(
            f"the study is frozen{what}; `ledger status` tells what comes next. A change of "
            "study.toml, documents or code is an amendment (`ledger amend`); other tasks, other "
            "families or another plan are another study (`ledger init`)"
        )


def _refuse_changed_selection(work: Work, study: Study) -> None:
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


def _named(names: Sequence[str], contents: Sequence[bytes]) -> tuple[FrozenFile, ...]:
    return tuple(
        FrozenFile(name=name, digest=sha256(content).hexdigest())
        for name, content in zip(names, contents, strict=True)
    )


def _treatments(study: Study) -> tuple[TreatmentIdentity, ...]:
    identities = []
    for treatment in study.treatments:
        harness = registry.find_harness(treatment.id)
        identities.append(
            TreatmentIdentity(
                id=treatment.id,
                source=registry.source_digest(harness),
                prompts=combined(registry.prompt_digests(harness)),
            )
        )
    return tuple(identities)


HANDLERS: Handlers = {
    FreezeTasks: freeze_tasks,
    PreparePlan: prepare_plan,
    FreezeStudy: freeze_study,
    AmendStudy: amend_study,
    InspectOutcomes: inspect_outcomes,
    StartRun: start_run,
    StopRun: stop_run,
    RecordReexecution: record_reexecution,
    AnchorCheckpoint: anchor_checkpoint,
}
