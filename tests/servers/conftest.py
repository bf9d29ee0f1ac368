"""A stand-in LM Studio in a thread, with its fake `lms`, and the real client on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.rehearsal.stand_in_lms import write_lms_wrapper
from actors.rehearsal.stand_in_server import StandInServer
from actors.servers.http_model_server import Limits
from actors.servers.lmstudio import LMStudio
from schemas.study import Model

TOKEN = "a token of the tests"

SHORT = Limits(
    answer_s=10, load_s=10, first_token_s=10, progress_s=10, unload_s=1.5, poll_s=0.02, lms_s=20
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
def lmstudio(stand_in: StandInServer, lms: list[str]) -> Iterator[LMStudio]:
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=SHORT)
    yield client
    client.close()


@pytest.fixture
def qwen() -> Model:
    return Model(
        id="M002",
        key="qwen/qwen3.6-35b-a3b",
        variant="qwen/qwen3.6-35b-a3b@4bit",
        quantization="4bit",
        format="mlx",
        context_length=65_536,
        max_context_length=262_144,
        reasoning="on",
    )


@pytest.fixture
def gpt_oss() -> Model:
    return Model(
        id="M003",
        key="openai/gpt-oss-20b",
        variant="openai/gpt-oss-20b@mxfp4",
        quantization="MXFP4",
        format="mlx",
        context_length=65_536,
        max_context_length=131_072,
        reasoning="low",
    )


@pytest.fixture
def embedder() -> Model:
    return Model(
        id="E001",
        key="text-embedding-qwen3-embedding-0.6b",
        variant="text-embedding-qwen3-embedding-0.6b",
        quantization="Q8_0",
        format="gguf",
        context_length=2_048,
        max_context_length=32_768,
        reasoning="off",
    )
