"""Does every verdict of a transfer study rest on records of its own run?

Names runs and stages and never a verdict: audits stand in front of the inspection gate.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from projections.transfer.evidence import RunEvidence
from projections.transfer.remediation_receipts import missing_to_close
from projections.transfer.remediations import Remediations
from projections.transfer.scores import RunScore, TransferScores
from schemas.base import Event
from schemas.events.transfer import (
    CaseFinished,
    RemediationAbandoned,
    RemediationClosed,
    SessionClosed,
    SessionOpened,
    TransferScored,
)


class TransferAudit:
    """Scores every run again and looks at what the scores rest on."""

    NAME: ClassVar[str] = "transfer"
    QUESTION: ClassVar[str] = (
        "Does every verdict rest on records of its own run, was every session fresh and given the "
        "frozen prompt and fixture, was no unobserved stage called passed later, had every closed "
        "remediation its runs, and did none go on after its end?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        *TransferScores.FOLDS,
        *Remediations.FOLDS,
        TransferScored,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._scores = TransferScores(read)
        self._remediations = Remediations()
        self._fixtures: dict[tuple[str, str], str] = {}
        """Digest of the first state by suite version and unit."""
        self._unobserved: set[tuple[str, int, str]] = set()
        """(cell, attempt, stage) of every recorded scoring so far."""
        self._runs = self._verdicts = self._scorings = self._closed = self._abandoned = 0

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, TransferScored):
            self._scorings += 1
            problems = self._recorded(event)
        elif isinstance(event, Remediations.FOLDS):
            problems = self._of_remediation(fact)
        else:
            self._scores.apply(fact)
            problems = self._of_run(fact)
        for problem in problems:
            self._findings.violation(fact.seq, problem)

    def _of_run(self, fact: Fact) -> Iterator[str]:
        cell = fact.stream.removeprefix("cell/")
        run = self._scores.evidence.get(cell)
        if run is None:
            if fact.stream.startswith("cell/") and isinstance(fact.event, CaseFinished):
                yield f"{cell} is not a run of the frozen suite"
            return
        match fact.event:
            case SessionOpened(purpose="task") as opened:
                if self._read(opened.prompt) != run.case.prompt.encode():
                    yield f"{cell}: the first message is not the frozen prompt, byte for byte"
                key = run.suite.version, run.planned.unit
                if self._fixtures.setdefault(key, opened.fixture) != opened.fixture:
                    yield f"{cell}: the fixture began in another state than in other runs"
            case SessionClosed() as closed if closed.leaked:
                yield f"{cell}: a canary was seen outside of the memory; the session was not fresh"
            case CaseFinished():
                self._runs += 1
                score = self._scores.runs[cell]
                yield from self._evidence(score, run)

    def _of_remediation(self, fact: Fact) -> Iterator[str]:
        event = fact.event
        assert isinstance(event, Remediations.FOLDS)
        name = fact.stream.removeprefix("remediation/")
        before = self._remediations.remediations.get(name)
        if before is not None and before.ended_at >= 0:
            yield (
                f"remediation {name} went on after it was {before.status} (record "
                f"{before.ended_at})"
            )
        self._remediations.apply(fact)
        if isinstance(event, RemediationClosed):
            yield from self._closed_remediation(event)
        elif isinstance(event, RemediationAbandoned):
            self._abandoned += 1
            self._findings.note(
                fact.seq, f"remediation {event.remediation} was abandoned: {event.reason}"
            )

    def _closed_remediation(self, event: RemediationClosed) -> Iterator[str]:
        """What was missing when it was closed, asked again of the records until then."""
        remediation = self._remediations.remediations.get(event.remediation)
        if remediation is None or remediation.opened.cell not in self._scores.evidence:
            yield (
                f"remediation {event.remediation} was closed and never opened on a run of the suite"
            )
            return
        self._closed += 1
        for missing in missing_to_close(self._read, self._scores, remediation):
            yield f"remediation {event.remediation} was closed without {missing}"

    def _evidence(self, score: RunScore, run: RunEvidence) -> Iterator[str]:
        own = {recorded.seq for recorded in run.events}
        for stage, found in score.stages.items():
            if found.verdict in ("pass", "fail"):
                self._verdicts += 1
                if not found.evidence or not set(found.evidence) <= own:
                    yield f"{score.cell}: the verdict of {stage} does not rest on its own records"
                if found.grade == "none":
                    yield f"{score.cell}: the verdict of {stage} has evidence of no grade"
                if found.grade == "reported" and not run.reported_counts:
                    yield f"{score.cell}: the verdict of {stage} rests on the system's own word"
            if (found.verdict == "not_required") != (stage not in run.case.required):
                yield f"{score.cell}: {stage} is not required as the case says"

    def _recorded(self, event: TransferScored) -> Iterator[str]:
        try:
            runs = msgspec.json.decode(self._read(event.scores), type=list[RunScore])
        except msgspec.ValidationError as error:
            yield f"the recorded scores cannot be read: {error}"
            return
        for run in runs:
            known = self._scores.runs.get(run.cell)
            if known is None or run.finished > event.head:
                yield f"{run.cell} was scored before it had ended"
            elif known.attempt == run.attempt and known.finished != run.finished:
                yield f"{run.cell}: the recorded score is of other records"
            for stage, found in run.stages.items():
                key = run.cell, run.attempt, stage
                if found.verdict in ("pass", "fail") and not found.evidence:
                    yield f"{run.cell}: the recorded verdict of {stage} has no evidence"
                if found.verdict == "unobserved":
                    self._unobserved.add(key)
                elif found.verdict == "pass" and key in self._unobserved:
                    yield f"{run.cell}: {stage} was unobserved in an earlier scoring of this run"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._scores.suite is not None,
            runs=self._runs,
            verdicts=self._verdicts,
            scorings=self._scorings,
            closed_remediations=self._closed,
            abandoned_remediations=self._abandoned,
        )
