"""Did every cell run with the unit, arm and agent that were frozen?"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, ClassVar, Protocol

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Severity, Verdict
from projections.fold import ReadArtifact
from schemas.base import ArtifactRef, Event
from schemas.events.cell import CellStarted
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded, StudyFrozen, TasksFrozen
from schemas.events.transfer import FamiliesFrozen, SystemDescribed
from schemas.study import WHOLE_PROGRAM
from schemas.study_file import parse_study


class CellIdentities(Protocol):
    """What cells of one kind of study are made of, with the digests that ``cell.started`` records;
    a fold."""

    UNIT: ClassVar[str]
    AGENT: ClassVar[str]
    """What these parts of a cell are called."""
    FOLDS: ClassVar[tuple[type[Event], ...]]

    frozen_units: ArtifactRef | None
    """What was frozen last."""
    arms: dict[str, str]
    agents: dict[str, str]
    """Digests by id, as they are from the last record on."""
    code_of_agents: tuple[str, ...]
    """Ids of agents that are code of this program."""

    def apply(self, fact: Fact) -> None: ...

    def read_units(self, content: bytes) -> dict[str, str]:
        """Digest by id of each unit in ``frozen_units``."""
        ...

    def beside(self, fact: Fact) -> Iterator[tuple[Severity, str]]:
        """What else a record shows of an identity."""
        ...


class IdentityAudit:
    """Computes the frozen digests again from the artifacts and compares them with every start."""

    NAME: ClassVar[str] = "identity"
    QUESTION: ClassVar[str] = (
        "Did every cell start with the frozen task, treatment and model (case, memory and driver, "
        "with the program that a memory is), and every run with the frozen study?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        TasksFrozen,
        FamiliesFrozen,
        StudyFrozen,
        AmendmentRecorded,
        RunStarted,
        CellStarted,
        SystemDescribed,
    )

    def __init__(self, read: ReadArtifact, kinds: Mapping[str, CellIdentities]) -> None:
        """``kinds``: nothing folded yet, by kind of study."""
        self._read = read
        self._kinds = kinds
        self._cell: CellIdentities | None = None
        """Of the frozen study."""
        self._findings = Findings(self.NAME)
        self._frozen: StudyFrozen | None = None
        self._units: dict[str, str] = {}
        self._program_amended: int | None = None
        """By an amendment of an earlier form: it does not say which component the code is of."""
        self._platforms: dict[str, int] = {}
        self._cells = self._runs = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        for kind in self._kinds.values():
            if isinstance(event, kind.FOLDS):
                kind.apply(fact)
        match event:
            case StudyFrozen():
                self._cell = self._kinds.get(parse_study(self._read(event.study)).kind)
            case AmendmentRecorded():
                if any(change.name == WHOLE_PROGRAM for change in event.components):
                    self._program_amended = fact.seq
            case RunStarted():
                self._runs += 1
                platform = f"{event.platform}, Python {event.python}"
                self._platforms.setdefault(platform, fact.seq)
                if event.dirty:
                    self._findings.note(fact.seq, "the checkout had uncommitted changes")
        for problem in self._problems(event, fact.as_recorded or event):
            self._findings.violation(fact.seq, problem)
        if isinstance(event, CellStarted):
            self._cells += 1
            self._compare_arm(fact.seq, event)
        for severity, text in self._cell.beside(fact) if self._cell else ():
            if severity == "violation":
                self._findings.violation(fact.seq, text)
            else:
                self._findings.note(fact.seq, text)

    def _problems(self, event: Event, as_recorded: Event) -> Iterator[str]:
        match event:
            case StudyFrozen():
                self._frozen = event
                yield from self._freeze(event, as_recorded)
            case RunStarted():
                if self._frozen is None or event.study != self._frozen.digest:
                    yield f"the run is of study {event.study[:12]}, which is not the frozen one"
            case CellStarted():
                yield from self._started(event)

    def _started(self, event: CellStarted) -> Iterator[str]:
        cell, kind = event.cell, self._cell
        if kind is None:
            yield f"{cell} started before the study was frozen"
            return
        if cell.unit not in self._units:
            yield f"{cell}: {cell.unit} is not a frozen {kind.UNIT}"
        elif event.unit != self._units[cell.unit]:
            yield f"{cell}: the {kind.UNIT} is not the frozen one"
        if event.agent != kind.agents.get(cell.agent) and not self._is_unknown(cell.agent):
            yield f"{cell}: the identity of {kind.AGENT} {cell.agent} is not the frozen one"
        if self._frozen is not None and event.simulated != self._frozen.simulated:
            yield f"{cell}: simulated is {event.simulated}, frozen was the opposite"

    def _is_unknown(self, agent: str) -> bool:
        """Whether the agent's own code may be what an amendment of an earlier form changed."""
        return (
            self._program_amended is not None
            and self._cell is not None
            and (agent in self._cell.code_of_agents)
        )

    def _freeze(self, event: StudyFrozen, as_recorded: Event) -> Iterator[str]:
        unsigned = msgspec.structs.replace(as_recorded, digest="0" * 64)
        if event.digest != identity_digest(unsigned):
            yield "the study digest is not the digest of what was frozen"
        for file, content in zip(event.documents, event.document_contents, strict=False):
            if file.digest != content.digest:
                yield f"the content of document {file.name} has another digest"
        kind = self._cell
        if kind is None or kind.frozen_units is None or kind.frozen_units.digest != event.tasks:
            yield f"the study binds other {kind.UNIT if kind else 'unit'}s than were frozen"
            return
        self._units = kind.read_units(self._read(kind.frozen_units))

    def _compare_arm(self, seq: int, event: CellStarted) -> None:
        arm = event.cell.arm
        if self._cell is None or event.arm == self._cell.arms.get(arm):
            return
        if self._program_amended is None:
            self._findings.violation(seq, f"{event.cell}: the code of {arm} is not the frozen one")
            return
        self._cell.arms[arm] = event.arm
        self._findings.note(
            seq, f"{arm} has other code from here on (amendment at record {self._program_amended})"
        )

    def verdict(self) -> Verdict:
        if len(self._platforms) > 1:
            for platform, seq in self._platforms.items():
                self._findings.note(seq, f"a run on {platform}")
        return self._findings.verdict(
            applicable=self._frozen is not None,
            cell_attempts=self._cells,
            runs=self._runs,
            **({f"{self._cell.UNIT}s": len(self._units)} if self._cell else {}),
        )


def identity_digest(value: Any) -> str:
    """Digest of an identity, as ``cell.started`` records it."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
