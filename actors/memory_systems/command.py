"""Somebody's own agent with its own memory: a command that speaks JSON lines (kind ``command``).

One process a conversation, each in a new HOME and a new working directory in which only ``store``
is not empty: whatever it wants to remember it keeps there, and nothing else carries over. Messages
are JSON objects of one line, told apart by ``type``:

    we                          it
    hello{protocol}             hello{name, trace, plan, store, clock, write_path, deterministic}
    seed{records[]}             seeded{ids}
    snapshot{}                  snapshot{path} or snapshot{items[]}
    open{session, tools[], proxy[]}   (nothing)
    prompt{text}                retrieval{query, items[]}, plan{decision, basis[]},
                                tool_call{id, name, arguments}, final{text, claims[]}
    tool_result{id, ok, …}      (goes on)
    close{}                     (ends)

Calls, surface and a store whose ``path`` is named are captured; ``retrieval``, ``plan``, ``items``
and what passes our proxy (``open.proxy``: put it before the command of an MCP memory server) are
its own word (``reported``): the proxy runs on its side of the boundary. What it does wrong is a
:class:`SystemFailure`. ``docs/systems-under-test.md`` says it at length, with an example.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from actors.memory_systems import proxy
from actors.memory_systems.contract import (
    Acknowledgement,
    Delivery,
    Manifest,
    Opening,
    Snapshot,
    SystemFailure,
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
from actors.sandbox.layout import launcher_interpreter
from harnesses.drivers.contract import (
    CallTool,
    Claimed,
    ClaimKind,
    DeliveredText,
    Finish,
    ReportPlan,
    ReportRetrieval,
    SessionInput,
    Steps,
    ToolShown,
)
from harnesses.memory.contract import StoredItem
from ledger.errors import Refused
from ledger.regular_file import read_regular
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.study import Memory

PROTOCOL = 1
MAX_ITEMS = 10_000
JOURNAL_FILE = "proxy.jsonl"
"""In the working directory: our proxy writes there, and so can the program. It is its word."""


class _Said(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"
):
    """A message of the system under test."""


class Hello(_Said, frozen=True, kw_only=True, tag="hello"):
    """What it is and what it can show; what it does not declare is unobserved."""

    name: str = ""
    version: str = ""
    trace: Literal["retrieval", "admitted", "used", "none"] = "none"
    plan: Literal["before_action", "final", "none"] = "none"
    store: Literal["readable", "opaque"] = "opaque"
    clock: Literal["settable", "faked", "system", "none"] = "none"
    write_path: bool = False
    deterministic: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trace=self.trace,
            plan=self.plan,
            store=self.store,
            clock=self.clock,
            write_path=self.write_path,
            deterministic=self.deterministic,
        )


class Seeded(_Said, frozen=True, kw_only=True, tag="seeded"):
    """Under which ids of its store it keeps each record that it was given."""

    ids: dict[str, tuple[str, ...]]


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing in its store, or that its memory delivered."""

    id: str
    text: str = ""
    admitted: bool | None = None
    """In a retrieval: whether it was let through to the decision; absent: it does not show it."""


class SnapshotTaken(_Said, frozen=True, kw_only=True, tag="snapshot"):
    """Where its store lies (a file in ``store``), or what is in it, as its own word."""

    path: str | None = None
    items: tuple[Item, ...] | None = None


class Retrieval(_Said, frozen=True, kw_only=True, tag="retrieval"):
    query: str
    items: tuple[Item, ...]


class Plan(_Said, frozen=True, kw_only=True, tag="plan"):
    decision: str
    basis: tuple[str, ...] = ()


class ToolCall(_Said, frozen=True, kw_only=True, tag="tool_call"):
    id: str
    name: str
    arguments: Any = {}


class SaidClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: ClaimKind
    about: str = ""


class Final(_Said, frozen=True, kw_only=True, tag="final"):
    text: str = ""
    claims: tuple[SaidClaim, ...] = ()


_Message = TypeVar("_Message", bound=_Said)
Said = Hello | Seeded | SnapshotTaken | Retrieval | Plan | ToolCall | Final


