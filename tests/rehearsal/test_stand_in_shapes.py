"""The stand-in's answers against LM Studio's documentation, field by field.

Sources: ``lmstudio-ai/docs`` (``1_developer/2_rest/{list,load,unload,endpoints}``,
``1_developer/3_openai-compat``, ``3_cli``), ``lmstudio-ai/lmstudio-js``
(``ModelInfoBase.ts``, ``LLMModelInfo.ts``), ``lmstudio-ai/lms`` (``list.ts``, ``server.ts``), and
bug-tracker#618 and #1462 for errors.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from actors.rehearsal.stand_in_chat import Call, Turn
from actors.rehearsal.stand_in_server import TOKEN_HEADER, StandInServer

TOKEN = "a token of the tests"
QWEN = "qwen/qwen3.6-35b-a3b"
GPT_OSS = "openai/gpt-oss-20b"
EMBEDDER = "text-embedding-qwen3-embedding-0.6b"


@pytest.fixture
def stand_in() -> Iterator[StandInServer]:
    with StandInServer(0, TOKEN).running() as server:
        yield server


@pytest.fixture
def http(stand_in: StandInServer) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"http://127.0.0.1:{stand_in.port}", trust_env=False, verify=False
    ) as client:
        yield client


def shape(value: Any) -> Any:
    """Keys and JSON types; a list is its first element's."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def load(http: httpx.Client, key: str = QWEN, **more: object) -> dict[str, Any]:
    body = {"model": key, "context_length": 16_384, "echo_load_config": True} | more
    answer: dict[str, Any] = http.post("/api/v1/models/load", json=body).json()
    return answer


def test_every_answer_says_that_it_is_simulated(http: httpx.Client) -> None:
    for response in (
        http.get("/lmstudio-greeting"),
        http.get("/api/v1/models"),
        http.get("/nowhere"),
        http.post("/api/v1/models/load", json={"model": "nothing"}),
        http.post("/v1/chat/completions", json={}),
        http.get("/stand-in/state"),
    ):
        assert response.headers["x-simulated"] == "true"


def test_the_greeting(http: httpx.Client) -> None:
    assert http.get("/lmstudio-greeting").json() == {"lmstudio": True}


def test_the_native_listing(http: httpx.Client) -> None:
    load(http)
    models = {model["key"]: model for model in http.get("/api/v1/models").json()["models"]}
    assert shape(models[QWEN]) == {
        "type": "str",
        "publisher": "str",
        "key": "str",
        "display_name": "str",
        "architecture": "str",
        "quantization": {"name": "str", "bits_per_weight": "float"},
        "size_bytes": "int",
        "params_string": "str",
        "loaded_instances": [{"id": "str", "config": {"context_length": "int", "parallel": "int"}}],
        "max_context_length": "int",
        "format": "str",
        "capabilities": {
            "vision": "bool",
            "trained_for_tool_use": "bool",
            "reasoning": {"allowed_options": ["str"], "default": "str"},
        },
        "description": "NoneType",
        "variants": ["str"],
        "selected_variant": "str",
    }
    # "Absent for embedding models": architecture, capabilities, description; and an MLX or
    # embedding model shows no llama.cpp settings.
    assert shape(models[EMBEDDER]) == {
        "type": "str",
        "publisher": "str",
        "key": "str",
        "display_name": "str",
        "quantization": {"name": "str", "bits_per_weight": "float"},
        "size_bytes": "int",
        "params_string": "str",
        "loaded_instances": [],
        "max_context_length": "int",
        "format": "str",
    }


def test_the_frozen_models_of_study_2_are_in_the_catalogue(http: httpx.Client) -> None:
    models = {model["key"]: model for model in http.get("/api/v1/models").json()["models"]}
    shown = {
        key: (model.get("selected_variant"), model["format"], model["quantization"]["name"])
        for key, model in models.items()
    }
    assert shown[QWEN] == (f"{QWEN}@4bit", "mlx", "4bit")
    assert shown[GPT_OSS] == (f"{GPT_OSS}@mxfp4", "mlx", "MXFP4")
    assert shown[EMBEDDER] == (None, "gguf", "Q8_0")
    assert models[QWEN]["capabilities"]["reasoning"]["allowed_options"] == ["off", "on"]
    assert "low" in models[GPT_OSS]["capabilities"]["reasoning"]["allowed_options"]
    assert min(models[key]["max_context_length"] for key in (QWEN, GPT_OSS)) >= 65_536


