"""The library ``mem0ai`` as a memory (kind ``mem0``): optional, needs the extra ``mem0``.

``mem0_process.py`` runs it in a process of its own for each session, over the case's copy of its
store, in the sandbox. It stores texts as they are and finds them by our embedder. It knows one
thing of a record, its expiry, which it compares with the machine's UTC date: so its clock is the
``system``'s, and where that matters the stages that depend on it are unobserved. Neither scope nor
supersession is its concern. Ids are its own random ones.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
from actors.memory_systems.process import Conversation, find_program
from actors.memory_systems.store import source_digest
from harnesses.memory.contract import StoredItem
from ledger.errors import Refused
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.rendering import read_record, render_note
from schemas.transfer.study import Memory

PROCESS = Path(__file__).with_name("mem0_process.py")
ALL = 10_000


class _Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    items: tuple[StoredItem, ...]


class Mem0Memory:
    """Delivers what ``Memory.search`` finds, or ``Memory.get_all`` where everything is asked."""

    def __init__(self, memory: Memory, opening: Opening) -> None:
        try:
            self._version = version("mem0ai")
        except PackageNotFoundError:
            raise Refused(
                f"memory {memory.id} needs the extra `mem0`: pip install 'laboratory-ledger[mem0]'"
            ) from None
        self._memory = memory
        self._opening = opening
        self._program = find_program(
            # -P: the modules beside the script are none of its libraries
            (sys.executable, "-P", str(PROCESS), "store"),
            opening.study,
        )
        self._kept = KeptFolder(opening.folders.store)
        self._talk: Conversation | None = None
        self._number = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trace="retrieval",
            plan="before_action",
            store="readable",
            clock="system",
            write_path=True,
            deterministic=self._memory.deterministic,
        )

    def manifest(self) -> Manifest:
        source = source_digest("actors", "memory_systems/mem0_process.py")
        memory = self._memory
        return Manifest(
            kind="mem0",
            id=memory.id,
            settings={"query": memory.query, "results": memory.results, "infer": False},
            sources={"mem0_process.py": source, "mem0ai": self._version},
            layers={
                "representation": layer_digest(
                    "texts as they are, expiry as a date", self._version
                ),
                "indexing": layer_digest(source, memory.results, self._version),
                "query": layer_digest(memory.query),
                "relevance_filter": layer_digest("expiry by the machine's date"),
                "conflict_policy": layer_digest("none"),
            },
        )

    def freshness(self) -> dict[str, str]:
        return {
            "process": "a new one, started for this session and ended with it",
            "home": "new and empty, of this process alone",
            "directory": "new, empty but for the store",
        }

    def snapshot(self) -> Snapshot:
        """Everything, also what has expired. The digest is of the items, in the order of their
        ids: opening its files changes bytes in them."""
        items = tuple(
            sorted(
                self._ask({"do": "list", "results": ALL, "lapsed": True}),
                key=lambda item: item.id,
            )
        )
        self.close()
        digest = layer_digest([(item.id, item.text) for item in items])
        self._kept.keep(digest)
        return Snapshot(digest, "captured", items, whole=True)

    def restore(self, digest: str) -> None:
        self.close()
        self._kept.restore(digest)

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        return {key: tuple(item.id for item in self._add(text)) for key, text in texts.items()}

    def recall(self, query: str, session: Session) -> Delivery:
        put = asked(self._memory.query, query, session)
        results = self._memory.results
        found = (
            self._ask({"do": "search", "query": put, "results": results})
            if put
            else self._ask({"do": "list", "results": ALL, "lapsed": False})
        )
        return Delivery(put, found, None)

    def remember(self, text: str, session: Session) -> Acknowledgement:
        made = self._add(render_note(text, session))
        return Acknowledgement(bool(made), f"{len(made)} memories added")

    def close(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.end()

    def _add(self, text: str) -> tuple[StoredItem, ...]:
        """Through its own write path, with the day on which a record expires, if it does."""
        record = read_record(text)
        expires = record.expires_at if record is not None else None
        return self._ask({"do": "add", "text": text, "expires": expires and expires[:10]})

    def _ask(self, message: dict[str, object]) -> tuple[StoredItem, ...]:
        if self._talk is None:
            self._number += 1
            self._talk = Conversation(
                self._opening.sandbox(),
                self._program,
                self._opening.folders.work / f"process-{self._number}",
                self._kept.live,
                self._opening.seconds,
                environment=lambda directory: {"MEM0_TELEMETRY": "False"},
            )
        try:
            self._talk.send(msgspec.json.encode(message))
            line = self._talk.receive("mem0 gave no answer")
            return msgspec.json.decode(line, type=_Answer).items
        except msgspec.MsgspecError as error:
            self.close()
            raise SystemFailure("malformed", f"mem0: {error}") from None
        except SystemFailure:
            self.close()
            raise
