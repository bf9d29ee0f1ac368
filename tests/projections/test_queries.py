"""What a statement may do, and what is known about it before it runs."""

from pathlib import Path

import pytest

from ledger.errors import Unfinished, Usage
from projections import store
from projections.queries import Answer, ask, guarded_tables_read, readable_tables
from projections.store import GUARDED_SCHEMA
from tests.projections.tiny_study import TinyStudy

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


def answer(
    study: TinyStudy, sql: str, outcomes: bool = False, max_rows: int = 100, seconds: float = 60.0
) -> Answer:
    with store.current(study.directory, study.log) as generation:
        return ask(generation, sql, outcomes, max_rows, seconds)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM cells",
        "select arm, sum(turns) over (partition by arm) from cells",
        "WITH outcomes AS (SELECT 1 AS resolved) SELECT * FROM outcomes",
        "SELECT 'outcomes' -- outcomes",
        "SELECT * FROM built_from, commits",
        "VALUES (1), (2)",
        f"SELECT count(*) FROM ({ENDLESS})",
    ],
)
def test_a_statement_about_progress_needs_no_gate(sql: str) -> None:
    assert guarded_tables_read(sql) == ()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM outcomes",
        "SELECT count(*) FROM outcomes",
        "SELECT 1 FROM OUTCOMES",
        f"SELECT rowid FROM {GUARDED_SCHEMA}.outcomes",
        "SELECT * FROM cells WHERE cell IN (SELECT cell FROM outcomes WHERE resolved)",
        "SELECT cells.cell FROM cells LEFT JOIN outcomes ON 0",
        "SELECT EXISTS (SELECT 1 FROM outcomes)",
        "WITH hidden AS (SELECT * FROM outcomes) SELECT 1 FROM hidden",
        'SELECT * FROM "outcomes" AS cells',
    ],
)
def test_a_statement_about_outcomes_is_known_before_it_runs(sql: str) -> None:
    assert guarded_tables_read(sql) == ("outcomes",)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("", "incomplete input"),
        ("SELEC", "syntax error"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT nonsense FROM cells", "no such column: nonsense"),
        ("SELECT * FROM nonsense", "no such table: nonsense"),
        ("SELECT \0", "null character"),
        ("SELECT '\ud800'", "surrogates"),
        ("DELETE FROM cells", "only one SELECT"),
        ("UPDATE cells SET turns = 0", "only one SELECT"),
        ("INSERT INTO cells (cell) VALUES ('x')", "only one SELECT"),
        ("CREATE TABLE x (y)", "only one SELECT"),
        ("CREATE TEMP VIEW x AS SELECT 1", "only one SELECT"),
        ("DROP TABLE cells", "only one SELECT"),
        ("PRAGMA writable_schema = 1", "only one SELECT"),
        ("ATTACH DATABASE 'outcomes.db' AS other", "only one SELECT"),
        ("DETACH DATABASE guarded", "only one SELECT"),
        ("BEGIN", "only one SELECT"),
        ("VACUUM", "only one SELECT"),
        ("VACUUM INTO 'copy.db'", "only one SELECT"),
        ("EXPLAIN SELECT 1", "syntax error"),
        ("SELECT * FROM sqlite_master", "sqlite_master cannot be read"),
        ("SELECT count(*) FROM SQLITE_SCHEMA", "SQLITE_SCHEMA cannot be read"),
        (f"SELECT * FROM {GUARDED_SCHEMA}.sqlite_schema", "cannot be read"),
        ("SELECT * FROM pragma_table_info('outcomes')", "only one SELECT"),
        ("SELECT load_extension('x')", "the function load_extension is not allowed"),
        ("SELECT randomblob(1000)", "the function randomblob is not allowed"),
        ("SELECT zeroblob(1000)", "the function zeroblob is not allowed"),
        ("SELECT fts3_tokenizer('simple')", "the function fts3_tokenizer is not allowed"),
    ],
)
def test_anything_else_is_a_usage_error_that_names_the_tables(sql: str, reason: str) -> None:
    with pytest.raises(Usage, match=reason) as raised:
        guarded_tables_read(sql)
    assert all(name in str(raised.value) for name in readable_tables())


@pytest.mark.parametrize(
    "sql", ["DELETE FROM cells", "VACUUM INTO 'copy.db'", "ATTACH 'x.db' AS x", "PRAGMA page_size"]
)
def test_nor_does_it_run_without_the_first_step(
    whole: TinyStudy, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Usage):
        answer(whole, sql)
    assert list(tmp_path.iterdir()) == []


def test_outcomes_are_not_there_before_the_gate(whole: TinyStudy) -> None:
    with pytest.raises(Usage, match="no such table: outcomes"):
        answer(whole, "SELECT * FROM outcomes")
    assert answer(whole, "SELECT resolved FROM outcomes", outcomes=True).rows == ((0,), (1,))


def test_rows_come_with_their_columns(whole: TinyStudy) -> None:
    found = answer(whole, "SELECT arm, arm, turns AS n FROM cells ORDER BY arm")
    assert found == Answer(
        ("arm", "arm_2", "n"), (("H000", "H000", 2), ("H018", "H018", 2)), complete=True
    )


def test_more_rows_than_asked_for_are_said(whole: TinyStudy) -> None:
    found = answer(whole, "SELECT commit_id FROM commits", max_rows=2)
    assert len(found.rows) == 2
    assert not found.complete
    assert answer(whole, "SELECT commit_id FROM commits", max_rows=3).complete


def test_a_query_that_does_not_end_is_stopped(whole: TinyStudy) -> None:
    assert len(answer(whole, ENDLESS, max_rows=5).rows) == 5
    with pytest.raises(Unfinished, match="took too long"):
        answer(whole, f"SELECT count(*) FROM ({ENDLESS})", seconds=0.01)


def test_a_value_that_would_fill_the_memory_is_refused(whole: TinyStudy) -> None:
    with pytest.raises(Usage, match="too big"):
        answer(whole, "SELECT replace(printf('%.1000000c', 'x'), 'x', printf('%.1000c', 'x'))")
