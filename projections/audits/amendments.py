"""Does every amendment stand in the class that the order of records gives it, and may it be one?"""

from typing import ClassVar

from ledger.log import Fact
from projections.amendments import Amendments, not_amendable
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from projections.progress import Progress
from schemas.base import Event
from schemas.events.study import AmendmentRecorded
from schemas.study_file import parse_study


class AmendmentAudit:
    """Decides the class of every amendment again, from the records before it, and whether what it
    changes can be amended."""

    NAME: ClassVar[str] = "amendments"
    QUESTION: ClassVar[str] = (
        "Is every amendment classed by what came before it, does it say what it changed, and can "
        "that be amended?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = tuple(
        dict.fromkeys((*Amendments.FOLDS, *Progress.FOLDS))
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._before = Amendments(read)
        self._progress = Progress(read)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, AmendmentRecorded):
            self._judge(fact.seq, event)
            study = parse_study(self._read(event.study))
            for problem in not_amendable(study, self._progress):
                self._findings.violation(fact.seq, f"no amendment can change this: {problem}")
        for state in (self._before, self._progress):
            if isinstance(event, state.FOLDS):
                state.apply(fact)

    def _judge(self, seq: int, event: AmendmentRecorded) -> None:
        found = self._before.finding()
        if self._before.frozen is None:
            self._findings.violation(seq, "something was amended before anything was frozen")
        if event.finding != found:
            self._findings.violation(
                seq, f"recorded as {event.finding}; by the records before it, it is {found}"
            )
        if event.inspections != self._before.inspections:
            self._findings.violation(
                seq,
                f"lists the inspections {list(event.inspections)}; there were "
                f"{list(self._before.inspections)}",
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
