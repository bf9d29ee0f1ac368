"""What the report of a repair study is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projections.amendments import Amendments
from projections.repair.results import Results
from projections.repair.tasks import MinedTasks
from projections.report.conduct import Conduct
from schemas.plan import PlannedCell
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything that a report is made from, folded up to the head of the results.

    ``root`` is the Merkle root over records 0 to the head; ``checkpoint`` says which signed
    checkpoint covers them, empty where none is at hand. ``analysis`` is the record that names the
    results, ``results_digest`` the SHA-256 of ``results.json``.
    """

    results: Results
    study: RepairStudy
    tasks: Mapping[str, Task]
    plan: Sequence[PlannedCell]
    amendments: Amendments
    mined: MinedTasks
    conduct: Conduct
    root: str
    checkpoint: str
    analysis: int
    results_digest: str
