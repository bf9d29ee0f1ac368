"""The steps that freezing, amending and running have in common for every kind of study.

A kind puts its own between them: ``actors/repair/freezing.py``, ``actors/transfer/freezing.py``.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, NoReturn

import msgspec

from actors.loop import Context, Done, Work
from actors.sandbox import SandboxReport
from actors.study.components import (
    Component,
    all_differences,
    frozen_component,
    present_components,
)
from actors.study.declarations import Changes, differs, not_as_frozen
from actors.study.digests import checkout, program_evidence
from actors.study.reexecution import Execute
from actors.test_runs.task_runs import accepted_sandbox
from ledger.errors import Refused
from ledger.log import NewEvent
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments
from projections.fold import Follower
from projections.progress import Progress
from schemas.base import ArtifactRef
from schemas.commands import AmendStudy, ContinueStudy, StartRun
from schemas.events.run import RunStarted
from schemas.events.study import (
    AmendmentRecorded,
    ComponentChange,
    FrozenFile,
    PlanPrepared,
    StudyFrozen,
)
from schemas.identifiers import RUN_STREAM, STUDY_STREAM, CellId
from schemas.plan import Plan
from schemas.study import K, Study

JSON = "application/json"
TOML = "application/toml"


def refuse_if_frozen(work: Work, what: str) -> None:
    """``what``: how the sentence "the study is frozen" goes on."""
    if any(isinstance(fact.event, StudyFrozen) for fact in work.facts(STUDY_STREAM)):
        raise Refused(
            f"the study is frozen{what}; `ledger status` tells what comes next. A change of "
            "study.toml, documents or code is an amendment (`ledger amend`); other tasks, other "
            "families or another plan are another study (`ledger init`)"
        )


def prepared_plan(work: Work, plan: Plan) -> PlanPrepared:
    content = work.artifacts.put(msgspec.json.encode(plan), JSON)
    return PlanPrepared(plan=content, cells=len(plan.cells))


def study_frozen(
    work: Work,
    content: bytes,
    study: Study,
    components: Sequence[Component],
    *,
    tasks: str,
    plan: str,
) -> StudyFrozen:
    """The event of the freeze, with the digest over all of it as the study's name."""
    names = study.bound_documents
    documents = [work.context.directory.document(name) for name in names]
    commit, dirty = checkout()
    frozen = StudyFrozen(
        study=work.artifacts.put(content, TOML),
        digest="0" * 64,
        documents=tuple(
            FrozenFile(name=name, digest=sha256(document).hexdigest())
            for name, document in zip(names, documents, strict=True)
        ),
        document_contents=tuple(
            work.artifacts.put(document, "application/octet-stream") for document in documents
        ),
        tasks=tasks,
        plan=plan,
        components=tuple(
            frozen_component(name, found, work.artifacts)
            for name, found in present_components(components).items()
        ),
        commit=commit,
        dirty=dirty,
        simulated=study.simulated,
    )
    digest = sha256(msgspec.json.encode(frozen, order="sorted")).hexdigest()
    return msgspec.structs.replace(frozen, digest=digest)


@dataclass(frozen=True)
class Amending(Generic[K]):
    """What an amendment starts from: the study as it was frozen or last amended, and as it is."""

    work: Work
    content: bytes
    before: K
    study: K
    progress: Progress
    amendments: Amendments

    def recorded(
        self,
        changed: tuple[FrozenFile, ...],
        removed: tuple[str, ...],
        components: tuple[ComponentChange, ...],
        *,
        plan: Plan | None = None,
        programs: ArtifactRef | None = None,
    ) -> Done:
        """The amendment of ``changed`` and ``removed`` documents and of ``components``; its class
        is the ledger's finding."""
        command: AmendStudy = self.work.command
        put = self.work.artifacts.put
        event = AmendmentRecorded(
            reason=command.reason,
            changes_claim=command.changes_claim,
            finding=self.amendments.finding(),
            inspections=self.amendments.inspections,
            changed=changed,
            removed=removed,
            components=components,
            study=put(self.content, TOML),
            plan=put(msgspec.json.encode(plan), JSON) if plan else None,
            programs=programs,
        )
        return Done([NewEvent(STUDY_STREAM, event)])

    def differences(self) -> tuple[tuple[FrozenFile, ...], tuple[str, ...]]:
        """(changed or new files with their present digests, names that are gone), against what the
        freeze and later amendments bound."""
        return frozen_differences(
            self.work.context.directory, self.study, self.content, self.amendments
        )

    def changed_components(
        self, components: Sequence[Component], execute: Execute
    ) -> tuple[ComponentChange, ...]:
        """What differs of each component; where re-execution computes anew what it decides, also
        whether every finished cell of it comes out the same."""
        frozen, present = self.amendments.components, present_components(components)
        replayed = {component.name for component in components if component.replayed}
        shared = self.before.shared_components
        executed: dict[CellId, bool] = {}

        def finished(name: str) -> tuple[str, ...]:
            """Every finished cell of the component, if all executed again to the same bytes."""
            cells = [
                cell.cell
                for cell in self.progress.cells.values()
                if cell.status in ("ended", "graded")
                and name in {*shared, *self.before.cell_components(cell.cell)}
            ]
            for cell in cells:
                if cell not in executed:
                    executed[cell] = _comes_out_the_same(self.work.context, cell, execute)
                if not executed[cell]:
                    return ()
            return tuple(map(str, cells))

        return tuple(
            ComponentChange(
                name=name,
                before=frozen[name].digest if name in frozen else None,
                after=frozen_component(name, present[name], self.work.artifacts)
                if name in present
                else None,
                differences=tuple(words),
                reexecuted=finished(name) if name in replayed and name in frozen else (),
            )
            for name, words in all_differences(frozen, present, self.work.artifacts.get).items()
        )


