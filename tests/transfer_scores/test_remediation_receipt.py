"""What counts as a remediation's receipt: new runs of the same prompt, fixture and predicate."""

from typing import Any

import msgspec
import pytest

from actors.transfer.remediation import rerun_units
from ledger.errors import Refused
from projections.fold import fold
from projections.transfer.remediation_receipts import missing_to_close
from projections.transfer.remediations import Remediation, Remediations
from projections.transfer.scores import TransferScores
from schemas.events.transfer import RemediationChanged, RemediationOpened, RemediationRerun
from schemas.transfer.family import Expected, Family, FrozenSuite, PlannedCase
from tests.transfer_scores.transfer_story import FAMILY, Story

READS_NOTHING: Any = None  # what is unattributed compares no manifests


def opened(cell: str) -> RemediationOpened:
    return RemediationOpened(
        remediation="R", cell=cell, stage="decision", layer="unknown", manifest={}
    )


def changed() -> RemediationChanged:
    return RemediationChanged(
        remediation="R",
        layer="unknown",
        before={},
        after={},
        attributed=False,
        new_memory="empty",
        new_driver="reader",
    )


def missing(family: Family, **knobs: Any) -> list[str]:
    """What is missing after one rerun under ``family`` of a run that failed under FAMILY."""
    story = Story()
    failing = story.run("positive", decisions=["queue"])
    remediation = Remediation(opened(failing), len(story.facts), changed(), len(story.facts))
    story.family = family
    story.freeze()
    cell = story.run("positive", memory="empty", **knobs)
    remediation.rerun = RemediationRerun(remediation="R", cells=(cell,), sample_seed="s")
    return list(
        missing_to_close(READS_NOTHING, fold(TransferScores(story.read), story.facts), remediation)
    )


def with_case(**changes: Any) -> Family:
    first, *others = FAMILY.cases
    return msgspec.structs.replace(
        FAMILY, cases=(msgspec.structs.replace(first, **changes), *others)
    )


OTHER_STATE = {**FAMILY.fixture.state, "asked": ["before"]}
CELL = "positive.d1/empty/reader/0"


@pytest.mark.parametrize(
    ("family", "knobs", "expected"),
    [
        (FAMILY, {}, []),
        (FAMILY, {"ended": "void"}, [f"the run {CELL} (`ledger run`)"]),
        (
            with_case(prompt="Write alder's report."),
            {},
            [f"{CELL} with unchanged prompt"],
        ),
        (
            msgspec.structs.replace(
                FAMILY, fixture=msgspec.structs.replace(FAMILY.fixture, state=OTHER_STATE)
            ),
            {},
            [f"{CELL} with unchanged fixture"],
        ),
        (
            with_case(expected=Expected(abstain=False, decision_accept=("queue",))),
            {},
            [f"{CELL} with unchanged predicate"],
        ),
        (with_case(prohibited=()), {}, [f"{CELL} with unchanged predicate"]),
    ],
)
def test_what_is_missing(family: Family, knobs: dict[str, Any], expected: list[str]) -> None:
    assert missing(family, **knobs) == expected


def test_a_run_before_the_change_shows_nothing() -> None:
    story = Story()
    failing = story.run("positive", decisions=["queue"])
    cell = story.run("positive", memory="empty")
    remediation = Remediation(opened(failing), 3, changed(), len(story.facts))
    remediation.rerun = RemediationRerun(remediation="R", cells=(cell,), sample_seed="s")
    scores = fold(TransferScores(story.read), story.facts)
    (text,) = missing_to_close(READS_NOTHING, scores, remediation)
    assert text.startswith(f"a run of {cell} after the change")


def test_steps_that_were_left_out() -> None:
    scores = TransferScores(Story().read)
    remediation = Remediation(opened("x"), 3)
    assert list(missing_to_close(READS_NOTHING, scores, remediation)) == [
        "the change (`ledger transfer remediation change`)"
    ]
    remediation.changed = changed()
    assert list(missing_to_close(READS_NOTHING, scores, remediation)) == [
        "the choice of runs (`ledger transfer remediation rerun`)"
    ]


def test_the_sample_is_of_other_classes_and_the_same_every_time() -> None:
    story = Story()
    cell = story.run("positive", decisions=["queue"])
    score = fold(TransferScores(story.read), story.facts).runs[cell]
    records = tuple(msgspec.structs.replace(r, class_="preference") for r in FAMILY.records)
    other = msgspec.structs.replace(FAMILY, family_id="OTHER", records=records)
    units = tuple(
        PlannedCase(
            unit=f"{family.family_id}-{case.case_id}.d{number}",
            family_id=family.family_id,
            case_id=case.case_id,
            distractors=number,
        )
        for family in (FAMILY, other)
        for case in family.cases
        for number in (1, 50)
    )
    suite = FrozenSuite(suite_id="s", version="1", families=(FAMILY, other), units=units)
    chosen, stream = rerun_units(suite, score, "R", 3)
    assert chosen[:4] == [
        "ALDER-positive.d1",
        "ALDER-negative.d1",
        "ALDER-supersession.d1",
        "ALDER-expiry.d1",
    ]
    assert len(chosen) == 7
    assert all(unit.startswith("OTHER") and unit.endswith(".d1") for unit in chosen[4:])
    assert "OTHER-baseline.d1" not in chosen
    assert rerun_units(suite, score, "R", 3) == (chosen, stream)
    assert rerun_units(suite, score, "R2", 3)[0] != chosen
    with pytest.raises(Refused, match="8 cases of other classes"):
        rerun_units(suite, score, "R", 9)


def test_a_second_opening_under_a_name_is_not_folded() -> None:
    story = Story()
    story.add("remediation/R", opened("first"))
    story.add("remediation/R", opened("second"))
    story.add("remediation/unknown", RemediationRerun(remediation="Q", cells=(), sample_seed=""))
    remediations = fold(Remediations(), story.facts).remediations
    assert [(name, remediation.opened.cell) for name, remediation in remediations.items()] == [
        ("R", "first")
    ]
