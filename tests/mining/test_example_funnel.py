"""The example repository's history, judged by hand when it was written, mined here."""

import json
from pathlib import Path

from actors.mining.criteria import EXECUTED_CRITERIA
from actors.mining.walk import mine
from actors.rehearsal.example_repository import create
from schemas.repair.study import Layout, Platform, Repository, TaskRules

VERDICTS = Path(__file__).parents[1] / "rehearsal" / "example_repository_verdicts.json"


def test_every_commit_gets_the_verdict_that_it_was_written_for(tmp_path: Path) -> None:
    expected = {row["commit"]: row["expected"] for row in json.loads(VERDICTS.read_bytes())}
    head = create(tmp_path / "example")
    repository = Repository(
        id="E001", url="example", head=head, language="python", layout=Layout(test_roots=("tests",))
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
