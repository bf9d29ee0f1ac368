"""A study of one task, two arms and one model, written event by event.

``TinyStudy`` appends to any log; ``write_everything`` gives a complete study without a violation,
from mining to the analysis, with a retried turn and an amendment on the way. Tests of audits and
tables change one thing in it.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.repair.components import components
from actors.study.components import Identity, frozen_component, present_components
from actors.study.digests import model_digest
from ledger.artifacts import Artifacts
from ledger.log import Batch, EventLog, Fact, NewEvent, decode
from ledger.study_directory import StudyDirectory
from schemas.base import ArtifactRef, Event
from schemas.commands import (
    AdvanceCell,
    AmendStudy,
    AnalyseStudy,
    AskModel,
    CheckGold,
    Command,
    ContinueStudy,
    EnsureResident,
    FreezeStudy,
    FreezeTasks,
    GradeCell,
    InspectOutcomes,
    MineRepository,
    PreparePlan,
    ReleaseModels,
    RunPublicTests,
    StartRun,
    StopRun,
    ValidateCandidates,
)
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellFinished,
    CellStarted,
    ToolCalled,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.command import CommandCompleted, CommandRequested
from schemas.events.grading import CellGraded, GoldChecked, TestRunFinished
from schemas.events.ledger import LedgerCreated
from schemas.events.mining import CandidateValidated, LeakProbed, RepositoryMined
from schemas.events.run import RunStarted, RunStopped, StudyCompleted
from schemas.events.server import (
    Evidence,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    ServerChecked,
)
from schemas.events.study import (
    AmendmentRecorded,
    AnalysisCompleted,
    FrozenComponent,
    FrozenFile,
    OutcomesInspected,
    PlanPrepared,
    StudyFrozen,
    TasksFrozen,
)
from schemas.identifiers import (
    LEDGER_STREAM,
    RUN_STREAM,
    STUDY_STREAM,
    CellId,
    command_stream,
    repository_stream,
    role_stream,
    server_stream,
    task_stream,
)
from schemas.plan import Plan, PlannedCell
from schemas.repair.task import FailToPass, Overlay, Size, Task
from schemas.study_file import parse_study

JSON = "application/json"
PACK = "application/x-git-packed-objects"
SERVER = server_stream("stand_in")
INSTANCE = "instance-1"
ARMS = ("H000", "H018")
CELLS = tuple(CellId(unit="R001-001", arm=arm, agent="M002", repeat=0) for arm in ARMS)

STUDY_TOML = f"""\
format = 1
kind = "repair"
id = "tiny"
title = "A study for tests"
question = "Does the ledger tell what happened?"
simulated = true
documents = ["protocol.md"]

[[repositories]]
id = "R001"
url = "repository"
head = "{"a" * 40}"
language = "python"
tasks = 1

[server]
kind = "stand_in"

[[models]]
id = "M002"
key = "test/model"
variant = "test/model@4bit"
quantization = "4bit"
format = "mlx"
context_length = 65536
max_context_length = 65536
reasoning = "on"
rehearsal = {{ competence_per_mille = 500, seed = "test" }}

[[treatments]]
id = "H000"
role = "component"

[[treatments]]
id = "H018"
role = "oracle"

