"""Any server of OpenAI's form: against the stand-in, which speaks it, and a fake with faults."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.rehearsal.stand_in_chat import Call, Turn
from actors.rehearsal.stand_in_server import StandInServer
from actors.servers.chat_stream import read_chat_stream
from actors.servers.contract import (
    BackPressure,
    ChatError,
    ChatRequest,
    ContextOverflow,
    IdentityMismatch,
    ModelServerError,
    RequestRefused,
    ServerUnreachable,
    StreamBroken,
    ToolCall,
    TransportFailure,
    TurnTimeout,
    UnexpectedAnswer,
)
from actors.servers.http_model_server import Limits
from actors.servers.lmstudio import LMStudio
from actors.servers.openai import OpenAICompatible
from harnesses.answers import parse_answer
from harnesses.contract import Message, wire
from schemas.envelope import MAX_INTEGER
from schemas.study import Model
from tests.servers.openai_fake import MODEL, OpenAIFake

SHORT = Limits(answer_s=10, first_token_s=0.3, progress_s=0.3)
SPEC = Model(
    id="M1",
    key=MODEL,
    variant=MODEL,
    quantization="",
    format="gguf",
    context_length=2_048,
    max_context_length=4_096,
    reasoning="off",
)
SCHEMA = {"type": "object", "properties": {"tool": {"const": "finish"}}, "required": ["tool"]}
TOOL = {"type": "function", "function": {"name": "finish", "parameters": {"type": "object"}}}
REQUEST = ChatRequest(
    messages=[{"role": "user", "content": "End."}],
    tools=[TOOL],
    max_tokens=96,
    reasoning="off",
    answer_schema=SCHEMA,
)


@pytest.fixture
def fake() -> Iterator[OpenAIFake]:
    with OpenAIFake().running() as server:
        yield server


@pytest.fixture
def client(fake: OpenAIFake) -> Iterator[OpenAICompatible]:
    client = OpenAICompatible(fake.url, SHORT)
    yield client
    client.close()


def test_it_claims_no_control_of_what_is_in_memory(client: OpenAICompatible) -> None:
    assert "residency_control" not in client.capabilities
    assert client.residents().instances == ()


def test_loading_looks_whether_the_model_is_listed(
    fake: OpenAIFake, client: OpenAICompatible
) -> None:
    loaded = client.load(SPEC)
    assert (loaded.instance_id, loaded.simulated, fake.looks) == (MODEL, False, 1)
    assert (loaded.identity.quantization, loaded.identity.max_context_length) == (None, None)
    assert [label for label, _ in loaded.evidence] == ["GET /v1/models 200"]
    assert client.unload(MODEL).evidence == loaded.evidence
    assert fake.requests == []


@pytest.mark.parametrize("listing", [{"data": []}, {"data": None}, {"data": [{"id": "other"}]}])
def test_a_model_that_is_not_listed_is_another_identity(
    fake: OpenAIFake, client: OpenAICompatible, listing: object
) -> None:
    fake.listing = listing
    with pytest.raises(IdentityMismatch, match="lists 0 models named") as caught:
        client.load(SPEC)
    assert caught.value.evidence[0].label == "GET /v1/models 200"


@pytest.mark.parametrize("more", [{"max_model_len": 1_024}, {"meta": {"n_ctx": 1_024}}])
def test_a_context_that_is_told_and_too_small_is_refused(
    fake: OpenAIFake, client: OpenAICompatible, more: dict[str, object]
) -> None:
    fake.listing = {"data": [{"id": MODEL, **more}]}
    with pytest.raises(IdentityMismatch, match="context of 1024 tokens"):
        client.load(SPEC)


def test_what_is_no_such_server_is_said(fake: OpenAIFake, client: OpenAICompatible) -> None:
    fake.listing = {"models": "elsewhere", "data": "?"}
    with pytest.raises(UnexpectedAnswer, match="not as documented"):
        client.inventory()
    fake.token = "a key"
    with pytest.raises(UnexpectedAnswer, match="LM_API_TOKEN"):
        client.inventory()
    nobody = OpenAICompatible("http://127.0.0.1:1", SHORT)
    with pytest.raises(ServerUnreachable, match="on port 1,"):
        nobody.inventory()
    nobody.close()


def test_a_key_is_sent_and_never_recorded(fake: OpenAIFake) -> None:
    fake.token = "k-5f2a"
    fake.answer = lambda body, number: {"content": "my key is k-5f2a"}
    client = OpenAICompatible(fake.url, SHORT, "k-5f2a")
    answer = client.chat(client.load(SPEC).instance_id, REQUEST)
    client.close()
    assert all(b"k-5f2a" not in piece.content for piece in answer.evidence)


def test_a_whole_answer_and_what_was_sent(fake: OpenAIFake, client: OpenAICompatible) -> None:
    fake.answer = lambda body, number: {"content": '{"tool": "finish"}'}
    answer = client.chat(MODEL, REQUEST)
    assert answer.reply.content == '{"tool": "finish"}'
    assert (answer.reply.finish_reason, answer.reply.echoed_model) == ("stop", MODEL)
    assert answer.reply.usage is not None and answer.reply.usage.completion_tokens > 0
    assert not answer.simulated
    assert read_chat_stream(answer.stream) == answer.reply
    assert msgspec.json.decode(answer.request) == fake.requests[0]
    (sent,) = fake.requests
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "action", "schema": SCHEMA},
    }
    assert (sent["tools"], sent["stream"], sent["seed"]) == ([TOOL], True, 0)
    client.chat(MODEL, msgspec.structs.replace(REQUEST, answer_schema=None))
    assert "response_format" not in fake.requests[1]


def test_native_tool_calls(fake: OpenAIFake, client: OpenAICompatible) -> None:
    fake.answer = lambda body, number: {"calls": [("finish", {"text": "Done."})]}
    reply = client.chat(MODEL, REQUEST).reply
    assert reply.tool_calls == (
        ToolCall(id="call_0", name="finish", arguments='{"text": "Done."}'),
    )


@pytest.mark.parametrize(
    ("fault", "kind", "partial"),
    [
        ("busy", BackPressure, None),
        ("crash", TransportFailure, None),
        ("overflow", ContextOverflow, None),
        ("refused", RequestRefused, None),
        ("silent", TurnTimeout, None),
        ("stalls", TurnTimeout, "a long "),
        ("half a stream", StreamBroken, "a long "),
    ],
)
def test_each_failure_has_its_class_and_keeps_what_came(
    fake: OpenAIFake,
    client: OpenAICompatible,
    fault: str,
    kind: type[ChatError],
    partial: str | None,
) -> None:
    fake.answer = lambda body, number: {"content": "a long answer", "fault": fault}
    with pytest.raises(kind) as caught:
        client.chat(MODEL, REQUEST)
    assert type(caught.value) is kind
    assert (caught.value.partial.content if caught.value.partial else None) == partial
    assert caught.value.evidence[0].label == "POST /v1/chat/completions request"
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "maximum context length is 512 tokens", "code": 400},
        {"detail": [{"loc": ["body"], "msg": "the context window is 512 tokens", "type": "v"}]},
        {"detail": "context overflow"},
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_an_overflow_is_one_in_every_form_of_an_error(
    fake: OpenAIFake, client: OpenAICompatible, body: object, status: int
) -> None:
    raw = (status, "application/json", msgspec.json.encode(body))
    fake.answer = lambda body, number: {"raw": raw}
    with pytest.raises(ContextOverflow, match="context"):
        client.chat(MODEL, REQUEST)


def test_a_cut_stream_with_empty_finish_reasons_is_broken(
    fake: OpenAIFake, client: OpenAICompatible
) -> None:
    event = (
        b'data: {"model":"%s","choices":[{"index":0,"delta":{"content":"Hal"},'
        b'"finish_reason":""}]}\n\n' % MODEL.encode()
    )
    fake.answer = lambda body, number: {"raw": (200, "text/event-stream", event)}
    with pytest.raises(StreamBroken, match="without a finish reason"):
        client.chat(MODEL, REQUEST)


NESTED = st.sampled_from([b"[" * 2_000, b'{"a":' * 2_000, b"[" * 900 + b"]" * 900])
ODD = (
    st.none()
    | st.booleans()
    | st.sampled_from(["", MODEL, "stop", "x" * 3_000, "\0", "{", '{"a": 1' + "0" * 30 + "}"])
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
)
CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": ODD,
        "id": ODD,
        "function": ODD | st.fixed_dictionaries({"name": ODD, "arguments": ODD}),
    },
)
DELTA = st.fixed_dictionaries(
    {},
    optional={"content": ODD, "reasoning": ODD, "tool_calls": ODD | st.lists(ODD | CALL)},
)
CHOICE = st.fixed_dictionaries(
    {}, optional={"index": st.just(0) | ODD, "delta": DELTA | ODD, "finish_reason": ODD}
)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just(MODEL) | ODD,
        "choices": st.lists(CHOICE, max_size=2) | ODD,
        "usage": st.fixed_dictionaries({"prompt_tokens": ODD, "completion_tokens": ODD}) | ODD,
        "error": ODD,
        "detail": ODD | st.lists(ODD),
    },
).map(msgspec.json.encode)
EVENTS = st.lists(CHUNK | NESTED | st.sampled_from([b"[DONE]", b"", b"\xff"]), max_size=6)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    events=EVENTS,
    status=st.sampled_from([200, 200, 200, 400, 429, 500]),
    media_type=st.sampled_from(["text/event-stream", "text/event-stream", "application/json", ""]),
)
def test_whatever_a_server_says_is_an_answer_or_an_error_with_its_bytes(
    fake: OpenAIFake,
    client: OpenAICompatible,
    events: list[bytes],
    status: int,
    media_type: str,
) -> None:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    fake.answer = lambda *request: {"raw": (status, media_type, body)}
    try:
        answer = client.chat(MODEL, REQUEST)
    except ModelServerError as error:
        assert len(str(error)) < 3_000
        assert body.startswith(error.evidence[-1].content)
        return
    assert body.startswith(answer.stream)
    reply = answer.reply
    said = reply.finish_reason or ""
    counts = (reply.usage.prompt_tokens, reply.usage.completion_tokens) if reply.usage else ()
    assert all(0 <= count <= MAX_INTEGER for count in counts)
    assert len(said) <= 64
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    read = parse_answer(reply.content, reply.reasoning, calls, said, ())
    msgspec.json.encode(wire([Message("assistant", read.content, tool_calls=read.calls)]))


def test_another_model_that_answers_is_no_answer(
    fake: OpenAIFake, client: OpenAICompatible
) -> None:
    fake.answer = lambda body, number: {"content": "hi", "fault": "another model"}
    with pytest.raises(IdentityMismatch, match="'another' answered"):
        client.chat(MODEL, REQUEST)


def test_usage_that_is_not_told_is_unknown(fake: OpenAIFake, client: OpenAICompatible) -> None:
    fake.answer = lambda body, number: {"content": "hi", "fault": "no usage"}
    assert client.chat(MODEL, REQUEST).reply.usage is None


def test_the_stand_in_is_such_a_server_and_says_that_it_is_simulated(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    """LM Studio lists what is loaded under /v1/models: it has to be loaded by hand here."""
    client = OpenAICompatible(f"http://127.0.0.1:{stand_in.port}", SHORT)
    with pytest.raises(IdentityMismatch):
        client.load(qwen)
    lmstudio.load(qwen)
    loaded = client.load(qwen)
    assert loaded.simulated
    stand_in.script.append(Turn(content="I look.", calls=[Call(name="read", arguments="{}")]))
    answer = client.chat(loaded.instance_id, REQUEST)
    assert answer.simulated
    assert (answer.reply.content, answer.reply.tool_calls[0].name) == ("I look.", "read")
    client.close()
