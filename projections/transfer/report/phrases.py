"""Words and numbers that several parts of the report say alike."""

from collections.abc import Mapping, Sequence

from projections.report.numbers import NONE, NOT_ESTIMABLE, PERCENTAGES_FROM, interval, share
from projections.report.plain_text import listed
from projections.results import Share
from projections.transfer.counts import (
    OF_EVENTS,
    OF_RECORDS,
    ClassCount,
    Counted,
    ThresholdResult,
)
from projections.transfer.scores import RunScore
from schemas.counted import counted

CANNOT_SHOW = (
    "A system that does not show a stage can reach behavioural success there and never verified "
    "transfer success: what was not observed is not inferred from a good answer."
)

COUNT_NAMES: Mapping[Counted, str] = {
    "retrieval_recall": "retrieval recall (records)",
    "retrieval_precision": "retrieval precision (records)",
    "supersession_accuracy": "supersession accuracy",
    "abstention_accuracy": "abstention accuracy",
    "must_abstain": "of these: had to abstain, and did",
    "must_act": "of these: had to act, and did",
    "decision_compliance": "decision compliance",
    "action_compliance": "action compliance",
    "verified_outcome_success": "verified outcome success",
    "verified_transfer_success": "verified transfer success",
    "behavioural_success": "behavioural success",
    "unsupported_memory_claims": "unsupported memory claims (of claims)",
    "prohibited_actions": "prohibited actions (events / runs)",
}


SYMBOLS = {"verified": "verified", "unverified": "unverified", "failed": "failed", "void": "void"}


def count_of_class(count: ClassCount | None) -> str:
    if count is None:
        return NONE
    text = n_of(count)
    if count.of >= PERCENTAGES_FROM and count.name not in OF_EVENTS:
        text = share(Share(n=count.n, of=count.of)) + beside(count)
    if count.runs_with is not None:
        text += f", in {counted(count.runs_with, 'run')}"
    exact = count.zero_failures
    if exact is not None:
        bound = f"at least {exact[0]:.3f}" if exact[1] == 1.0 else f"at most {exact[1]:.3f}"
        return f"{text} [exact: {bound}]"
    if count.wilson is not None and count.name not in OF_RECORDS:
        return f"{text} [{interval(count.wilson).replace('+', '')}]"
    return text


def n_of(found: ClassCount | ThresholdResult) -> str:
    if found.of == 0:
        return f"{NOT_ESTIMABLE} (0/0){beside(found)}"
    return f"{found.n}/{found.of}{beside(found)}"


def beside(found: ClassCount | ThresholdResult) -> str:
    """`` (+2, +1 void)``: what was not observed, and void runs that the count would be about."""
    parts = [f"+{found.unobserved}"] if found.unobserved else []
    parts += [f"+{found.void} void"] if found.void else []
    return f" ({', '.join(parts)})" if parts else ""


def why(run: RunScore) -> str:
    parts = list(run.notes)
    if run.earliest is not None:
        parts.insert(0, run.stages[run.earliest].why)
    return "; ".join(parts)


def evidence(run: RunScore) -> str:
    """Records that the failure rests on."""
    seqs: Sequence[int] = [done.seq for done in run.prohibited]
    if not seqs and run.earliest is not None:
        seqs = run.stages[run.earliest].evidence
    return listed(seqs or [run.finished])