class CommandSystem:
    """Memory and driver in one: other people's program."""

    def __init__(self, memory: Memory, opening: Opening) -> None:
        self._memory = memory
        self._opening = opening
        self._program = find_program(memory.command, opening.study).with_python(proxy.__file__)
        self._proxy = (str(launcher_interpreter().executable), "-P", proxy.__file__, "--")
        self._kept = KeptFolder(opening.folders.store)
        self._sources = self._program.sources()
        self._talk: Conversation | None = None
        self._hello: Hello | None = None
        self._store_file: str | None = None
        self._failure: SystemFailure | None = None
        self._number = 0

    @property
    def capabilities(self) -> Capabilities:
        with self._watched():
            return self._introduced().capabilities

    def manifest(self) -> Manifest:
        """Of what lies within it, no layer can be seen."""
        hello = self._introduced()
        return Manifest(
            kind="command",
            id=self._memory.id,
            settings={
                "command": list(self._memory.command),
                "name": hello.name[:200],
                "version": hello.version[:200],
                "protocol": PROTOCOL,
            },
            sources=self._sources,
        )

    def driver_manifest(self) -> Manifest:
        return Manifest(
            kind="own",
            id="own",
            settings={"with": self._memory.id, "program": layer_digest(self._sources)},
        )

    def freshness(self) -> dict[str, str]:
        return {
            "process": "a new one, started for this session and ended with it",
            "home": "new and empty, of this process alone",
            "directory": "new, empty but for the store",
            "environment": "PATH, LC_ALL, HOME, TMPDIR and two names for Python",
        }

    def side_effects(self) -> tuple[str, ...]:
        """What of its own program changed, and what stands in its store that is no file."""
        now = self._program.sources()
        changed = [
            f"program: {name}"
            for name in sorted({*now, *self._sources})
            if now.get(name) != self._sources.get(name)
        ]
        return (*changed[:100], *(f"store: {name}" for name in odd_files(self._kept.live)))

    # ---- the memory's half -------------------------------------------------------------------

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        records = [{"id": key, "text": text} for key, text in texts.items()]
        with self._watched():
            talk = self._conversation()
            self._tell(talk, {"type": "seed", "records": records})
            ids = self._expect(talk, Seeded, "did not say that it was seeded").ids
        strange = sorted(set(ids) - set(texts))
        if strange:
            raise SystemFailure("malformed", f"seeded: {strange[0][:200]!r} was not given to it")
        return {key: ids.get(key, ()) for key in texts}

    def snapshot(self) -> Snapshot:
        """Ask where the store is (once), end the process, and read it. Its own word where it names
        no file; nothing where it calls its store opaque."""
        if self._store_file is not None:
            self._end()
            return self._captured(self._kept.keep(), self._store_file)
        if self._failure is not None:
            raise self._failure  # it would fail, hang or flood once more
        with self._watched():
            opaque = self._introduced().store == "opaque"
            talk = self._conversation()
            taken = SnapshotTaken(items=())
            if not opaque:
                self._tell(talk, {"type": "snapshot"})
                taken = self._expect(talk, SnapshotTaken, "did not show its store")
            self._close(talk)
        if opaque:
            return Snapshot("", "none", None)
        if (taken.path is None) == (taken.items is None):
            raise SystemFailure("malformed", "snapshot: says either `path` or `items`")
        digest = self._kept.keep()
        if taken.path is not None:
            captured = self._captured(digest, taken.path)
            self._store_file = taken.path
            return captured
        told = tuple(StoredItem(item.id, item.text) for item in taken.items or ())
        if len(told) > MAX_ITEMS:
            raise SystemFailure("flooded", f"snapshot: {len(told)} items")
        return Snapshot(layer_digest(digest, told), "reported", told)

    def restore(self, digest: str) -> None:
        self._end()
        self._kept.restore(digest)

    def recall(self, query: str, session: Session) -> Delivery:
        raise Refused("a memory of kind `command` answers to its own driver alone")

    def remember(self, text: str, session: Session) -> Acknowledgement:
        raise Refused("a memory of kind `command` is taught by its own driver alone")

    def close(self) -> None:
        self._end()

    # ---- the driver's half -------------------------------------------------------------------

    def run(self, given: SessionInput) -> Steps:
        """One session in a process of its own; its events become effects and reports."""
        self._end()
        last = Final()
        with self._watched():
            talk = self._conversation()
            self._tell(talk, {**_opened(given), "proxy": self._proxy})
            for turn in given.turns:
                self._tell(talk, {"type": "prompt", "text": turn})
                while not isinstance(said := self._hear(talk, "did not answer"), Final):
                    yield from self._performed(talk, said)
                last = said
            self._close(talk)
            yield from self._passed_the_proxy(talk)
        claims = tuple(Claimed(claim.kind, claim.about) for claim in last.claims)
        yield Finish(last.text, claims)

    def _performed(self, talk: Conversation, said: Said) -> Steps:
        match said:
            case ToolCall():
                shown = yield CallTool(said.name, said.arguments)
                assert isinstance(shown, ToolShown)
                answer = {"ok": shown.ok, "value": shown.value, "error": shown.error}
                self._tell(talk, {"type": "tool_result", "id": said.id, **answer})
            case Retrieval() if self._introduced().trace == "none":
                raise SystemFailure("malformed", "retrieval: hello declares `trace` none")
            case Plan() if self._introduced().plan == "none":
                raise SystemFailure("malformed", "plan: hello declares `plan` none")
            case Retrieval():
                if len(said.items) > MAX_ITEMS:
                    raise SystemFailure("flooded", f"retrieval: {len(said.items)} items")
                yield ReportRetrieval(
                    said.query,
                    tuple(
                        DeliveredText(item.id, item.text, item.admitted is not False)
                        for item in said.items
                    ),
                    admitted_shown=self._introduced().trace in ("admitted", "used")
                    and all(item.admitted is not None for item in said.items),
                )
            case Plan():
                yield ReportPlan(said.decision, said.basis)
            case _:
                kind = type(said).__struct_config__.tag
                raise SystemFailure("malformed", f"{kind!r} has no place in a session")

    def _passed_the_proxy(self, talk: Conversation) -> Steps:
        """What its memory server delivered, where it stood behind our proxy; ``reported``, because
        the program starts the proxy and could write the journal itself. What is not declared stays
        unobserved."""
        if talk.collected is None or self._introduced().trace == "none":
            return
        try:
            found = proxy.retrievals(talk.collected)
        except ValueError as error:
            raise SystemFailure("flooded", str(error)) from None
        for delivery in found:
            items = tuple(DeliveredText(item, text) for item, text in delivery.items)
            if len(items) > MAX_ITEMS:
                raise SystemFailure("flooded", f"a memory server delivered {len(items)} items")
            yield ReportRetrieval(delivery.query, items)

    # ---- the conversation --------------------------------------------------------------------

    def _conversation(self) -> Conversation:
        """The process that runs, or a new one that has said hello."""
        if self._talk is not None:
            return self._talk
        self._number += 1
        folders = self._opening.folders
        talk = Conversation(
            self._opening.sandbox(),
            self._program,
            folders.work / f"process-{self._number}",
            self._kept.live,
            self._opening.seconds,
            environment=lambda directory: {proxy.JOURNAL: f"{directory}/{JOURNAL_FILE}"},
            collect=JOURNAL_FILE,
        )
        self._talk = talk
        self._tell(talk, {"type": "hello", "protocol": PROTOCOL})
        hello = self._expect(talk, Hello, "did not say hello")
        if self._hello is not None and hello != self._hello:
            raise SystemFailure("malformed", "hello: declares something else than before")
        self._hello = hello
        return talk

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Nobody goes on with a process that has failed, or that a session left in the middle."""
        try:
            yield
        except SystemFailure as failure:
            self._failure = failure
            self._end()
            raise
        except GeneratorExit:
            self._end()
            raise

    def _introduced(self) -> Hello:
        if self._hello is None:
            self._conversation()
        assert self._hello is not None
        return self._hello

    def _tell(self, talk: Conversation, message: object) -> None:
        talk.send(msgspec.json.encode(message))

    def _hear(self, talk: Conversation, silent: str) -> Said:
        line = talk.receive(silent)
        try:
            said: Said = msgspec.json.decode(line, type=Said)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            shown = line[:200].decode("utf-8", "replace")
            raise SystemFailure("malformed", f"{error}: {shown}") from None
        return said

    def _expect(self, talk: Conversation, kind: type[_Message], silent: str) -> _Message:
        said = self._hear(talk, silent)
        if not isinstance(said, kind):
            raise SystemFailure(
                "malformed", f"{silent}, but {type(said).__struct_config__.tag!r} instead"
            )
        return said

    def _close(self, talk: Conversation) -> None:
        """Say that it is over. Raises SystemFailure where it goes on talking."""
        self._tell(talk, {"type": "close"})
        if more := talk.rest():
            shown = more[:200].decode("utf-8", "replace")
            raise SystemFailure("malformed", f"it spoke after its last word: {shown}")
        self._end()

    def _end(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.end()

    def _captured(self, digest: str, named: str) -> Snapshot:
        """The store's items: lines ``{"id", "text"}`` where every line is one; else one text."""
        path = Path(named)
        if path.is_absolute() or ".." in path.parts or "\0" in named:
            raise SystemFailure("malformed", f"snapshot: {named[:200]!r} leads out of `store`")
        place = self._kept.live / path
        if any(parent.is_symlink() for parent in (place, *place.parents)):
            raise SystemFailure("malformed", f"snapshot: {named[:200]!r} is a link")
        try:
            content = read_regular(place, MAX_STORE)
        except FileNotFoundError:
            # Nothing was kept yet, or elsewhere.
            return Snapshot(digest, "captured", (), whole=self._kept.holds_only(named))
        except OSError as error:
            raise SystemFailure("malformed", f"snapshot: {named[:200]!r}: {error}") from None
        alone = self._kept.holds_only(named)
        lines = content.splitlines()
        try:
            read = [msgspec.json.decode(line, type=Item) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            text = StoredItem(named, content.decode("utf-8", "replace"))
            return Snapshot(digest, "captured", (text,), whole=alone)
        items = tuple(StoredItem(item.id, item.text) for item in read)
        whole = alone and not any(repeats_a_key(line) for line in lines)
        return Snapshot(digest, "captured", items, whole=whole)


def _opened(given: SessionInput) -> dict[str, Any]:
    session = given.session
    return {
        "type": "open",
        "session": {
            "id": given.purpose,
            "purpose": given.purpose,
            "principal": session.principal,
            "project": session.project,
            "task_class": session.task_class,
            "now": session.now,
        },
        "tools": given.tools,
    }
