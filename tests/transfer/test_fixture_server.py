"""The fixture over MCP: the same tools, results and journal in memory and over stdio."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from actors.families.load import load_family
from actors.fixture.server import MAX_LINE, ServedFixture, fixture_server
from actors.fixture.world import World
from actors.memory_systems.contract import Manifest
from actors.memory_systems.store import StoreMemory
from harnesses.drivers.contract import Finish, SessionInput, Steps
from schemas.events.transfer import DecisionDeclared, FixtureCalled, SurfaceRead

GIVEN = Path(__file__).parents[2] / "actors" / "families" / "examples"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tree_read", {"tree": "staging", "file": "limits.toml"}),
    ("declare_decision", {"option": "staging", "basis": ["CT-101"]}),
    ("tree_write", {"tree": "staging", "file": "limits.toml", "key": "limit", "value": 40}),
    ("tree_write", {"tree": "staging", "file": "limits.toml", "key": "limit", "value": "40"}),
    ("no_such_tool", {}),
]


@pytest.fixture
def world() -> World:
    family = load_family((GIVEN / "F101.yaml").read_bytes(), "F101.yaml")
    return World(family.fixture, family.decision_options)


def called_directly(world: World) -> World:
    other = World(world.fixture, world.options)
    for name, arguments in CALLS:
        other.call(name, arguments)
    return other


async def talk(server: Any) -> tuple[list[str], list[tuple[bool, Any]]]:
    """(names of tools, (error or not, text) of every call)."""
    async with Client(server) as client:
        listed = await client.list_tools()
        shown = []
        for name, arguments in CALLS:
            result = await client.call_tool(name, arguments)
            shown.append((bool(result.is_error), json.loads(result.content[0].text)))  # type: ignore[union-attr]
    return [tool.name for tool in listed.tools], shown


def test_in_memory_the_journal_is_that_of_direct_calls(world: World) -> None:
    names, shown = asyncio.run(talk(fixture_server(world)))
    assert names == [tool.name for tool in world.tools]
    assert world.journal == called_directly(world).journal
    assert [error for error, _ in shown] == [False, False, False, True, True]
    assert shown[0][1] == {"ok": True, "value": {"limit": 25}}
    assert shown[3][1]["error"] == "invalid_argument"


def test_over_stdio_it_is_the_same_journal(world: World, tmp_path: Path) -> None:
    with ServedFixture(world, tmp_path / "s") as served:
        program, *arguments = served.command
        parameters = StdioServerParameters(command=program, args=arguments, cwd=Path.cwd())
        names, _ = asyncio.run(talk(parameters))
    assert names == [tool.name for tool in world.tools]
    assert world.journal == called_directly(world).journal
    assert world.state["trees"]["staging"]["limits.toml"] == {"limit": 40}
    assert not (tmp_path / "s").exists()


def test_many_connections_share_one_journal_without_gaps(world: World, tmp_path: Path) -> None:
    with ServedFixture(world, tmp_path / "s") as served:
        program, *arguments = served.command

        def agent() -> None:
            asyncio.run(talk(StdioServerParameters(command=program, args=arguments)))

        agents = [threading.Thread(target=agent) for _ in range(2)]
        for thread in agents:
            thread.start()
        for thread in agents:
            thread.join()
    assert [entry.number for entry in world.journal] == list(range(2 * len(CALLS)))


@pytest.mark.parametrize(
    "sent", [b"not JSON\n", b"\xff\xfe\n", b"{}\n[1,2]\n", b"x" * (MAX_LINE + 10), b""]
)
def test_what_is_no_message_ends_nothing_but_its_connection(
    world: World, tmp_path: Path, sent: bytes
) -> None:
    with ServedFixture(world, tmp_path / "s") as served:
        hostile = socket.socket(socket.AF_UNIX)
        hostile.connect(str(tmp_path / "s"))
        try:
            hostile.sendall(sent)
            hostile.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass  # it was cut off before it had said all
        program, *arguments = served.command
        names, _ = asyncio.run(talk(StdioServerParameters(command=program, args=arguments)))
        hostile.close()
    assert len(names) == len(world.tools)
    assert len(world.journal) == len(CALLS)


def test_a_relay_without_a_session_says_so(tmp_path: Path) -> None:
    for arguments, status in (([str(tmp_path / "none")], 1), ([], 2)):
        ended = subprocess.run(
            [sys.executable, "-m", "actors.fixture.relay", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, bool(ended.stderr)) == (status, True)


def test_the_end_of_the_session_ends_the_relay(world: World, tmp_path: Path) -> None:
    with ServedFixture(world, tmp_path / "s") as served:
        process = subprocess.Popen(served.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
    assert process.wait(timeout=60) == 0
    process.stdin.close()
    process.stdout.close()


def test_an_agent_over_mcp_has_its_calls_recorded_as_any_other(
    laboratory: Callable[..., Any],
) -> None:
    class Agent(StoreMemory):
        wants_mcp = True

        def run(self, given: SessionInput) -> Steps:
            program, *arguments = given.mcp_command
            asyncio.run(talk(StdioServerParameters(command=program, args=arguments)))
            yield Finish("Done.")

        def driver_manifest(self) -> Manifest:
            return Manifest(kind="own", id="own")

    events = laboratory(opener=Agent).run("F101-01-positive.d0/full/own/0")
    calls = [event for event in events if isinstance(event, FixtureCalled)]
    assert [call.tool for call in calls] == [name for name, _ in CALLS]
    declared = [event for event in events if isinstance(event, DecisionDeclared)]
    assert [(event.option, event.call) for event in declared] == [("staging", 1)]
    surface = next(event for event in events if isinstance(event, SurfaceRead))
    assert surface.calls == len(CALLS)
