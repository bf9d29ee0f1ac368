"""``ledger query``: answers, forms of output, and the gate in front of outcomes."""

import csv
import io
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.signing_keys import config_home
from projections import store
from schemas.commands import GradeCell
from schemas.events.study import OutcomesInspected
from tests.cli.conftest import Run, facts_of, inspections, record
from tests.projections.tiny_study import CELLS, TinyStudy, graded, of_type

ALL_OUTCOMES = "SELECT cell, resolved FROM outcomes"


def test_an_answer_is_a_table(ledger: Run, study: Path) -> None:
    ran = ledger("query", "SELECT arm, turns FROM cells ORDER BY arm", "--study", study)
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[:4] == ["arm   turns", "----  -----", "H000  2", "H018  2"]
    head = facts_of(study)[-1].seq
    assert lines[4] == f"2 rows, from records 0 to {head}"


def test_an_answer_as_json_names_the_head(ledger: Run, study: Path) -> None:
    ran = ledger("query", "SELECT cell, turns FROM cells", "--json", "--study", study)
    assert ran.status == 0
    assert ran.json["columns"] == ["cell", "turns"]
    assert ran.json["rows"][0] == {"cell": str(CELLS[0]), "turns": 2}
    assert ran.json["head"]["seq"] == facts_of(study)[-1].seq
    assert len(ran.json["head"]["leaf"]) == 64


def test_an_answer_as_csv(ledger: Run, study: Path) -> None:
    sql = "SELECT cell, 'a,\"b\"' AS text, x'00ff' AS bytes FROM cells"
    ran = ledger("query", sql, "--csv", "--study", study)
    assert ran.status == 0
    assert list(csv.reader(io.StringIO(ran.out))) == [
        ["cell", "text", "bytes"],
        [str(CELLS[0]), 'a,"b"', "AP8="],
        [str(CELLS[1]), 'a,"b"', "AP8="],
    ]


def test_control_characters_do_not_reach_the_terminal(ledger: Run, study: Path) -> None:
    ran = ledger("query", "SELECT char(27) || '[2J' AS text", "--study", study)
    assert "\\x1b[2J" in ran.out
    assert "\x1b" not in ran.out


def test_what_json_has_no_number_for(ledger: Run, study: Path) -> None:
    ran = ledger("query", "SELECT 9e999 AS a, NULL AS b", "--json", "--study", study)
    assert ran.json["rows"] == [{"a": "inf", "b": None}]


def test_tables_are_listed(ledger: Run) -> None:
    ran = ledger("query", "--tables", "--json")
    listed = {row["table"]: row for row in ran.json["tables"]}
    assert listed["cells"]["guarded"] is False
    assert listed["outcomes"]["guarded"] is True
    assert "resolved" in listed["outcomes"]["columns"]
    assert "outcomes (behind the inspection gate)" in ledger("query", "--tables").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SELECT * FROM nonsense"], "no such table: nonsense"),
        (["DROP TABLE cells"], "only one SELECT"),
        ([], "write a SELECT"),
        (["SELECT 1", "--json", "--csv"], "exclude each other"),
    ],
)
def test_a_bad_call_is_status_2(ledger: Run, study: Path, words: list[str], message: str) -> None:
    ran = ledger("query", *words, "--study", study)
    assert ran.status == 2
    assert message in ran.err
    assert ran.out == ""


def test_a_folder_without_a_study_is_status_2(ledger: Run, tmp_path: Path) -> None:
    assert ledger("query", "SELECT 1", "--study", tmp_path).status == 2


def test_a_cut_answer_is_status_5(ledger: Run, study: Path) -> None:
    ran = ledger("query", "SELECT cell FROM cells", "--max-rows", "1", "--json", "--study", study)
    assert ran.status == 5
    assert len(ran.json["rows"]) == 1
    assert "only the first 1 rows" in ran.err


