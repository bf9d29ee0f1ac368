"""A family with a record that may not persist, and a conditional one: the full policy with the
rule-based reader does what they expect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.families.load import load_family
from actors.families.review import review_suite
from schemas.events.transfer import StoreSnapshotted
from schemas.transfer.family import Family
from tests.transfer.test_systems_on_given_families import reaches_expectation

EXAMPLES = Path(__file__).parents[2] / "actors" / "families" / "examples"
MORE = sorted(EXAMPLES.glob("F10[78].yaml"))
GIVEN = sorted(
    (Path(__file__).parents[2] / "actors" / "families" / "examples").glob("F10[1-6].yaml")
)


def families(paths: list[Path]) -> list[Family]:
    return [load_family(path.read_bytes(), path.name) for path in paths]


def test_they_pass_the_review_without_a_waiver_beside_the_given_ones() -> None:
    found = review_suite(families([*GIVEN, *MORE]))
    assert [str(problem) for problems in found.values() for problem in problems] == []
    assert len(found) == 9


@pytest.mark.parametrize("path", MORE, ids=lambda path: path.stem)
def test_the_full_policy_with_the_reader_reaches_every_expectation(
    laboratory: Callable[..., Any], path: Path
) -> None:
    [family] = families([path])
    lab = laboratory([family])
    missed = [
        case.case_id
        for case in family.cases
        if case.kind != "baseline"
        and not reaches_expectation(lab, case, family, lab.run(f"{case.case_id}.d0/full/reader/0"))
    ]
    assert missed == []


def test_what_may_not_persist_is_in_no_store_afterwards(laboratory: Callable[..., Any]) -> None:
    [family] = families([path for path in MORE if path.stem == "F107"])
    [case] = [case for case in family.cases if case.kind == "persistence_negative"]
    lab = laboratory([family])
    events = lab.run(f"{case.case_id}.d0/full/reader/0")
    snapshots = [event for event in events if isinstance(event, StoreSnapshotted)]
    assert {event.when for event in snapshots} >= {"after_write", "after_session"}
    texts = [str(lab.read(event.items)) for event in snapshots if event.items]
    assert texts and not any("annex" in text for text in texts)
