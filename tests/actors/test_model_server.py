"""One model at a time, every turn recorded before it is sent: the actor on the stand-in server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from actors.loop import Context, Done, Work
from actors.model_server import ModelServerActor
from actors.model_turns import ModelRequest, RecordedAnswer
from actors.rehearsal.stand_in_chat import Call, Turn
from actors.rehearsal.stand_in_lms import write_lms_wrapper
from actors.rehearsal.stand_in_server import StandInServer
from actors.repair.kind import REPAIR
from actors.servers.contract import (
    ChatAnswer,
    ChatError,
    ChatRequest,
    Checked,
    Loaded,
    Residents,
    Unloaded,
)
from actors.servers.lmstudio import Limits, LMStudio
from actors.servers.openai import OpenAICompatible
from ledger.errors import PreflightMismatch, SafetyStop
from ledger.log import Fact, NewEvent
from schemas.commands import AdvanceCell, AskModel, ContinueStudy, EnsureResident, ReleaseModels
from schemas.events.cell import TurnAbandoned, TurnAnswered, TurnFailed, TurnStarted
from schemas.events.server import (
    ModelLoaded,
    ModelLoadStarted,
    ModelLost,
    ModelUnloaded,
    ServerMismatched,
)
from schemas.repair.study import RepairStudy
from schemas.study import Model, Server, of_kind
from schemas.study_file import parse_study
from tests.servers.openai_fake import MODEL, OpenAIFake

TOKEN = "a token of the tests"
CELL = "R001-001/H000/M002/0"
TEMPLATE = Path(__file__).parents[2] / "actors" / "rehearsal" / "templates" / "demo.toml"
STUDY = of_kind(
    RepairStudy,
    parse_study(TEMPLATE.read_bytes().replace(b"HEAD-OF-THE-EXAMPLE-REPOSITORY", b"0" * 40)),
)
SHORT = Limits(
    answer_s=10, load_s=10, first_token_s=0.6, progress_s=0.6, unload_s=0.4, poll_s=0.02, lms_s=20
)


@pytest.fixture
def stand_in() -> Iterator[StandInServer]:
    with StandInServer(0, TOKEN, simulated_study=True).running() as server:
        yield server


@pytest.fixture
def lms(stand_in: StandInServer, tmp_path: Path) -> list[str]:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    return [str(write_lms_wrapper(tmp_path, stand_in.port, token_file))]


@pytest.fixture
def client(stand_in: StandInServer, lms: list[str]) -> Iterator[LMStudio]:
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms, SHORT)
    yield client
    client.close()


@pytest.fixture
def actor(client: LMStudio) -> ModelServerActor:
    return ModelServerActor(STUDY, client, REPAIR.advance, sleep=lambda seconds: None)


T = TypeVar("T", Residents, Checked, Loaded, Unloaded, ChatAnswer)
Take = Callable[[Any], Work]
Events = Callable[[], list[Fact]]


def ended(work: Work, done: Done) -> Done:
    """What the loop does with a handler's result, as far as events go."""
    if done.events:
        work.commit(done.events)
    return done


def ensure(actor: ModelServerActor, take: Take, model: str = "M002", fresh: bool = False) -> Done:
    work = take(EnsureResident(model=model, cell=CELL, fresh=fresh))
    done = ended(work, actor.ensure_resident(work))
    work.context.log.release_all()
    return done


def ask(actor: ModelServerActor, take: Take, context: Context, turn: int = 0) -> Done:
    work = take(question(context, turn))
    return ended(work, actor.ask_model(work))


def question(context: Context, turn: int = 0) -> AskModel:
    request = ModelRequest(
        messages=[{"role": "user", "content": "hello"}],
        tools=[],
        temperature=0.0,
        top_p=1.0,
        seed=0,
        max_tokens=256,
        reasoning="on",
    )
    stored = context.artifacts.put(msgspec.json.encode(request), "application/json")
    return AskModel(cell=CELL, turn=turn, model="M002", request=stored)


