"""Turns against the stand-in: what the client returns, and how it names each failure."""

import msgspec
import pytest

from actors.rehearsal.stand_in_chat import Call, Turn
from actors.rehearsal.stand_in_server import OVERFLOW, StandInServer
from actors.servers.chat_stream import read_chat_stream
from actors.servers.contract import (
    BackPressure,
    ChatError,
    ChatRequest,
    ContextOverflow,
    IdentityMismatch,
    RequestRefused,
    StreamBroken,
    ToolCall,
    TransportFailure,
    TurnTimeout,
)
from actors.servers.http_model_server import Limits, encode_chat_request
from actors.servers.lmstudio import LMStudio
from schemas.study import Model

ARGUMENTS = '{"path":"src/app.py","start_line":120,"note":"a longer argument text"}'
TURN = Turn(
    content="I look at the file.",
    reasoning="The statement names the parser, so I read it first.",
    calls=[Call(name="read_file", arguments=ARGUMENTS)],
)
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}},
}
REQUEST = ChatRequest(
    messages=[{"role": "user", "content": "Mend the parser."}],
    tools=[TOOL],
    max_tokens=8_192,
    reasoning="on",
)


@pytest.fixture
def instance(lmstudio: LMStudio, qwen: Model) -> str:
    return lmstudio.load(qwen).instance_id


def with_fault(stand_in: StandInServer, turn: Turn = TURN, **faults: dict[str, object]) -> None:
    stand_in.script.append(turn)
    stand_in.state.set_faults(faults)


def chats_received(stand_in: StandInServer) -> int:
    return sum(entry.get("path") == "/v1/chat/completions" for entry in stand_in.state.log)


def test_a_whole_answer(stand_in: StandInServer, lmstudio: LMStudio, instance: str) -> None:
    stand_in.script.append(TURN)
    answer = lmstudio.chat(instance, REQUEST)
    reply = answer.reply
    assert reply.content == TURN.content
    assert reply.reasoning == TURN.reasoning
    assert reply.reasoning_field == "reasoning_content"
    assert reply.tool_calls == (ToolCall(id="000000001", name="read_file", arguments=ARGUMENTS),)
    assert reply.finish_reason == "tool_calls"
    assert reply.echoed_model == instance
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.reasoning_tokens == 13  # 51 bytes at four a token
    assert answer.simulated
    assert answer.first_token_ns is not None
    assert 0 < answer.first_token_ns <= answer.total_ns
    assert read_chat_stream(answer.stream) == reply
    assert [label for label, _ in answer.evidence] == [
        "POST /v1/chat/completions request",
        "POST /v1/chat/completions head",
        "POST /v1/chat/completions 200",
    ]
    assert answer.evidence[0].content == answer.request
    assert b"x-simulated: true" in answer.evidence[1].content.lower()
    assert answer.evidence[2].content == answer.stream
    assert stand_in.state.max_in_flight_ever == 1