def test_a_load_and_an_unload(http: httpx.Client) -> None:
    answer = load(http)
    assert shape(answer) == {
        "type": "str",
        "instance_id": "str",
        "load_time_seconds": "float",
        "status": "str",
        "load_config": {"context_length": "int", "parallel": "int"},
    }
    assert answer["load_config"]["context_length"] == 16_384
    assert (answer["status"], answer["type"]) == ("loaded", "llm")
    assert "load_config" not in load(http, echo_load_config=False)
    gone = http.post("/api/v1/models/unload", json={"instance_id": QWEN})
    assert gone.json() == {"instance_id": QWEN}


def test_every_load_makes_a_new_instance(http: httpx.Client) -> None:
    assert [load(http)["instance_id"] for _ in range(3)] == [QWEN, f"{QWEN}:2", f"{QWEN}:3"]
    http.post("/api/v1/models/unload", json={"instance_id": f"{QWEN}:2"})
    assert load(http)["instance_id"] == f"{QWEN}:2"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("load", {"model": QWEN, "ttl": 60}, 400, "unrecognized_keys"),
        ("load", {"model": QWEN, "reasoning": "on"}, 400, "unrecognized_keys"),
        ("load", {}, 400, "missing_key"),
        ("load", {"model": QWEN, "context_length": "big"}, 400, "invalid_type"),
        ("unload", {"model": QWEN}, 400, "unrecognized_keys"),
        ("load", {"model": f"{QWEN}@4bit"}, 404, None),
        ("load", {"model": "unknown/model"}, 404, None),
        ("unload", {"instance_id": QWEN}, 404, None),
    ],
)
def test_strict_bodies(
    http: httpx.Client, path: str, body: dict[str, object], status: int, code: str | None
) -> None:
    response = http.post(f"/api/v1/models/{path}", json=body)
    assert response.status_code == status
    assert shape(response.json())["error"]["message"] == "str"
    assert response.json()["error"]["code"] == code
    if status == 404:
        assert response.json()["error"]["type"] == "model_not_found"


def test_a_chat_refuses_keys_that_are_not_documented(http: httpx.Client) -> None:
    load(http)
    body = {"model": QWEN, "messages": [], "max_completion_tokens": 10}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unrecognized_keys"


def test_the_older_listing(http: httpx.Client, stand_in: StandInServer) -> None:
    assert http.get("/api/v0/models").json() == {"data": [], "object": "list"}
    load(http)
    (model,) = http.get("/api/v0/models").json()["data"]
    assert shape(model) == {
        "id": "str",
        "object": "str",
        "type": "str",
        "publisher": "str",
        "arch": "str",
        "compatibility_type": "str",
        "quantization": "str",
        "state": "str",
        "max_context_length": "int",
        "loaded_context_length": "int",
    }
    stand_in.state.set_faults({"jit_on": {}})
    listed = http.get("/api/v0/models").json()["data"]
    states = {model["id"]: model["state"] for model in listed}
    assert states.pop(QWEN) == "loaded"
    assert set(states.values()) == {"not-loaded"}
    assert len(states) == len(stand_in.state.models) - 1


def test_the_openai_listing(http: httpx.Client, stand_in: StandInServer) -> None:
    assert http.get("/v1/models").json() == {"data": [], "object": "list"}
    load(http)
    listed = http.get("/v1/models").json()["data"]
    assert listed == [{"id": QWEN, "object": "model", "owned_by": "organization_owner"}]
    stand_in.state.set_faults({"jit_on": {}})
    assert len(http.get("/v1/models").json()["data"]) == len(stand_in.state.models)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", "/models", "/api/v1/chat", "/v1/models/unload"])
def test_unknown_paths_answer_200_with_an_error(http: httpx.Client, method: str, path: str) -> None:
    response = http.request(method, path, json={} if method == "POST" else None)
    assert response.status_code == 200
    message = f"Unexpected endpoint or method. ({method} {path})"
    assert response.json() == {"error": message}


