"""Every audit that reads the log through a fold: the literal list, in the order of printing.

``chain`` reads raw bytes instead (``projections/audits/chain.py``) and comes before all of these.
"""

from collections.abc import Callable, Mapping

from projections.audits.amendments import AmendmentAudit
from projections.audits.commands import CommandAudit
from projections.audits.completeness import CompletenessAudit
from projections.audits.finding import Audit
from projections.audits.identity import IdentityAudit
from projections.audits.inspections import InspectionAudit
from projections.audits.registration import RegistrationAudit
from projections.audits.residency import ResidencyAudit
from projections.audits.retries import RetryAudit
from projections.fold import ReadArtifact
from projections.repair.audits.budgets import BudgetAudit
from projections.repair.audits.contamination import ContaminationAudit
from projections.repair.audits.funnel import FunnelAudit
from projections.repair.audits.identities import RepairIdentities
from projections.repair.audits.leak_probes import LeakProbeAudit
from projections.transfer.audits.evidence import TransferAudit
from projections.transfer.audits.identities import TransferIdentities

AUDITS: Mapping[type[Audit], Callable[[ReadArtifact], Audit]] = {
    RegistrationAudit: lambda read: RegistrationAudit(),
    FunnelAudit: FunnelAudit,
    ContaminationAudit: ContaminationAudit,
    LeakProbeAudit: LeakProbeAudit,
    IdentityAudit: lambda read: IdentityAudit(
        read, {"repair": RepairIdentities(read), "transfer": TransferIdentities(read)}
    ),
    CompletenessAudit: CompletenessAudit,
    ResidencyAudit: ResidencyAudit,
    BudgetAudit: BudgetAudit,
    RetryAudit: RetryAudit,
    TransferAudit: TransferAudit,
    AmendmentAudit: AmendmentAudit,
    InspectionAudit: InspectionAudit,
    CommandAudit: lambda read: CommandAudit(),
}
