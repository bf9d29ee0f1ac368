"""Our own store: one file of JSON lines, read by a policy of ``harnesses.memory``.

A line is ``{"id", "text"}`` and nothing more, so that a snapshot shows everything that a policy can
know. Notes that are taken in a session say in their text who made them, where and when.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files

import msgspec

from actors.memory_systems.contract import (
    DIGEST,
    Acknowledgement,
    Delivery,
    Manifest,
    Opening,
    Snapshot,
    asked,
    layer_digest,
)
from harnesses.memory.contract import StoredItem
from harnesses.memory.policies import POLICIES, may_be_kept
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.rendering import render_note
from schemas.transfer.study import Memory

STORE_FORMAT = "json-lines 1"


def source_digest(package: str, name: str) -> str:
    """SHA-256 of one file of our packages."""
    return sha256(files(package).joinpath(name).read_bytes()).hexdigest()


class StoreMemory:
    """Delivers what its policy finds; asked by its query policy."""

    def __init__(self, memory: Memory, opening: Opening) -> None:
        self._memory = memory
        self._file = opening.folders.store / "store.jsonl"
        self._copies = opening.folders.store / "snapshots"
        if not self._file.exists():
            self._file.write_bytes(b"")
            self._copies.mkdir()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trace="admitted",
            plan="before_action",
            store="readable",
            clock="settable",
            write_path=True,
            deterministic=True,
        )

    def manifest(self) -> Manifest:
        memory = self._memory
        files_of = {
            name: source_digest("harnesses", f"memory/{name}")
            for name in ("policies.py", "ranking.py", "full.py")
        }
        minds = memory.policy == "full"
        return Manifest(
            kind="store",
            id=memory.id,
            settings={
                "policy": memory.policy,
                "query": memory.query,
                "results": memory.results,
                "format": STORE_FORMAT,
            },
            sources=files_of,
            layers={
                "representation": layer_digest(
                    STORE_FORMAT, source_digest("schemas", "transfer/rendering.py")
                ),
                "indexing": layer_digest(
                    {"full": "ranked", "retrieval": "ranked"}.get(memory.policy, memory.policy),
                    memory.results,
                    files_of["ranking.py"],
                ),
                "query": layer_digest(memory.query),
                "relevance_filter": layer_digest("scope and subject", files_of["full.py"])
                if minds
                else layer_digest("none"),
                "conflict_policy": layer_digest("validity, heads, notices", files_of["full.py"])
                if minds
                else layer_digest("none"),
            },
        )

    def snapshot(self) -> Snapshot:
        content = self._file.read_bytes()
        digest = sha256(content).hexdigest()
        (self._copies / digest).write_bytes(content)
        return Snapshot(digest, "captured", self._items(), whole=True)

    def restore(self, digest: str) -> None:
        copy = self._copies / digest
        if not re.fullmatch(DIGEST, digest) or not copy.is_file():
            raise LookupError(f"no snapshot {digest} of this store was taken")
        self._file.write_bytes(copy.read_bytes())

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        start = len(self._items())
        ids = {key: f"m{start + index:04d}" for index, key in enumerate(texts)}
        self._append([StoredItem(ids[key], text) for key, text in texts.items()])
        return {key: (stored,) for key, stored in ids.items()}

    def recall(self, query: str, session: Session) -> Delivery:
        memory = self._memory
        put = asked(memory.query, query, session)
        found = POLICIES[memory.policy](self._items(), put, session, memory.results)
        return Delivery(put, found.delivered, found.admitted, found.notices)

    def remember(self, text: str, session: Session) -> Acknowledgement:
        if self._memory.policy == "full" and not may_be_kept(text):
            return Acknowledgement(False, "it says that it is not to be kept")
        number = len(self._items())
        self._append([StoredItem(f"m{number:04d}", render_note(text, session))])
        return Acknowledgement(True, "kept")

    def close(self) -> None:
        pass  # no process, and every write is on disk when it returns

    def _items(self) -> tuple[StoredItem, ...]:
        return tuple(
            msgspec.json.decode(line, type=StoredItem)
            for line in self._file.read_bytes().splitlines()
        )

    def _append(self, items: list[StoredItem]) -> None:
        with self._file.open("ab") as file:
            file.writelines(msgspec.json.encode(item) + b"\n" for item in items)