def finish(context: Context) -> None:
    """End the commands that a test has left open, so that the next one can be claimed."""
    from ledger.log import Batch
    from schemas.events.command import CommandCompleted
    from schemas.identifiers import command_stream

    for command in context.log.pending():
        context.log.append(
            Batch(
                events=[NewEvent(command_stream(command), CommandCompleted(command=command))],
                actor="model_server",
                run="run-1",
                cause=command,
                first_index=1000,
            )
        )


def kinds(events: Events) -> list[str]:
    return [
        fact.event.TYPE.split(".v")[0]
        for fact in events()
        if not fact.event.TYPE.startswith("command.")
    ]


def test_a_model_is_loaded_under_all_checks_and_the_cell_is_advanced(
    actor: ModelServerActor, take: Take, events: Events, stand_in: StandInServer
) -> None:
    done = ensure(actor, take)
    assert done.requests == [AdvanceCell(cell=CELL)]
    assert kinds(events) == ["server.checked", "model.load_started", "model.loaded"]
    assert list(stand_in.state.instances) == ["qwen/qwen3.6-35b-a3b"]


def test_a_resident_model_is_not_loaded_again_unless_a_task_begins(
    actor: ModelServerActor, take: Take, events: Events, context: Context
) -> None:
    ensure(actor, take)
    finish(context)
    before = len(kinds(events))
    ensure(actor, take)
    finish(context)
    assert len(kinds(events)) == before
    ensure(actor, take, fresh=True)
    assert kinds(events)[before:] == [
        "model.unloaded",
        "server.checked",
        "model.load_started",
        "model.loaded",
    ]


def test_two_models_are_never_resident_at_once(
    actor: ModelServerActor, take: Take, context: Context, stand_in: StandInServer
) -> None:
    for model in ("M002", "M003", "M002"):
        ensure(actor, take, model)
        finish(context)
    work = take(ReleaseModels())
    assert actor.release_models(work).requests == [ContinueStudy()]
    assert stand_in.state.max_resident_ever == 1
    assert not stand_in.state.instances


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"jit_on": {}}, "just-in-time"),
        ({"foreign_resident": {"key": "openai/gpt-oss-20b", "when": "now"}}, "in memory"),
        (
            {
                "other_variant": {
                    "variant": "qwen/qwen3.6-35b-a3b@8bit",
                    "quantization": "8bit",
                    "when": "now",
                }
            },
            "not the frozen model",
        ),
        ({"smaller_context": {"context_length": 4096}}, "context"),
        ({"views_disagree": {"view": "v0", "says": "phantom"}}, "disagree"),
        ({"load_500": {}}, "loading"),
        ({"server_stopped": {}}, "lms"),
    ],
)
def test_what_is_not_as_frozen_is_recorded_with_its_evidence_and_fatal(
    actor: ModelServerActor,
    take: Take,
    events: Events,
    context: Context,
    stand_in: StandInServer,
    fault: dict[str, dict[str, Any]],
    says: str,
) -> None:
    stand_in.state.set_faults(fault)
    with pytest.raises(PreflightMismatch, match=says) as raised:
        ensure(actor, take)
    assert raised.value.exit_status == 6
    recorded = [f.event for f in events() if isinstance(f.event, ServerMismatched)]
    assert len(recorded) == 1 and says in recorded[0].problem
    for evidence in recorded[0].evidence:
        assert context.artifacts.get(evidence.content) is not None
    assert "model.loaded" not in kinds(events)


def test_an_answer_is_stored_raw_and_read(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.script.append(
        Turn(reasoning="let me see", calls=[Call(name="submit", arguments="{}")])
    )
    done = ask(actor, take, context)
    assert done.requests == [AdvanceCell(cell=CELL)]
    answered = [f.event for f in events() if isinstance(f.event, TurnAnswered)]
    assert len(answered) == 1
    raw = context.artifacts.get(answered[0].response)
    answer = msgspec.json.decode(context.artifacts.get(answered[0].answer), type=RecordedAnswer)
    assert raw.startswith(b"data: ") and raw.rstrip().endswith(b"[DONE]")
    assert [(call.name, call.arguments) for call in answer.calls] == [("submit", "{}")]
    assert answer.reasoning == "let me see"
    assert answered[0].prompt_tokens and answered[0].completion_tokens


def test_unknown_usage_is_recorded_as_unknown(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"usage_zero": {}})
    ask(actor, take, context)
    answered = [f.event for f in events() if isinstance(f.event, TurnAnswered)]
    assert (answered[0].prompt_tokens, answered[0].completion_tokens) == (None, None)


