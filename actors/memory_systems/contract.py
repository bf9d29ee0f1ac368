"""What a memory under test is: one object over one fresh copy of a store, for one case.

Everything that passes here passes our boundary: what was seeded, what was asked and delivered, what
it acknowledged. A memory declares what it can show; what it does not declare is unobserved. What it
does wrong (it hangs, crashes, floods, says what is no answer) is a :class:`SystemFailure`, which is
an observed outcome; any other exception is our own fault, and the run is void.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from actors.sandbox import Sandbox
from harnesses.drivers.contract import SessionInput, Steps
from harnesses.memory.contract import Notice, StoredItem
from ledger.errors import Refused
from schemas.base import Value
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.family import Grade

DIGEST = "[0-9a-f]{64}"
DRIVER_LAYERS = ("decision_control", "tool_execution", "outcome_check")


class Manifest(Value):
    """What makes a memory or a driver the one it is, as far as it can be seen.

    ``layers``: of the eight that a repair may change, those that this half has, each with a digest;
    one that cannot be seen is not named.
    """

    kind: str
    id: str
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}
    """Digest by file of the code that acts, or version by program."""
    layers: dict[str, str] = {}


def layer_digest(*content: Any) -> str:
    """SHA-256 of the canonical JSON of what makes a layer the one it is."""
    return sha256(msgspec.json.encode(list(content), order="sorted")).hexdigest()


class SystemFailure(Exception):
    """What the system under test did instead of answering. ``detail`` is bounded and untrusted."""

    def __init__(
        self, ended: Literal["crashed", "timed_out", "flooded", "malformed"], detail: str
    ) -> None:
        super().__init__(detail[:2000])
        self.ended = ended


@dataclass(frozen=True)
class Snapshot:
    """The store as it was read. Without items it cannot be judged what it retains."""

    digest: str
    """Of its whole content; empty where it cannot be read."""
    grade: Grade
    items: tuple[StoredItem, ...] | None
    whole: bool = False
    """We see ourselves that nothing lies in the store but these items."""


@dataclass(frozen=True)
class Delivery:
    """What a memory delivered, with the query that it was really asked."""

    query: str
    items: tuple[StoredItem, ...]
    admitted: tuple[str, ...] | None
    """Ids that were let through to the decision; None: the memory does not show it."""
    notices: tuple[Notice, ...] = ()
    grade: Grade = "captured"


@dataclass(frozen=True)
class Acknowledgement:
    """What a memory said when it was told something. It may be untrue."""

    acknowledged: bool
    text: str = ""


@dataclass(frozen=True)
class CaseFolders:
    """The folders of one case, fresh and empty: everything that a system may touch."""

    root: Path

    @property
    def store(self) -> Path:
        """The one copy of the memory's store."""
        return self.root / "store"

    @property
    def home(self) -> Path:
        """HOME of whatever process is started."""
        return self.root / "home"

    @property
    def work(self) -> Path:
        """Its working directory."""
        return self.root / "work"

    def create(self) -> None:
        """Make them. Raises FileExistsError where the case's folder is there already."""
        for folder in (self.root, self.store, self.home, self.work):
            folder.mkdir(parents=folder == self.root)

    def strangers(self) -> tuple[str, ...]:
        """What lies beside the case's own folders: nobody may write there. Sorted, bounded."""
        own = {self.store.name, self.home.name, self.work.name}
        return tuple(sorted(entry.name for entry in self.root.iterdir() if entry.name not in own))[
            :100
        ]


def no_sandbox() -> Sandbox:
    """For memories that start no program. Raises Refused where one does."""
    raise Refused("this worker has no sandbox, and the memory is a program of its own")


class MemorySystem(Protocol):
    """One memory over one store. A session opens a new object over the same folders, so that
    nothing but the store carries over.

    ``freshness`` is optional: a method that returns what else proves a new session (a process of
    its own, say), by name, for ``session.opened``; no value of this machine. So is
    ``side_effects``: what it changed where it must not, found by comparing hashes, sorted.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def manifest(self) -> Manifest: ...

    def snapshot(self) -> Snapshot:
        """Read the store, and keep a copy that :meth:`restore` finds by its digest."""

    def restore(self, digest: str) -> None:
        """Make the store what it was. Raises LookupError for a digest that was never taken."""

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Put texts in through the memory's own write path, in their order; ids by key."""

    def recall(self, query: str, session: Session) -> Delivery:
        """Ask, by the memory's own query policy. Raises SystemFailure."""

    def remember(self, text: str, session: Session) -> Acknowledgement:
        """Hand over what was said in a session. Raises SystemFailure."""

    def close(self) -> None:
        """End whatever runs. Never raises SystemFailure."""


class OwnDriver(Protocol):
    """What a system that brings its own driver has beside the memory's half (kind ``command``).

    ``wants_mcp`` is optional: its agent calls the fixture's tools over MCP, by the command in
    ``SessionInput.mcp_command``, instead of by effects. The journal is the same.
    """

    def run(self, given: SessionInput) -> Steps:
        """One session: effects as of any driver, and reports of what it says of itself."""

    def driver_manifest(self) -> Manifest: ...


@dataclass(frozen=True)
class Opening:
    """What a memory is opened with."""

    folders: CaseFolders
    seconds: float
    """How long the memory may take in one session before it has timed out."""
    sandbox: Callable[[], Sandbox] = no_sandbox
    """Where other people's programs run; opened when one is."""
    study: Path = Path()
    """The study's folder: paths in a memory's ``command`` are relative to it."""


def asked(policy: str, query: str, session: Session) -> str:
    """What a query policy makes of a prompt: itself, the project's name, or nothing (everything).
    It is part of a memory's identity: the same store answers each of them differently."""
    return {"prompt": query, "project": session.project, "everything": ""}[policy]
