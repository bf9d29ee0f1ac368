"""The capturing proxy: bytes unchanged, a bounded journal of its own, and what it shows."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.memory_systems import proxy
from schemas.events.transfer import CaseFinished, MemoryRetrieved
from schemas.transfer.study import Memory

SERVER = Path(__file__).with_name("mcp_graph_server.py")
ECHO = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(3)"


def through(command: list[str], sent: bytes, journal: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, proxy.__file__, "--journal", str(journal), "--", *command],
        input=sent,
        capture_output=True,
        timeout=60,
        check=False,
    )


def records(journal: Path) -> list[Any]:
    return [json.loads(line) for line in journal.read_bytes().splitlines()]


def test_bytes_pass_unchanged_and_the_status_is_the_servers(tmp_path: Path) -> None:
    sent = b'{"id": 1}\r\nno json \xff\x00\n\n{"id": 2, "a": "\xc3\xa4"}\nhalf a line'
    journal = tmp_path / "journal.jsonl"
    done = through([sys.executable, "-c", ECHO], sent, journal)
    assert (done.stdout, done.returncode) == (sent, 3)
    assert f"capturing to {journal}".encode() in done.stderr
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    for who in ("client", "server"):
        said = [record for record in records(journal) if record["from"] == who]
        assert [record.get("message") for record in said] == [
            {"id": 1}, None, None, {"id": 2, "a": "ä"}, None,
        ]  # fmt: skip
        assert said[-1]["text"] == "half a line"
    assert [record["n"] for record in records(journal)] == list(range(10))


def test_the_journal_is_bounded_and_says_that_it_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "MAX_JOURNAL", 200)
    journal = proxy.Journal(str(tmp_path / "j"))
    for number in range(100):
        journal.add("client", b'{"id": %d}' % number)
    assert records(tmp_path / "j")[-1]["truncated"] is True
    assert (tmp_path / "j").stat().st_size < 300
    with pytest.raises(ValueError, match="not whole"):
        proxy.retrievals((tmp_path / "j").read_bytes())
    with pytest.raises(ValueError, match="cannot be read"):
        proxy.retrievals(b"{\n")


def test_it_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert through(["true"], b"", tmp_path / "link").returncode == 1
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "mine").write_text("a letter")
    taken = through(["true"], b"", tmp_path / "mine")
    assert taken.returncode == 1 and b"name a new file" in taken.stderr
    assert (tmp_path / "mine").read_text() == "a letter"
    missing = through(["./no-such-program"], b"", tmp_path / "j")
    assert missing.returncode == 1 and b"no-such-program" in missing.stderr
    for arguments in ([], ["--"], ["--journal"], ["--", "true"]):
        done = subprocess.run(
            [sys.executable, proxy.__file__, *arguments], capture_output=True, env={}, check=False
        )
        assert done.returncode == 2 and done.stderr


def test_the_command_does_the_same(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    command = [sys.executable, "-m", "ledger", "transfer", "proxy", "--journal", str(journal)]
    sent = b'{"id": 1, "method": "tools/list"}\n'
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", ECHO], input=sent, capture_output=True, check=False
    )
    assert (done.stdout, done.returncode, len(records(journal))) == (sent, 3, 2)
    refused = subprocess.run([*command[:-2], "--", "true"], capture_output=True, check=False)
    assert refused.returncode == 2 and b"--journal" in refused.stderr


def journal_of(*messages: tuple[str, Any]) -> bytes:
    lines = [
        {"n": number, "from": who, "message": message}
        for number, (who, message) in enumerate(messages)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def call(number: Any, tool: str, result: Any) -> tuple[tuple[str, Any], tuple[str, Any]]:
    parameters = {"name": tool, "arguments": {"query": "x"}}
    return (
        ("client", {"id": number, "method": "tools/call", "params": parameters}),
        ("server", {"id": number, "result": result}),
    )


def test_what_was_delivered_is_read_out_of_it() -> None:
    tools = [{"name": "save", "annotations": {"readOnlyHint": False}}, {"name": "find"}]
    text = [{"type": "text", "text": json.dumps({"hits": [{"memory": "line 1\nline 2"}]})}]
    plain = [{"type": "text", "text": "as it is"}, {"type": "image", "data": ""}]
    entities = {"entities": [{"name": "CT-1", "observations": ["a", "b"]}, "odd"]}
    found = proxy.retrievals(
        journal_of(
            ("client", {"id": 1, "method": "tools/list"}),
            ("server", {"id": 1, "result": {"tools": tools}}),
            *call(2, "save", {"content": plain}),
            *call("3", "find", {"content": text}),
            *call(4, "find", {"content": plain}),
            *call(5, "find", {"content": [], "structuredContent": entities}),
            *call(6, "find", {"content": plain, "isError": True}),
            ("server", {"id": 99, "result": {"content": plain}}),
            ("server", ["no", "message"]),
        )
    )
    assert {delivery.query for delivery in found} == {'find {"query": "x"}'}
    assert [delivery.items for delivery in found] == [
        (("answer-5.0", "line 1\nline 2"),),
        (("answer-7.0", "as it is"),),
        (("CT-1", "a\nb"),),
    ]


AGENT = '''
import json, os, subprocess, sys

def say(**message):
    print(json.dumps(message), flush=True)

class Server:
    """Its memory server, behind the proxy where it was given one."""

    def __init__(self, prefix):
        command = [*prefix, sys.executable, os.path.join(os.path.dirname(__file__), "graph.py")]
        environment = {**os.environ, "MEMORY_FILE_PATH": os.path.abspath("store/memory.jsonl")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.ask("initialize", protocolVersion="2025-06-18")
        self.ask("tools/list")

    def ask(self, method, **parameters):
        message = {"jsonrpc": "2.0", "id": method, "method": method, "params": parameters}
        print(json.dumps(message), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())["result"]

    def call(self, name, **arguments):
        answer = self.ask("tools/call", name=name, arguments=arguments)
        return answer["structuredContent"]["entities"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()

for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "hello":
        say(type="hello", trace="retrieval", store="readable")
    elif message["type"] == "seed":
        server = Server([])
        records = message["records"]
        server.call("create_entities", entities=[
            {"name": r["id"], "entityType": "x", "observations": [r["text"]]} for r in records
        ])
        server.end()
        say(type="seeded", ids={r["id"]: [r["id"]] for r in records})
    elif message["type"] == "snapshot":
        say(type="snapshot", path="memory.jsonl")
    elif message["type"] == "open":
        prefix = message["proxy"]
    elif message["type"] == "prompt":
        server = Server(prefix)
        server.call("search_nodes", query="halyard")
        server.call("create_entities", entities=[])
        server.end()
        say(type="final", text="done")
'''


def test_what_passes_it_is_the_word_of_an_agent_that_says_nothing_else(
    tmp_path: Path, worker: Callable[..., Any]
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "graph.py").write_text(SERVER.read_text())
    memory = Memory(id="agent", kind="command", command=("python3", str(folder / "agent.py")))
    events = worker(memory).run("F101-01-positive.d50/agent/own/0")
    end = events[-1]
    assert isinstance(end, CaseFinished) and end.ended == "completed", end
    (retrieved,) = [event for event in events if isinstance(event, MemoryRetrieved)]
    assert (retrieved.grade, retrieved.admitted) == ("reported", None)
    assert retrieved.query == 'search_nodes {"query": "halyard"}'
    assert "CT-101" in [item.id for item in retrieved.delivered]


FORGER = """
import json, os, sys

