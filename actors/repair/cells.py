"""The cell actor: drives one arm from what the log holds to its next outside effect or its end.

Each ``AdvanceCell`` is one step. The arm's state is never stored: it is the arm, driven again with
the recorded results (the same code as ``ledger replay --execute``). A process that goes on with the
cell it has just advanced keeps the running arm instead, and only feeds it what is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from actors.loop import Done, Work
from actors.model_turns import JSON, RecordedAnswer
from actors.repair.cell_engine import (
    AnsweredTurn,
    CellEngine,
    Ended,
    FailedTurn,
    Keep,
    Need,
    NeedModel,
    NeedTests,
    PublicReport,
    Result,
)
from actors.repair.frozen_study import FrozenRepair
from actors.study.digests import model_digest
from actors.test_runs.patches import CandidatePatch, make_patch
from harnesses import registry
from harnesses.contract import CellInput
from harnesses.prompts import read_prompts
from harnesses.workspace import Workspace
from ledger.errors import Integrity
from ledger.log import Fact, NewEvent
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.commands import AdvanceCell, AskModel, ContinueStudy, RunPublicTests
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellClass,
    CellFinished,
    CellStarted,
    ProtocolViolated,
    ToolCalled,
    TurnAnswered,
    TurnFailed,
)
from schemas.events.grading import TestRunFinished
from schemas.identifiers import CellId, parse_cell_id
from schemas.repair.overlay import decode_changes

DECIDED_HERE = (BudgetCharged, AnswerParsed, ProtocolViolated, ToolCalled)
"""Events that the engine decides; re-execution must come to the same ones."""


class CellActor:
    """Handler of the role ``cell``; keeps the arm that it advanced last."""

    def __init__(self, frozen: FrozenRepair) -> None:
        self._frozen = frozen
        self._live: _LiveCell | None = None

    def advance(self, work: Work) -> Done:
        command: AdvanceCell = work.command
        cell = parse_cell_id(command.cell)
        facts = work.facts(cell.stream)
        attempt, begin = latest_attempt(facts)
        self._frozen.require_as_frozen(cell)
        frozen = self._frozen if begin is None else self._frozen.as_of(facts[begin].seq)
        keep = _storing(work)
        events: list[Event] = []
        if begin is None:
            events.append(started(frozen, cell, attempt))
            engine = new_engine(frozen, cell, keep)
            need, undecided = engine.start(), list(engine.events)
        elif any(isinstance(fact.event, CellFinished) for fact in facts[begin:]):
            return Done(requests=[ContinueStudy()])
        elif self._live is not None and self._live.fits(cell, attempt, facts):
            engine = self._live.engine
            decided = len(engine.events)
            need = self._live.need
            for result in results(facts[self._live.version :], work.artifacts.get):
                need = engine.resume(result)
            undecided = engine.events[decided:]
        else:
            engine = new_engine(frozen, cell, keep)
            need, undecided = catch_up(engine, facts[begin:], work.artifacts.get)
        events += undecided
        if isinstance(need, Ended):
            events.append(finish(frozen, engine, cell, attempt, need, keep))
        self._live = _LiveCell(cell, attempt, engine, need, len(facts) + len(events))
        return Done(
            [NewEvent(cell.stream, event) for event in events],
            [_next_command(command.cell, frozen, cell, need)],
            {cell.stream: len(facts)},
        )


@dataclass
class _LiveCell:
    """The arm of the last step, and how much of its cell's stream it has seen."""

    cell: CellId
    attempt: int
    engine: CellEngine
    need: Need
    version: int

    def fits(self, cell: CellId, attempt: int, facts: Sequence[Fact]) -> bool:
        """True when nothing but outside results has come since: then the arm can go on."""
        return (
            (self.cell, self.attempt) == (cell, attempt)
            and self.version <= len(facts)
            and not any(isinstance(fact.event, DECIDED_HERE) for fact in facts[self.version :])
        )


def latest_attempt(facts: Sequence[Fact]) -> tuple[int, int | None]:
    """(attempt, index of its ``cell.started`` or None where it has yet to begin)."""
    begin = None
    for index, fact in enumerate(facts):
        if isinstance(fact.event, CellStarted):
            begin = index
    if begin is None:
        return 0, None
    start = facts[begin].event
    assert isinstance(start, CellStarted)
    ended = [fact.event for fact in facts[begin:] if isinstance(fact.event, CellFinished)]
    if ended and ended[0].ended == "infrastructure":
        return start.attempt + 1, None
    return start.attempt, begin


def started(frozen: FrozenRepair, cell: CellId, attempt: int) -> CellStarted:
    """The cell's identity: task, treatment and model as they were frozen."""
    task = frozen.tasks[cell.unit]
    return CellStarted(
        cell=cell,
        attempt=attempt,
        unit=sha256(msgspec.json.encode(task, order="sorted")).hexdigest(),
        arm=frozen.component(f"arm {cell.arm}").digest,
        agent=model_digest(frozen.study.model(cell.agent)),
        simulated=frozen.event.simulated,
    )


