"""The frozen transfer study in the hands of a worker: study, families, units, identities.

Everything comes from the log and its artifacts; the family files are not looked at any more.
"""

from actors.loop import Context
from ledger.errors import Refused
from projections.amendments import Amendments
from projections.fold import fold
from projections.progress import Progress
from projections.transfer.system_identity import driver_digest, memory_digest, unit_digest
from schemas.events.study import StudyFrozen
from schemas.identifiers import CellId
from schemas.transfer.family import Case, Family, FrozenSuite, PlannedCase
from schemas.transfer.study import TransferStudy


class FrozenTransfer:
    """Read once by every worker, and again after an amendment (a worker never lives through one).

    Raises Refused where nothing is frozen or the study is of another kind.
    """

    def __init__(self, context: Context) -> None:
        facts = list(context.study_facts())
        progress = fold(Progress(context.artifacts.get), facts)
        amendments = fold(Amendments(context.artifacts.get), facts)
        if progress.frozen is None or progress.suite is None:
            raise Refused("the suite is not frozen: `ledger freeze` first")
        if not isinstance(progress.study, TransferStudy):
            raise Refused('the study is not of kind "transfer": it has no families')
        self.event: StudyFrozen = progress.frozen
        self.study: TransferStudy = progress.study
        self.suite: FrozenSuite = progress.suite
        self._code = amendments.code()
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
            memory_digest(self.study.memory(cell.arm), self._code),
            driver_digest(self.study, self.study.driver(cell.agent), self._code),
        )
