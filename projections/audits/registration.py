"""Can somebody who does not trust this clock see that the freeze came before the first answer?

The first answer is a model's turn, or the first session of a transfer study: its drivers may ask no
model at all.
"""

from typing import ClassVar

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from schemas.base import Event
from schemas.events.cell import TurnAnswered
from schemas.events.ledger import CheckpointAnchored
from schemas.events.study import StudyFrozen, StudyRegistered
from schemas.events.transfer import SystemDescribed


class RegistrationAudit:
    """Looks for a registration, or an outside anchor over the freeze, before the first response."""

    NAME: ClassVar[str] = "registration"
    QUESTION: ClassVar[str] = (
        "Was the frozen study registered or anchored outside before the first response of a model "
        "or a session?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        StudyFrozen,
        StudyRegistered,
        CheckpointAnchored,
        TurnAnswered,
        SystemDescribed,
    )

    def __init__(self) -> None:
        self._findings = Findings(self.NAME)
        self._frozen: int | None = None
        self._first_response: int | None = None
        self._in_time = self._anchors = self._registered = 0

    def apply(self, fact: Fact) -> None:
        match fact.event:
            case StudyFrozen():
                self._frozen = fact.seq
            case TurnAnswered() | SystemDescribed():
                if self._first_response is None:
                    self._first_response = fact.seq
                    if self._frozen is None:
                        self._findings.violation(
                            fact.seq, "something answered before the study was frozen"
                        )
            case StudyRegistered() as entry:
                self._registered += 1
                if self._first_response is None:
                    self._in_time += 1
                    self._findings.note(
                        fact.seq,
                        f"registered before the first response: {entry.where}; compare the entry "
                        "with `ledger register`, which prints the card",
                    )
                else:
                    self._findings.violation(
                        fact.seq,
                        f"registered ({entry.where}) after the first response (record "
                        f"{self._first_response}): it registers nothing in advance",
                    )
            case CheckpointAnchored() as anchor:
                self._anchors += 1
                if self._frozen is None or anchor.size <= self._frozen:
                    return
                if self._first_response is None:
                    self._in_time += 1
                    self._findings.note(
                        fact.seq, f"the freeze is anchored ({anchor.kind}: {anchor.where})"
                    )
                else:
                    self._findings.note(
                        fact.seq,
                        f"anchored ({anchor.kind}: {anchor.where}) after the first response "
                        f"(record {self._first_response})",
                    )

    def verdict(self) -> Verdict:
        if self._frozen is not None and not self._in_time:
            self._findings.note(
                self._frozen,
                "no registration is recorded: the ledger alone cannot show to somebody who does "
                "not trust its clock that the freeze came before the first response",
            )
        return self._findings.verdict(
            applicable=self._in_time > 0,
            registrations=self._registered,
            anchors=self._anchors,
            anchors_before_first_response=self._in_time,
        )
