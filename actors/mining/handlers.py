"""The miner's handlers: mine a repository, validate its candidates, record every verdict.

The pure parts are in ``actors/mining/``. Validation goes on where it stopped: a candidate that has
a verdict for the same funnel is not run again.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from actors.languages.contract import BuildFailed
from actors.languages.registry import LANGUAGES
from actors.loop import Done, Handlers, Work
from actors.mining.borrowed_objects import borrowed_objects
from actors.mining.criteria import audit_lines
from actors.mining.trees import UnreadableObject
from actors.mining.validation import Arm, ArmRun, Validation, validate
from actors.mining.walk import Candidate, Mined, mine
from actors.repair.declarations import check_declared, listed, texts_digest
from actors.sandbox import Sandbox, probe
from actors.test_runs.git import Git
from actors.test_runs.task_runs import (
    accepted_sandbox,
    build_environment,
    built_event,
    run_tests,
    sandbox_of,
)
from actors.test_runs.templates import make_template
from ledger.artifacts import Artifacts
from ledger.errors import Refused, Usage
from ledger.log import NewEvent
from projections.fold import fold
from projections.repair.tasks import MinedTasks
from schemas.commands import MineRepository, ValidateCandidates
from schemas.events.mining import (
    CandidateValidated,
    RepositoryMined,
)
from schemas.events.study import StudyFrozen
from schemas.identifiers import repository_stream
from schemas.repair.overlay import Changes
from schemas.repair.selection import selection_settings, settings_digest
from schemas.repair.study import RepairStudy, Repository
from schemas.repair.task import EnvironmentInputs, FileState, Overlay, Task

JSON = "application/json"
JSON_LINES = "application/jsonl"
DIFF = "text/x-diff"
LOOK_SECONDS = 1.0
VALIDATION_LIMIT_NS = 300 * 1_000_000_000


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done and how much there is."""


