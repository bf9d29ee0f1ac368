"""Drives one arm: the pure half of a cell. No log, no clock, no network, no disk.

The engine takes the arm's effects, enforces the budgets (the only place that does), runs the tools
and says which events that makes. It stops at every effect that needs the outside world, and goes
on when it is given the result. The cell actor uses it live; re-execution drives the same code with
recorded results, so both must come to the same events, byte for byte.

    engine = CellEngine(…)
    need = engine.start()
    while not isinstance(need, Ended):
        need = engine.resume(result)        # AnsweredTurn | FailedTurn | PublicReport
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from actors.model_turns import JSON, ModelRequest, RecordedAnswer
from harnesses.answers import parse_answer
from harnesses.contract import (
    TEST_RUNS_USED_UP,
    TOOL_CALLS_USED_UP,
    Answer,
    AskModel,
    CallTool,
    CellInput,
    Effect,
    EffectResult,
    Harness,
    RejectedCall,
    RunPublicTests,
    Submit,
    ToolResult,
    wire,
    wire_tools,
)
from harnesses.tools import dispatch
from schemas.base import ArtifactRef, Event
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellClass,
    ProtocolViolated,
    ToolCalled,
)
from schemas.repair.overlay import encode_changes
from schemas.repair.study import Budgets
from schemas.study import Model

TEXT = "text/plain; charset=utf-8"

MINIMUM_ANSWER_TOKENS = 1024
ANSWER_MARGIN_TOKENS = 64
BYTES_PER_TOKEN = 3
"""A cautious estimate where the served model's tokenizer is not known: code and JSON have 3 to 4
bytes a token, and an overflow in the server is worse than a few unused tokens."""

Keep = Callable[[bytes, str], ArtifactRef]
"""Gives the reference of some content; the cell actor's also stores it."""


@dataclass(frozen=True)
class NeedModel:
    turn: int
    request: ArtifactRef


@dataclass(frozen=True)
class NeedTests:
    number: int
    candidate: ArtifactRef


@dataclass(frozen=True)
class Ended:
    ended: CellClass
    detail: str
    submitted: bool = False


Need = NeedModel | NeedTests | Ended


@dataclass(frozen=True)
class AnsweredTurn:
    answer: RecordedAnswer


@dataclass(frozen=True)
class FailedTurn:
    """A turn without an answer that is not asked again."""

    kind: str
    detail: str


@dataclass(frozen=True)
class PublicReport:
    text: str
    ok: bool


Result = AnsweredTurn | FailedTurn | PublicReport

_FAILED_TURN_CLASS: dict[str, CellClass] = {
    "timeout": "timeout",
    "overflow": "context_overflow",
    "broken_stream": "model_stop",
    "server_error": "model_stop",
    "transport": "infrastructure",
}


