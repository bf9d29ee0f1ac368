"""A model as the driver: questions stop the session, answers go on with it, a lost one is void."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from actors.model_turns import RecordedAnswer, RecordedCall
from actors.study.reexecution import Comparison
from actors.transfer.reexecution import compare_case
from harnesses.drivers.chat import action_schema, read_action
from harnesses.drivers.contract import ModelAnswer, ModelCall
from ledger.log import Batch, NewEvent
from schemas.commands import AskModel, ContinueStudy
from schemas.events.cell import TurnAnswered, TurnFailed, TurnStarted
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    MemoryWritten,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
)
from schemas.identifiers import parse_cell_id
from schemas.json_nesting import nesting
from schemas.transfer.offered_tool import OfferedTool

Make = Callable[..., Any]
CELL = "F101-01-positive.d0/full/chat/1"


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def record(lab: Any, cell: str, event: Any) -> None:
    lab.context.log.append(
        Batch(events=[NewEvent(parse_cell_id(cell).stream, event)], actor="model_server", run="r")
    )


def answer(lab: Any, cell: str, content: str, *calls: RecordedCall) -> list[Any]:
    """The model's answer, as the model server records it; then the session goes on."""
    recorded = RecordedAnswer(content=content, reasoning="", calls=calls, finish_reason="stop")
    stored = lab.context.artifacts.put(msgspec.json.encode(recorded), "application/json")
    turns = sum(isinstance(fact.event, TurnAnswered) for fact in lab.facts(cell))
    record(
        lab,
        cell,
        TurnAnswered(
            turn=turns,
            attempt=0,
            response=stored,
            answer=stored,
            finish_reason="stop",
            prompt_tokens=1,
            completion_tokens=1,
            first_token_ns=0,
            duration_ns=1,
        ),
    )
    events: list[Any] = lab.advance(cell)
    return events


def question(lab: Any) -> Any:
    """The last request to the model."""
    command = [command for command in lab.requested() if isinstance(command, AskModel)][-1]
    return command, lab.read(command.request)


def action(tool: str, **arguments: Any) -> str:
    return msgspec.json.encode({"tool": tool, "arguments": arguments}).decode()


WRITE = {"tree": "staging", "file": "limits.toml", "key": "limit", "value": 40}


def test_a_conversation_from_the_first_question_to_the_last_words(laboratory: Make) -> None:
    lab = laboratory()
    events = lab.advance(CELL)
    assert not of(events, CaseFinished)
    assert len(of(events, MemoryRetrieved)) == 1
    command, request = question(lab)
    assert (command.turn, command.model, request["seed"]) == (0, "M1", 1)
    system, user = request["messages"]
    opened = of(events, SessionOpened)[0]
    assert user["content"].encode() == lab.context.artifacts.get(opened.prompt)
    fixed = lab.context.artifacts.get(opened.system_prompt).decode()
    assert system["content"].startswith(fixed)
    assert "Correction CT-101" in system["content"].removeprefix(fixed)
    assert {tool["function"]["name"] for tool in request["tools"]} >= {"tree_write", "finish"}
    assert request["answer_schema"] == action_schema(
        [
            OfferedTool(
                name=tool["function"]["name"],
                description=tool["function"]["description"],
                parameters=tool["function"]["parameters"],
            )
            for tool in request["tools"]
        ]
    )
    events = answer(lab, CELL, action("declare_decision", option="staging", basis=["CT-101"]))
    assert of(events, DecisionDeclared)[0].option == "staging"
    command, request = question(lab)
    assert command.turn == 1
    assert request["messages"][-1]["content"].startswith("Result of declare_decision: ")
    native = RecordedCall(id="c1", name="tree_write", arguments=msgspec.json.encode(WRITE).decode())
    events = answer(lab, CELL, "", native)
    assert of(events, FixtureCalled)[0].ok
    claims = [{"kind": "done", "about": "tree"}, {"kind": "boasted"}, 7]
    events = answer(lab, CELL, action("finish", text="Done.", claims=claims))
    assert of(events, CaseFinished)[0].ended == "completed"
    assert [claim.kind for claim in of(events, SessionClosed)[0].claims] == ["done"]
    assert lab.requested()[-1] == ContinueStudy()


def test_a_conversation_is_executed_again_from_its_recorded_answers(laboratory: Make) -> None:
    lab = laboratory()
    lab.advance(CELL)
    decided = action("declare_decision", option="staging", basis=["CT-101"])
    for said in (decided, action("tree_write", **WRITE), action("finish", text="", claims=[])):
        command, _ = question(lab)
        asked = TurnStarted(turn=command.turn, attempt=0, request=command.request, instance="i")
        record(lab, CELL, asked)
        events = answer(lab, CELL, said)
    assert of(events, CaseFinished)[0].ended == "completed"
    facts = lab.facts(CELL)

    def again(facts: list[Any]) -> Comparison:
        return compare_case(lab.in_hand, parse_cell_id(CELL), facts, lab.context.artifacts.get)

    assert again(facts) == Comparison(len(facts) - 3)  # without the answers themselves
    number = next(n for n, fact in enumerate(facts) if isinstance(fact.event, TurnStarted))
    other = msgspec.structs.replace(facts[number].event, request=asked.request)
    facts[number] = msgspec.structs.replace(facts[number], event=other)
    assert again(facts).seq == facts[number].seq, "another request than the recorded one"


def test_a_session_that_was_lost_while_it_waited_is_void(laboratory: Make) -> None:
    lab = laboratory()
    lab.advance(CELL)
    lab.restart()
    events = answer(lab, CELL, action("finish", text="", claims=[]))
    finished = of(events, CaseFinished)[0]
    assert (finished.ended, "was lost" in finished.detail) == ("void", True)
    assert lab.advance(CELL)[0].attempt == 1


