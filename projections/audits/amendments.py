"""Does every amendment stand in the class that the order of records gives it?"""

from typing import ClassVar

from ledger.log import Fact
from projections.amendments import Amendments
from projections.audits.finding import Findings, Verdict
from schemas.base import Event
from schemas.events.study import AmendmentRecorded


class AmendmentAudit:
    """Decides the class of every amendment again, from the records before it."""

    NAME: ClassVar[str] = "amendments"
    QUESTION: ClassVar[str] = (
        "Is every amendment classed by what came before it, and does it say what it changed?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = Amendments.FOLDS

    def __init__(self) -> None:
        self._findings = Findings(self.NAME)
        self._before = Amendments()

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, AmendmentRecorded):
            self._judge(fact.seq, event)
        self._before.apply(fact)

    def _judge(self, seq: int, event: AmendmentRecorded) -> None:
        found = self._before.finding()
        if self._before.frozen is None:
            self._findings.violation(seq, "something was amended before anything was frozen")
        if event.finding != found:
            self._findings.violation(
                seq, f"recorded as {event.finding}; by the records before it, it is {found}"
            )
        if list(event.inspections) != self._before.inspections:
            self._findings.violation(
                seq,
                f"lists the inspections {list(event.inspections)}; there were "
                f"{self._before.inspections}",
            )
        if not event.changed and not event.removed:
            self._findings.violation(seq, "says nothing about what was changed")
        claim = ", changes a claim" if event.changes_claim else ""
        self._findings.note(seq, f"{found}{claim}: {event.reason}")

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._before.frozen is not None,
            amendments=len(self._before.recorded),
            inspections=len(self._before.inspections),
        )
