"""Whether an analysis still says how things are: what every hint asks, and what imports nothing of
the analyses themselves."""

from actors.loop import Context
from ledger.log import Fact, decode
from schemas.base import Event
from schemas.events import tags_of
from schemas.events.cell import CellFinished, CellVoided
from schemas.events.grading import CellGraded
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded
from schemas.events.transfer import CaseFinished, RemediationAbandoned, RemediationClosed

OUTDATES_AN_ANALYSIS: tuple[type[Event], ...] = (
    AmendmentRecorded,
    RunStarted,
    CellFinished,
    CellGraded,
    CellVoided,
    CaseFinished,
    RemediationClosed,
    RemediationAbandoned,
)
"""After one of these a report of an earlier analysis would say what is not so any more."""


def outdated_by(context: Context, head: int) -> Fact | None:
    """The first record behind ``head`` after which the analysis does not hold any more."""
    tags = {tag for event in OUTDATES_AN_ANALYSIS for tag in tags_of(event)}
    for stored in context.log.read(head + 1):
        if stored.envelope().type in tags:
            return decode(stored)
    return None
