"""The stand-in as a child process: it dies with its parent and keeps its token and its briefs."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from actors.rehearsal.simulated_agent import NO_BRIEF, Brief, GoldFile
from actors.rehearsal.stand_in_process import StandInAdmin, StandInError, StandInProcess
from actors.servers.contract import ChatRequest
from actors.servers.lmstudio import LMStudio
from schemas.study import Model, Rehearsal

STATEMENT = "The parser loses the last header."
BRIEF = Brief(
    statement=hashlib.sha256(STATEMENT.encode()).hexdigest(),
    task="R001-001",
    gold={"src/parser.py": GoldFile(before="a\n", after="b\n")},
)
AGENT = Rehearsal(competence_per_mille=1_000, seed="seed")
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"query": {}, "mode": {}}},
    },
}
REQUEST = ChatRequest(
    messages=[{"role": "user", "content": f"<statement>\n{STATEMENT}\n</statement>"}],
    tools=[SEARCH],
    max_tokens=8_192,
    reasoning="low",
)
GPT_OSS = Model(
    id="M003",
    key="openai/gpt-oss-20b",
    variant="openai/gpt-oss-20b@mxfp4",
    quantization="MXFP4",
    format="mlx",
    context_length=65_536,
    max_context_length=131_072,
    reasoning="low",
)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInProcess]:
    with StandInProcess(tmp_path_factory.mktemp("stand-in"), simulated_study=True) as child:
        yield child


def test_a_rehearsal_through_the_real_client(process: StandInProcess) -> None:
    process.admin.rehearse({GPT_OSS.key: AGENT}, [BRIEF])
    client = LMStudio(process.base_url, lms=process.lms)
    assert client.preflight(GPT_OSS).simulated
    instance = client.load(GPT_OSS).instance_id
    reply = client.chat(instance, REQUEST).reply
    (call,) = reply.tool_calls
    assert call.name == "search"
    assert json.loads(call.arguments) == {"query": "parser", "mode": "substring"}
    assert reply.reasoning_field == "reasoning"
    assert "parser" in reply.reasoning

    other = ChatRequest(
        messages=[{"role": "user", "content": "<statement>\nSomething else.\n</statement>"}],
        tools=[SEARCH],
        max_tokens=100,
        reasoning="low",
    )
    assert client.chat(instance, other).reply.content == NO_BRIEF
    client.unload(instance)
    client.close()
    state = process.admin.state()
    assert state["max_resident_ever"] == 1
    assert state["max_in_flight_ever"] == 1
    assert state["resident"] == []


def test_orders_are_checked(process: StandInProcess) -> None:
    with pytest.raises(StandInError, match="no fault 'typo'"):
        process.admin.set_faults({"typo": {}})
    stranger = StandInAdmin(process.port, "wrong")
    with pytest.raises(StandInError, match="token"):
        stranger.state()
    stranger.close()


def test_the_fake_lms(process: StandInProcess) -> None:
    def lms(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*process.lms, *words], capture_output=True, check=False)

    status = lms("server", "status", "--json", "--quiet")
    assert status.stdout == b'{"running":true,"port":%d}\n' % process.port
    assert lms("ps", "--json").stdout == b"[]\n"
    assert "openai/gpt-oss-20b" in [
        model["modelKey"] for model in json.loads(lms("ls", "--json").stdout)
    ]
    assert lms("server", "start").returncode == 0
    unknown = lms("load", "openai/gpt-oss-20b")
    assert unknown.returncode == 1
    assert b"not a command of the fake lms" in unknown.stderr


def test_the_token_is_for_its_owner_only(process: StandInProcess, tmp_path: Path) -> None:
    token_file = Path(process.lms[0]).with_name("token")
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    wrapper = Path(process.lms[0]).read_text()
    assert token_file.read_text() not in wrapper
    command_line = Path(f"/proc/{process.pid}/cmdline")
    if command_line.exists():
        assert token_file.read_bytes() not in command_line.read_bytes()


def test_no_brief_outside_a_simulated_study(tmp_path: Path) -> None:
    with StandInProcess(tmp_path, simulated_study=False) as child:
        with pytest.raises(StandInError, match="--simulated-study"):
            child.admin.rehearse({GPT_OSS.key: AGENT}, [BRIEF])
        client = LMStudio(child.base_url, lms=child.lms)
        instance = client.load(GPT_OSS).instance_id
        assert client.chat(instance, REQUEST).reply.content == NO_BRIEF
        client.close()


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from actors.rehearsal.stand_in_process import StandInProcess
        child = StandInProcess(Path(sys.argv[1]), simulated_study=False)
        print(child.port, child.pid, flush=True)
        os._exit(1)  # no clean-up of any kind
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=False
    )
    port, pid = done.stdout.split()
    # The pipe that we read held a copy in the child too, so it had ended when `run` returned.
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{int(port)}/lmstudio-greeting", trust_env=False)
    assert int(pid) != os.getpid()


def test_lms_without_a_server(tmp_path: Path) -> None:
    with StandInProcess(tmp_path, simulated_study=False) as child:
        port, lms = child.port, child.lms
    status = subprocess.run([*lms, "server", "status", "--json"], capture_output=True, check=False)
    assert status.returncode == 0
    assert json.loads(status.stdout) == {"running": False, "port": port}
    ps = subprocess.run([*lms, "ps", "--json"], capture_output=True, check=False)
    assert ps.returncode == 1


def test_a_port_that_is_taken(process: StandInProcess, tmp_path: Path) -> None:
    with pytest.raises(StandInError, match="exit status 1"):
        StandInProcess(tmp_path, simulated_study=False, port=process.port)


def test_one_whose_starter_is_gone_before_it_is_ready_ends_without_a_word(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("token")
    arguments = ["-m", "actors.rehearsal.stand_in_server", "--token-file", str(token)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [sys.executable, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    child.stdout.close()
    child.stdin.close()
    with child.stderr as errors:
        assert errors.read() == ""
    assert child.wait() == 0
