"""Scores and counts of a transfer study as tables, behind the inspection gate."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from projections.fold import Row
from projections.transfer.counts import (
    ClassCount,
    FamilyResult,
    case_results,
    class_counts,
    family_results,
)
from projections.transfer.scores import RunScore, TransferScores


class _RunColumns(Row, rename={"class_": "class"}):
    """The columns that say which run a row is about."""

    cell: str
    family: str
    case_id: str
    kind: str
    class_: str
    memory: str
    driver: str
    trial: int
    distractors: int


class StageRow(_RunColumns):
    TABLE: ClassVar[str] = "transfer_scores"
    KEY: ClassVar[tuple[str, ...]] = ("cell", "number")
    number: int
    stage: str
    verdict: str
    grade: str
    evidence: str
    why: str


class RunRow(_RunColumns):
    TABLE: ClassVar[str] = "transfer_runs"
    KEY: ClassVar[tuple[str, ...]] = ("cell",)
    consequence: str
    attempt: int
    suite: str
    ended: str
    result: str
    behavioural: str
    earliest_failing: str
    uncertain: str
    decision: str | None
    resolution_called: int
    acted: int
    eligible: int
    delivered: int | None
    delivered_eligible: int | None
    prohibited: int
    claims: int
    unsupported_claims: int
    hit_decision: int | None
    hit_outcome: int | None
    boundary_failure: str
    notes: str


class CaseRow(Row, rename={"class_": "class"}):
    TABLE: ClassVar[str] = "transfer_cases"
    KEY: ClassVar[tuple[str, ...]] = ("memory", "driver", "family", "case_id", "distractors")
    memory: str
    driver: str
    family: str
    case_id: str
    kind: str
    class_: str
    distractors: int
    trials: int
    observed: int
    verified: int
    unverified: int
    failed: int
    result: str


class FamilyRow(Row, rename={"class_": "class"}):
    TABLE: ClassVar[str] = "transfer_families"
    KEY: ClassVar[tuple[str, ...]] = ("memory", "driver", "family", "distractors")
    memory: str
    driver: str
    family: str
    class_: str
    distractors: int
    result: str
    verified_cases: int
    cases: int
    hit_both: int
    hit_only_with: int
    hit_only_without: int
    hit_neither: int
    hit_unobserved: int
    non_discriminating: str


class CountRow(Row, rename={"class_": "class"}):
    TABLE: ClassVar[str] = "transfer_counts"
    KEY: ClassVar[tuple[str, ...]] = ("memory", "driver", "class", "count")
    memory: str
    driver: str
    class_: str
    count: str
    numerator: int
    denominator: int
    unobserved: int
    void: int
    runs_with: int | None


@dataclass
class TransferTables(TransferScores):
    """One row a stage, a run, a case, a family and a count; `docs/scoring.md` explains them."""

    NAME: ClassVar[str] = "transfer_scores"
    GUARDED: ClassVar[bool] = True
    TABLES: ClassVar[tuple[type[Row], ...]] = (
        StageRow,
        RunRow,
        CaseRow,
        FamilyRow,
        CountRow,
    )

    def rows(self) -> Iterator[Row]:
        runs = self.scores()
        for run in runs:
            yield from stage_rows(run)
        yield from map(run_row, runs)
        for case in case_results(runs, self.planned):
            yield CaseRow.of(case, case_id=case.case)
        if self.suite:
            yield from map(family_row, family_results(runs, self.planned, self.suite))
        yield from map(count_row, class_counts(runs))


def stage_rows(run: RunScore) -> Iterator[StageRow]:
    """Seven rows."""
    for number, (stage, found) in enumerate(run.stages.items(), start=1):
        yield StageRow.of(
            run,
            case_id=run.case,
            number=number,
            stage=stage,
            verdict=found.verdict,
            grade=found.grade,
            evidence=" ".join(map(str, found.evidence)),
            why=found.why,
        )


def run_row(run: RunScore) -> RunRow:
    return RunRow.of(
        run,
        case_id=run.case,
        earliest_failing=run.earliest or "",
        uncertain=" ".join(run.uncertain),
        prohibited=len(run.prohibited),
        claims=sum(claim.verdict != "not_judged" for claim in run.claims),
        unsupported_claims=len(run.unsupported),
        notes="; ".join(run.notes),
    )


def family_row(family: FamilyResult) -> FamilyRow:
    return FamilyRow.of(
        family,
        hit_both=family.paired.both,
        hit_only_with=family.paired.only_with,
        hit_only_without=family.paired.only_without,
        hit_neither=family.paired.neither,
        hit_unobserved=family.paired.unobserved,
    )


def count_row(count: ClassCount) -> CountRow:
    return CountRow.of(count, count=count.name, numerator=count.n, denominator=count.of)