def test_arguments_in_pieces_and_the_other_reasoning_field(
    stand_in: StandInServer, lmstudio: LMStudio, gpt_oss: Model
) -> None:
    instance = lmstudio.load(gpt_oss).instance_id
    stand_in.script.append(TURN)
    request = msgspec.structs.replace(REQUEST, reasoning="low")
    reply = lmstudio.chat(instance, request).reply
    assert reply.reasoning_field == "reasoning"
    assert reply.reasoning == TURN.reasoning
    assert reply.tool_calls[0].arguments == ARGUMENTS


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [("on", None), ("off", "none"), ("low", "low"), ("medium", "medium"), ("high", "high")],
)
def test_the_request_on_the_wire(reasoning: str, effort: str | None) -> None:
    request = msgspec.structs.replace(REQUEST, reasoning=reasoning)
    body = msgspec.json.decode(encode_chat_request("key:2", request))
    assert body.pop("reasoning_effort", None) == effort
    assert body == {
        "model": "key:2",
        "messages": [{"role": "user", "content": "Mend the parser."}],
        "tools": [TOOL],
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "max_tokens": 8_192,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert encode_chat_request("key:2", request) == encode_chat_request("key:2", request)


def test_reasoning_switched_off_is_off(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    stand_in.script.append(TURN)
    reply = lmstudio.chat(instance, msgspec.structs.replace(REQUEST, reasoning="off")).reply
    assert reply.reasoning == ""
    assert reply.reasoning_field is None


# ---- answers that are odd but observed -------------------------------------------------------


def test_truncated_arguments_are_returned_as_they_are(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, truncated_json_arguments={})
    (call,) = lmstudio.chat(instance, REQUEST).reply.tool_calls
    assert call.arguments == ARGUMENTS[: len(ARGUMENTS) // 2]


@pytest.mark.parametrize("fault", ["usage_missing", "usage_zero"])
def test_usage_that_is_missing_or_zero_is_unknown(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str, fault: str
) -> None:
    with_fault(stand_in, **{fault: {}})
    answer = lmstudio.chat(instance, REQUEST)
    assert answer.reply.usage is None
    assert answer.reply.finish_reason == "tool_calls"


def test_a_cut_answer(stand_in: StandInServer, lmstudio: LMStudio, instance: str) -> None:
    with_fault(stand_in, finish_length={})
    reply = lmstudio.chat(instance, REQUEST).reply
    assert reply.finish_reason == "length"
    whole = TURN.reasoning + TURN.content + ARGUMENTS
    shown = reply.reasoning + reply.content + "".join(call.arguments for call in reply.tool_calls)
    assert whole.startswith(shown)
    assert len(shown) < len(whole)


def test_max_tokens_cuts(stand_in: StandInServer, lmstudio: LMStudio, instance: str) -> None:
    stand_in.script.append(Turn(content="x" * 4_000))
    request = msgspec.structs.replace(REQUEST, max_tokens=100)
    reply = lmstudio.chat(instance, request).reply
    assert reply.finish_reason == "length"
    assert reply.content == "x" * 400


def test_an_empty_answer_is_an_answer(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    stand_in.script.append(Turn())
    answer = lmstudio.chat(instance, REQUEST)
    assert answer.reply.content == ""
    assert answer.reply.finish_reason == "stop"
    assert answer.first_token_ns is None


@pytest.mark.parametrize(
    ("fault", "leaked", "calls"), [("reasoning_in_content", True, 1), ("harmony_leak", True, 0)]
)
def test_leaked_markup_is_recorded_and_not_parsed(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str, fault: str, leaked: bool, calls: int
) -> None:
    with_fault(stand_in, **{fault: {}})
    reply = lmstudio.chat(instance, REQUEST).reply
    assert reply.leaked_markup is leaked
    assert len(reply.tool_calls) == calls


def test_reasoning_that_is_ignored_or_in_the_wrong_field(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, reasoning_ignored={})
    assert lmstudio.chat(instance, REQUEST).reply.reasoning_field is None
    with_fault(stand_in, reasoning_wrong_field={})
    reply = lmstudio.chat(instance, REQUEST).reply
    assert (reply.reasoning_field, reply.reasoning) == ("reasoning", TURN.reasoning)


@pytest.mark.parametrize(
    ("fault", "ids"),
    [("empty_call_ids", ["", ""]), ("duplicate_call_ids", ["000000001", "000000001"])],
)
def test_odd_call_ids_are_returned_as_they_are(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str, fault: str, ids: list[str]
) -> None:
    with_fault(stand_in, Turn(calls=[*TURN.calls, *TURN.calls]), **{fault: {}})
    assert [call.id for call in lmstudio.chat(instance, REQUEST).reply.tool_calls] == ids


def test_a_wrong_finish_reason_is_returned_as_it_is(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, wrong_finish_reason={})
    reply = lmstudio.chat(instance, REQUEST).reply
    assert reply.finish_reason == "stop"
    assert len(reply.tool_calls) == 1


def test_a_repeat_that_differs(stand_in: StandInServer, lmstudio: LMStudio, instance: str) -> None:
    stand_in.script.extend([Turn(content="Same."), Turn(content="Same."), Turn(content="Same.")])
    stand_in.state.set_faults({"repeat_differs": {"nth": 2}})
    contents = [lmstudio.chat(instance, REQUEST).reply.content for _ in range(3)]
    assert contents == ["Same.", "Same. (Differently.)", "Same."]


# ---- failures before the first token ---------------------------------------------------------


def failing(lmstudio: LMStudio, instance: str, kind: type[ChatError]) -> ChatError:
    with pytest.raises(kind) as raised:
        lmstudio.chat(instance, REQUEST)
    error = raised.value
    assert type(error) is kind
    assert error.may_retry is (kind is TransportFailure)
    assert error.evidence[0].content == encode_chat_request(instance, REQUEST)
    return error


def test_a_reset_connection_is_transport(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, connection_reset_before_first_token={"times": 1})
    error = failing(lmstudio, instance, TransportFailure)
    assert "reset" in str(error).lower()
    assert error.first_token_ns is None
    assert error.partial is None
    assert chats_received(stand_in) == 1  # nothing is sent twice by the client
    assert lmstudio.chat(instance, REQUEST).reply.content == TURN.content


def test_a_refused_connection_is_transport(lms: list[str]) -> None:
    client = LMStudio("http://127.0.0.1:9", lms=lms)
    error = failing(client, "nobody", TransportFailure)
    assert "status none" in str(error)
    client.close()


def test_a_5xx_is_transport(stand_in: StandInServer, lmstudio: LMStudio, instance: str) -> None:
    with_fault(stand_in, chat_500={})
    error = failing(lmstudio, instance, TransportFailure)
    assert "status 500): Internal server error" in str(error)
    assert b"Internal server error" in error.evidence[-1].content


@pytest.mark.parametrize("status", [429, 503])
def test_back_pressure_carries_retry_after(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str, status: int
) -> None:
    with_fault(stand_in, **{f"back_pressure_{status}": {"retry_after": 7, "times": 1}})
    error = failing(lmstudio, instance, BackPressure)
    assert isinstance(error, BackPressure)
    assert error.retry_after_s == 7
    assert b"retry-after: 7" in error.evidence[1].content.lower()
    assert lmstudio.chat(instance, REQUEST).reply.content == TURN.content


def test_a_retry_after_that_is_a_date_is_kept_and_not_guessed(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    date = "Fri, 31 Jul 2026 23:59:59 GMT"
    with_fault(stand_in, back_pressure_503={"retry_after": date})
    error = failing(lmstudio, instance, BackPressure)
    assert isinstance(error, BackPressure)
    assert error.retry_after == date
    assert error.retry_after_s is None


@pytest.mark.parametrize(("status", "kind"), [(429, BackPressure), (503, TransportFailure)])
def test_without_retry_after_only_429_asks_to_wait(
    stand_in: StandInServer,
    lmstudio: LMStudio,
    instance: str,
    status: int,
    kind: type[ChatError],
) -> None:
    with_fault(stand_in, **{f"back_pressure_{status}": {"retry_after": None}})
    assert f"status {status}" in str(failing(lmstudio, instance, kind))


def test_an_error_body_under_200_is_a_refusal(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, error_body_200={})
    error = failing(lmstudio, instance, RequestRefused)
    assert "The model has crashed" in str(error)


def test_an_error_event_before_a_token_is_a_refusal(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, error_event={"message": "Failed to render the template"})
    error = failing(lmstudio, instance, RequestRefused)
    assert "Failed to render the template" in str(error)


def test_a_model_that_is_not_loaded(stand_in: StandInServer, lmstudio: LMStudio) -> None:
    error = failing(lmstudio, "openai/gpt-oss-20b", RequestRefused)
    assert "No models loaded" in str(error)
    assert "status 404" in str(error)
    assert stand_in.state.max_resident_ever == 0


def test_no_first_token_in_time(stand_in: StandInServer, lms: list[str], qwen: Model) -> None:
    limits = Limits(first_token_s=0.3, progress_s=20)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=limits)
    instance = client.load(qwen).instance_id
    with_fault(stand_in, hang_before_first_token={})
    error = failing(client, instance, TurnTimeout)
    assert "no first token within 0.3 s" in str(error)
    assert error.first_token_ns is None
    assert 0.3e9 <= error.total_ns < limits.progress_s * 1e9 / 2
    assert b"keep-alive" in error.evidence[-1].content  # bytes came, but no token
    client.close()


# ---- failures after the first token ----------------------------------------------------------


def test_no_progress_after_a_token(stand_in: StandInServer, lms: list[str], qwen: Model) -> None:
    limits = Limits(first_token_s=20, progress_s=0.15)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=limits)
    instance = client.load(qwen).instance_id
    with_fault(stand_in, hang_after_first_token={})
    error = failing(client, instance, TurnTimeout)
    assert "no progress for 0.15 s" in str(error)
    assert error.first_token_ns is not None
    assert error.total_ns < limits.first_token_s * 1e9 / 2  # the shorter limit ended it
    assert error.partial is not None
    assert TURN.reasoning.startswith(error.partial.reasoning)
    client.close()


def test_progress_may_take_longer_than_any_one_limit(
    stand_in: StandInServer, lms: list[str], qwen: Model
) -> None:
    limits = Limits(first_token_s=0.8, progress_s=0.8)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=limits)
    instance = client.load(qwen).instance_id
    with_fault(stand_in, slow_stream={"seconds": 0.2})
    answer = client.chat(instance, REQUEST)
    assert answer.reply.content == TURN.content
    assert answer.total_ns > limits.first_token_s * 1e9
    client.close()


def test_half_a_stream_is_broken_and_not_retried(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, half_sse_stream={})
    error = failing(lmstudio, instance, StreamBroken)
    assert "after the first token" in str(error)
    assert error.partial is not None
    assert error.partial.finish_reason is None
    assert len(error.evidence[-1].content) > 0
    assert not error.evidence[-1].content.endswith(b"\n\n")


def test_an_eviction_while_generating(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, evicted_while_generating={})
    error = failing(lmstudio, instance, StreamBroken)
    assert "Model is unloaded" in str(error)
    assert lmstudio.residents().instances == ()


def test_an_event_that_cannot_be_read(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, garbage_event={})
    error = failing(lmstudio, instance, StreamBroken)
    assert "not JSON" in str(error)


def test_a_stream_that_is_too_long(stand_in: StandInServer, lms: list[str], qwen: Model) -> None:
    client = LMStudio(
        f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=Limits(max_stream_bytes=2_000)
    )
    instance = client.load(qwen).instance_id
    stand_in.script.append(Turn(content="x" * 20_000))
    error = failing(client, instance, StreamBroken)
    assert "longer than 2000 bytes" in str(error)
    client.close()


# ---- context overflow ------------------------------------------------------------------------


@pytest.fixture
def small(lmstudio: LMStudio, qwen: Model) -> str:
    """An instance whose context no prompt fits into."""
    return lmstudio.load(msgspec.structs.replace(qwen, context_length=16)).instance_id


@pytest.mark.parametrize("fault", [{}, {"overflow_400": {}}])
def test_an_overflow_that_the_server_names(
    stand_in: StandInServer, lmstudio: LMStudio, small: str, fault: dict[str, dict[str, object]]
) -> None:
    stand_in.state.set_faults(fault)
    error = failing(lmstudio, small, ContextOverflow)
    assert OVERFLOW.rstrip(".") in str(error)


def test_an_overflow_that_crashes_the_model(
    stand_in: StandInServer, lmstudio: LMStudio, small: str
) -> None:
    stand_in.state.set_faults({"overflow_crash": {}})
    assert "has crashed" in str(failing(lmstudio, small, TransportFailure))
    assert lmstudio.residents().instances == ()


@pytest.mark.parametrize("fault", ["overflow_garbage", "overflow_silent"])
def test_an_overflow_that_nobody_can_see_in_the_answer(
    stand_in: StandInServer, lmstudio: LMStudio, small: str, fault: str
) -> None:
    """Why tokens are counted before a turn is sent (interpretations 4)."""
    stand_in.state.set_faults({fault: {}})
    assert lmstudio.chat(small, REQUEST).reply.finish_reason == "stop"


# ---- who answered ----------------------------------------------------------------------------


def test_a_wrong_echo_is_fatal_and_loses_nothing(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, wrong_model_echo={"model": "openai/gpt-oss-20b"})
    with pytest.raises(IdentityMismatch) as raised:
        lmstudio.chat(instance, REQUEST)
    (difference,) = raised.value.differences
    assert (difference.frozen, difference.observed) == (instance, "openai/gpt-oss-20b")
    assert read_chat_stream(raised.value.evidence[-1].content).content == TURN.content


def test_the_only_loaded_model_answers_for_another(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with pytest.raises(IdentityMismatch, match="answered a turn that was sent to 'another'"):
        lmstudio.chat("another", REQUEST)


def test_a_foreign_resident_that_comes_with_a_turn_is_seen_by_the_next_look(
    stand_in: StandInServer, lmstudio: LMStudio, instance: str
) -> None:
    with_fault(stand_in, foreign_resident={"when": "chat"})
    assert lmstudio.chat(instance, REQUEST).reply.echoed_model == instance
    residents = [one.instance_id for one in lmstudio.residents().instances]
    assert residents == ["decoy/no-reasoning", instance]
