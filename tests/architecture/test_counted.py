"""Sentences count in one way: no "1 tasks"."""

import re
from pathlib import Path

import pytest

from schemas.counted import counted

ROOT = Path(__file__).parents[2]
BY_HAND = re.compile(
    r"""['"](?:|s|es|ies)['"] if [^\n]*(?:==|!=|>) 1\b|== 1 else ['"]s['"]|['"]s['"] \*"""
)


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "task", "1 task"),
        (0, "task", "0 tasks"),
        (2, "family", "2 families"),
        (1, "family", "1 family"),
        (3, "day", "3 days"),
    ],
)
def test_a_number_with_its_noun(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_no_sentence_makes_its_own_plural() -> None:
    paths = [
        path
        for package in ("actors", "harnesses", "ledger", "projections", "schemas")
        for path in (ROOT / package).rglob("*.py")
    ]
    assert len(paths) > 100
    found = [str(path) for path in paths if BY_HAND.search(path.read_text("utf-8"))]
    assert found == []
    assert BY_HAND.search("""f"{n} problem{'s' if n > 1 else ''}" """)