def new_engine(frozen: FrozenRepair, cell: CellId, keep: Keep) -> CellEngine:
    """A fresh engine for a cell, over an untouched workspace."""
    task = frozen.tasks[cell.unit]
    harness = registry.find_harness(cell.arm)
    base = frozen.base(task)
    model = frozen.study.model(cell.agent)
    budgets = frozen.study.budgets.of(cell.arm)
    cell_input = CellInput(
        statement=frozen.statement(task),
        workspace=Workspace(
            base.snapshot,
            protected_paths=frozen.protected_paths(task),
            classify=base.classifier.classify,
            index=frozen.index(task) if harness.needs_index else None,
        ),
        prompts=read_prompts(harness),
        turns=budgets.turns,
        tool_calls=budgets.tool_calls,
        test_runs=budgets.test_runs,
        context_length=model.context_length,
        reasoning_history=model.reasoning_history,
        oracle_files=task.production_paths if harness.needs_oracle_files else (),
    )
    return CellEngine(harness, cell_input, budgets, model, cell.repeat, keep)


def results(facts: Sequence[Fact], read: ReadArtifact) -> list[Result]:
    """What the outside world answered, in order: the arm's inputs."""
    found: list[Result] = []
    for fact in facts:
        match fact.event:
            case TurnAnswered() as event:
                answer = msgspec.json.decode(read(event.answer), type=RecordedAnswer)
                found.append(AnsweredTurn(answer))
            case TurnFailed(retry=False) as event:
                found.append(FailedTurn(event.kind, event.detail))
            case TestRunFinished() as event:
                found.append(PublicReport(read(event.text).decode(), event.verdict == "finished"))
    return found


def catch_up(
    engine: CellEngine, facts: Sequence[Fact], read: ReadArtifact
) -> tuple[Need, list[Event]]:
    """Drive a fresh engine with the recorded results of one attempt.

    Returns what it needs next and the events that it decided and nobody has recorded yet. Raises
    Integrity with the seq of the first recorded event that it does not come to again.
    """
    need = engine.start()
    for result in results(facts, read):
        if isinstance(need, Ended):
            break
        need = engine.resume(result)
    recorded = [fact for fact in facts if isinstance(fact.event, DECIDED_HERE)]
    for fact, event in zip(recorded, engine.events, strict=False):
        if fact.event != event:
            raise Divergence(fact.seq, fact.event, event)
    if len(recorded) > len(engine.events):
        first = recorded[len(engine.events)]
        raise Divergence(first.seq, first.event, None)
    return need, engine.events[len(recorded) :]


class Divergence(Integrity):
    """Driving the arm again did not give what is recorded."""

    def __init__(self, seq: int, recorded: Event | None, again: Event | None) -> None:
        super().__init__(
            f"seq {seq}: the arm, driven again with the recorded results, comes to "
            f"{in_words(again)} instead of {in_words(recorded)}"
        )
        self.seq = seq


def in_words(event: Event | None) -> str:
    """An event as it would be recorded, cut; for a message about one that differs."""
    if event is None:
        return "its end"
    return f"{event.TYPE} {msgspec.json.encode(event).decode():.400}"


def finish(
    frozen: FrozenRepair, engine: CellEngine, cell: CellId, attempt: int, end: Ended, keep: Keep
) -> CellFinished:
    """The cell's last event: its class, and the patch made from its files and applied strictly."""
    task = frozen.tasks[cell.unit]
    base = frozen.base(task)
    overlay = engine.overlay()
    patch = make_patch(
        frozen.base_store(task.repository),
        task.base_tree,
        decode_changes(overlay),
        classify=base.classifier.classify,
        protected_paths=frozen.protected_paths(task),
        hidden_paths={*task.hidden.delete, *(file.path for file in task.hidden.write)},
        max_bytes=frozen.study.budgets.patch_bytes,
        snapshot=base.entries,
    )
    ended, detail = _class_of(end, patch)
    return CellFinished(
        cell=cell,
        attempt=attempt,
        ended=ended,
        detail=detail,
        turns=engine.turns,
        tool_calls=engine.tool_calls,
        test_runs=engine.test_runs,
        overlay=keep(overlay, JSON),
        patch=keep(patch.diff, "text/x-diff"),
        tree="" if patch.violations else patch.tree,
        changed_paths=patch.paths,
        submitted=end.submitted,
    )


def _class_of(end: Ended, patch: CandidatePatch) -> tuple[CellClass, str]:
    if not end.submitted:
        return end.ended, end.detail
    if not patch.paths:
        return "empty_patch", "submitted without a change"
    if patch.violations:
        return "policy_rejected", "; ".join(map(str, patch.violations[:20]))[:2000]
    if not patch.applies:
        return "apply_failed", patch.problem[:2000]
    return "submitted", ""


def _next_command(
    name: str, frozen: FrozenRepair, cell: CellId, need: Need
) -> AskModel | RunPublicTests | ContinueStudy:
    if isinstance(need, NeedModel):
        return AskModel(cell=name, turn=need.turn, model=cell.agent, request=need.request)
    if isinstance(need, NeedTests):
        return RunPublicTests(cell=name, number=need.number, candidate=need.candidate)
    return ContinueStudy()


def _storing(work: Work) -> Keep:
    return lambda content, media_type: work.artifacts.put(content, media_type)
