"""A memory that is an MCP server over stdio with a knowledge graph (kind ``mcp``).

Made for ``@modelcontextprotocol/server-memory`` and whatever offers its tools ``create_entities``,
``search_nodes`` and ``read_graph``. One server process and one client a session, one copy of the
store a case. What is seeded or said becomes an entity with one observation; what is asked goes
through the memory's query policy, which is part of its identity: the server takes a whole query as
one substring. Retention is read from the file (captured), retrieval as the calls pass here
(captured). Which of it a model heeds cannot be seen. Needs the extra ``memory``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from actors.memory_systems.contract import (
    Acknowledgement,
    Delivery,
    Manifest,
    Opening,
    Snapshot,
    SystemFailure,
    asked,
    layer_digest,
)
from actors.memory_systems.kept_folder import KeptFolder
from actors.memory_systems.process import (
    MAX_STORE,
    Conversation,
    find_program,
    odd_files,
    repeats_a_key,
)
from harnesses.memory.contract import StoredItem
from ledger.errors import Refused
from ledger.regular_file import read_regular
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.rendering import render_note
from schemas.transfer.study import Memory

if TYPE_CHECKING:
    from actors.memory_systems.mcp_client import ToolClient

FILE = "memory.jsonl"
TOOLS = ("create_entities", "search_nodes", "read_graph")


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the graph, as tools and file show it; relations are none of our business."""

    name: str
    entityType: str = ""
    observations: tuple[str, ...] = ()

    @property
    def item(self) -> StoredItem:
        return StoredItem(self.name, "\n".join(self.observations))


class _OwnEntity(Entity, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One as it is put in here: its item is all of it."""

    type: Literal["entity"]
    entityType: Literal["correction", "note"]

    @classmethod
    def is_all_of(cls, line: bytes) -> bool:
        try:
            msgspec.json.decode(line, type=cls)
        except msgspec.ValidationError:
            return False
        return not repeats_a_key(line)


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    entities: tuple[Entity, ...] = ()


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    type: str


class McpMemory:
    """Delivers what the server answers."""

    def __init__(self, memory: Memory, opening: Opening) -> None:
        self._memory = memory
        self._opening = opening
        self._program = find_program(memory.command, opening.study)
        self._kept = KeptFolder(opening.folders.store)
        self._client: ToolClient | None = None
        self._server: dict[str, str] | None = None
        self._number = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trace="retrieval",
            plan="before_action",
            store="readable",
            clock="none",
            write_path=True,
            deterministic=self._memory.deterministic,
        )

    def manifest(self) -> Manifest:
        """The server's layers are seen from outside alone: what is asked, and with which tools."""
        self._connected()
        return Manifest(
            kind="mcp",
            id=self._memory.id,
            settings={
                "command": list(self._memory.command),
                "query": self._memory.query,
                "server": self._server,
            },
            sources=self._program.sources(),
            layers={"query": layer_digest(self._memory.query)},
        )

    def freshness(self) -> dict[str, str]:
        return {
            "process": "a server process and a client of their own, ended with the session",
            "home": "new and empty, of the server's process alone",
            "directory": "new, empty but for the store",
        }

    def side_effects(self) -> tuple[str, ...]:
        return tuple(f"store: {name}" for name in odd_files(self._kept.live))

    def snapshot(self) -> Snapshot:
        """End the server, then read its file."""
        self.close()
        digest = self._kept.keep()
        try:
            lines = read_regular(self._kept.live / FILE, MAX_STORE).splitlines()
        except FileNotFoundError:
            return Snapshot(digest, "captured", (), whole=self._kept.holds_only(FILE))
        except OSError as error:
            raise SystemFailure("malformed", f"its store: {error}") from None
        try:
            items = tuple(
                msgspec.json.decode(line, type=Entity).item
                for line in lines
                if line and msgspec.json.decode(line, type=_Line).type == "entity"
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SystemFailure("malformed", f"its store: {error}") from None
        whole = self._kept.holds_only(FILE) and all(map(_OwnEntity.is_all_of, filter(None, lines)))
        return Snapshot(digest, "captured", items, whole)

    def restore(self, digest: str) -> None:
        self.close()
        self._kept.restore(digest)

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        if not texts:
            return {}
        created = self._create(texts, "correction")
        return {key: (key,) if key in created else () for key in texts}

    def recall(self, query: str, session: Session) -> Delivery:
        put = asked(self._memory.query, query, session)
        found = self._call("search_nodes", {"query": put}) if put else self._call("read_graph", {})
        return Delivery(put, tuple(entity.item for entity in found.entities), None)

    def remember(self, text: str, session: Session) -> Acknowledgement:
        taken = self._call("read_graph", {}).entities
        name = f"note-{len(taken)}"
        created = self._create({name: render_note(text, session)}, "note")
        return Acknowledgement(name in created, f"{len(created)} entities created")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _create(self, texts: Mapping[str, str], kind: str) -> set[str]:
        entities = [
            {"name": key, "entityType": kind, "observations": [text]} for key, text in texts.items()
        ]
        made = self._call("create_entities", {"entities": entities})
        return {entity.name for entity in made.entities}

    def _call(self, tool: str, arguments: dict[str, Any]) -> Graph:
        answer = self._connected().call(tool, arguments)
        try:
            return msgspec.convert(answer, Graph)
        except msgspec.ValidationError as error:
            raise SystemFailure("malformed", f"{tool}: {error}") from None

    def _connected(self) -> "ToolClient":
        """The client that is open, or a new server process with a new one."""
        if self._client is None:
            try:
                from actors.memory_systems.mcp_client import ToolClient
            except ModuleNotFoundError as missing:
                raise Refused(
                    f"memory {self._memory.id} needs the extra `memory` (library mcp): "
                    "pip install 'laboratory-ledger[memory]'"
                ) from missing
            self._number += 1
            sandbox = self._opening.sandbox()
            talk = Conversation(
                sandbox,
                self._program,
                self._opening.folders.work / f"server-{self._number}",
                self._kept.live,
                self._opening.seconds,
                environment=lambda directory: {"MEMORY_FILE_PATH": f"{directory}/store/{FILE}"},
            )
            self._client = ToolClient(talk, self._opening.seconds)
            missing_tools = [name for name in TOOLS if name not in self._client.tools]
            if missing_tools:
                self.close()
                raise SystemFailure("malformed", f"offers no tool {missing_tools[0]}")
            self._server = self._client.server
        return self._client
