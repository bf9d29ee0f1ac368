"""Runs audits over a log: one pass for all of them, and an answer from each in every case."""

from collections.abc import Sequence

from ledger.errors import Integrity
from ledger.log import EventLog, decode
from projections.audits.finding import Findings, Verdict
from projections.audits.registry import AUDITS
from projections.fold import ReadArtifact
from schemas.events import EVENT_TYPES


def run_audits(log: EventLog, read: ReadArtifact, names: Sequence[str]) -> list[Verdict]:
    """Verdicts of the named audits, in the order of the registry.

    A record or an artifact that cannot be read violates the audits that need it: a question that
    could not be answered is not answered with yes. Types of another version are passed over.
    """
    audits = {audit.NAME: make(read) for audit, make in AUDITS.items() if audit.NAME in names}
    failed: dict[str, Verdict] = {}
    try:
        for stored in log.read():
            if stored.envelope().type not in EVENT_TYPES:
                continue
            fact = decode(stored)
            for name, audit in audits.items():
                if name not in failed and isinstance(fact.event, audit.FOLDS):
                    try:
                        audit.apply(fact)
                    except Integrity as error:
                        failed[name] = _unanswered(name, fact.seq, error)
    except Integrity as error:  # of the log itself: no audit saw all of it
        for name in audits.keys() - failed.keys():
            failed[name] = _unanswered(name, None, error)
    return [failed.get(name) or audit.verdict() for name, audit in audits.items()]


def _unanswered(name: str, seq: int | None, error: Integrity) -> Verdict:
    findings = Findings(name)
    findings.violation(seq, f"cannot be answered: {error}")
    return findings.verdict()
