"""Every kind of memory by its name in ``study.toml``. A literal dictionary: there are no others."""

from collections.abc import Callable, Mapping

from actors.memory_systems.command import CommandSystem
from actors.memory_systems.contract import MemorySystem, Opening
from actors.memory_systems.folder import FolderMemory
from actors.memory_systems.mcp import McpMemory
from actors.memory_systems.mem0 import Mem0Memory
from actors.memory_systems.store import StoreMemory
from ledger.errors import Refused
from schemas.transfer.study import Memory

OpenMemory = Callable[[Memory, Opening], MemorySystem]

KINDS: Mapping[str, OpenMemory] = {
    "store": StoreMemory,
    "folder": FolderMemory,
    "command": CommandSystem,
    "mcp": McpMemory,
    "mem0": Mem0Memory,
}


def open_memory(memory: Memory, opening: Opening) -> MemorySystem:
    """The memory over the case's folders. Raises Refused for a kind that is not built in."""
    if memory.kind not in KINDS:
        raise Refused(
            f"memory {memory.id} is of kind {memory.kind!r}; there are: {', '.join(sorted(KINDS))}"
        )
    return KINDS[memory.kind](memory, opening)