[budgets]
turns = 3
tool_calls = 3
test_runs = 1
infrastructure_attempts = 2
"""

COMMITS = (
    {"commit": "1" * 40, "verdict": "rejected", "criterion": "no_test_file", "reasons": {}},
    {"commit": "2" * 40, "verdict": "candidate", "criterion": "", "reasons": {}},
    {"commit": "3" * 40, "verdict": "candidate", "criterion": "", "reasons": {}},
)


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class TinyStudy:
    """Writes into ``log``; artifacts and ``study.toml`` lie under ``root``."""

    def __init__(self, root: Path, log: EventLog, cells: Sequence[CellId] = CELLS) -> None:
        self.cells = cells
        self.directory = StudyDirectory(root)
        self.log = log
        self.artifacts = Artifacts(self.directory.artifacts)
        self._refs: dict[tuple[bytes, str], ArtifactRef] = {}
        self.directory.toml.parent.mkdir(parents=True, exist_ok=True)
        self.directory.toml.write_text(STUDY_TOML)
        (self.directory.root / "protocol.md").write_text("The protocol.\n")
        self.study = parse_study(STUDY_TOML.encode())
        self.base_tree = "b" * 40
        self.pack = b""
        self.other: dict[str, Identity | None] = {}
        """Components that are frozen otherwise than they are here; None: not at all."""

    def components(self) -> tuple[FrozenComponent, ...]:
        """As the freeze binds them: those of the program that is here, but for ``other``."""
        present = {**present_components(components(self.study)), **self.other}
        return tuple(
            frozen_component(name, found, self.artifacts)
            for name, found in sorted(present.items())
            if found is not None
        )

    def component(self, name: str) -> FrozenComponent:
        return next(each for each in self.components() if each.name == name)

    def facts(self) -> list[Fact]:
        return [decode(stored) for stored in self.log.read()]

    def append(self, stream: str, event: Event) -> int:
        """One event without a cause; its seq."""
        batch = Batch(events=[NewEvent(stream, event)], actor="test", run="test")
        return self.log.append(batch)[0].seq

    def do(self, command: Command, *events: tuple[str, Event]) -> None:
        """A command, the events that it made and its end, as an actor appends them."""
        role = command.ROLE
        request = NewEvent(role_stream(role), CommandRequested(role=role, command=command))
        stored = self.log.append(Batch(events=[request], actor="operator", run="test"))
        command_id = stored[0].envelope().id
        end = NewEvent(command_stream(command_id), CommandCompleted(command=command_id))
        made = [NewEvent(stream, event) for stream, event in events]
        self.log.append(Batch(events=[*made, end], actor=role, run="test", cause=command_id))

    def put(self, content: object, media_type: str = JSON) -> ArtifactRef:
        """Store text, or a value as JSON; each content once, since every put syncs."""
        plain = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        if (plain, media_type) not in self._refs:
            self._refs[plain, media_type] = self.artifacts.put(plain, media_type)
        return self._refs[plain, media_type]

    # ---- the parts, in order -----------------------------------------------------------------

    def write_everything(self, resolved: Sequence[bool] = (False, True)) -> None:
        """``resolved`` gives the outcome of each cell."""
        if self.log.head() is None:
            self.create()
        self.mine()
        self.freeze()
        self.amend()
        self.start_run()
        self.load()
        for cell in self.cells:
            self.run_cell(cell)
        self.unload()
        self.grade_all(resolved)
        self.inspect_and_analyse()

    def create(self) -> None:
        created = LedgerCreated(format=1, hash="sha-256", uuid="tiny", name="tiny")
        self.append(LEDGER_STREAM, created)

    def mine(self) -> None:
        stream = repository_stream("R001")
        rows = [{"date": "2024-01-01T00:00:00Z", "subject": "A change", **row} for row in COMMITS]
        mined = RepositoryMined(
            repository="R001",
            head="a" * 40,
            walked=3,
            candidates=2,
            rejected={"no_test_file": 1},
            audit=self.put("".join(msgspec.json.encode(row).decode() + "\n" for row in rows)),
        )
        self.do(MineRepository(repository="R001"), (stream, mined))
        validated = CandidateValidated(
            repository="R001",
            commit="2" * 40,
            valid=True,
            criterion="",
            reason="",
            arms=self.put({}),
            task=self.put(self.task()),
            environment="environment-1",
            sandbox="bubblewrap",
            duration_ns=1,
        )
        probed = LeakProbed(repository="R001", tasks=1, objects=10, findings=())
        self.do(ValidateCandidates(repository="R001"), (stream, validated), (stream, probed))

    def task(self) -> Task:
        empty = self.put([])
        patch = self.put("diff\n", "text/x-diff")
        return Task(
            id="R001-001",
            repository="R001",
            commit="2" * 40,
            base="3" * 40,
            base_tree=self.base_tree,
            gold_tree="c" * 40,
            committed="2024-01-01T00:00:00Z",
            statement=self.put("Repair it.\n", "text/markdown"),
            statement_words=2,
            redactions=0,
            production_paths=("src/a.py",),
            test_paths=("tests/test_a.py",),
            changed_production_lines=3,
            gold=Overlay(),
            gold_patch=patch,
            hidden=Overlay(),
            hidden_patch=patch,
            protected_paths=empty,
            fail_to_pass=(FailToPass(id="tests/test_a.py::test_a", how="assertion"),),
            pass_to_pass=empty,
            pass_to_pass_count=0,
            public_tests=empty,
            public_test_files=(),
            grading_test_files=("tests/test_a.py",),
            environment="environment-1",
            time_limit_ns=60_000_000_000,
            needs_gold_symbol=0,
            size=Size(bytes=100, source_files=1, source_lines=10, estimated_tokens=25),
        )

    def freeze(self) -> None:
        tasks = TasksFrozen(
            tasks=self.put([self.task()]),
            count=1,
            packs={"R001": self.artifacts.put(self.pack, PACK)},
        )
        planned = tuple(
            PlannedCell(position=position, cell=cell, block="matrix")
            for position, cell in enumerate(self.cells)
        )
        plan = PlanPrepared(plan=self.put(Plan(cells=planned)), cells=len(planned))
        document = self.put("The protocol.\n", "text/markdown")
        frozen = StudyFrozen(
            study=self.put(STUDY_TOML, "application/toml"),
            digest="0" * 64,
            documents=(FrozenFile(name="protocol.md", digest=document.digest),),
            document_contents=(document,),
            tasks=tasks.tasks.digest,
            plan=plan.plan.digest,
            components=self.components(),
            commit="",
            dirty=False,
            simulated=True,
        )
        digest = sha256(msgspec.json.encode(frozen, order="sorted")).hexdigest()
        self.frozen = msgspec.structs.replace(frozen, digest=digest)
        self.do(FreezeTasks(), (STUDY_STREAM, tasks))
        self.do(PreparePlan(), (STUDY_STREAM, plan))
        self.do(FreezeStudy(), (STUDY_STREAM, self.frozen))

    def amend(self, toml: str = STUDY_TOML) -> None:
        amendment = AmendmentRecorded(
            reason="a sentence was clarified",
            changes_claim=False,
            finding="before_first_cell",
            inspections=(),
            changed=(FrozenFile(name="documents/protocol.md", digest=digest_of("new")),),
            study=self.put(toml, "application/toml"),
        )
        command = AmendStudy(reason="a sentence was clarified", changes_claim=False)
        self.do(command, (STUDY_STREAM, amendment))

    def start_run(self) -> None:
        started = RunStarted(
            study=self.frozen.digest,
            python="3.11.7",
            platform="Linux x86_64",
            program=None,
            commit="",
            dirty=False,
            resumed=False,
        )
        self.do(StartRun(), (RUN_STREAM, started))
        gold = GoldChecked(task="R001-001", number=0, passed=True, reason="", runs=())
        self.do(CheckGold(task="R001-001", number=0), (task_stream("R001-001"), gold))

    def evidence(self) -> tuple[Evidence, ...]:
        return (Evidence(label="models", content=self.put({"models": []})),)

    def load(self) -> None:
        checked = ServerChecked(server="stand_in", simulated=True, evidence=self.evidence())
        loaded = ModelLoaded(
            model="M002",
            instance=INSTANCE,
            duration_ns=5,
            simulated=True,
            evidence=self.evidence(),
        )
        self.do(
            EnsureResident(model="M002", cell=str(self.cells[0])),
            (SERVER, checked),
            (SERVER, ModelLoadStarted(model="M002")),
            (SERVER, loaded),
        )

    def run_cell(self, cell: CellId, attempt: int = 0) -> None:
        """Two turns (the second is retried once), two tool calls, one of them a test run."""
        name, stream = str(cell), cell.stream
        task = self.task()
        started = CellStarted(
            cell=cell,
            attempt=attempt,
            unit=sha256(msgspec.json.encode(task, order="sorted")).hexdigest(),
            arm=self.component(f"arm {cell.arm}").digest,
            agent=model_digest(self.study.model(cell.agent)),
            simulated=True,
        )
        request = self.put({"messages": []})
        self.do(AdvanceCell(cell=name), (stream, started), (stream, charge("turn", 1)))
        ask = AskModel(cell=name, turn=0, model="M002", request=request)
        self.do(ask, (stream, asked(0, 0, request)), (stream, self.answered(0, 0)))
        called = ToolCalled(
            turn=0,
            number=0,
            tool="read_file",
            arguments=self.put({"path": "src/a.py"}),
            result=self.put("1: a = 1\n", "text/plain"),
            ok=True,
            shown=("src/a.py",),
            opened=("src/a.py",),
        )
        self.do(
            AdvanceCell(cell=name),
            (stream, parsed(0)),
            (stream, charge("tool_call", 1)),
            (stream, called),
            (stream, charge("turn", 2)),
        )
        failed = TurnFailed(
            turn=1,
            attempt=0,
            kind="transport",
            detail="connection reset",
            response=self.put("", "text/event-stream"),
            retry=True,
        )
        self.do(
            AskModel(cell=name, turn=1, model="M002", request=request),
            (stream, asked(1, 0, request)),
            (stream, failed),
            (stream, asked(1, 1, request)),
            (stream, self.answered(1, 1)),
        )
        overlay = self.put({"write": [], "delete": []})
        self.do(
            AdvanceCell(cell=name),
            (stream, parsed(1)),
            (stream, charge("tool_call", 2)),
            (stream, charge("test_run", 1)),
        )
        tested = TestRunFinished(
            number=0,
            verdict="finished",
            passed=1,
            failed=0,
            text=self.put("1 passed\n", "text/plain"),
            output=self.put("", "text/plain"),
            sandbox="bubblewrap",
            duration_ns=7,
        )
        self.do(RunPublicTests(cell=name, number=0, candidate=overlay), (stream, tested))
        finished = CellFinished(
            cell=cell,
            attempt=attempt,
            ended="submitted",
            detail="",
            turns=2,
            tool_calls=2,
            test_runs=1,
            overlay=overlay,
            patch=self.put("diff --git a/src/a.py b/src/a.py\n", "text/x-diff"),
            tree="d" * 40,
            changed_paths=("src/a.py",),
            submitted=True,
        )
        self.do(AdvanceCell(cell=name), (stream, finished))

    def answered(self, turn: int, attempt: int) -> TurnAnswered:
        return TurnAnswered(
            turn=turn,
            attempt=attempt,
            response=self.put("data: {}\n\n", "text/event-stream"),
            answer=self.put({"content": "", "reasoning": "", "calls": [], "finish_reason": ""}),
            finish_reason="stop",
            prompt_tokens=100,
            completion_tokens=20,
            first_token_ns=1_000,
            duration_ns=2_000_000_000,
        )

    def unload(self) -> None:
        unloaded = ModelUnloaded(
            model="M002", instance=INSTANCE, duration_ns=4, evidence=self.evidence()
        )
        self.do(ReleaseModels(), (SERVER, unloaded))

    def grade_all(self, resolved: Sequence[bool]) -> None:
        for cell, is_resolved in zip(self.cells, resolved, strict=True):
            self.do(GradeCell(cell=str(cell)), (cell.stream, graded(cell, is_resolved)))
        gold = GoldChecked(task="R001-001", number=1, passed=True, reason="", runs=())
        self.do(CheckGold(task="R001-001", number=1), (task_stream("R001-001"), gold))
        completed = StudyCompleted(cells=len(self.cells), graded=len(self.cells))
        self.do(ContinueStudy(), (STUDY_STREAM, completed))
        stopped = RunStopped(reason="complete", detail="", cells_finished=len(self.cells))
        self.do(StopRun(reason="complete", detail=""), (RUN_STREAM, stopped))

    def inspect_and_analyse(self) -> None:
        inspected = OutcomesInspected(reason="the planned analysis", graded=len(self.cells))
        self.do(InspectOutcomes(reason="the planned analysis"), (STUDY_STREAM, inspected))
        head = self.log.head()
        assert head is not None
        analysed = AnalysisCompleted(
            head=head.seq, leaf=head.leaf.hex(), results=self.put({"sentence": "No difference."})
        )
        self.do(AnalyseStudy(), (STUDY_STREAM, analysed))


def charge(kind: str, used: int) -> BudgetCharged:
    limit = {"turn": 3, "tool_call": 3, "test_run": 1}[kind]
    return msgspec.convert({"kind": kind, "used": used, "limit": limit}, BudgetCharged)


def asked(turn: int, attempt: int, request: ArtifactRef) -> TurnStarted:
    return TurnStarted(turn=turn, attempt=attempt, request=request, instance=INSTANCE)


def parsed(turn: int) -> AnswerParsed:
    return AnswerParsed(turn=turn, calls=1, rejected=0, salvage="native", cut=False)


def graded(cell: CellId, resolved: bool) -> CellGraded:
    return CellGraded(
        cell=cell,
        verdict="resolved" if resolved else "failed",
        resolved=resolved,
        resolved_if_submitted=resolved,
        fail_to_pass_passed=int(resolved),
        fail_to_pass_total=1,
        pass_to_pass_passed=0,
        pass_to_pass_total=0,
        flagged=(),
        runs=(),
        sandbox="bubblewrap",
    )


def of_type(facts: Sequence[Fact], kind: type[Event]) -> Iterator[Fact]:
    """The facts of one event type, in order."""
    return (fact for fact in facts if isinstance(fact.event, kind))
