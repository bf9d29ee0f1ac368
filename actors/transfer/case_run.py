"""One attempt of a cell of a transfer study: a case with one memory and one driver, in order.

    describe → seed → (teach) → snapshot → session → surface → snapshot → case.finished

The run is a generator that collects events: it stops where a model must answer, and returns the
event that ends it. It writes no log; ``actors/transfer/sessions.py`` does. What the system under
test does wrong is a ``SystemFailure`` and becomes a class of ``case.finished``; any other exception
is ours and leaves the generator.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, cast

import msgspec

from actors.fixture.world import World, canonical
from actors.memory_systems.contract import (
    DRIVER_LAYERS,
    CaseFolders,
    Manifest,
    MemorySystem,
    Opening,
    OwnDriver,
    SystemFailure,
    layer_digest,
    no_sandbox,
)
from actors.memory_systems.registry import OpenMemory
from actors.model_turns import JSON, ModelRequest
from actors.sandbox.run import Sandbox
from actors.untrusted_trees import remove_tree
from harnesses.contract import wire, wire_tools
from harnesses.drivers.contract import (
    AskModel,
    CallTool,
    DeliveredText,
    Finish,
    Kept,
    MemoryNotice,
    ModelAnswer,
    Noted,
    Recall,
    Remember,
    Remembered,
    ReportPlan,
    ReportRetrieval,
    Result,
    SessionInput,
    ToolShown,
)
from harnesses.drivers.files import file_digest, system_prompt
from harnesses.drivers.registry import find_driver
from harnesses.memory.contract import StoredItem
from schemas.base import ArtifactRef, Event
from schemas.encoded_copies import forms
from schemas.events import transfer as events
from schemas.events.study import StudyFrozen
from schemas.events.transfer import CaseFinished, Claim, RetrievedItem
from schemas.identifiers import CellId
from schemas.transfer.distractors import distractors
from schemas.transfer.family import DECLARE_DECISION, Case, Family, FrozenSuite, Grade, PlannedCase
from schemas.transfer.family_checks import declared_texts, prohibited_calls
from schemas.transfer.rendering import nonce, render
from schemas.transfer.study import Driver, Memory, TransferStudy

TOOL_FILES = ("drivers/competence.py", "drivers/tool_words.py")
MAX_QUERY = 2_000
MAX_ITEMS = 10_000
MAX_BYTES = 16_777_216
MAX_FINAL_TEXT = 100_000
MAX_CLAIMS = 100
"""More than so much from a system under test, and the session has flooded."""


DECIDED_HERE = (
    events.SystemDescribed,
    events.MemorySeeded,
    events.StoreSnapshotted,
    events.SessionOpened,
    events.MemoryRetrieved,
    events.MemoryWritten,
    events.FixtureCalled,
    events.DecisionDeclared,
    events.SessionClosed,
    events.SurfaceRead,
    CaseFinished,
)
"""Events of a run; re-execution must come to the same ones."""


class SuiteInHand(Protocol):
    """What a worker knows of the frozen suite (``actors.transfer.frozen_study.FrozenTransfer``)."""

    event: StudyFrozen
    study: TransferStudy
    suite: FrozenSuite

    def unit(self, name: str) -> tuple[PlannedCase, Family, Case]: ...

    def digests(self, cell: CellId) -> tuple[str, str, str]:
        """Digests of unit, memory and driver, as ``cell.started`` records them."""
        ...

    def require_as_frozen(self, cell: CellId) -> None:
        """Raises Refused where the memory's or the driver's component is not the frozen one."""


OF_WHAT_WAS_SENT = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""Raised while a session takes in what a system sent, these are about that content. The system is
answerable for it: were the run void, a system could choose to be run again."""
Observed = Literal["completed", "crashed", "timed_out", "flooded", "malformed"]
Steps = Generator[AskModel, ModelAnswer, CaseFinished]
"""A running case: stops at questions to a model, returns its last event."""


