"""Is every byte of the ledger as it was written? The audit that reads bytes and not facts."""

from pathlib import Path

from ledger.errors import Unfinished
from ledger.verify.verification import verify
from projections.audits.finding import Findings, Verdict

NAME = "chain"
QUESTION = "Do chain, columns, artifacts and signed roots agree with the stored bytes?"


def audit_chain(directory: Path) -> Verdict:
    """``ledger verify-chain`` with its default demands, as an audit.

    A ledger that is whole but not anchored is no violation; the note says what is not proven.
    Raises Unfinished where not everything could be read, and what ``verify`` raises.
    """
    report = verify(directory)
    if report.status == "unfinished":
        raise Unfinished(f"the chain could not be verified to its end: {report.assurance}")
    findings = Findings(NAME)
    for found in report.findings:
        text = f"{found.code}: expected {found.expected}, got {found.got}"
        if found.severity == "violation":
            findings.violation(found.seq, text)
        else:
            findings.note(found.seq, text)
    findings.note(None, report.assurance)
    return findings.verdict(
        records=report.events, anchors=sum(anchor.counts for anchor in report.anchors)
    )