def test_a_query_without_end_is_status_5(ledger: Run, study: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
    ran = ledger("query", endless, "--seconds", "0.01", "--study", study)
    assert ran.status == 5
    assert "took too long" in ran.err


# ---- the gate -----------------------------------------------------------------------------------


def test_outcomes_need_a_reason(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    for words in ([], ["--reason", ""], ["--reason", "  "]):
        ran = ledger("query", ALL_OUTCOMES, *words, "--study", study)
        assert ran.status == 1
        assert "--reason" in ran.err
        assert ran.out == ""
    assert facts_of(study) == before


def test_outcomes_are_shown_after_the_inspection_is_recorded(ledger: Run, study: Path) -> None:
    before = len(inspections(study))
    reason = "the planned table"
    ran = ledger("query", ALL_OUTCOMES, "--reason", reason, "--json", "--study", study)
    assert ran.status == 0
    assert [row["resolved"] for row in ran.json["rows"]] == [0, 1]
    assert "SIMULATED" in ran.err
    added = inspections(study)[before:]
    assert added == [OutcomesInspected(reason=reason, graded=2)]
    recorded = [f.seq for f in of_type(facts_of(study), OutcomesInspected)]
    assert recorded[-1] <= ran.json["head"]["seq"]


def test_a_reason_alone_records_nothing(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    assert ledger("query", "SELECT 1", "--reason", "no need", "--study", study).status == 0
    assert facts_of(study) == before


def test_outcomes_before_the_end_are_refused(ledger: Run, tmp_path: Path) -> None:
    def write(tiny: TinyStudy) -> None:
        tiny.mine()
        tiny.freeze()
        verdict = (CELLS[0].stream, graded(CELLS[0], True))
        tiny.do(GradeCell(cell=str(CELLS[0])), verdict)

    running = record(tmp_path / "running", write)
    ran = ledger("query", ALL_OUTCOMES, "--reason", "curious", "--study", running)
    assert ran.status == 1
    assert "grades at the end" in ran.err
    assert ran.out == ""
    assert inspections(running) == []


def test_a_statement_that_cannot_run_opens_no_gate(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    sql = "SELECT resolved, nonsense FROM outcomes"
    assert ledger("query", sql, "--reason", "a typing error", "--study", study).status == 2
    assert facts_of(study) == before


@pytest.mark.usefixtures("somebody_else")
def test_an_imported_ledger_is_not_written(ledger: Run, study: Path) -> None:
    (study / "var" / "imported").touch()
    before = facts_of(study)
    assert ledger("query", ALL_OUTCOMES, "--study", study).status == 1
    ran = ledger("query", ALL_OUTCOMES, "--reason", "an audit", "--study", study)
    assert ran.status == 0
    assert "the inspection is not recorded" in ran.err
    assert facts_of(study) == before


def without_checkpoints(study: Path) -> None:
    connection = sqlite3.connect(study / "var" / "ledger.db")
    with connection:
        connection.execute("DELETE FROM checkpoints")
    connection.close()
    (study / "var" / "checkpoints.log").unlink()


def without_memory(study: Path) -> None:
    """What this user's verifier remembers is forgotten; the checkpoints are still there."""
    for folder in ("ledgers", "last-seen"):
        shutil.rmtree(config_home() / folder, ignore_errors=True)


@pytest.mark.parametrize("cover", [None, without_memory, without_checkpoints])
def test_ones_own_study_is_not_looked_at_as_an_imported_one(
    ledger: Run, study: Path, cover: Callable[[Path], None] | None
) -> None:
    mark = study / "var" / "imported"
    assert ledger("verify-chain", "--study", study).status == 0
    if cover is not None:
        cover(study)
    mark.touch()
    for words in (
        ["query", ALL_OUTCOMES],
        ["analyze"],
        ["show", "analysis"],
        ["show", str(CELLS[0])],
    ):
        ran = ledger(*words, "--reason", "unseen", "--study", study)
        assert (ran.status, ran.out) == (1, ""), words
        assert "your own key has signed it" in ran.err and str(mark) in ran.err
    if cover is without_checkpoints:
        return
    mark.unlink()
    assert ledger("query", ALL_OUTCOMES, "--reason", "seen", "--study", study).status == 0
    assert inspections(study)[-1].reason == "seen"


@pytest.mark.usefixtures("somebody_else")
def test_an_imported_ledger_of_an_unfinished_study_shows_no_outcome(
    ledger: Run, running: Path
) -> None:
    (running / "var" / "imported").touch()
    ran = ledger("query", ALL_OUTCOMES, "--reason", "an audit", "--study", running)
    assert ran.status == 1
    assert ran.out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_ones_own_ledger_is_not_looked_at_unrecorded_when_it_cannot_be_written(
    ledger: Run, study: Path
) -> None:
    (study / "var" / "ledger.db").chmod(0o400)
    ran = ledger("query", ALL_OUTCOMES, "--reason", "unseen", "--study", study)
    assert (ran.status, ran.out) == (1, "")
    assert "writable" in ran.err


@pytest.mark.usefixtures("somebody_else")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_ledger_of_somebody_else_is_not_written(ledger: Run, study: Path) -> None:
    (study / "var" / "ledger.db").chmod(0o400)
    ran = ledger("query", ALL_OUTCOMES, "--reason", "an audit", "--study", study)
    assert ran.status == 0
    assert "the inspection is not recorded" in ran.err


def test_an_edited_table_is_never_shown(ledger: Run, study: Path) -> None:
    """Only `replay --check` compared it; now its bytes are, before anything of it is shown."""
    count = "SELECT count(*) AS n FROM cells WHERE turns = 9"
    assert ledger("query", count, "--json", "--study", study).json["rows"] == [{"n": 0}]
    folder = study / "var" / "projections"
    generation = folder / (folder / "current").read_text().split()[0]
    connection = sqlite3.connect(generation / store.OPEN)
    connection.execute("UPDATE cells SET turns = 9")
    connection.commit()
    connection.close()
    assert ledger("query", count, "--json", "--study", study).json["rows"] == [{"n": 0}]
    assert (folder / "current").read_text().split()[0] != generation.name
