"""A model as the driver, by the real commands, on a server of OpenAI's form with faults."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.log import Fact
from schemas.commands import AskModel
from schemas.events.cell import CellStarted, TurnAnswered, TurnFailed, TurnStarted
from schemas.events.command import CommandRequested
from schemas.events.server import ModelLoaded, ModelUnloaded, ServerMismatched
from schemas.events.study import OutcomesInspected
from schemas.events.transfer import CaseFinished, DecisionDeclared, FixtureCalled
from tests.end_to_end.chat_study import CASES, begin
from tests.end_to_end.rehearsal_study import StudyOnDisk
from tests.servers.openai_fake import MODEL, OpenAIFake, Reply

FAULTS = {
    2: "busy",  # asked to wait: sent again, no retry
    4: "crash",  # before any token: sent once more
    7: "half a stream",  # after a token: the run is void, and made again
    12: "overflow",  # observed: the conversation outgrew the context
}
"""By number of the request."""


def act(body: dict[str, Any], number: int) -> Reply:
    """Declares the first option there is, and ends; knows nothing of the family."""
    if number in FAULTS:
        return {"content": '{"tool": ', "fault": FAULTS[number]}
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    if body["messages"][-1]["role"] == "user" and len(body["messages"]) == 2:
        option = tools["declare_decision"]["properties"]["option"]["enum"][0]
        call = {"tool": "declare_decision", "arguments": {"option": option, "basis": []}}
        return {"content": json.dumps(call)}
    return {"calls": [("finish", {"text": "Done.", "claims": []})]}


def of(facts: list[Fact], kind: type[Any]) -> list[Any]:
    return [fact.event for fact in facts if isinstance(fact.event, kind)]


@pytest.fixture(scope="module")
def fake() -> Iterator[OpenAIFake]:
    with OpenAIFake(answer=act).running() as server:
        yield server


@pytest.fixture(scope="module")
def completed(fake: OpenAIFake, tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    server = f'kind = "openai"\nresidency = "unobserved"\nurl = "{fake.url}"'
    study = begin(tmp_path_factory.mktemp("chat"), server=server, key=MODEL)
    fake.listing, listed = {"data": []}, fake.listing
    refused = study.ledger_command("run")
    assert (refused.status, "lists 0 models named" in refused.err) == (6, True), refused
    fake.listing = listed
    ran = study.ledger_command("run", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["completed"], ran.json["cells"]["done"]) == (True, CASES)
    return study


def test_real_answers_stand_in_the_log(completed: StudyOnDisk, fake: OpenAIFake) -> None:
    facts = completed.facts()
    answered = of(facts, TurnAnswered)
    assert answered and not any(turn.simulated for turn in answered)
    assert all(turn.response.length > 0 and turn.prompt_tokens > 0 for turn in answered)
    assert sum(turn.back_pressure for turn in answered) == 1
    assert len(fake.requests) == len(of(facts, TurnStarted)) + 1  # one was sent again on request
    assert all(request["response_format"] for request in fake.requests)
    assert of(facts, DecisionDeclared) and of(facts, FixtureCalled)


def test_each_fault_is_recorded_as_what_it_is(completed: StudyOnDisk) -> None:
    facts = completed.facts()
    failed = Counter((turn.kind, turn.retry) for turn in of(facts, TurnFailed))
    assert failed == {("transport", True): 1, ("broken_stream", False): 1, ("overflow", False): 1}
    ended = Counter(event.ended for event in of(facts, CaseFinished))
    assert ended == {"completed": CASES - 1, "crashed": 1, "void": 1}
    assert len(of(facts, CellStarted)) == CASES + 1


def test_the_record_says_that_residency_is_unobserved(completed: StudyOnDisk) -> None:
    facts = completed.facts()
    assert len(of(facts, ServerMismatched)) == 1
    loads, unloads = of(facts, ModelLoaded), of(facts, ModelUnloaded)
    assert {event.residency for event in (*loads, *unloads)} == {"unobserved"}
    assert len(loads) == len(unloads)
    audited = completed.ledger_command("audit", "--json")
    assert audited.status == 0, audited.out
    row = next(row for row in audited.json["audits"] if row["audit"] == "residency")
    assert row["ok"] and "shows no memory" in audited.out


def test_what_the_model_said_is_behind_the_gate(completed: StudyOnDisk) -> None:
    facts = completed.facts()
    inspected = len(of(facts, OutcomesInspected))
    answered = [fact for fact in facts if isinstance(fact.event, TurnStarted | TurnAnswered)]
    asked = [
        fact
        for fact in facts
        if isinstance(fact.event, CommandRequested) and isinstance(fact.event.command, AskModel)
    ]
    assert answered and asked
    for stream in (answered[0].stream, asked[0].stream):
        shown = completed.ledger_command("show", stream, "--json", "--artifacts")
        masked = {one["seq"]: "masked" in one["data"] for one in shown.json["records"]}
        hidden = [fact.seq for fact in (*answered, *asked) if fact.stream == stream]
        assert hidden and all(masked[seq] for seq in hidden) and not all(masked.values())
    proof = completed.ledger_command("prove", str(answered[-1].seq))
    assert "carries an outcome" in proof.err or "checkpoint" in proof.err
    ends = completed.ledger_command("query", "SELECT DISTINCT ended FROM cells", "--json").json
    assert ends["rows"] == [{"ended": "observed"}], "a crash is a failure that was observed"
    assert len(of(completed.facts(), OutcomesInspected)) == inspected


def test_it_is_verified_analysed_and_reported(completed: StudyOnDisk) -> None:
    assert completed.ledger_command("verify-chain").status == 0
    assert completed.ledger_command("replay", "--check").status == 0
    analysed = completed.ledger_command("analyze", "--reason", "a test", "--json")
    assert analysed.status == 0, analysed.err
    (system,) = analysed.json["results"]["systems"]
    assert (system["memory"], system["driver"], system["ended"]) == ("full", "model", CASES)
    assert not analysed.json["results"]["simulated"]
    assert completed.ledger_command("report").status == 0
