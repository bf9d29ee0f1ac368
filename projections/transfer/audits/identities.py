"""What the cells of a transfer study are made of: cases, memories and drivers, by digest, and the
program that a memory is."""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.amendments import Amendments
from projections.audits.finding import Severity
from projections.fold import ReadArtifact
from projections.transfer.frozen_programs import FrozenPrograms
from projections.transfer.system_identity import driver_digest, memory_digest, unit_digest
from schemas.base import ArtifactRef, Event
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.events.transfer import FamiliesFrozen, SystemDescribed
from schemas.study_file import parse_study
from schemas.transfer.family import FrozenSuite
from schemas.transfer.study import TransferStudy


class TransferIdentities:
    UNIT: ClassVar[str] = "case"
    AGENT: ClassVar[str] = "driver"
    FOLDS: ClassVar[tuple[type[Event], ...]] = tuple(
        dict.fromkeys((*FrozenPrograms.FOLDS, FamiliesFrozen, StudyFrozen, AmendmentRecorded))
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._amendments = Amendments(read)
        self._programs = FrozenPrograms(read)
        self.frozen_units: ArtifactRef | None = None
        self.arms: dict[str, str] = {}
        self.agents: dict[str, str] = {}
        self.code_of_agents: tuple[str, ...] = ()

    def apply(self, fact: Fact) -> None:
        if isinstance(fact.event, FrozenPrograms.FOLDS):
            self._programs.apply(fact)
        match fact.event:
            case FamiliesFrozen() as event:
                self.frozen_units = event.suite
            case StudyFrozen() | AmendmentRecorded() as event:
                self._amendments.apply(fact)
                study = parse_study(self._read(event.study))
                if isinstance(study, TransferStudy):
                    code = self._amendments.components
                    self.arms = {
                        memory.id: memory_digest(memory, code.get(f"memory {memory.id}"))
                        for memory in study.memories
                    }
                    self.agents = {
                        driver.id: driver_digest(study, driver, code.get(f"driver {driver.id}"))
                        for driver in study.drivers
                    }
                    self.code_of_agents = tuple(self.agents)

    def read_units(self, content: bytes) -> dict[str, str]:
        suite = msgspec.json.decode(content, type=FrozenSuite)
        families = {family.family_id: family for family in suite.families}
        return {unit.unit: unit_digest(families[unit.family_id], unit) for unit in suite.units}

    def beside(self, fact: Fact) -> Iterator[tuple[Severity, str]]:
        if not isinstance(fact.event, SystemDescribed):
            return
        other = self._programs.others.get(fact.stream.removeprefix("cell/"))
        if other is None:
            return
        text = f"{other.cell}: the program of {other.memory} is not the frozen one: {other.what}"
        if other.amendment < 0:
            yield "violation", text
        else:
            yield "note", f"{text} (amendment at record {other.amendment})"