def test_a_chat_without_stream(http: httpx.Client, stand_in: StandInServer) -> None:
    load(http)
    stand_in.script.append(
        Turn(content="c", reasoning="r", calls=[Call(name="search", arguments='{"query":"x"}')])
    )
    body = {"model": QWEN, "messages": [{"role": "user", "content": "hello"}]}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert shape(answer) == {
        "id": "str",
        "object": "str",
        "created": "int",
        "model": "str",
        "choices": [
            {
                "index": "int",
                "message": {
                    "role": "str",
                    "content": "str",
                    "reasoning_content": "str",
                    "tool_calls": [
                        {
                            "id": "str",
                            "type": "str",
                            "function": {"name": "str", "arguments": "str"},
                        }
                    ],
                },
                "logprobs": "NoneType",
                "finish_reason": "str",
            }
        ],
        "system_fingerprint": "str",
        "usage": {
            "prompt_tokens": "int",
            "completion_tokens": "int",
            "total_tokens": "int",
            "completion_tokens_details": {"reasoning_tokens": "int"},
        },
    }
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_chat_with_stream(http: httpx.Client, stand_in: StandInServer) -> None:
    load(http)
    stand_in.script.append(Turn(content="hello"))
    body = {"model": QWEN, "messages": [], "stream": True}
    response = http.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: {") for event in events[:-2])
    assert len(events) == 4  # a delta, the finish reason, [DONE]; usage only where asked for


def test_a_chat_with_nothing_loaded(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", json={"model": QWEN, "messages": []})
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "model",
        None,
    )
    assert error["message"].startswith("No models loaded")


def test_just_in_time_loading(http: httpx.Client, stand_in: StandInServer) -> None:
    stand_in.state.set_faults({"jit_on": {}})
    http.post("/v1/chat/completions", json={"model": GPT_OSS, "messages": []})
    assert [one.origin for one in stand_in.state.instances.values()] == ["jit"]


def test_embeddings(http: httpx.Client) -> None:
    load(http, EMBEDDER)
    body = {"model": EMBEDDER, "input": ["one", "two"]}
    answer = http.post("/v1/embeddings", json=body).json()
    assert shape(answer) == {
        "object": "str",
        "data": [{"object": "str", "embedding": ["float"], "index": "int"}],
        "model": "str",
        "usage": {"prompt_tokens": "int", "total_tokens": "int"},
    }


def test_lms_ps_and_ls(http: httpx.Client) -> None:
    load(http)
    load(http, EMBEDDER)
    headers = {TOKEN_HEADER: TOKEN}
    resident, embedder = http.get("/stand-in/lms/ps", headers=headers).json()
    info = {
        "type": "str",
        "modelKey": "str",
        "format": "str",
        "displayName": "str",
        "publisher": "str",
        "path": "str",
        "sizeBytes": "int",
        "indexedModelIdentifier": "str",
        "deviceIdentifier": "NoneType",
        "paramsString": "str",
        "architecture": "str",
        "quantization": {"name": "str", "bits": "int"},
        "variants": ["str"],
        "selectedVariant": "str",
        "vision": "bool",
        "trainedForToolUse": "bool",
        "maxContextLength": "int",
    }
    instance = {
        "identifier": "str",
        "ttlMs": "NoneType",
        "lastUsedTime": "NoneType",
        "contextLength": "int",
        "status": "str",
        "queued": "int",
        "parallel": "int",
    }
    assert shape(resident) == info | instance
    assert (embedder["type"], embedder["parallel"]) == ("embedding", None)
    assert shape(http.get("/stand-in/lms/ls", headers=headers).json()[0]) == info


def test_admin_routes_need_the_token(http: httpx.Client, stand_in: StandInServer) -> None:
    for headers in ({}, {TOKEN_HEADER: "wrong"}, {TOKEN_HEADER: ""}):
        response = http.post("/stand-in/faults", json={"jit_on": {}}, headers=headers)
        assert response.status_code == 403
    assert stand_in.state.faults == {}
    response = http.post("/stand-in/faults", json={"jit_off": {}}, headers={TOKEN_HEADER: TOKEN})
    assert response.status_code == 400
    assert "jit_on" in response.json()["error"]["message"]  # the message lists what there is
    with pytest.raises(ValueError, match="token"):
        StandInServer(0, "")