@dataclass
class CellEngine:
    """One attempt of one cell. ``events`` grows, and every event in it was decided here;
    ``requests`` holds the request of each turn."""

    harness: Harness
    cell_input: CellInput
    budgets: Budgets
    model: Model
    repeat: int
    keep: Keep
    events: list[Event] = field(default_factory=list)
    requests: list[ArtifactRef] = field(default_factory=list)
    turns: int = 0
    tool_calls: int = 0
    test_runs: int = 0

    def start(self) -> Need:
        self._program: Generator[Effect, EffectResult, None] = self.harness.run(self.cell_input)
        self._asked: AskModel | None = None
        return self._drive(None)

    def resume(self, result: Result) -> Need:
        """Go on with what the last need brought. The result's type must fit the need."""
        if isinstance(result, FailedTurn):
            self._program.close()
            return Ended(_FAILED_TURN_CLASS[result.kind], f"turn failed: {result.detail}")
        if isinstance(result, PublicReport):
            return self._drive(ToolResult(ok=result.ok, text=result.text))
        return self._drive(self._parse(result.answer))

    def _drive(self, result: EffectResult | None) -> Need:
        """Perform effects until one needs the outside world."""
        while True:
            try:
                effect = self._program.send(result)  # type: ignore[arg-type]
            except StopIteration:
                return Ended("model_stop", "the arm ended without submitting")
            outcome = _PERFORM[type(effect)](self, effect)
            if isinstance(outcome, Need):
                if isinstance(outcome, Ended):
                    self._program.close()
                return outcome
            result = outcome

    def _submit(self, effect: Submit) -> Need:
        return Ended("submitted", "", submitted=True)

    def _ask(self, effect: AskModel) -> Need:
        if self.turns >= self.budgets.turns:
            return Ended("budget_exhausted", f"{self.turns} turns used without submitting")
        messages, tools = wire(effect.messages), wire_tools(effect.tools)
        prompt_tokens = estimate_tokens([messages, tools])
        generation = self.model.generation
        room = self.model.context_length - prompt_tokens - ANSWER_MARGIN_TOKENS
        if room < MINIMUM_ANSWER_TOKENS:
            return Ended(
                "context_overflow",
                f"about {prompt_tokens} prompt tokens leave {max(room, 0)} for the answer",
            )
        request = ModelRequest(
            messages=messages,
            tools=tools,
            temperature=generation.temperature,
            top_p=generation.top_p,
            seed=generation.seed + self.repeat,
            max_tokens=min(generation.max_completion_tokens, room),
            reasoning=self.model.reasoning,
        )
        self._asked = effect
        self._charge("turn")
        self.requests.append(self.keep(msgspec.json.encode(request), JSON))
        return NeedModel(self.turns - 1, self.requests[-1])

    def _parse(self, recorded: RecordedAnswer) -> Answer:
        if self._asked is None:
            raise ValueError("an answer came although the arm did not ask")
        answer = parse_answer(
            recorded.content,
            recorded.reasoning,
            [(call.id, call.name, call.arguments) for call in recorded.calls],
            recorded.finish_reason,
            self._asked.tools,
            one_action=self._asked.one_action,
        )
        self._asked = None
        turn = self.turns - 1
        rejected = [call for call in answer.calls if isinstance(call, RejectedCall)]
        self.events.append(
            AnswerParsed(
                turn=turn,
                calls=len(answer.calls) - len(rejected),
                rejected=len(rejected),
                salvage=answer.salvage,
                cut=answer.cut,
            )
        )
        for kind in answer.violations:
            self.events.append(ProtocolViolated(turn=turn, kind=kind, detail=""))
        return answer

    def _call_tool(self, effect: CallTool) -> ToolResult:
        if self.tool_calls >= self.budgets.tool_calls:
            return TOOL_CALLS_USED_UP
        self._charge("tool_call")
        result = dispatch(
            self.cell_input.workspace,
            self.harness.tools,
            effect.name,
            effect.arguments,
            room=effect.room,
        )
        turn = self.turns - 1
        self.events.append(
            ToolCalled(
                turn=turn,
                number=self.tool_calls - 1,
                tool=effect.name,
                arguments=self.keep(msgspec.json.encode(effect.arguments, order="sorted"), JSON),
                result=self.keep(result.text.encode(), TEXT),
                ok=result.ok,
                shown=tuple(map(_recordable, result.shown)),
                opened=tuple(map(_recordable, result.opened)),
                edited=tuple(map(_recordable, result.edited)),
            )
        )
        if result.refused is not None:
            self.events.append(
                ProtocolViolated(turn=turn, kind=f"policy:{result.refused}", detail=effect.name)
            )
        return result

    def _run_tests(self, effect: RunPublicTests) -> Need | ToolResult:
        if self.tool_calls >= self.budgets.tool_calls:
            return TOOL_CALLS_USED_UP
        if self.test_runs >= self.budgets.test_runs:
            return TEST_RUNS_USED_UP
        self._charge("tool_call")
        self._charge("test_run")
        return NeedTests(self.test_runs - 1, self.keep(self.overlay(), JSON))

    def overlay(self) -> bytes:
        """The cell's changes so far as the artifact that candidates are recorded in."""
        workspace = self.cell_input.workspace
        return encode_changes(
            {file.path: (file.mode, file.content) for file in workspace.changes()},
            workspace.deletions(),
        )

    def _charge(self, kind: Literal["turn", "tool_call", "test_run"]) -> None:
        counter = {"turn": "turns", "tool_call": "tool_calls", "test_run": "test_runs"}[kind]
        used = getattr(self, counter) + 1
        setattr(self, counter, used)
        limit = getattr(self.budgets, counter)
        self.events.append(BudgetCharged(kind=kind, used=used, limit=limit))


_PERFORM: Mapping[type[Effect], Callable[[CellEngine, Any], Need | EffectResult]] = {
    AskModel: CellEngine._ask,
    CallTool: CellEngine._call_tool,
    RunPublicTests: CellEngine._run_tests,
    Submit: CellEngine._submit,
}
"""What the engine does with each effect: it needs the outside world, or has the result at once."""


def estimate_tokens(content: Any) -> int:
    """Estimated prompt tokens of messages and tools: bytes of their JSON over 3, rounded up."""
    return math.ceil(len(msgspec.json.encode(content)) / BYTES_PER_TOKEN)


def _recordable(path: str) -> str:
    """A tree path as it may stand in a record: bytes that are not UTF-8 as backslash escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
