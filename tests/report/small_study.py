"""A study of three tasks, two arms and two models, cell by cell as a test wants it.

``SmallStudy`` writes a whole study from a mapping of cells to what became of them. ``RAN`` is the
one that the tests of numbers use; its results can be counted by hand:

    M002        H000        H018               M003        H000              H018
    R001-001    failed      resolved           R001-001    void              resolved
    R001-002    failed      resolved           R001-002    budget exhausted  timeout
    R002-001    resolved    resolved           R002-001    empty patch       infrastructure

Against M002 the primary contrast H018 - H000 has 2 pairs for the new arm, 1 concordant: difference
2/3, p = 2 * 1/4. With M003 only R001-002 is a complete pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.study.components import Identity
from ledger.log import EventLog
from schemas.commands import (
    AdvanceCell,
    AmendStudy,
    ContinueStudy,
    EnsureResident,
    FreezeStudy,
    FreezeTasks,
    GradeCell,
    InspectOutcomes,
    MineRepository,
    PreparePlan,
    ReleaseModels,
    StartRun,
    StopRun,
    ValidateCandidates,
)
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellClass,
    CellFinished,
    CellStarted,
    CellVoided,
    ProtocolViolated,
    ToolCalled,
    TurnAnswered,
)
from schemas.events.grading import CellGraded
from schemas.events.mining import CandidateValidated, RepositoryMined, SandboxProbed
from schemas.events.run import RunStarted, RunStopped, StudyCompleted
from schemas.events.server import ModelLoaded, ModelLoadStarted, ModelUnloaded
from schemas.events.study import (
    AmendmentRecorded,
    FrozenFile,
    OutcomesInspected,
    PlanPrepared,
    StudyFrozen,
    TasksFrozen,
)
from schemas.identifiers import RUN_STREAM, STUDY_STREAM, CellId, parse_cell_id, repository_stream
from schemas.plan import Plan, PlannedCell
from schemas.repair.task import Task
from schemas.study_file import parse_study
from tests.projections.tiny_study import INSTANCE, SERVER, TinyStudy, digest_of

SECOND = 1_000_000_000
ARMS = ("H000", "H018")
MODELS = ("M002", "M003")

TOML = f"""\
format = 1
kind = "repair"
id = "small"
title = "Do file names help?"
question = "Does H018 resolve more tasks than H000?"
simulated = true

[[repositories]]
id = "R001"
url = "one"
head = "{"a" * 40}"
language = "python"
tasks = 2

[[repositories]]
id = "R002"
url = "two"
head = "{"b" * 40}"
language = "python"
tasks = 1

[server]
kind = "stand_in"

[[models]]
id = "M002"
key = "test/strong"
variant = "test/strong@4bit"
quantization = "4bit"
format = "mlx"
context_length = 65536
max_context_length = 65536
reasoning = "on"
rehearsal = {{ competence_per_mille = 800, seed = "strong" }}

[[models]]
id = "M003"
key = "test/weak"
variant = "test/weak@4bit"
quantization = "4bit"
format = "mlx"
context_length = 65536
max_context_length = 65536
reasoning = "low"
rehearsal = {{ competence_per_mille = 400, seed = "weak" }}

[[treatments]]
id = "H000"
role = "component"

[[treatments]]
id = "H018"
role = "oracle"

[[contrasts]]
id = "primary"
new = "H018"
baseline = "H000"
model = "M002"
claim = "component"
primary = true

[[contrasts]]
id = "replication"
new = "H018"
baseline = "H000"
model = "M003"
claim = "generalisation"
family = "secondary"

[[contrasts]]
id = "reversed"
new = "H000"
baseline = "H018"
model = "M002"
claim = "system"
family = "secondary"

[[contrasts]]
id = "gap"
new = "H000"
baseline = "H018"
model = "M003"
claim = "estimate"

[analysis]
bootstrap_resamples = 1000
hierarchical_model = true

