"""A frozen suite in hand and a log in memory: cells of a transfer study, run as a worker does."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.families.load import load_family
from actors.loop import Context, perform, request
from actors.memory_systems.registry import open_memory
from actors.transfer.sessions import MemorySessions
from ledger.artifacts import Artifacts
from ledger.log import Fact, decode
from ledger.memory_log import MemoryLog
from ledger.study_directory import StudyDirectory
from schemas.base import ArtifactRef, Event
from schemas.commands import AdvanceSession
from schemas.events.study import StudyFrozen
from schemas.events.transfer import CaseFinished
from schemas.identifiers import CellId, parse_cell_id
from schemas.study import Model
from schemas.transfer.family import Case, Family, FrozenSuite, PlannedCase
from schemas.transfer.study import Driver, Memory, Suite, System, TransferStudy

GIVEN = Path(__file__).parents[2] / "actors" / "families" / "examples"
NOTHING = ArtifactRef(digest="0" * 64, length=0, media_type="text/plain")
RULE_BASED = ("reader", "null", "over_applier", "ignorer", "liar", "early_acknowledger")
MEMORIES = (
    *(Memory(id=policy, kind="store", policy=policy) for policy in ("none", "everything")),
    *(Memory(id=policy, kind="store", policy=policy) for policy in ("retrieval", "full")),
    Memory(id="folder", kind="folder"),
)
MODEL = Model(
    id="M1",
    key="m",
    variant="m@q4",
    quantization="Q4_K_M",
    format="gguf",
    context_length=4096,
    max_context_length=4096,
    reasoning="off",
)


@pytest.fixture(scope="session")
def given_families() -> tuple[Family, ...]:
    """The first six example families."""
    paths = sorted(GIVEN.glob("F10[1-6].yaml"))
    assert len(paths) == 6
    return tuple(load_family(path.read_bytes(), path.name) for path in paths)


class InHand:
    """What a worker knows of a frozen suite, made without freezing one."""

    def __init__(self, families: Sequence[Family], **suite: Any) -> None:
        memories = suite.pop("memories", MEMORIES)
        drivers = (
            *(Driver(id=kind, kind=kind) for kind in RULE_BASED),  # type: ignore[arg-type]
            Driver(id="chat", kind="chat", model="M1"),
            Driver(id="own", kind="own"),
        )
        self.study = TransferStudy(
            format=1,
            kind="transfer",
            id="ct-test",
            title="t",
            question="q",
            suite=Suite(version="1", families=("f.yaml",), **suite),
            memories=memories,
            drivers=drivers,
            systems=tuple(System(memory=m.id, driver=d.id) for m in memories for d in drivers),
            models=(MODEL,),
        )
        self.suite = FrozenSuite(
            suite_id="ct-test",
            version="1",
            families=tuple(families),
            units=tuple(
                PlannedCase(
                    unit=f"{case.case_id}.d{number}",
                    family_id=family.family_id,
                    case_id=case.case_id,
                    distractors=number,
                )
                for family in families
                for case in family.cases
                for number in (0, 50)
            ),
        )
        self.event = StudyFrozen(
            study=NOTHING,
            digest="f" * 64,
            documents=(),
            document_contents=(),
            tasks="0" * 64,
            plan="0" * 64,
            components=(),
            commit="",
            dirty=False,
            simulated=True,
        )

    def unit(self, name: str) -> tuple[PlannedCase, Family, Case]:
        unit = next(unit for unit in self.suite.units if unit.unit == name)
        family = next(item for item in self.suite.families if item.family_id == unit.family_id)
        return unit, family, family.case(unit.case_id)

    def require_as_frozen(self, cell: CellId) -> None:
        """Nothing here is frozen from a program."""

    def digests(self, cell: CellId) -> tuple[str, str, str]:
        unit, arm, agent = (
            sha256(name.encode()).hexdigest() for name in (cell.unit, cell.arm, cell.agent)
        )
        return unit, arm, agent


class Laboratory:
    """A worker of the role ``memory_session`` over a log in memory."""

    def __init__(self, folder: Path, in_hand: InHand, **more: Any) -> None:
        directory = StudyDirectory(folder)
        directory.var.mkdir(parents=True)
        self.context = Context(MemoryLog(), Artifacts(directory.artifacts), directory, "run-1")
        self.in_hand = in_hand
        self.more = more
        self.sessions = MemorySessions(in_hand, **more)

    def restart(self) -> None:
        """Another process: nothing but the log and the disk is left."""
        self.sessions = MemorySessions(self.in_hand, **self.more)

    def advance(self, cell: str) -> list[Event]:
        """One command; returns the events that it added to the cell's stream."""
        stream = parse_cell_id(cell).stream
        before = len(self.facts(cell))
        command = request(self.context, AdvanceSession(cell=cell))
        claim = self.context.log.claim(["memory_session"], 60.0)
        assert claim is not None and claim.lease.command == command
        perform(self.context, claim, {AdvanceSession: self.sessions.advance})
        return [decode(stored).event for stored in self.context.log.read_stream(stream)][before:]

    def advance_again(self, cell: str) -> list[Event]:
        """The command that a killed worker held, taken by the next one."""
        before = len(self.facts(cell))
        *_, left = self.context.log.pending()
        self.context.log.release_all()
        claim = self.context.log.claim(["memory_session"], 60.0)
        assert claim is not None and claim.lease.command == left
        perform(self.context, claim, {AdvanceSession: self.sessions.advance})
        return [fact.event for fact in self.facts(cell)][before:]

    def run(self, cell: str) -> list[Event]:
        """A cell that asks no model, from its start to its end."""
        events = self.advance(cell)
        assert isinstance(events[-1], CaseFinished)
        return events

    def facts(self, cell: str) -> list[Fact]:
        stream = parse_cell_id(cell).stream
        return [decode(stored) for stored in self.context.log.read_stream(stream)]

    def requested(self) -> list[Any]:
        """The commands that nobody has taken yet."""
        found = []
        for command in self.context.log.pending():
            stored = self.context.log.find(command)
            assert stored is not None
            found.append(decode(stored).event.command)  # type: ignore[attr-defined]
        return found

    def read(self, reference: ArtifactRef) -> Any:
        return msgspec.json.decode(self.context.artifacts.get(reference))


@pytest.fixture
def laboratory(tmp_path: Path, given_families: tuple[Family, ...]) -> Callable[..., Laboratory]:
    """``laboratory(families=…, opener=…, max_calls=…)``: what is not named is the given suite."""
    made = 0

    def make(families: Sequence[Family] = given_families, **more: Any) -> Laboratory:
        nonlocal made
        made += 1
        of_actor = {key: more.pop(key) for key in ("opener", "monotonic") if key in more}
        of_actor.setdefault("opener", open_memory)
        return Laboratory(tmp_path / str(made), InHand(families, **more), **of_actor)

    return make
