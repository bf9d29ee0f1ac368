"""An MCP memory server with our drivers: a small server of this test, bad ones, and the npm one."""

import shutil
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.transfer.rendering import is_intact
from schemas.transfer.study import Memory

Make = Callable[..., Any]
INSTALLED = Path(__file__).parents[2] / "requirements" / "server-memory" / "node_modules"
SERVER_MEMORY = INSTALLED / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
NODE = shutil.which("node")

SERVER = Path(__file__).with_name("mcp_graph_server.py").read_text().partition("if __name__")[0]


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., Memory]:
    """``server(body, query=…)``: a memory whose server is the one above and some lines more."""

    def write(body: str = "serve()", **settings: Any) -> Memory:
        folder = tmp_path / "server"
        folder.mkdir(exist_ok=True)
        (folder / "graph.py").write_text(SERVER + "import time\n" + textwrap.dedent(body))
        command = ("python3", str(folder / "graph.py"))
        return Memory(id="graph", kind="mcp", command=command, **settings)

    return write


def test_what_an_mcp_server_keeps_and_answers_is_captured(
    worker: Make, server: Callable[..., Memory]
) -> None:
    lab = worker(server(query="project"))
    events = lab.run("F101-01-positive.d50/graph/reader/0")
    end = of(events, CaseFinished)[0]
    assert end.ended == "completed", end.detail
    seeded, described = of(events, MemorySeeded)[0], of(events, SystemDescribed)[0]
    before = of(events, StoreSnapshotted)[0]
    items = {item["id"]: item["text"] for item in lab.read(before.items)}
    assert (before.grade, len(items)) == ("captured", 51)
    assert is_intact(lab.read(seeded.renderings)["CT-101"], items["CT-101"])
    retrieved = of(events, MemoryRetrieved)[0]
    assert (retrieved.query, retrieved.grade, retrieved.admitted) == (
        "halyard",
        "captured",
        None,
    )
    assert "CT-101" in [item.id for item in retrieved.delivered]
    assert of(events, DecisionDeclared)[0].option == "staging"
    manifest = lab.read(described.memory)
    assert manifest["settings"]["server"] == {"name": "graph", "version": "1"}
    assert list(manifest["layers"]) == ["query"]
    assert "process" in of(events, SessionOpened)[0].freshness
    assert of(events, SurfaceRead)[0].side_effects == ()


def test_the_query_policy_is_what_reaches_the_server(
    worker: Make, server: Callable[..., Memory]
) -> None:
    delivered = {}
    for query in ("prompt", "project", "everything"):
        lab = worker(server(query=query))
        retrieved = of(lab.run("F101-01-positive.d0/graph/reader/0"), MemoryRetrieved)[0]
        delivered[query] = len(retrieved.delivered)
    assert delivered == {"prompt": 0, "project": 1, "everything": 1}


def test_what_is_taught_is_there_for_the_next_server_process(
    worker: Make, server: Callable[..., Memory]
) -> None:
    events = worker(server(query="everything")).run("F105-02-persistence.d0/graph/reader/0")
    assert of(events, CaseFinished)[0].ended == "completed"
    assert [event.acknowledged for event in of(events, MemoryWritten)] == [True]
    before, after, again, _ = of(events, StoreSnapshotted)
    assert before.digest != after.digest == again.digest


HOSTILE = {
    "never answers": ("time.sleep(60)", "timed_out", ""),
    "ends at once": ("sys.exit('no such file')", "crashed", "no such file"),
    "says no JSON": ("print('Server running', flush=True); serve()", "malformed", "JSON"),
    "offers other tools": ("del TOOLS['search_nodes']; serve()", "malformed", "search_nodes"),
    "hangs at a query": (
        "TOOLS['search_nodes'] = TOOLS['read_graph'] = lambda _: time.sleep(60)\nserve()",
        "timed_out",
        "",
    ),
    "crashes at a query": ("TOOLS['search_nodes'] = lambda _: 1 / 0\nserve()", "crashed", "Zero"),
    "answers another shape": (
        "TOOLS['search_nodes'] = lambda _: [{'title': 'x'}]\nserve()",
        "malformed",
        "name",
    ),
    "answers too much": (
        "TOOLS['search_nodes'] = lambda _: [{'name': 'x' * 2_000_000}]\nserve()",
        "flooded",
        "a line of more than",
    ),
    "breaks its store": (
        """
        def spoil(arguments):
            open(os.environ["MEMORY_FILE_PATH"], "w").write("{")
            return arguments["entities"]
        TOOLS["create_entities"] = spoil
        serve()
        """,
        "malformed",
        "its store",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_server_does_wrong_is_a_class_and_never_void(
    name: str, worker: Make, server: Callable[..., Memory]
) -> None:
    body, ended, detail = HOSTILE[name]
    lab = worker(server(body, query="project"), session_s=3 if ended == "timed_out" else 30)
    end = of(lab.run("F101-01-positive.d0/graph/reader/0"), CaseFinished)[0]
    assert (end.ended, detail in end.detail) == (ended, True), end
    assert not list((lab.context.directory.var / "scratch" / "memory_session").iterdir())


@pytest.mark.skipif(
    NODE is None or not SERVER_MEMORY.is_file(),
    reason="needs node, and `npm ci` in requirements/server-memory",
)
def test_the_npm_server_with_our_reader(worker: Make) -> None:
    memory = Memory(id="graph", kind="mcp", command=("node", str(SERVER_MEMORY)), query="project")
    lab = worker(memory)
    events = lab.run("F101-01-positive.d50/graph/reader/0")
    end = of(events, CaseFinished)[0]
    assert end.ended == "completed", end.detail
    shots = of(events, StoreSnapshotted)
    assert len(lab.read(shots[0].items)) == 51
    assert shots[0].digest == shots[1].digest
    assert "CT-101" in [item.id for item in of(events, MemoryRetrieved)[0].delivered]
    assert of(events, DecisionDeclared)[0].option == "staging"
    manifest = lab.read(of(events, SystemDescribed)[0].memory)
    assert "memory" in manifest["settings"]["server"]["name"]
    assert list(manifest["sources"]) == ["index.js"] or manifest["sources"] == {}


def test_a_session_that_waits_for_a_model_ends_with_its_worker(
    worker: Make, server: Callable[..., Memory]
) -> None:
    """Its server is a process, and its client threads: nobody else would end them."""
    lab = worker(server(query="project"))
    lab.advance("F101-01-positive.d0/graph/chat/0")
    assert len(lab.requested()) == 1
    scratch = lab.context.directory.var / "scratch" / "memory_session"
    assert len(list(scratch.iterdir())) == 1
    before = threading.active_count()
    lab.sessions.close()
    assert threading.active_count() < before
    assert list(scratch.iterdir()) == []