def _comes_out_the_same(context: Context, cell: CellId, execute: Execute) -> bool:
    try:
        return execute(context, cell).seq is None
    except Refused:
        return False  # it cannot be executed again, so nothing is shown


def start_amendment(work: Work, form: type[K]) -> Amending[K]:
    """Raises Refused where nothing is frozen, and where another kind of study is declared now."""
    read = work.artifacts.get
    amendments, progress = Amendments(read), Progress(read)
    Follower(work.log, amendments, progress).catch_up()
    before = progress.study
    if before is None:
        raise Refused("the study is not frozen yet: change it freely, then `ledger freeze`")
    content, study = work.context.directory.read_study()
    if not (isinstance(before, form) and isinstance(study, form)):
        refuse_amendment([f"`kind` was {before.kind} and is {study.kind}"])
    return Amending(work, content, before, study, progress, amendments)


def refuse_amendment(problems: Sequence[str]) -> NoReturn:
    raise Refused(
        f"no amendment changes this: {'; '.join(problems)}. Put it back; another study has a "
        "folder of its own (`ledger init`)"
    )


def nothing_to_amend() -> Refused:
    return Refused(
        "nothing that is frozen has changed, so there is nothing to record: change study.toml, "
        "a document that it names, or a component of the program first (`ledger components`)"
    )


def frozen_differences(
    directory: StudyDirectory, study: Study, content: bytes, amendments: Amendments
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
    }
    changed = tuple(
        FrozenFile(name=name, digest=digest)
        for name, digest in sorted(present.items())
        if bound.get(name) != digest
    )
    return changed, tuple(sorted(set(bound) - set(present)))


def require_as_frozen(
    work: Work, form: type[K], components: Callable[[Study], Sequence[Component]]
) -> tuple[K, Progress, tuple[str, ...]]:
    """The study, its progress, and the components whose cells wait, since they are not as frozen.

    Raises Refused where study.toml or a document is not as frozen or last amended, where a
    component is not that every cell needs which is to run or to be graded, or where no cell is left
    to run but those that wait.
    """
    directory = work.context.directory
    progress, amendments = Progress(work.artifacts.get), Amendments(work.artifacts.get)
    Follower(work.log, progress, amendments).catch_up()
    if progress.frozen is None:
        raise Refused("the study is not frozen: `ledger freeze` first")
    assert amendments.study is not None
    frozen = amendments.study
    changes = not_as_frozen(directory, amendments, components(frozen))
    to_run = [cell for cell in progress.cells.values() if progress.needs_run(cell)]
    shared = [name for name in frozen.shared_components if name in changes.components]
    waiting = {n for cell in to_run for n in progress.waits_for(cell, changes.components)}
    goes_on = any(not progress.waits_for(cell, changes.components) for cell in to_run)
    if changes.documents or shared or (waiting and not goes_on):
        needed = {n: w for n, w in changes.components.items() if n in {*shared, *waiting}}
        raise Refused(differs(Changes(changes.documents, needed), frozen))
    return directory.read_study_of(form)[1], progress, tuple(sorted(waiting))


def start_run(
    work: Work,
    study: Study,
    progress: Progress,
    waiting: tuple[str, ...],
    sandbox: SandboxReport,
) -> Done:
    """Record the run and what contains it, and ask the scheduler. Raises Refused where other
    people's programs would run without a sandbox and nobody allowed that."""
    command: StartRun = work.command
    assert progress.frozen is not None
    unsafe = command.allow_unsafe_sandbox or not study.runs_foreign_code
    probed = accepted_sandbox(sandbox, unsafe)
    commit, dirty = checkout()
    started = RunStarted(
        study=progress.frozen.digest,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        program=work.artifacts.put(program_evidence(), JSON),
        commit=commit,
        dirty=dirty,
        waiting=waiting,
        resumed=progress.runs > 0,
    )
    return Done([NewEvent(RUN_STREAM, started), NewEvent(RUN_STREAM, probed)], [ContinueStudy()])