for line in sys.stdin:
    kind = json.loads(line)["type"]
    if kind == "hello":
        print(json.dumps({"type": "hello", "trace": "retrieval"}), flush=True)
    elif kind == "prompt":
        call = {"id": 1, "method": "tools/call", "params": {"name": "search_nodes"}}
        entity = {"name": "CT-101", "observations": ["whatever the case wants"]}
        answer = {"id": 1, "result": {"structuredContent": {"entities": [entity]}}}
        with open(os.environ["LEDGER_PROXY_JOURNAL"], "w") as journal:
            for n, (who, message) in enumerate([("client", call), ("server", answer)]):
                print(json.dumps({"n": n, "from": who, "message": message}), file=journal)
        print(json.dumps({"type": "final", "text": "done"}), flush=True)
"""


def test_a_forged_journal_is_the_programs_own_word(
    tmp_path: Path, worker: Callable[..., Any]
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "agent.py").write_text(FORGER)
    memory = Memory(id="agent", kind="command", command=("python3", str(folder / "agent.py")))
    events = worker(memory).run("F101-07-baseline.d0/agent/own/0")
    (retrieved,) = [event for event in events if isinstance(event, MemoryRetrieved)]
    assert [item.id for item in retrieved.delivered] == ["CT-101"]
    assert retrieved.grade == "reported"