[readings]
exhausted_budget = "A cell that ends without submitting is unresolved."
"""


@dataclass(frozen=True)
class Ran:
    """What became of a cell. ``graded`` False leaves it without a verdict."""

    resolved: bool = False
    if_submitted: bool | None = None
    ended: CellClass = "submitted"
    void: bool = False
    graded: bool = True
    shown: Sequence[str] = ("src/a.py",)
    opened: Sequence[str] = ("src/a.py",)
    edited: Sequence[str] = ("src/a.py",)
    turns: int = 2
    tool_calls: int = 1
    tokens: int | None = 100
    violations: int = 0
    cut: bool = False
    silent: bool = False
    """No call in its answer."""
    reruns: int = 0


FAILED = Ran()
RESOLVED = Ran(resolved=True)
NOTHING = Ran(ended="empty_patch", shown=(), opened=(), edited=())

RAN: Mapping[str, Ran] = {
    "R001-001/H000/M002/0": replace(FAILED, opened=(), edited=("src/b.py",), violations=2),
    "R001-001/H018/M002/0": RESOLVED,
    "R001-002/H000/M002/0": replace(FAILED, edited=(), shown=(), opened=(), tokens=None),
    "R001-002/H018/M002/0": replace(RESOLVED, turns=5, cut=True),
    "R002-001/H000/M002/0": RESOLVED,
    "R002-001/H018/M002/0": replace(RESOLVED, silent=True),
    "R001-001/H000/M003/0": replace(FAILED, void=True),
    "R001-001/H018/M003/0": RESOLVED,
    "R001-002/H000/M003/0": Ran(ended="budget_exhausted", if_submitted=True),
    "R001-002/H018/M003/0": Ran(ended="timeout"),
    "R002-001/H000/M003/0": NOTHING,
    "R002-001/H018/M003/0": Ran(ended="infrastructure", reruns=2),
}

NEEDS_GOLD_SYMBOL = ("R002-001",)


@dataclass
class SmallStudy(TinyStudy):
    """Appends to any log; artifacts and ``study.toml`` lie under ``root``."""

    root: Path
    log: EventLog
    toml: str = TOML
    ran: Mapping[str, Ran] = field(default_factory=lambda: RAN)
    subject: str = "A change"
    stand_in_answers: bool | None = None
    """As the server and the cells say it; None: as the study does."""
    changed: Mapping[str, Identity | None] = field(default_factory=dict)
    """Components that are frozen otherwise than they are here; None: not at all."""

    def __post_init__(self) -> None:
        super().__init__(self.root, self.log)
        self.other = dict(self.changed)
        self.directory.toml.write_text(self.toml)
        self.study = parse_study(self.toml.encode())
        if self.stand_in_answers is None:
            self.stand_in_answers = self.study.simulated
        self.cells = [parse_cell_id(name) for name in self.ran]
        self._json = self.put({})
        self._patch = self.put("diff\n", "text/x-diff")

    def tasks(self) -> list[Task]:
        units = sorted({cell.unit for cell in self.cells})
        return [
            msgspec.structs.replace(
                self.task(),
                id=unit,
                repository=unit.partition("-")[0],
                commit=digest_of(unit)[:40],
                needs_gold_symbol=int(unit in NEEDS_GOLD_SYMBOL),
            )
            for unit in units
        ]

    def write_complete(self) -> None:
        """From mining to the inspection; the analysis is up to the test."""
        if self.log.head() is None:
            self.create()
        self.write_run()
        self.grade_everything()
        self.inspect()

    def write_run(self) -> None:
        self.mine_all()
        self.freeze_all()
        self.begin()
        for model in self.study.models:
            self.load_model(model.id)
            for cell in self.cells:
                if cell.agent == model.id:
                    self.run(cell, self.ran[str(cell)])
            self.unload_model(model.id)

    def mine_all(self) -> None:
        for repository in self.study.repositories:
            stream = repository_stream(repository.id)
            tasks = [task for task in self.tasks() if task.repository == repository.id]
            rows = [
                {"commit": "1" * 40, "verdict": "rejected", "criterion": "no_test_file"},
                *(
                    {"commit": task.commit, "verdict": "candidate", "criterion": ""}
                    for task in tasks
                ),
            ]
            audit = "".join(
                msgspec.json.encode(
                    {"date": "2024-01-01", "subject": self.subject, "reasons": {}, **row}
                ).decode()
                + "\n"
                for row in rows
            )
            mined = RepositoryMined(
                repository=repository.id,
                head=repository.head,
                walked=len(rows),
                candidates=len(tasks),
                rejected={"no_test_file": 1},
                audit=self.put(audit),
            )
            validated = [
                CandidateValidated(
                    repository=repository.id,
                    commit=task.commit,
                    valid=True,
                    criterion="",
                    reason="",
                    arms=self._json,
                    task=self.put(task),
                    environment=task.environment,
                    sandbox="bubblewrap",
                    duration_ns=1,
                )
                for task in tasks
            ]
            self.do(MineRepository(repository=repository.id), (stream, mined))
            self.do(
                ValidateCandidates(repository=repository.id),
                *((stream, event) for event in validated),
            )

    def freeze_all(self) -> None:
        tasks = self.tasks()
        frozen_tasks = TasksFrozen(tasks=self.put(tasks), count=len(tasks), packs={})
        planned = tuple(
            PlannedCell(
                position=position, cell=cell, block="matrix" if cell.repeat == 0 else "repeat"
            )
            for position, cell in enumerate(self.cells)
        )
        plan = PlanPrepared(plan=self.put(Plan(cells=planned)), cells=len(planned))
        frozen = StudyFrozen(
            study=self.put(self.toml, "application/toml"),
            digest="0" * 64,
            documents=(),
            document_contents=(),
            tasks=frozen_tasks.tasks.digest,
            plan=plan.plan.digest,
            components=self.components(),
            commit="c" * 40,
            dirty=False,
            simulated=self.study.simulated,
        )
        digest = sha256(msgspec.json.encode(frozen, order="sorted")).hexdigest()
        self.frozen = msgspec.structs.replace(frozen, digest=digest)
        self.do(FreezeTasks(), (STUDY_STREAM, frozen_tasks))
        self.do(PreparePlan(), (STUDY_STREAM, plan))
        self.do(FreezeStudy(), (STUDY_STREAM, self.frozen))

    def begin(self) -> None:
        started = RunStarted(
            study=self.frozen.digest,
            python="3.11.7",
            platform="Linux x86_64",
            program=None,
            commit="c" * 40,
            dirty=False,
            resumed=False,
        )
        probed = SandboxProbed(
            kind="bubblewrap",
            enforced={"network": "enforced", "memory": "not enforced"},
            accepted_unsafe=False,
        )
        self.do(StartRun(), (RUN_STREAM, started), (RUN_STREAM, probed))

    def load_model(self, model: str) -> None:
        loaded = ModelLoaded(
            model=model,
            instance=INSTANCE,
            duration_ns=5 * SECOND,
            simulated=bool(self.stand_in_answers),
            evidence=self.evidence(),
        )
        self.do(
            EnsureResident(model=model, cell=""),
            (SERVER, ModelLoadStarted(model=model)),
            (SERVER, loaded),
        )

    def unload_model(self, model: str) -> None:
        unloaded = ModelUnloaded(
            model=model, instance=INSTANCE, duration_ns=SECOND, evidence=self.evidence()
        )
        self.do(ReleaseModels(), (SERVER, unloaded))

    def run(self, cell: CellId, ran: Ran) -> None:
        for attempt in range(ran.reruns):
            self.do(
                AdvanceCell(cell=str(cell)),
                (cell.stream, self.started(cell, attempt)),
                (cell.stream, self.finished(cell, replace(ran, ended="infrastructure"), attempt)),
            )
        turns = [
            TurnAnswered(
                turn=turn,
                attempt=0,
                response=self._json,
                answer=self._json,
                finish_reason="stop",
                prompt_tokens=ran.tokens,
                completion_tokens=None if ran.tokens is None else 10,
                first_token_ns=1,
                duration_ns=2 * SECOND,
            )
            for turn in range(ran.turns)
        ]
        called = ToolCalled(
            turn=0,
            number=0,
            tool="search",
            arguments=self._json,
            result=self._json,
            ok=True,
            shown=tuple(ran.shown),
            opened=tuple(ran.opened),
            edited=tuple(ran.edited),
        )
        spent = BudgetCharged(kind="turn", used=ran.turns, limit=12)
        used = BudgetCharged(kind="tool_call", used=ran.tool_calls, limit=12)
        events = [
            self.started(cell, ran.reruns),
            spent,
            *turns,
            AnswerParsed(
                turn=0, calls=int(not ran.silent), rejected=0, salvage="native", cut=ran.cut
            ),
            *(
                ProtocolViolated(turn=0, kind="unknown_tool", detail="")
                for _ in range(ran.violations)
            ),
            used,
            called,
            self.finished(cell, ran, ran.reruns),
        ]
        self.do(AdvanceCell(cell=str(cell)), *((cell.stream, event) for event in events))

    def started(self, cell: CellId, attempt: int) -> CellStarted:
        return CellStarted(
            cell=cell,
            attempt=attempt,
            unit=digest_of(cell.unit),
            arm=self.component(f"arm {cell.arm}").digest,
            agent=digest_of(cell.agent),
            simulated=bool(self.stand_in_answers),
        )

    def finished(self, cell: CellId, ran: Ran, attempt: int) -> CellFinished:
        return CellFinished(
            cell=cell,
            attempt=attempt,
            ended=ran.ended,
            detail="the server went away" if ran.ended == "infrastructure" else "",
            turns=ran.turns,
            tool_calls=ran.tool_calls,
            test_runs=0,
            overlay=self._json,
            patch=self._patch,
            tree="d" * 40,
            changed_paths=tuple(ran.edited),
            submitted=ran.ended == "submitted",
        )

    def grade_everything(self) -> None:
        for cell in self.cells:
            ran = self.ran[str(cell)]
            if ran.graded:
                self.do(GradeCell(cell=str(cell)), (cell.stream, graded(cell, ran)))
        for cell in self.cells:
            if self.ran[str(cell)].void:
                voided = CellVoided(cell=cell, reason="its gold patch no longer passes")
                self.append(cell.stream, voided)
        completed = StudyCompleted(cells=len(self.cells), graded=len(self.cells))
        stopped = RunStopped(reason="complete", detail="", cells_finished=len(self.cells))
        self.do(ContinueStudy(), (STUDY_STREAM, completed))
        self.do(StopRun(reason="complete", detail=""), (RUN_STREAM, stopped))

    def inspect(self, reason: str = "the planned analysis") -> None:
        event = OutcomesInspected(reason=reason, graded=len(self.cells))
        self.do(InspectOutcomes(reason=reason), (STUDY_STREAM, event))

    def amend_to(
        self,
        toml: str,
        finding: str,
        reason: str = "it was better so",
        changed: Sequence[str] = (),
        removed: Sequence[str] = (),
        components: Sequence[str] = (),
        reexecuted: Sequence[str] = (),
    ) -> None:
        """``changed``, ``removed`` and ``components``: names of what the amendment changes beside
        study.toml; ``reexecuted``: cells that came out the same with these components."""
        recorded = {
            "reason": reason,
            "changes_claim": True,
            "finding": finding,
            "inspections": (),
            "changed": [
                FrozenFile(name="study.toml", digest=digest_of(toml)),
                *(FrozenFile(name=name, digest=digest_of("changed")) for name in changed),
            ],
            "removed": removed,
            "components": [
                {
                    "name": name,
                    "before": None,
                    "after": {
                        "name": name,
                        "digest": digest_of("changed"),
                        "files": None,
                        "libraries": {},
                    },
                    "differences": ["its file differs"],
                    "reexecuted": reexecuted,
                }
                for name in components
            ],
            "study": self.put(toml, "application/toml"),
        }
        event = msgspec.convert(msgspec.to_builtins(recorded), AmendmentRecorded)
        self.do(AmendStudy(reason=reason, changes_claim=True), (STUDY_STREAM, event))


def graded(cell: CellId, ran: Ran) -> CellGraded:
    """What the grader says: nothing is graded where nothing was changed."""
    passes = ran.resolved if ran.if_submitted is None else ran.if_submitted
    verdict = "resolved" if ran.resolved else "failed" if ran.edited else "not_graded"
    fields = {
        "cell": msgspec.to_builtins(cell),
        "verdict": verdict,
        "resolved": ran.resolved,
        "resolved_if_submitted": passes,
        "fail_to_pass_passed": int(passes),
        "fail_to_pass_total": 1,
        "pass_to_pass_passed": 4 if ran.edited else 0,
        "pass_to_pass_total": 4,
        "flagged": [],
        "runs": [],
        "sandbox": "bubblewrap",
    }
    return msgspec.convert(fields, CellGraded)
