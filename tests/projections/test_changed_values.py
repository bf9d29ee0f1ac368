"""An amendment says which values of study.toml it changed, from what to what."""

import msgspec
import pytest

from schemas.changed_values import SHOWN, changed_values
from schemas.study import Study
from schemas.study_file import parse_study
from tests.projections.tiny_study import STUDY_TOML

TRANSFER_TOML = """
format = 1
kind = "transfer"
id = "transfer"
title = "Do corrections hold?"
question = "Does a correction change what a system does?"
suite = { version = "1", families = ["review.yaml"] }
memories = [{ id = "notes", kind = "store" }, { id = "folder", kind = "folder" }]
drivers = [{ id = "reader", kind = "reader" }]
systems = [{ memory = "notes", driver = "reader" }, { memory = "folder", driver = "reader" }]
[[thresholds]]
id = "compliance"
count = "decision_compliance"
at_least = 0.9
"""


def said(before: str, old: str, new: str) -> list[str]:
    assert old in before
    after = parse_study(before.replace(old, new, 1).encode())
    return [str(change) for change in changed_values(parse_study(before.encode()), after)]


@pytest.mark.parametrize(
    ("toml", "old", "new", "expected"),
    [
        (STUDY_TOML, "format = 1", "# a word\nformat = 1", []),
        (
            STUDY_TOML,
            "[[models]]",
            "[analysis]\nalpha = 0.2\n\n[[models]]",
            ["analysis.alpha: 0.05 \u2192 0.2"],
        ),
        (
            TRANSFER_TOML,
            "at_least = 0.9",
            'at_most = 3\nclass = "boundary"',
            [
                "thresholds[compliance].at_least: 0.9 \u2192 absent",
                "thresholds[compliance].at_most: absent \u2192 3",
                'thresholds[compliance].class: "" \u2192 "boundary"',
            ],
        ),
        (
            TRANSFER_TOML,
            '{ memory = "notes", driver = "reader" }, { memory = "folder", driver = "reader" }',
            '{ memory = "folder", driver = "reader" }, { memory = "notes", driver = "reader" }',
            [
                'order of systems: ["notes/reader","folder/reader"] \u2192 '
                '["folder/reader","notes/reader"]'
            ],
        ),
        (
            TRANSFER_TOML,
            "[[thresholds]]",
            'readings = { "a word\\n" = "see http://me:pass@host/x?token=abc" }\n[[thresholds]]',
            ['readings."a word\\n": absent \u2192 "see http://[removed]@host/x?token=[removed]"'],
        ),
    ],
)
def test_every_changed_value_is_named_by_its_key(
    toml: str, old: str, new: str, expected: list[str]
) -> None:
    assert said(toml, old, new) == expected


def test_what_has_an_id_is_told_by_it_wherever_it_stands() -> None:
    old = '[{ id = "notes", kind = "store" },'
    new = '[{ id = "more", kind = "folder" }, { id = "notes", kind = "store", results = 3 },'
    system = '{ memory = "more", driver = "reader" }'
    toml = TRANSFER_TOML.replace("systems = [", f"systems = [{system}, ")
    before = parse_study(TRANSFER_TOML.encode())
    after = parse_study(toml.replace(old, new).encode())
    changes = changed_values(before, after)
    assert [change.key for change in changes] == [
        *("memories[more]", "memories[notes].results", "systems[more/reader]")
    ]
    assert (changes[0].then, changes[1].then, changes[1].now) == ("absent", "8", "3")


def test_long_values_are_cut_and_still_told_apart() -> None:
    start = "q" * SHOWN
    (change,) = changed_values(*(_asking(f"{start}{end}") for end in ("one", "two")))
    assert change.then != change.now
    assert all(
        f'"{"q" * (SHOWN - 1)}\u2026 (245 characters' in value
        for value in (change.then, change.now)
    )


def _asking(question: str) -> Study:
    return msgspec.structs.replace(parse_study(STUDY_TOML.encode()), question=question)