def quiet(what: str, done: int, total: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Miner:
    progress: Progress = quiet

    def handlers(self) -> Handlers:
        return {MineRepository: self.mine_repository, ValidateCandidates: self.validate_candidates}

    def mine_repository(self, work: Work) -> Done:
        """Walk the history and record the static funnel."""
        command: MineRepository = work.command
        _, study = work.context.directory.read_study_of(RepairStudy)
        repository = _declared(study, command.repository)
        check_declared(work.context.directory, study)
        _require_toolchain(study, repository)
        _known_and_open(work, study)
        texts = texts_digest(work.context.directory, study)
        mined, audit = self._mine(work, study, repository)
        rejected: dict[str, int] = {}
        for row in mined.rows:
            if row.criterion:
                rejected[row.criterion] = rejected.get(row.criterion, 0) + 1
        event = RepositoryMined(
            repository=repository.id,
            head=repository.head,
            walked=len(mined.rows),
            candidates=len(mined.candidates),
            rejected=rejected,
            audit=work.artifacts.put(audit, JSON_LINES),
            settings=selection_settings(study, repository, texts),
        )
        return Done([NewEvent(repository_stream(repository.id), event)])

    def validate_candidates(self, work: Work) -> Done:
        """Validate candidates in mining order until the declared number is valid."""
        command: ValidateCandidates = work.command
        _, study = work.context.directory.read_study_of(RepairStudy)
        repository = _declared(study, command.repository)
        stream = repository_stream(repository.id)
        known = _known_and_open(work, study)
        mined_event = known.mined.get(repository.id)
        if mined_event is None:
            raise Refused(f"repository {repository.id} is not mined yet: `ledger tasks mine`")
        texts = texts_digest(work.context.directory, study)
        changed = known.changed_settings(study, repository, texts)
        if changed:
            raise Refused(
                f"study.toml is not what {repository.id} was mined under ({listed(changed)}): "
                "`ledger tasks mine` again"
            )
        mined, audit = self._mine(work, study, repository)
        if work.artifacts.put(audit, JSON_LINES).digest != mined_event.audit.digest:
            raise Refused(
                f"repository {repository.id} or the miner changed since it was mined: "
                "`ledger tasks mine` again"
            )
        probed = accepted_sandbox(probe(), command.allow_unsafe_sandbox)
        work.commit([NewEvent(stream, probed)])
        settings = settings_digest(mined_event.settings)

        def look(candidate: Candidate) -> None:
            self.progress(f"validate {repository.id} {candidate.commit[:8]}", valid, wanted)

        sandbox = sandbox_of(probed, work.scratch)
        bench = _Bench(work, study, repository, sandbox, look, settings)
        verdicts = dict(known.validated.get(repository.id, {}))
        valid = sum(verdict.valid for verdict in verdicts.values())
        waiting = [c for c in mined.candidates if c.commit not in verdicts]
        wanted = repository.tasks
        self.progress(f"validate {repository.id}", valid, wanted)
        if valid >= wanted:
            return Done()
        for candidate, events, task in bench.validated(waiting):
            if task is not None:
                valid += 1
                task = msgspec.structs.replace(task, id=f"{repository.id}-{valid:03d}")
                reference = work.artifacts.put(msgspec.json.encode(task), JSON)
                events[-1] = NewEvent(
                    stream, msgspec.structs.replace(events[-1].event, task=reference)
                )
            work.commit(events)
            look(candidate)
            if valid >= repository.tasks:
                break
        return Done()

    def _mine(self, work: Work, study: RepairStudy, repository: Repository) -> tuple[Mined, bytes]:
        path = work.context.directory.repository_path(repository.url)
        texts = _read_texts(work, study)
        try:
            mined = mine(
                path,
                repository,
                study.tasks,
                study.platform,
                texts,
                lambda done, total: self.progress(f"mine {repository.id}", done, total),
            )
        except UnreadableObject as error:
            raise Usage(
                f"{path}: {error}: the repository lacks objects that every task needs; clone it "
                "again in full"
            ) from None
        return mined, audit_lines(mined.rows)


def _known_and_open(work: Work, study: RepairStudy) -> MinedTasks:
    """What was mined and validated so far. Raises Refused where tasks are selected and frozen.

    What a report tells of the selection must stay what the tasks were selected by. Before the study
    is frozen another selection is possible, under other settings.
    """
    facts = list(work.context.log_facts())
    if any(isinstance(fact.event, StudyFrozen) for fact in facts):
        raise Refused(
            "the study is frozen, and with it how its tasks were selected: another selection is "
            "another study (`ledger init`)"
        )
    known = fold(MinedTasks(work.artifacts.get), facts)
    texts = texts_digest(work.context.directory, study)
    if known.frozen is not None and not known.changed_since_frozen(study, texts):
        raise Refused(
            "the tasks are frozen, and study.toml declares nothing else about them than it did "
            "then: `ledger plan` goes on. To select others, change what study.toml says of "
            "repositories, tasks or platform first"
        )
    return known


def _declared(study: RepairStudy, repository: str) -> Repository:
    found = [declared for declared in study.repositories if declared.id == repository]
    if not found:
        ids = ", ".join(declared.id for declared in study.repositories)
        raise Usage(f"study.toml declares no repository {repository!r}; it declares {ids}")
    return found[0]


def _require_toolchain(study: RepairStudy, repository: Repository) -> None:
    """Raises Usage where tests could not be run on the declared platform: better now than after the
    first hour of validation."""
    environments = LANGUAGES[repository.language].environments
    if missing := environments.missing(study.platform, repository.layout):
        raise Usage(missing)


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the file of issue and merge-request texts."""

    commit: str
    text: str


def _read_texts(work: Work, study: RepairStudy) -> dict[str, str]:
    if not study.tasks.texts:
        return {}
    content = work.context.directory.document(study.tasks.texts)
    texts = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            text = msgspec.json.decode(line, type=_Text)
        except msgspec.DecodeError as error:
            raise Usage(f"{study.tasks.texts}, line {number}: {error}") from None
        texts[text.commit] = text.text
    return texts


@dataclass(frozen=True)
class _Bench:
    """Where candidates of one repository are validated. Used once."""

    work: Work
    study: RepairStudy
    repository: Repository
    sandbox: Sandbox
    look: Callable[[Candidate], None]
    """Called every now and then with the candidate that is waited for."""
    settings: str

    def validated(
        self, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, list[NewEvent], Task | None]]:
        """Verdicts in mining order. Several candidates run at a time; what the caller does not take
        is thrown away, so the split does not depend on the number of cores."""
        workers = max(1, os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            running: list[tuple[Candidate, Future[tuple[list[NewEvent], Task | None]]]] = []
            waiting = iter(candidates)
            try:
                while True:
                    while len(running) < workers and (c := next(waiting, None)) is not None:
                        running.append((c, pool.submit(self._validate, c)))
                    if not running:
                        return
                    candidate, future = running.pop(0)
                    while wait([future], LOOK_SECONDS).not_done:
                        self.look(candidate)
                    events, task = future.result()
                    yield candidate, events, task
            finally:
                # The declared number is reached, or we were interrupted: nobody wants the rest.
                self.sandbox.cancelled.set()
                for _, future in running:
                    future.cancel()

    def _validate(self, candidate: Candidate) -> tuple[list[NewEvent], Task | None]:
        artifacts = self.work.artifacts
        directory = self.work.context.directory
        begun = time.monotonic_ns()
        with borrowed_objects(directory.repository_path(self.repository.url)) as source:
            inputs = self._environment_inputs(source, candidate)
            environment = build_environment(directory.environments, inputs, self.sandbox.cancelled)
            if isinstance(environment, BuildFailed):
                verdict = Validation(
                    valid=False,
                    criterion="environment_failed",
                    failed=("environment_failed",),
                    reasons={"environment_failed": environment.reason},
                )
                return [self._verdict(candidate, verdict, "", begun)], None
            template = make_template(source, candidate.base_tree, directory.templates)
        gold, hidden = candidate.gold, candidate.hidden
        language = LANGUAGES[self.repository.language]

        def run(arm: Arm, seed: int) -> ArmRun:
            overlays = [*([hidden] if arm.with_hidden else []), *([gold] if arm.with_gold else [])]
            done = run_tests(
                language,
                self.sandbox,
                environment,
                template,
                overlays,
                arm.test_files,
                package_roots=candidate.package_roots,
                hash_seed=seed,
                time_limit_ns=VALIDATION_LIMIT_NS,
                scratch=self.work.scratch,
                min_free_bytes=self.study.stopping.min_free_disk_bytes,
            )
            return ArmRun(
                outcomes=done.outcomes,
                verdict=done.verdict,
                reason=done.reason,
                collection_errors=done.collection_errors,
                first_error=done.first_error,
                duration_ns=done.duration_ns,
            )

        whole_suite_ns = self.study.tasks.whole_suite_s * 1_000_000_000
        verdict = validate(
            language,
            candidate,
            run,
            whole_suite_ns=whole_suite_ns,
            beside=self.study.tasks.part_of_suite,
        )
        events = [
            built_event(artifacts, self.repository.id, inputs, environment),
            self._verdict(candidate, verdict, environment.identity, begun),
        ]
        if not verdict.valid:
            return events, None
        return events, make_task(candidate, verdict, environment.identity, artifacts)

    def _verdict(
        self, candidate: Candidate, verdict: Validation, environment: str, begun: int
    ) -> NewEvent:
        event = CandidateValidated(
            repository=self.repository.id,
            commit=candidate.commit,
            valid=verdict.valid,
            criterion=verdict.criterion,
            reason=verdict.reasons.get(verdict.criterion, ""),
            arms=self.work.artifacts.put(msgspec.json.encode(verdict), JSON),
            environment=environment,
            sandbox=self.sandbox.kind,
            settings=self.settings,
            duration_ns=time.monotonic_ns() - begun,
        )
        return NewEvent(repository_stream(self.repository.id), event)

    def _environment_inputs(self, source: Path, candidate: Candidate) -> EnvironmentInputs:
        git = Git(source)
        environments = LANGUAGES[self.repository.language].environments

        def read(commit: str) -> dict[str, str]:
            listed = git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
            paths = listed.decode("utf-8", "surrogateescape").split("\0")
            return {
                path: git.run("show", f"{commit}:{path}").decode("utf-8", "replace")
                for path in environments.dependency_files(self.repository.layout, paths)
            }

        return EnvironmentInputs(
            language=self.repository.language,
            python=self.study.platform.python,
            go=self.study.platform.go,
            requirements=read(candidate.base),
            head_requirements=read(self.repository.head),
            fallbacks=self.repository.fallback_requirements,
        )


def make_task(
    candidate: Candidate, verdict: Validation, environment: str, artifacts: Artifacts
) -> Task:
    """The task of a valid candidate, its contents stored. Its id is given in mining order."""

    def overlay(files: Changes) -> Overlay:
        return Overlay(
            write=tuple(
                FileState(
                    path=file.path,
                    mode=file.mode,
                    content=artifacts.put(file.content, "application/octet-stream"),
                )
                for file in files.write
            ),
            delete=files.delete,
        )

    def ids(listed: Sequence[str]) -> bytes:
        return msgspec.json.encode(list(listed))

    return Task(
        id="unnumbered",
        repository=candidate.repository,
        commit=candidate.commit,
        base=candidate.base,
        base_tree=candidate.base_tree,
        gold_tree=candidate.gold_tree,
        committed=candidate.committed,
        statement=artifacts.put(candidate.statement.text.encode(), "text/markdown"),
        statement_words=candidate.statement.words,
        redactions=len(candidate.statement.redactions),
        production_paths=candidate.production_paths,
        test_paths=candidate.test_paths,
        changed_production_lines=candidate.changed_production_lines,
        gold=overlay(candidate.gold),
        gold_patch=artifacts.put(candidate.gold_patch, DIFF),
        hidden=overlay(candidate.hidden),
        hidden_patch=artifacts.put(candidate.hidden_patch, DIFF),
        protected_paths=artifacts.put(ids(candidate.protected_paths), JSON),
        fail_to_pass=verdict.fail_to_pass,
        pass_to_pass=artifacts.put(ids(verdict.pass_to_pass), JSON),
        pass_to_pass_count=len(verdict.pass_to_pass),
        public_tests=artifacts.put(ids(verdict.public_tests), JSON),
        public_test_files=verdict.public_test_files,
        grading_test_files=verdict.grading_test_files,
        environment=environment,
        time_limit_ns=verdict.time_limit_ns,
        needs_gold_symbol=candidate.needs_gold_symbol,
        size=candidate.size,
    )
