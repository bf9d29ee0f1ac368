"""Corrections as the ledger knows them at a position: records, transitions, disputes.

Bitemporal: *when something was recorded* is the position in the log, *when it holds* is in the
records (``valid_from``, ``expires_at``). Fold up to a position (:func:`corrections_at`) to see what
was known then; a record that came later, whatever its ``valid_from``, is not in it and cannot
change what a finished run is judged by.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from ledger.log import Fact
from projections.fold import Row, fold
from schemas.base import Event
from schemas.events.correction import (
    CorrectionApproved,
    CorrectionDisputed,
    CorrectionExpired,
    CorrectionProposed,
    CorrectionSuperseded,
    CorrectionWithdrawn,
    DisputeResolved,
)
from schemas.transfer.lifecycle import Standing


class CorrectionRow(Row, rename={"class_": "class"}):
    TABLE: ClassVar[str] = "corrections"
    KEY: ClassVar[tuple[str, ...]] = ("correction_id",)
    correction_id: str
    class_: str
    state: str
    consequence: str
    valid_from: str
    ends: str | None
    supersedes: str | None
    proposer: str
    approver: str | None
    condition: str
    seq: int


class TransitionRow(Row):
    TABLE: ClassVar[str] = "correction_transitions"
    KEY: ClassVar[tuple[str, ...]] = ("seq",)
    seq: int
    at: str
    correction_id: str
    transition: str
    by: str
    other: str
    reason: str


@dataclass
class Corrections:
    NAME: ClassVar[str] = "corrections"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        CorrectionProposed,
        CorrectionApproved,
        CorrectionSuperseded,
        CorrectionExpired,
        CorrectionDisputed,
        DisputeResolved,
        CorrectionWithdrawn,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (
        CorrectionRow,
        TransitionRow,
    )

    standings: dict[str, Standing] = field(default_factory=dict)
    proposers: dict[str, str] = field(default_factory=dict)
    approvers: dict[str, str] = field(default_factory=dict)
    recorded_at: dict[str, int] = field(default_factory=dict)
    """Correction id → seq at which it was proposed."""
    transitions: list[TransitionRow] = field(default_factory=list)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case CorrectionProposed():
                name = event.record.correction_id
                self.standings[name] = Standing(record=event.record, state="proposed")
                self.proposers[name] = event.proposer
                self.recorded_at[name] = fact.seq
                self._note(fact, name, "proposed", by=event.proposer)
            case CorrectionApproved():
                name = event.correction_id
                self._change(
                    name,
                    state="approved",
                    condition=event.condition,
                    keep_residual_scope=event.keep_residual_scope,
                )
                self.approvers[name] = event.approver
                self._note(fact, name, "approved", by=event.approver, reason=event.condition)
            case CorrectionSuperseded():
                self._add(event.correction_id, "superseded_by", event.by)
                self._note(
                    fact,
                    event.correction_id,
                    "superseded",
                    by=event.approver,
                    other=event.by,
                    reason=event.reason,
                )
            case CorrectionExpired():
                self._change(event.correction_id, ended=event.at)
                self._note(
                    fact,
                    event.correction_id,
                    "expired",
                    by=event.approver,
                    other=event.at,
                    reason=event.reason,
                )
            case CorrectionDisputed():
                self._add(event.correction_id, "disputed_with", event.against)
                self._add(event.against, "disputed_with", event.correction_id)
                self._note(
                    fact, event.correction_id, "disputed", other=event.against, reason=event.reason
                )
            case DisputeResolved():
                for loser in event.losers:
                    self._settle(event.winner, loser)
                    self._add(loser, "superseded_by", event.winner)
                # The same decision stands in the stream of each of its records.
                name = fact.stream.removeprefix("correction/")
                self._note(
                    fact,
                    name,
                    "won" if name == event.winner else "lost",
                    by=event.approver,
                    other=", ".join(event.losers) if name == event.winner else event.winner,
                    reason=event.reason,
                )
            case CorrectionWithdrawn():
                self._change(event.correction_id, state="withdrawn")
                self._note(
                    fact, event.correction_id, "withdrawn", by=event.approver, reason=event.reason
                )

    def correction_rows(self) -> list[CorrectionRow]:
        return [
            CorrectionRow(
                correction_id=name,
                class_=standing.record.class_,
                state=standing.state,
                consequence=standing.record.consequence,
                valid_from=standing.record.valid_from,
                ends=standing.end(),
                supersedes=standing.record.supersedes,
                proposer=self.proposers[name],
                approver=self.approvers.get(name),
                condition=standing.condition,
                seq=self.recorded_at[name],
            )
            for name, standing in sorted(self.standings.items())
        ]

    def rows(self) -> Iterator[Row]:
        yield from self.correction_rows()
        yield from self.transitions

    def _change(self, name: str, **fields: Any) -> None:
        self.standings[name] = msgspec.structs.replace(self.standings[name], **fields)

    def _add(self, name: str, which: str, other: str) -> None:
        names = getattr(self.standings[name], which)
        if other not in names:
            self._change(name, **{which: (*names, other)})

    def _settle(self, winner: str, loser: str) -> None:
        for name, other in ((winner, loser), (loser, winner)):
            still_open = tuple(n for n in self.standings[name].disputed_with if n != other)
            self._change(name, disputed_with=still_open)
            self._add(name, "settled_with", other)

    def _note(
        self,
        fact: Fact,
        name: str,
        transition: str,
        by: str = "",
        other: str = "",
        reason: str = "",
    ) -> None:
        self.transitions.append(
            TransitionRow(
                seq=fact.seq,
                at=fact.at,
                correction_id=name,
                transition=transition,
                by=by,
                other=other,
                reason=reason,
            )
        )


def corrections_at(facts: Iterable[Fact], position: int | None = None) -> Corrections:
    """What was known when the record ``position`` was the last; None: all that is."""
    return fold(Corrections(), (fact for fact in facts if position is None or fact.seq <= position))