def test_a_transport_failure_is_retried_once_and_recorded(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"connection_reset_before_first_token": {"times": 1}})
    ask(actor, take, context)
    turns = [
        f.event for f in events() if isinstance(f.event, TurnStarted | TurnFailed | TurnAnswered)
    ]
    assert [type(event) for event in turns] == [TurnStarted, TurnFailed, TurnStarted, TurnAnswered]
    assert [event.attempt for event in turns] == [0, 0, 1, 1]
    failed = turns[1]
    assert isinstance(failed, TurnFailed) and (failed.kind, failed.retry) == ("transport", True)


def test_a_second_transport_failure_is_not_retried(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"chat_500": {}})
    done = ask(actor, take, context)
    failed = [f.event for f in events() if isinstance(f.event, TurnFailed)]
    assert [(event.kind, event.retry) for event in failed] == [
        ("transport", True),
        ("transport", False),
    ]
    assert done.requests == [AdvanceCell(cell=CELL)]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("half_sse_stream", "broken_stream"),
        ("hang_before_first_token", "timeout"),
        ("hang_after_first_token", "timeout"),
        ("error_body_200", "server_error"),
    ],
)
def test_what_was_observed_is_never_asked_again(
    actor: ModelServerActor,
    take: Take,
    events: Events,
    context: Context,
    stand_in: StandInServer,
    fault: str,
    kind: str,
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.script.append(Turn(content="some words that come in several pieces"))
    stand_in.state.set_faults({fault: {}})
    ask(actor, take, context)
    turns = [f.event for f in events() if isinstance(f.event, TurnStarted | TurnFailed)]
    assert [type(event) for event in turns] == [TurnStarted, TurnFailed]
    failed = turns[1]
    assert isinstance(failed, TurnFailed) and (failed.kind, failed.retry) == (kind, False)


def test_back_pressure_is_waited_for_and_is_no_retry(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"back_pressure_429": {"retry_after": "1", "times": 3}})
    ask(actor, take, context)
    answered = [f.event for f in events() if isinstance(f.event, TurnAnswered)]
    assert [(event.attempt, event.back_pressure) for event in answered] == [(0, 3)]


def test_endless_back_pressure_is_a_safety_stop(
    actor: ModelServerActor, take: Take, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"back_pressure_429": {"retry_after": "1"}})
    with pytest.raises(SafetyStop, match="asked to wait"):
        ask(actor, take, context)


def test_another_model_answering_is_fatal(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"wrong_model_echo": {"model": "openai/gpt-oss-20b"}})
    with pytest.raises(PreflightMismatch):
        ask(actor, take, context)
    assert "turn.answered" not in kinds(events)


def test_an_orphaned_request_is_abandoned_and_asked_again_as_an_attempt(
    client: LMStudio, take: Take, events: Events, context: Context
) -> None:
    ensure(ModelServerActor(STUDY, client, REPAIR.advance), take)
    finish(context)
    work = take(question(context))
    begun = TurnStarted(
        turn=0, attempt=0, request=work.command.request, instance="qwen/qwen3.6-35b-a3b"
    )
    work.commit([NewEvent(f"cell/{CELL}", begun)])  # and here the process was killed
    context.log.release_all()
    claim = context.log.claim(["model_server"], 60.0)
    assert claim is not None
    again = Work(context, claim, "model_server", work.command, 1)
    ended(again, ModelServerActor(STUDY, client, REPAIR.advance).ask_model(again))
    turns = [
        (type(f.event), f.event.attempt)
        for f in events()
        if isinstance(f.event, TurnStarted | TurnAbandoned | TurnAnswered)
    ]
    assert turns == [(TurnStarted, 0), (TurnAbandoned, 0), (TurnStarted, 1), (TurnAnswered, 1)]


