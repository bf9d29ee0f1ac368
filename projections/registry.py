"""Every projection that becomes tables: the literal list."""

from collections.abc import Callable, Mapping

from projections.amendments import Amendments
from projections.fold import Projection, ReadArtifact, Row
from projections.pending_commands import PendingCommands
from projections.progress import Progress
from projections.repair.outcomes import Outcomes
from projections.repair.tasks import MinedTasks
from projections.residency import Residency
from projections.transfer.corrections import Corrections
from projections.transfer.remediations import Remediations
from projections.transfer.tables import TransferTables

PROJECTIONS: Mapping[type[Projection], Callable[[ReadArtifact], Projection]] = {
    Progress: Progress,
    MinedTasks: MinedTasks,
    Amendments: Amendments,
    Corrections: lambda read: Corrections(),
    Residency: lambda read: Residency(),
    PendingCommands: lambda read: PendingCommands(),
    Outcomes: Outcomes,
    TransferTables: TransferTables,
    Remediations: lambda read: Remediations(),
}
"""How a fresh state of each is made; the order is the order of tables in every listing."""


def declared_tables(guarded: bool) -> tuple[type[Row], ...]:
    """The tables behind the inspection gate, or all others."""
    return tuple(
        table
        for projection in PROJECTIONS
        if projection.GUARDED is guarded
        for table in projection.TABLES
    )
