"""The example repositories' histories, judged by hand when they were written, mined here."""

import json
from pathlib import Path
from typing import Literal

import pytest

from actors.mining.criteria import EXECUTED_CRITERIA
from actors.mining.walk import mine
from actors.rehearsal.example_repository import create
from schemas.repair.study import Layout, Platform, Repository, TaskRules

REHEARSAL = Path(__file__).parents[1] / "rehearsal"


@pytest.mark.parametrize(
    ("language", "verdicts", "test_roots"),
    [
        ("python", "example_repository_verdicts.json", ("tests",)),
        ("go", "example_repository_go_verdicts.json", ()),
    ],
)
def test_every_commit_gets_the_verdict_that_it_was_written_for(
    language: Literal["python", "go"], verdicts: str, test_roots: tuple[str, ...], tmp_path: Path
) -> None:
    rows = json.loads((REHEARSAL / verdicts).read_bytes())
    expected = {row["commit"]: row["expected"] for row in rows}
    head = create(tmp_path / "example", language)
    repository = Repository(
        id="E001",
        url="example",
        head=head,
        language=language,
        layout=Layout(test_roots=test_roots),
    )
    mined = mine(tmp_path / "example", repository, TaskRules(), Platform(), {})
    static = {
        commit: "" if verdict in ("valid", *EXECUTED_CRITERIA) else verdict
        for commit, verdict in expected.items()
    }
    assert {row.commit: row.criterion for row in mined.rows} == static
    assert all(
        not candidate.statement.leaks
        for candidate in mined.candidates
        if expected[candidate.commit] != "statement_leaks"
    )