def test_a_restarted_server_is_noticed_and_the_model_loaded_again(
    client: LMStudio, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(ModelServerActor(STUDY, client, REPAIR.advance), take)
    finish(context)
    stand_in.state.instances.clear()  # the server was restarted
    ask(ModelServerActor(STUDY, client, REPAIR.advance), take, context)  # by a new process of ours
    assert [k for k in kinds(events) if k.startswith(("model", "turn"))] == [
        "model.load_started",
        "model.loaded",
        "model.lost",
        "model.load_started",
        "model.loaded",
        "turn.started",
        "turn.answered",
    ]
    lost = [f.event for f in events() if isinstance(f.event, ModelLost)]
    assert lost[0].instance == "qwen/qwen3.6-35b-a3b"


def test_what_an_unrecorded_load_left_behind_is_unloaded_first(
    client: LMStudio, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    work = take(EnsureResident(model="M002", cell=CELL))
    work.commit([NewEvent("server/stand_in", ModelLoadStarted(model="M002"))])
    client.load(STUDY.model("M002"))  # and here the process was killed
    context.log.release_all()
    finish(context)
    ensure(ModelServerActor(STUDY, client, REPAIR.advance), take)
    unloaded = [f.event for f in events() if isinstance(f.event, ModelUnloaded)]
    assert [event.model for event in unloaded] == ["M002"]
    assert kinds(events)[-1] == "model.loaded"
    assert len(stand_in.state.instances) == 1 and stand_in.state.max_resident_ever == 1


REAL = of_kind(
    RepairStudy,
    parse_study(
        "\n".join(
            line
            for line in TEMPLATE.read_text()
            .replace("HEAD-OF-THE-EXAMPLE-REPOSITORY", "0" * 40)
            .replace("simulated = true", "simulated = false")
            .replace('kind = "stand_in"', 'kind = "lmstudio"')
            .splitlines()
            if not line.startswith("rehearsal")
        ).encode()
    ),
)


class Disguised(LMStudio):
    """What the stand-in says of itself is taken out of its answers, but for one operation."""

    honest = ""

    def residents(self) -> Residents:
        return self._disguise("residents", super().residents())

    def preflight(self, spec: Model) -> Checked:
        return self._disguise("preflight", super().preflight(spec))

    def load(self, spec: Model) -> Loaded:
        return self._disguise("load", super().load(spec))

    def unload(self, instance_id: str) -> Unloaded:
        return self._disguise("unload", super().unload(instance_id))

    def chat(self, instance_id: str, request: ChatRequest) -> ChatAnswer:
        try:
            return self._disguise("chat", super().chat(instance_id, request))
        except ChatError as error:
            error.simulated = self.honest == "chat"
            raise

    def _disguise(self, operation: str, answer: T) -> T:
        return msgspec.structs.replace(answer, simulated=self.honest == operation)


@pytest.fixture
def disguised(stand_in: StandInServer, lms: list[str]) -> Iterator[Disguised]:
    server = Disguised(f"http://127.0.0.1:{stand_in.port}", lms, SHORT)
    yield server
    server.close()


ACCEPTED = {
    "residents": [],
    "preflight": ["server.checked"],
    "load": ["server.checked", "model.load_started"],
    "chat": ["server.checked", "model.load_started", "model.loaded", "turn.started"],
    "unload": ["server.checked", "model.load_started", "model.loaded"],
}


@pytest.mark.parametrize("operation", ACCEPTED)
def test_a_real_study_accepts_no_answer_of_a_stand_in(
    disguised: Disguised, take: Take, events: Events, context: Context, operation: str
) -> None:
    disguised.honest = operation
    real = ModelServerActor(REAL, disguised, REPAIR.advance, sleep=lambda seconds: None)
    with pytest.raises(PreflightMismatch, match="a stand-in answers"):
        ensure(real, take)
        finish(context)
        if operation == "unload":
            ensure(real, take, "M003")
        ask(real, take, context)
    assert kinds(events) == [*ACCEPTED[operation], "server.mismatched"]
    assert len(events()[-1].event.evidence) > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", ["back_pressure_429", "half_sse_stream", "chat_500"])
def test_nor_a_failure_of_one(
    disguised: Disguised,
    take: Take,
    events: Events,
    context: Context,
    stand_in: StandInServer,
    fault: str,
) -> None:
    disguised.honest = "chat"
    real = ModelServerActor(REAL, disguised, REPAIR.advance, sleep=lambda seconds: None)
    ensure(real, take)
    finish(context)
    stand_in.state.set_faults({fault: {}})
    with pytest.raises(PreflightMismatch, match="a stand-in answers"):
        ask(real, take, context)
    assert kinds(events)[-2:] == ["turn.started", "server.mismatched"]


def test_a_rehearsal_accepts_no_answer_of_a_real_server(
    disguised: Disguised, take: Take, events: Events
) -> None:
    with pytest.raises(PreflightMismatch, match="a real server answers"):
        ensure(ModelServerActor(STUDY, disguised, REPAIR.advance), take)
    assert kinds(events) == ["server.mismatched"]


def test_an_answer_says_whether_a_stand_in_gave_it(
    actor: ModelServerActor, take: Take, events: Events, context: Context
) -> None:
    ensure(actor, take)
    finish(context)
    ask(actor, take, context)
    answers = [f.event.simulated for f in events() if isinstance(f.event, TurnAnswered)]
    assert answers == [True]


def test_a_study_that_demands_no_residency_asks_any_server(
    take: Take, events: Events, context: Context
) -> None:
    model = msgspec.structs.replace(STUDY.model("M002"), key=MODEL, rehearsal=None)
    server = Server(kind="openai", residency="unobserved")
    study = msgspec.structs.replace(STUDY, simulated=False, models=(model,), server=server)
    with OpenAIFake(answer=lambda body, number: {"calls": [("submit", {})]}).running() as fake:
        client = OpenAICompatible(fake.url, SHORT)
        actor = ModelServerActor(study, client, REPAIR.advance)
        assert ensure(actor, take).requests == [AdvanceCell(cell=CELL)]
        finish(context)
        assert ask(actor, take, context).requests == [AdvanceCell(cell=CELL)]
        client.close()
    (loaded,) = [fact.event for fact in events() if isinstance(fact.event, ModelLoaded)]
    assert (loaded.model, loaded.residency, loaded.simulated) == ("M002", "unobserved", False)
    (answered,) = [fact.event for fact in events() if isinstance(fact.event, TurnAnswered)]
    stored = context.artifacts.get(answered.answer)
    (call,) = msgspec.json.decode(stored, type=RecordedAnswer).calls
    assert (call.name, call.arguments) == ("submit", "{}")


def test_a_server_that_is_gone_is_noticed_before_the_retry_and_costs_no_attempt_of_the_cell(
    actor: ModelServerActor,
    client: LMStudio,
    take: Take,
    events: Events,
    context: Context,
    stand_in: StandInServer,
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"connection_reset_before_first_token": {}, "server_stopped": {}})
    with pytest.raises(PreflightMismatch, match="lms"):
        ask(actor, take, context)
    finish(context)

    stand_in.state.set_faults({})
    stand_in.state.started = True
    stand_in.state.instances.clear()  # it was started again, with nothing in memory
    again = ModelServerActor(STUDY, client, REPAIR.advance)
    ask(again, take, context)  # a second command for the same turn
    turns = [
        (type(f.event), f.event.attempt)
        for f in events()
        if isinstance(f.event, TurnStarted | TurnFailed | TurnAnswered)
    ]
    assert turns == [(TurnStarted, 0), (TurnFailed, 0), (TurnStarted, 1), (TurnAnswered, 1)]


def test_a_second_command_for_a_turn_counts_on(
    actor: ModelServerActor, take: Take, events: Events, context: Context, stand_in: StandInServer
) -> None:
    ensure(actor, take)
    finish(context)
    stand_in.state.set_faults({"back_pressure_429": {"retry_after": "1"}})
    with pytest.raises(SafetyStop):
        ask(actor, take, context)
    finish(context)
    stand_in.state.set_faults({})
    ask(actor, take, context)
    finish(context)
    turns = [
        (type(f.event), f.event.attempt)
        for f in events()
        if isinstance(f.event, TurnStarted | TurnAbandoned | TurnAnswered)
    ]
    assert turns == [(TurnStarted, 0), (TurnAbandoned, 0), (TurnStarted, 1), (TurnAnswered, 1)]
    done = ask(actor, take, context)  # and a third one finds the answer
    assert (done.events, done.requests) == ((), ())