def void(cell: CellId, attempt: int, detail: str) -> CaseFinished:
    """Our own fault: the run says nothing about the system, and is made again."""
    return CaseFinished(
        cell=cell,
        attempt=attempt,
        ended="void",
        detail=encodable(detail[:2000]),
        uncertainty=("everything: the run is void by a fault that is not the system's",),
    )


@dataclass
class CaseRun:
    """One attempt of a cell. :meth:`steps` is the whole of it, in order."""

    frozen: SuiteInHand
    cell: CellId
    attempt: int
    folders: CaseFolders
    open: OpenMemory
    monotonic: Callable[[], float]
    sandbox: Callable[[], Sandbox] = no_sandbox
    study_folder: Path = Path()
    commit: Callable[[], None] = lambda: None
    """Writes to the log what is recorded so far."""
    recorded: list[Event] = field(default_factory=list)
    contents: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """What the events name and nobody has stored yet, by digest."""
    retrievals: int = 0
    calls: int = 0
    deadline: float = 0.0
    system: MemorySystem | None = None

    def __post_init__(self) -> None:
        self.study: TransferStudy = self.frozen.study
        self.memory: Memory = self.study.memory(self.cell.arm)
        self.driver: Driver = self.study.driver(self.cell.agent)
        self.unit, self.family, self.case = self.frozen.unit(self.cell.unit)

    def take(self) -> list[Event]:
        """The events since the last time."""
        taken, self.recorded = self.recorded, []
        return taken

    def keep(self, content: bytes, media_type: str) -> ArtifactRef:
        """The reference of some content, which is stored before the event that names it."""
        digest = sha256(content).hexdigest()
        self.contents[digest] = (content, media_type)
        return ArtifactRef(digest=digest, length=len(content), media_type=media_type)

    def discard(self) -> None:
        """Remove what the case left on disk. The records have everything that counts."""
        if self.system is not None:
            self.system.close()
            self.system = None
        if self.folders.root.exists():
            remove_tree(self.folders.root)

    def steps(self) -> Steps:
        if self.folders.root.exists():  # of a process that was killed before it could record
            remove_tree(self.folders.root)
        self.folders.create()
        suite = self.study.suite
        world = World(
            self.family.fixture,
            self.family.decision_options,
            self.case.acknowledgements,
            suite.max_calls,
            declared_texts(self.family.cases),
        )
        ended: Observed = "completed"
        detail = ""
        capabilities = events.Capabilities()
        try:
            system = self._open_system()
            capabilities = system.capabilities
            self._describe(system)
            canaries = self._seed(system)
            if self.case.write_session is not None:
                self._snapshot(system, "before_write")
                given = SessionInput(
                    purpose="write",
                    turns=self.case.write_session.turns,
                    session=self.case.session,
                    tools=(),
                    system_prompt=self._system_prompt(),
                    max_turns=suite.max_turns,
                )
                yield from self._session(system, given, world, canaries)
                self._snapshot(system, "after_write")
                system.close()
                system = self._open_system()  # nothing but the store carries over
            self._snapshot(system, "before_session")
            given = SessionInput(
                purpose="task",
                turns=(self.case.prompt,),
                session=self.case.session,
                tools=world.tools,
                system_prompt=self._system_prompt(),
                max_turns=suite.max_turns,
            )
            ended, detail = yield from self._session(system, given, world, canaries)
        except SystemFailure as failure:
            ended, detail = failure.ended, str(failure)
        except _Infrastructure as fault:
            return void(self.cell, self.attempt, str(fault))
        world.close()
        self._read_surface(world)
        if self.system is not None:
            try:
                self._snapshot(self.system, "after_session")
            except SystemFailure as failure:
                if ended == "completed":
                    ended, detail = failure.ended, str(failure)
        return CaseFinished(
            cell=self.cell,
            attempt=self.attempt,
            ended=ended,
            detail=encodable(detail[:2000]),
            uncertainty=uncertainty(capabilities),
        )

    # ---- before a session --------------------------------------------------------------------

    def _open_system(self) -> MemorySystem:
        opening = Opening(
            self.folders, float(self.study.suite.session_s), self.sandbox, self.study_folder
        )
        self.system = self.open(self.memory, opening)
        return self.system

    def _system_prompt(self) -> str:
        return "" if self.driver.kind == "own" else system_prompt(find_driver(self.driver.kind))

    def _describe(self, system: MemorySystem) -> None:
        manifest = (
            cast(OwnDriver, system).driver_manifest()
            if self.driver.kind == "own"
            else driver_manifest(self.study, self.driver)
        )
        self.recorded.append(
            events.SystemDescribed(
                memory=self._json(system.manifest()),
                driver=self._json(manifest),
                capabilities=system.capabilities,
                clock_control=system.capabilities.clock,
            )
        )

    def _seed(self, system: MemorySystem) -> dict[str, str]:
        """Put the case's records among the distractors; returns every canary by what it marks."""
        freeze, trial = self.frozen.event.digest, self.cell.repeat
        marks = {
            record.correction_id: nonce(freeze, self.unit.unit, trial, record.correction_id)
            for record in self.family.records
        }
        records = [
            record
            for name in self.case.store
            if (record := self.family.record(name)).persistence_allowed is not False
        ]
        unrelated = distractors(
            self.frozen.suite.suite_id,
            self.frozen.suite.version,
            self.family,
            self.case.case_id,
            self.unit.distractors,
        )
        marks |= {
            record.correction_id: nonce(freeze, self.unit.unit, trial, record.correction_id)
            for record in unrelated
        }
        # Records stand among the others at even distances, in their own order.
        order = list(unrelated)
        for index, record in enumerate(records):
            order.insert((index + 1) * len(unrelated) // (len(records) + 1) + index, record)
        texts = {
            record.correction_id: render(record, marks[record.correction_id]) for record in order
        }
        ids = system.seed(texts) if texts else {}
        self.recorded.append(
            events.MemorySeeded(
                ids={record.correction_id: ids.get(record.correction_id, ()) for record in records},
                distractors=tuple(
                    stored for record in unrelated for stored in ids.get(record.correction_id, ())
                ),
                renderings=self._json(
                    {record.correction_id: texts[record.correction_id] for record in records}
                ),
            )
        )
        return marks

    def _snapshot(self, system: MemorySystem, when: Any) -> None:
        taken = system.snapshot()
        self.recorded.append(
            events.StoreSnapshotted(
                when=when,
                digest=taken.digest,
                grade=taken.grade,
                items=None if taken.items is None else self._items(bounded(taken.items)),
                whole=taken.whole,
            )
        )

    # ---- a session ---------------------------------------------------------------------------

    def _session(
        self,
        system: MemorySystem,
        given: SessionInput,
        world: World,
        canaries: Mapping[str, str],
    ) -> Generator[AskModel, ModelAnswer, tuple[Observed, str]]:
        """Open, drive to the last word, close. Returns how it ended, or raises SystemFailure
        after recording what was seen until then."""
        surroundings = {
            "prompt": "\n\n".join(given.turns),
            "system prompt": given.system_prompt,
            "tools": canonical(given.tools).decode(),
            "environment": "\n".join(os.environ.values()),
            "fixture": canonical(world.before).decode(),
        }
        leaked = tuple(
            where
            for where, text in surroundings.items()
            if any(mark in form.casefold() for form in forms(text) for mark in canaries.values())
        )
        self.recorded.append(
            events.SessionOpened(
                purpose=given.purpose,
                session=given.session,
                prompt=self._text(surroundings["prompt"]),
                system_prompt=self._text(given.system_prompt),
                tools=self.keep(surroundings["tools"].encode(), JSON),
                freshness=self._freshness(system),
                fixture=world.start,
            )
        )
        self.retrievals = 0
        self.deadline = self.monotonic() + self.study.suite.session_s
        finish, detail = Finish(""), ""
        ended: Observed = "completed"
        try:
            with self._served(system, given, world) as given:
                finish = yield from self._drive(system, given, world)
            ended = finish.ended
        except SystemFailure as failure:
            ended, detail = failure.ended, str(failure)
        except OF_WHAT_WAS_SENT as error:
            ended = "malformed"
            detail = f"what it sent could not be taken in: {type(error).__name__}: {error}"
        self._record_calls(world)
        if world.flooded:
            ended, detail = "flooded", f"more than {self.study.suite.max_calls} calls"
        elif len(finish.claims) > MAX_CLAIMS or len(finish.text) > MAX_FINAL_TEXT:
            # What is cut off is not judged: without an end to it, a lie could hide behind it.
            ended = "flooded"
            detail = f"{len(finish.claims)} claims and {len(finish.text)} characters at the end"
        self.recorded.append(
            events.SessionClosed(
                purpose=given.purpose,
                text=self._text(finish.text[:MAX_FINAL_TEXT]),
                claims=tuple(
                    Claim(kind=claim.kind, about=encodable(claim.about[:200]))
                    for claim in finish.claims[:MAX_CLAIMS]
                ),
                claims_grade="captured",
                retrievals=self.retrievals,
                leaked=leaked,
            )
        )
        if given.purpose == "write" and ended != "completed":
            raise SystemFailure(ended, detail)
        return ended, detail

    def _freshness(self, system: MemorySystem) -> dict[str, str]:
        """What proves that nothing but the store carried over; no value is of this machine."""
        own = getattr(system, "freshness", None)
        return {
            "conversation": "a new one, without a message before the prompt",
            "home": _is_empty(self.folders.home),
            "directory": _is_empty(self.folders.work),
            "memory": "opened anew over the case's own copy of the store",
            **(own() if callable(own) else {}),
        }

    @contextmanager
    def _served(
        self, system: MemorySystem, given: SessionInput, world: World
    ) -> Iterator[SessionInput]:
        """The fixture over MCP while the session lasts, where the system's agent asks for it."""
        if given.purpose == "write" or not getattr(system, "wants_mcp", False):
            yield given
            return
        from actors.fixture.server import ServedFixture  # needs the extra `memory`

        with (
            TemporaryDirectory(prefix="ledger-") as folder,  # a socket's path must be short
            ServedFixture(world, Path(folder) / "fixture") as served,
        ):
            yield replace(given, mcp_command=served.command)

    def _drive(
        self, system: MemorySystem, given: SessionInput, world: World
    ) -> Generator[AskModel, ModelAnswer, Finish]:
        """Perform and record what the driver yields, until its last words."""
        steps = (
            cast(OwnDriver, system).run(given)
            if self.driver.kind == "own"
            else find_driver(self.driver.kind).run(given)
        )
        limit = self.study.suite.max_calls
        memory_uses = 0
        try:
            effect = next(steps)
            while True:
                if self.monotonic() > self.deadline:
                    raise SystemFailure(
                        "timed_out", f"no end after {self.study.suite.session_s} seconds"
                    )
                if isinstance(effect, (Recall, Remember, ReportRetrieval, ReportPlan)):
                    memory_uses += 1
                    if memory_uses > limit:
                        raise SystemFailure("flooded", f"used the memory more than {limit} times")
                result: Result
                match effect:
                    case Finish():
                        return effect
                    case Recall():
                        result = self._recall(system, effect, given)
                    case Remember():
                        result = self._remember(system, effect, given)
                    case CallTool():
                        result = self._call(world, effect)
                        if world.flooded:
                            return Finish("")
                    case ReportRetrieval():
                        result = self._reported_retrieval(effect)
                    case ReportPlan():
                        result = self._reported_plan(world, effect)
                    case AskModel():
                        result = yield effect
                        if result.failed:
                            raise _failed_turn(result.failed)
                effect = steps.send(result)
        except StopIteration:
            return Finish("")
        finally:
            steps.close()

    def _recall(self, system: MemorySystem, effect: Recall, given: SessionInput) -> Remembered:
        found = system.recall(effect.query, given.session)
        items = bounded(found.items)
        admitted = None if found.admitted is None else tuple(map(encodable, found.admitted))
        notices = tuple(
            MemoryNotice(notice.kind, tuple(map(encodable, notice.records)))
            for notice in found.notices
        )
        recorded = tuple(
            events.MemoryNotice(kind=notice.kind, records=notice.records) for notice in notices
        )
        self._record_retrieval(found.query, items, admitted, recorded, found.grade)
        return Remembered(
            tuple(
                DeliveredText(item.id, item.text, admitted is None or item.id in admitted)
                for item in items
            ),
            notices,
        )

    def _record_retrieval(
        self,
        query: str,
        items: Sequence[StoredItem],
        admitted: tuple[str, ...] | None,
        notices: tuple[events.MemoryNotice, ...],
        grade: Grade,
    ) -> None:
        self.retrievals += 1
        self.recorded.append(
            events.MemoryRetrieved(
                query=encodable(query[:MAX_QUERY]),
                delivered=tuple(
                    RetrievedItem(id=item.id, digest=sha256(item.text.encode()).hexdigest())
                    for item in items
                ),
                admitted=admitted,
                notices=notices,
                grade=grade,
                content=self._items(items),
            )
        )

    def _remember(self, system: MemorySystem, effect: Remember, given: SessionInput) -> Kept:
        answer = system.remember(effect.text, given.session)
        self.recorded.append(
            events.MemoryWritten(
                acknowledged=answer.acknowledged, text=self._text(answer.text), grade="captured"
            )
        )
        return Kept(answer.acknowledged, answer.text)

    def _call(self, world: World, effect: CallTool) -> ToolShown:
        shown = world.call(effect.name, effect.arguments)
        self._record_calls(world)
        if prohibited_calls(self.case.prohibited, [entry.call for entry in world.journal[-1:]]):
            self.commit()  # before it is answered: who ends this process now undoes nothing
        text = canonical(shown).decode()
        return ToolShown(shown.ok, shown.value, shown.error or "", text)

    def _record_calls(self, world: World) -> None:
        """Record what the fixture's journal holds beyond what is recorded, whoever called."""
        for entry in world.journal[self.calls :]:
            self.calls += 1
            self.recorded.append(
                events.FixtureCalled(
                    number=entry.number,
                    tool=entry.tool,
                    effect=entry.effect,
                    arguments=self.keep(canonical(entry.arguments), JSON),
                    ok=entry.ok,
                    result=self.keep(entry.result.encode(), JSON),
                    state=entry.state,
                )
            )
            for declaration in world.declarations:
                if declaration.call == entry.number:
                    self.recorded.append(
                        events.DecisionDeclared(
                            option=declaration.option,
                            basis=declaration.basis,
                            call=declaration.call,
                            before_write=declaration.before_write,
                            grade="captured",
                        )
                    )

    def _reported_retrieval(self, effect: ReportRetrieval) -> Noted:
        items = bounded([StoredItem(item.id, item.text) for item in effect.items])
        admitted = tuple(encodable(item.id) for item in effect.items if item.admitted)
        self._record_retrieval(
            effect.query,
            items,
            admitted if effect.admitted_shown else None,
            (),
            "reported",
        )
        return Noted()

    def _reported_plan(self, world: World, effect: ReportPlan) -> Noted:
        changed = any(entry.ok and entry.effect == "write" for entry in world.journal)
        self.recorded.append(
            events.DecisionDeclared(
                option=encodable(effect.option[:200]),
                basis=tuple(encodable(name[:200]) for name in effect.basis[:MAX_CLAIMS]),
                call=-1,
                before_write=not changed,
                grade="reported",
            )
        )
        return Noted()

    # ---- after it ----------------------------------------------------------------------------

    def _read_surface(self, world: World) -> None:
        own = getattr(self.system, "side_effects", None)
        effects = (*self.folders.strangers(), *(own() if callable(own) else ()))
        self.recorded.append(
            events.SurfaceRead(
                before=self.keep(canonical(world.before), JSON),
                after=self.keep(canonical(world.state), JSON),
                calls=len(world.journal),
                side_effects=effects,
            )
        )

    def request(self, question: AskModel) -> ArtifactRef:
        """The request to the model: the driver's messages, the study's sampling, the trial's seed.

        ``answer_schema`` stands in it only where the driver gave one.
        """
        model = self.study.model(self.driver.model)
        request = ModelRequest(
            messages=wire(question.messages),
            tools=wire_tools(question.tools),
            temperature=model.generation.temperature,
            top_p=model.generation.top_p,
            seed=model.generation.seed + self.cell.repeat,
            max_tokens=model.generation.max_completion_tokens,
            reasoning=model.reasoning,
            answer_schema=question.answer_schema or msgspec.UNSET,
        )
        return self.keep(msgspec.json.encode(request), JSON)

    def _json(self, value: Any) -> ArtifactRef:
        return self.keep(canonical(value), JSON)

    def _text(self, text: str) -> ArtifactRef:
        return self.keep(text.encode("utf-8", "replace"), "text/plain")

    def _items(self, items: Sequence[StoredItem]) -> ArtifactRef:
        return self._json([{"id": item.id, "text": item.text} for item in items])


def encodable(text: str) -> str:
    """The text with what cannot be encoded (half of a surrogate pair) replaced: a stranger's words
    are recorded, whatever they are."""
    return text.encode("utf-8", "replace").decode()


def bounded(items: Sequence[StoredItem]) -> tuple[StoredItem, ...]:
    """A system's items as they can be recorded. Raises SystemFailure for a flood of them."""
    if len(items) > MAX_ITEMS or sum(len(item.text) for item in items) > MAX_BYTES:
        raise SystemFailure("flooded", f"{len(items)} items at once, or too large ones")
    return tuple(StoredItem(encodable(item.id), encodable(item.text)) for item in items)


class _Infrastructure(Exception):
    """The model server failed: nothing that the system under test could do about."""


def _failed_turn(kind: str) -> Exception:
    """A turn without an answer: the model's own fault, or that of what carries it."""
    if kind == "timeout":
        return SystemFailure("timed_out", "the model gave no answer in time")
    if kind == "overflow":
        return SystemFailure("crashed", "the conversation outgrew the model's context")
    return _Infrastructure(f"the model server failed: {kind}")


def _is_empty(folder: Any) -> str:
    return "new and empty" if not any(folder.iterdir()) else "not empty"


def driver_manifest(study: TransferStudy, driver: Driver) -> Manifest:
    """What makes one of our drivers the one it is. Of a model's, no layer can be seen."""
    known = find_driver(driver.kind)
    settings: dict[str, Any] = dict(known.layers)
    if driver.model:
        settings["model"] = msgspec.to_builtins(study.model(driver.model))
    return Manifest(
        kind=driver.kind,
        id=driver.id,
        settings=settings,
        sources={},  # its component says what it is made of
        layers={
            name: layer_digest(
                known.layers[name],
                [file_digest(file) for file in TOOL_FILES] if name == "tool_execution" else None,
            )
            for name in DRIVER_LAYERS
            if name in known.layers
        },
    )


def uncertainty(shown: events.Capabilities) -> tuple[str, ...]:
    """What could not be determined, and why: what the system does not show."""
    found = []
    if shown.store == "opaque":
        found.append("retention: the system does not let its store be read")
    if shown.trace == "none":
        found.append("retrieval and relevance: the system shows nothing of what it delivers")
    elif shown.trace == "retrieval":
        found.append("relevance: the system does not show which records it let through")
    if shown.plan != "before_action":
        found.append(f"decision: {DECLARE_DECISION} is the only place where it would show")
    if shown.clock == "system":
        found.append("clock: the system reads the machine's, which is not the case's")
    return tuple(found)
