"""What the report of a transfer study is made from."""

from dataclasses import dataclass

from projections.amendments import Amendments
from projections.report.conduct import Conduct
from projections.transfer.results import TransferResults
from schemas.transfer.study import TransferStudy


@dataclass(frozen=True, kw_only=True)
class TransferInputs:
    """What a report is made from, folded up to the head of the results."""

    results: TransferResults
    study: TransferStudy
    amendments: Amendments
    conduct: Conduct
    root: str
    checkpoint: str
    analysis: int
    results_digest: str
