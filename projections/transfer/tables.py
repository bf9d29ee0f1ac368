"""Scores and counts of a transfer study as tables, behind the inspection gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from projections.fold import Row, Table
from projections.transfer.counts import (
    CaseResult,
    ClassCount,
    FamilyResult,
    case_results,
    class_counts,
    family_results,
)
from projections.transfer.scores import RunScore, TransferScores


@dataclass
class TransferTables(TransferScores):
    """One row a stage, a run, a case, a family and a count; `docs/scoring.md` explains them."""

    NAME: ClassVar[str] = "transfer_scores"
    GUARDED: ClassVar[bool] = True
    TABLES: ClassVar[Mapping[str, Table]] = {
        "transfer_scores": Table(
            key=("cell", "number"),
            columns={
                "cell": str,
                "family": str,
                "case_id": str,
                "kind": str,
                "class": str,
                "memory": str,
                "driver": str,
                "trial": int,
                "distractors": int,
                "number": int,
                "stage": str,
                "verdict": str,
                "grade": str,
                "evidence": str,
                "why": str,
            },
        ),
        "transfer_runs": Table(
            key=("cell",),
            columns={
                "cell": str,
                "family": str,
                "case_id": str,
                "kind": str,
                "class": str,
                "memory": str,
                "driver": str,
                "trial": int,
                "distractors": int,
                "consequence": str,
                "attempt": int,
                "suite": str,
                "ended": str,
                "result": str,
                "behavioural": str,
                "earliest_failing": str,
                "uncertain": str,
                "decision": str | None,
                "resolution_called": int,
                "acted": int,
                "eligible": int,
                "delivered": int | None,
                "delivered_eligible": int | None,
                "prohibited": int,
                "claims": int,
                "unsupported_claims": int,
                "hit_decision": int | None,
                "hit_outcome": int | None,
                "boundary_failure": str,
                "notes": str,
            },
        ),
        "transfer_cases": Table(
            key=("memory", "driver", "family", "case_id", "distractors"),
            columns={
                "memory": str,
                "driver": str,
                "family": str,
                "case_id": str,
                "kind": str,
                "class": str,
                "distractors": int,
                "trials": int,
                "observed": int,
                "verified": int,
                "unverified": int,
                "failed": int,
                "result": str,
            },
        ),
        "transfer_families": Table(
            key=("memory", "driver", "family", "distractors"),
            columns={
                "memory": str,
                "driver": str,
                "family": str,
                "class": str,
                "distractors": int,
                "result": str,
                "verified_cases": int,
                "cases": int,
                "hit_both": int,
                "hit_only_with": int,
                "hit_only_without": int,
                "hit_neither": int,
                "hit_unobserved": int,
                "non_discriminating": str,
            },
        ),
        "transfer_counts": Table(
            key=("memory", "driver", "class", "count"),
            columns={
                "memory": str,
                "driver": str,
                "class": str,
                "count": str,
                "numerator": int,
                "denominator": int,
                "unobserved": int,
                "void": int,
                "runs_with": int | None,
            },
        ),
    }

    def tables(self) -> Mapping[str, Sequence[Row]]:
        runs = self.scores()
        families = family_results(runs, self.planned, self.suite) if self.suite else []
        return {
            "transfer_scores": [row for run in runs for row in stage_rows(run)],
            "transfer_runs": [run_row(run) for run in runs],
            "transfer_cases": [case_row(case) for case in case_results(runs, self.planned)],
            "transfer_families": [family_row(family) for family in families],
            "transfer_counts": [count_row(count) for count in class_counts(runs)],
        }


def stage_rows(run: RunScore) -> list[dict[str, Any]]:
    """Seven rows of ``transfer_scores``."""
    return [
        {
            **_where(run),
            "number": number,
            "stage": stage,
            "verdict": found.verdict,
            "grade": found.grade,
            "evidence": " ".join(map(str, found.evidence)),
            "why": found.why,
        }
        for number, (stage, found) in enumerate(run.stages.items(), start=1)
    ]


def run_row(run: RunScore) -> dict[str, Any]:
    """One row of ``transfer_runs``."""
    return {
        **_where(run),
        "consequence": run.consequence,
        "attempt": run.attempt,
        "suite": run.suite,
        "ended": run.ended,
        "result": run.result,
        "behavioural": run.behavioural,
        "earliest_failing": run.earliest or "",
        "uncertain": " ".join(run.uncertain),
        "decision": run.decision,
        "resolution_called": int(run.resolution_called),
        "acted": int(run.acted),
        "eligible": run.eligible,
        "delivered": run.delivered,
        "delivered_eligible": run.delivered_eligible,
        "prohibited": len(run.prohibited),
        "claims": sum(claim.verdict != "not_judged" for claim in run.claims),
        "unsupported_claims": len(run.unsupported),
        "hit_decision": _flag(run.hit_decision),
        "hit_outcome": _flag(run.hit_outcome),
        "boundary_failure": run.boundary_failure,
        "notes": "; ".join(run.notes),
    }


def case_row(case: CaseResult) -> dict[str, Any]:
    """One row of ``transfer_cases``."""
    return {
        "memory": case.memory,
        "driver": case.driver,
        "family": case.family,
        "case_id": case.case,
        "kind": case.kind,
        "class": case.class_,
        "distractors": case.distractors,
        "trials": case.trials,
        "observed": case.observed,
        "verified": case.verified,
        "unverified": case.unverified,
        "failed": case.failed,
        "result": case.result,
    }


def family_row(family: FamilyResult) -> dict[str, Any]:
    """One row of ``transfer_families``."""
    return {
        "memory": family.memory,
        "driver": family.driver,
        "family": family.family,
        "class": family.class_,
        "distractors": family.distractors,
        "result": family.result,
        "verified_cases": family.verified_cases,
        "cases": family.cases,
        "hit_both": family.paired.both,
        "hit_only_with": family.paired.only_with,
        "hit_only_without": family.paired.only_without,
        "hit_neither": family.paired.neither,
        "hit_unobserved": family.paired.unobserved,
        "non_discriminating": family.non_discriminating,
    }


def count_row(count: ClassCount) -> dict[str, Any]:
    """One row of ``transfer_counts``."""
    return {
        "memory": count.memory,
        "driver": count.driver,
        "class": count.class_,
        "count": count.name,
        "numerator": count.n,
        "denominator": count.of,
        "unobserved": count.unobserved,
        "void": count.void,
        "runs_with": count.runs_with,
    }


def _where(run: RunScore) -> dict[str, Any]:
    return {
        "cell": run.cell,
        "family": run.family,
        "case_id": run.case,
        "kind": run.kind,
        "class": run.class_,
        "memory": run.memory,
        "driver": run.driver,
        "trial": run.trial,
        "distractors": run.distractors,
    }


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)
