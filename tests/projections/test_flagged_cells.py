"""Flags of the grader reach who reads the table: they decide nothing, so they must be seen."""

import msgspec

from projections.fold import columns_of, fold
from projections.repair.outcomes import OutcomeRow, Outcomes
from projections.repair.results import AnalysedCell
from schemas.events.grading import CellGraded
from tests.projections.tiny_study import TinyStudy


def test_flags_stand_beside_the_outcome(whole: TinyStudy) -> None:
    facts = []
    for fact in whole.facts():
        if isinstance(fact.event, CellGraded):
            flags = ("canary did not fail", "frames") if fact.event.resolved else ()
            fact = msgspec.structs.replace(
                fact, event=msgspec.structs.replace(fact.event, flagged=flags)
            )
        facts.append(fact)
    rows = fold(Outcomes(whole.artifacts.get), facts).rows()
    assert {(row.resolved, row.flagged) for row in rows} >= {
        (1, "canary did not fail; frames"),
        (0, ""),
    }


def test_what_the_table_counts_is_what_an_analysis_keeps() -> None:
    kept = {field.name for field in msgspec.structs.fields(AnalysedCell)}
    assert kept - {"status"} == set(columns_of(OutcomeRow))