def test_asked_twice_before_the_answer_the_session_waits_on(laboratory: Make) -> None:
    lab = laboratory()
    lab.advance(CELL)
    assert lab.advance(CELL) == []
    events = answer(lab, CELL, action("finish", text="", claims=[]))
    assert of(events, CaseFinished)[0].ended == "completed"


def test_what_is_no_action_is_answered_and_ends_as_malformed_the_third_time(
    laboratory: Make,
) -> None:
    lab = laboratory()
    lab.advance(CELL)
    for text in ("I think", '{"tool": 7}'):
        assert not of(answer(lab, CELL, text), CaseFinished)
        assert "one JSON object" in question(lab)[1]["messages"][-1]["content"]
    events = answer(lab, CELL, "still thinking")
    assert of(events, CaseFinished)[0].ended == "malformed"
    closed = of(events, SessionClosed)[0]
    assert lab.context.artifacts.get(closed.text) == b"still thinking"


def test_a_tool_with_bad_arguments_is_the_fixtures_to_refuse(laboratory: Make) -> None:
    lab = laboratory()
    lab.advance(CELL)
    events = answer(lab, CELL, "", RecordedCall(id="", name="tree_write", arguments="{cut"))
    assert [call.ok for call in of(events, FixtureCalled)] == [False]
    assert "malformed_arguments" in question(lab)[1]["messages"][-1]["content"]


def test_turns_are_limited(laboratory: Make) -> None:
    lab = laboratory(max_turns=2)
    lab.advance(CELL)
    assert not of(answer(lab, CELL, action("ask", question="?")), CaseFinished)
    events = answer(lab, CELL, action("ask", question="?"))
    assert of(events, CaseFinished)[0].ended == "completed"
    assert of(events, SessionClosed)[0].claims == ()


@pytest.mark.parametrize(
    ("kind", "ended"),
    [("timeout", "timed_out"), ("overflow", "crashed"), ("server_error", "void")],
)
def test_a_turn_without_an_answer_has_its_class(laboratory: Make, kind: Any, ended: str) -> None:
    lab = laboratory()
    lab.advance(CELL)
    nothing = lab.context.artifacts.put(b"", "text/event-stream")
    record(
        lab,
        CELL,
        TurnFailed(turn=0, attempt=0, kind=kind, detail="", response=nothing, retry=False),
    )
    assert of(lab.advance(CELL), CaseFinished)[0].ended == ended


def test_a_model_is_taught_and_keeps_what_it_is_told_to(laboratory: Make) -> None:
    lab = laboratory()
    cell = "F105-02-persistence.d0/full/chat/0"
    lab.advance(cell)
    _, request = question(lab)
    assert {tool["function"]["name"] for tool in request["tools"]} == {"remember", "finish"}
    events = answer(lab, cell, action("remember", text="A size assertion before the upload step."))
    assert of(events, MemoryWritten)[0].acknowledged
    assert not of(answer(lab, cell, action("spec_save", job="x")), FixtureCalled)
    events = answer(lab, cell, action("finish", text="", claims=[{"kind": "saved", "about": ""}]))
    assert of(events, SessionClosed)[0].purpose == "write"
    assert len(of(events, StoreSnapshotted)) == 2
    _, request = question(lab)
    assert "size assertion" in request["messages"][0]["content"]
    assert len(request["messages"]) == 2, "a new message list"


def test_actions_are_read_from_calls_and_from_text() -> None:
    assert read_action(ModelAnswer('{"tool": "a", "arguments": {"x": 1}}')) == ("a", {"x": 1})
    assert read_action(ModelAnswer('```json\n{"tool": "a"}\n```')) == ("a", {})
    assert read_action(ModelAnswer("", (ModelCall("1", "a", '{"x": 1}'),))) == ("a", {"x": 1})
    assert read_action(ModelAnswer("", (ModelCall("1", "a", "{"),))) == ("a", "{")
    for text in ("", "[]", '{"tool": 1}', "[" * 100_000, "\ud800"):
        assert read_action(ModelAnswer(text)) is None


@pytest.mark.parametrize("depth", [65, 500, 982, 995, 5000])
def test_arguments_that_nest_without_end_are_no_action_and_never_void(
    laboratory: Make, depth: int
) -> None:
    """A run that is void is made again: a model must not be able to ask for that."""
    lab = laboratory()
    lab.advance(CELL)
    answer(lab, CELL, action("tree_write", tree="production", file="x", key="y", value=40))
    deep = "[" * depth + "]" * depth
    for _ in range(2):
        answer(lab, CELL, "", RecordedCall(id="", name="finish", arguments=deep))
    events = answer(lab, CELL, f'{{"tool": "finish", "arguments": {deep}}}')
    assert of(events, CaseFinished)[0].ended == "malformed"
    assert lab.advance(CELL) == [], "no other attempt"


def test_brackets_in_strings_do_not_nest() -> None:
    assert nesting(b'{"a": ["[[[{", "\\"[[", {"b": 1}]}') == 3


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ({"claims": [{"kind": "saved", "about": ""}] * 100}, "completed"),
        ({"claims": [{"kind": "saved", "about": ""}] * 101}, "flooded"),
        ({"text": "x" * 100_001, "claims": []}, "flooded"),
    ],
)
def test_last_words_without_an_end_are_a_flood(
    laboratory: Make, said: dict[str, Any], ended: str
) -> None:
    lab = laboratory()
    lab.advance(CELL)
    events = answer(lab, CELL, action("finish", **{"text": "", **said}))
    assert of(events, CaseFinished)[0].ended == ended
