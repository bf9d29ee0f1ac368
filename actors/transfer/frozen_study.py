"""The frozen transfer study in the hands of a worker: study, families, units, identities."""

import copy

from actors.loop import Context
from actors.study.frozen_study import FrozenStudy
from actors.transfer.components import components
from projections.transfer.system_identity import driver_digest, memory_digest, unit_digest
from schemas.events.study import FrozenComponent
from schemas.identifiers import CellId
from schemas.transfer.family import Case, Family, FrozenSuite, PlannedCase
from schemas.transfer.study import TransferStudy


class FrozenTransfer(FrozenStudy[TransferStudy]):
    """A frozen transfer study; its family files are not looked at any more."""

    def __init__(self, context: Context) -> None:
        super().__init__(TransferStudy, context, components)
        assert self.progress.suite is not None  # frozen together with the study
        self.suite: FrozenSuite = self.progress.suite
        self._units = {unit.unit: unit for unit in self.suite.units}
        self._families = {family.family_id: family for family in self.suite.families}

    def unit(self, name: str) -> tuple[PlannedCase, Family, Case]:
        """The unit, its family and its case. Raises LookupError for a name that is not planned."""
        unit = self._units[name]
        family = self._families[unit.family_id]
        return unit, family, family.case(unit.case_id)

    def digests(self, cell: CellId) -> tuple[str, str, str]:
        """(unit, memory, driver) digests, as ``cell.started`` records them."""
        unit, family, _ = self.unit(cell.unit)
        return (
            unit_digest(family, unit),
            memory_digest(self.study.memory(cell.arm), self._find(f"memory {cell.arm}")),
            driver_digest(
                self.study, self.study.driver(cell.agent), self._find(f"driver {cell.agent}")
            ),
        )

    def as_of(self, seq: int) -> "FrozenTransfer":
        """The same with components as they stood at record ``seq``."""
        earlier = copy.copy(self)
        earlier._seq = seq
        return earlier

    def _find(self, name: str) -> FrozenComponent | None:
        """None: somebody else's program, which is bound by what the study declares of it."""
        return self.amendments.components_at(self._seq).get(name)
