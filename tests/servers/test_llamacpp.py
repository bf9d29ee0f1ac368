"""llama.cpp in this process: what is checked of the weights, and what a turn becomes. The library's
server is played by the fake of OpenAI's form; the real one runs in the sweeps."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

import actors.servers.llamacpp
from actors.servers.contract import (
    ChatRequest,
    IdentityMismatch,
    RequestRefused,
    ServerUnreachable,
)
from actors.servers.http_model_server import Limits
from actors.servers.llamacpp import LlamaCpp, without_tools
from schemas.study import Model
from tests.servers.openai_fake import OpenAIFake

KEY, WEIGHTS = "tiny", b"GGUF and what follows"
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Reads a page.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
    },
}
REQUEST = ChatRequest(
    messages=[{"role": "system", "content": "You act."}, {"role": "user", "content": "Look."}],
    tools=[TOOL],
    max_tokens=96,
    reasoning="off",
    answer_schema={"type": "object"},
)


class Listening:
    """As ``xllamacpp.Server``: an address, and a token that it asks for."""

    def __init__(self, fake: OpenAIFake, model: Model, token: str) -> None:
        fake.token = token
        meta = {"n_ctx": model.context_length, "n_ctx_train": 8_192, "ftype": "Q4_1"}
        fake.listing = {"data": [{"id": model.key, "meta": meta}]}
        self.listening_address = fake.url


@pytest.fixture
def fake() -> Iterator[OpenAIFake]:
    with OpenAIFake().running() as server:
        yield server


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(WEIGHTS)
    return path


@pytest.fixture
def server(fake: OpenAIFake, weights: Path) -> Iterator[LlamaCpp]:
    limits = Limits(first_token_s=5, progress_s=5)
    server = LlamaCpp(weights, limits, lambda path, model, token: Listening(fake, model, token))
    yield server
    server.close()


def spec(**changed: object) -> Model:
    values = {
        "id": "M1",
        "key": KEY,
        "variant": KEY,
        "quantization": "Q4_1",
        "format": "gguf",
        "context_length": 2_048,
        "max_context_length": 8_192,
        "reasoning": "off",
        "files": {"tiny.gguf": sha256(WEIGHTS).hexdigest()},
        **changed,
    }
    return msgspec.convert(values, Model)


def test_a_load_is_the_one_resident_until_it_is_unloaded(server: LlamaCpp) -> None:
    assert server.residents().instances == ()
    loaded = server.load(spec())
    assert (loaded.identity.quantization, loaded.identity.max_context_length) == ("Q4_1", 8_192)
    said = msgspec.json.decode(loaded.evidence[0].content)
    assert said["sha256"] == sha256(WEIGHTS).hexdigest()
    (resident,) = server.residents().instances
    assert resident.instance_id == loaded.instance_id
    server.unload(loaded.instance_id)
    assert server.residents().instances == ()
    with pytest.raises(RequestRefused, match="not loaded"):
        server.chat(loaded.instance_id, REQUEST)


def test_other_weights_are_another_model(server: LlamaCpp, weights: Path) -> None:
    assert server.preflight(spec()).identity.key == KEY
    weights.write_bytes(WEIGHTS + b"!")
    with pytest.raises(IdentityMismatch, match="has SHA-256"):
        server.preflight(spec())


@pytest.mark.parametrize("changed", [{"quantization": "Q8_0"}, {"max_context_length": 4_096}])
def test_what_the_study_says_of_the_file_must_be_so(
    server: LlamaCpp, changed: dict[str, object]
) -> None:
    with pytest.raises(IdentityMismatch, match="is not the frozen model"):
        server.load(spec(**changed))
    assert server.residents().instances == ()


def test_tools_are_told_in_the_system_message_and_the_answer_is_constrained(
    fake: OpenAIFake, server: LlamaCpp
) -> None:
    fake.answer = lambda body, number: {"content": '{"tool": "look", "arguments": {"page": 1}}'}
    answer = server.chat(server.load(spec()).instance_id, REQUEST)
    assert answer.reply.content == '{"tool": "look", "arguments": {"page": 1}}'
    (sent,) = fake.requests
    assert "tools" not in sent and sent["response_format"]["json_schema"]["schema"]
    system, user = sent["messages"]
    assert system["content"].startswith("You act.")
    assert 'look: Reads a page. {"page":{"type":"integer"}}' in system["content"]
    assert user == REQUEST.messages[1]
    assert fake.token and all(fake.token.encode() not in one.content for one in answer.evidence)


def test_without_a_system_message_one_is_made() -> None:
    request = msgspec.structs.replace(REQUEST, messages=[{"role": "user", "content": "Look."}])
    told = without_tools(request)
    assert [message["role"] for message in told.messages] == ["system", "user"]
    assert told.tools == () and "look: Reads a page." in told.messages[0]["content"]
    plain = msgspec.structs.replace(request, tools=())
    assert without_tools(plain) is plain


def test_earlier_calls_and_results_are_told_as_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"page": 1}'}}
    request = msgspec.structs.replace(
        REQUEST,
        messages=[
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "I do.", "tool_calls": [call]},
            {"role": "tool", "content": "A page.", "tool_call_id": "c"},
        ],
        answer_schema=None,
    )
    told = without_tools(request)
    assert told.messages[1:] == [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": 'I do.\n{"tool": "look", "arguments": {"page": 1}}'},
        {"role": "user", "content": "A page."},
    ]
    (action,) = told.answer_schema["anyOf"]
    assert action["properties"]["tool"] == {"const": "look"}
    assert action["properties"]["arguments"] == TOOL["function"]["parameters"]


def test_what_is_missing_is_named(
    tmp_path: Path, server: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerUnreachable, match=r"server\.weights"):
        LlamaCpp(tmp_path / "none.gguf").inventory()
    monkeypatch.setattr(actors.servers.llamacpp, "EMBEDDED", ("no_such_package", "x.gguf"))
    with pytest.raises(ServerUnreachable, match="real-model"):
        LlamaCpp().inventory()
    with pytest.raises(ServerUnreachable, match="turns only"):
        server.embed(KEY, ["text"])
