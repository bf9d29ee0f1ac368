"""Projections on disk: whole or not there, made again when needed, compared with a replay."""

import os
import shutil
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.errors import Integrity, Unfinished
from ledger.memory_log import MemoryLog
from projections import store
from projections.store import Generation
from schemas.base import ArtifactRef
from schemas.events.study import OutcomesInspected
from schemas.identifiers import STUDY_STREAM
from tests.projections.tiny_study import TinyStudy


@pytest.fixture
def study(tiny: TinyStudy) -> TinyStudy:
    tiny.write_everything()
    return tiny


def inspect(study: TinyStudy) -> None:
    """One more record, which a table shows."""
    study.append(STUDY_STREAM, OutcomesInspected(reason="again", graded=2))


def make(study: TinyStudy) -> Path:
    with store.current(study.directory, study.log) as generation:
        return generation.path


def rows(generation: Generation, query: str, outcomes: bool = False) -> list[tuple[object, ...]]:
    connection = generation.connect(outcomes)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def tamper(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.close()


# ---- making --------------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_folds(study: TinyStudy) -> None:
    with store.current(study.directory, study.log) as generation:
        assert rows(generation, "SELECT cell, status, turns FROM cells") == [
            ("R001-001/H000/M002/0", "graded", 2),
            ("R001-001/H018/M002/0", "graded", 2),
        ]
        assert rows(generation, "SELECT cell, resolved FROM outcomes", outcomes=True) == [
            ("R001-001/H000/M002/0", 0),
            ("R001-001/H018/M002/0", 1),
        ]
        head = study.log.head()
        assert head is not None
        expected = (head.seq, head.leaf.hex(), store.source_digest())
        assert rows(generation, "SELECT * FROM main.built_from") == [expected]
        assert rows(generation, "SELECT * FROM guarded.built_from", outcomes=True) == [expected]


def test_outcomes_lie_in_a_file_of_their_own(study: TinyStudy) -> None:
    with (
        store.current(study.directory, study.log) as generation,
        pytest.raises(sqlite3.OperationalError, match="no such table: outcomes"),
    ):
        rows(generation, "SELECT * FROM outcomes")


def test_only_the_owner_can_read_the_files(study: TinyStudy) -> None:
    path = make(study)
    assert [stat.S_IMODE((path / name).stat().st_mode) for name in ("open.db", "outcomes.db")] == [
        0o600,
        0o600,
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_nobody_can_write_through_a_generation(study: TinyStudy) -> None:
    with store.current(study.directory, study.log) as generation:
        for statement in ("DELETE FROM cells", "DELETE FROM guarded.outcomes"):
            connection = generation.connect(outcomes=True)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute(statement)
            connection.close()


def test_an_empty_log_gives_empty_tables(tiny: TinyStudy) -> None:
    with store.current(tiny.directory, tiny.log) as generation:
        assert generation.built_from.seq == -1
        assert {table.rows for table in store.digests(generation)} == {0}


def test_the_same_records_give_the_same_bytes(study: TinyStudy, tmp_path: Path) -> None:
    first = make(study)
    contents = [(first / name).read_bytes() for name in (store.OPEN, store.OUTCOMES)]
    with store.rebuild(study.directory, study.log) as again:
        assert again.path != first
        assert [
            (again.path / name).read_bytes() for name in (store.OPEN, store.OUTCOMES)
        ] == contents


def test_progress_is_reported_up_to_the_end(study: TinyStudy) -> None:
    seen: list[tuple[int, int]] = []
    with store.rebuild(study.directory, study.log, lambda *numbers: seen.append(numbers)) as made:
        count = made.built_from.seq + 1
    assert seen == [(0, count), (count, count)]


# ---- switching -----------------------------------------------------------------------------------


def test_nothing_is_made_twice_for_one_head(study: TinyStudy) -> None:
    first = make(study)
    assert make(study) == first
    inspect(study)
    second = make(study)
    assert second != first
    assert second.name.endswith("-2")
    with store.current(study.directory, study.log) as generation:
        assert rows(generation, "SELECT count(*) FROM inspections") == [(2,)]


def test_changed_code_makes_them_again(study: TinyStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(study)
    monkeypatch.setattr(store, "source_digest", lambda: "f" * 64)
    second = make(study)
    assert second.name == f"{'f' * 16}-2"
    assert second != first
    with store.current(study.directory, study.log) as generation:
        assert generation.built_from.source == "f" * 64


def test_the_source_digest_is_over_what_decides_the_tables() -> None:
    assert store.source_digest() == store.source_digest()
    assert len(store.source_digest()) == 64


def test_the_generation_before_stays_and_older_ones_go(study: TinyStudy) -> None:
    made = []
    for _ in range(4):
        inspect(study)
        made.append(make(study))
    assert [path.exists() for path in made] == [False, False, True, True]


def test_a_generation_that_is_read_stays(study: TinyStudy) -> None:
    with store.current(study.directory, study.log) as held:
        for _ in range(3):
            inspect(study)
            make(study)
        assert held.path.exists()
        assert rows(held, "SELECT count(*) FROM inspections") == [(1,)]
    inspect(study)
    make(study)
    assert not held.path.exists()


def test_what_a_crash_left_behind_is_removed(study: TinyStudy) -> None:
    unfinished = study.directory.projections / ".unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "open.db").write_bytes(b"half")
    make(study)
    assert not unfinished.exists()


def test_a_failed_replay_leaves_the_live_ones(study: TinyStudy) -> None:
    live = make(study)
    inspect(study)
    for shard in study.directory.artifacts.iterdir():
        shutil.rmtree(shard)
    with pytest.raises(Integrity, match="missing"):
        make(study)
    names = sorted(path.name for path in study.directory.projections.iterdir())
    assert names == sorted([live.name, "current"])


@pytest.mark.parametrize("name", [store.OPEN, store.OUTCOMES])
def test_a_damaged_file_is_made_again(study: TinyStudy, name: str) -> None:
    first = make(study)
    (first / name).write_bytes(b"not a database")
    with store.current(study.directory, study.log) as generation:
        assert generation.path != first
        assert rows(generation, "SELECT count(*) FROM cells") == [(2,)]


def test_two_files_of_different_generations_are_made_again(study: TinyStudy) -> None:
    first = make(study)
    older = (first / store.OUTCOMES).read_bytes()
    inspect(study)
    second = make(study)
    (second / store.OUTCOMES).write_bytes(older)
    assert make(study) not in (first, second)


@pytest.mark.parametrize("pointer", ["", "../../elsewhere", "x" * 16 + "-1", "0" * 16 + "-7"])
def test_a_pointer_to_nothing_is_ignored(study: TinyStudy, pointer: str) -> None:
    make(study)
    (study.directory.projections / "current").write_text(pointer)
    assert make(study).name.endswith("-2")


def test_a_pointer_is_never_followed_through_a_link(study: TinyStudy, tmp_path: Path) -> None:
    first = make(study)
    elsewhere = tmp_path / "elsewhere"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    assert make(study) != first


def test_a_folder_that_cannot_be_made_says_what_to_do(study: TinyStudy) -> None:
    study.directory.projections.write_text("a file")
    with pytest.raises(Unfinished, match="copy the study to a folder of yours"):
        make(study)


def test_several_at_once_make_one_generation(study: TinyStudy) -> None:
    """Locks belong to open files, so threads stand for processes here."""
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: make(study), range(4)))
    assert len(paths) == 1
    assert [path.name for path in paths][0].endswith("-1")


# ---- comparing -----------------------------------------------------------------------------------


def test_a_replay_is_identical(study: TinyStudy) -> None:
    make(study)
    found = store.check(study.directory, study.log)
    assert not found.fresh
    assert found.differences == ()
    assert {table.table for table in found.tables} >= {"cells", "outcomes"}
    assert not (study.directory.projections / ".unfinished").exists()


def test_the_comparison_is_about_the_whole_log_also_where_the_live_ones_are_behind(
    study: TinyStudy,
) -> None:
    make(study)
    before = study.log.head()
    inspect(study)
    found = store.check(study.directory, study.log)
    head = study.log.head()
    assert before is not None and head is not None and before.seq < head.seq
    assert found.built_from.seq == head.seq
    assert found.differences == ()


def test_without_live_projections_two_replays_are_compared(study: TinyStudy) -> None:
    found = store.check(study.directory, study.log)
    assert found.fresh
    assert found.differences == ()
    assert not store.check(study.directory, study.log).fresh


def test_a_changed_value_is_found_and_shown(study: TinyStudy) -> None:
    path = make(study)
    tamper(path / store.OPEN, "UPDATE cells SET turns = 9 WHERE arm = 'H018'")
    (difference,) = store.check(study.directory, study.log).differences
    assert difference.table == "cells"
    assert difference.key == "cell = R001-001/H018/M002/0"
    assert difference.live is not None
    assert difference.replayed is not None
    assert (difference.live["turns"], difference.replayed["turns"]) == (9, 2)


def test_a_changed_outcome_is_found_and_not_shown(study: TinyStudy) -> None:
    path = make(study)
    tamper(path / store.OUTCOMES, "UPDATE outcomes SET resolved = 1")
    (difference,) = store.check(study.directory, study.log).differences
    assert difference == store.Difference("outcomes", "cell = R001-001/H000/M002/0", None, None)


@pytest.mark.parametrize(
    ("statement", "key", "missing"),
    [
        ("DELETE FROM cells WHERE arm = 'H018'", "cell = R001-001/H018/M002/0", "live"),
        (
            "INSERT INTO gold_checks VALUES ('R009-001', 0, 1)",
            "task = R009-001, number = 0",
            "replayed",
        ),
    ],
)
def test_a_row_too_few_or_too_many_is_found(
    study: TinyStudy, statement: str, key: str, missing: str
) -> None:
    path = make(study)
    tamper(path / store.OPEN, statement)
    (difference,) = store.check(study.directory, study.log).differences
    assert difference.key == key
    assert getattr(difference, missing) is None


def test_a_missing_table_is_damage(study: TinyStudy) -> None:
    path = make(study)
    tamper(path / store.OPEN, "DROP TABLE cells")
    with pytest.raises(Integrity, match="damaged; `ledger replay` makes it again"):
        store.check(study.directory, study.log)


@pytest.mark.parametrize("file", [store.OPEN, store.OUTCOMES])
@pytest.mark.parametrize("instead", ["view", "table", "trigger", "pipe", "link"])
def test_what_is_not_as_it_was_written_is_not_read(
    study: TinyStudy, file: str, instead: str
) -> None:
    """A view could compute without end, and a pipe wait for ever: neither is begun with."""
    path = make(study) / file
    if instead in ("pipe", "link"):
        path.unlink()
        os.mkfifo(path) if instead == "pipe" else path.symlink_to("/dev/zero")
    else:
        table = "cells" if file == store.OPEN else "outcomes"
        tamper(
            path,
            {
                "view": f"DROP TABLE {table}; CREATE VIEW {table} AS WITH RECURSIVE c (cell) AS "
                "(SELECT 1 UNION ALL SELECT cell + 1 FROM c) SELECT cell FROM c",
                "table": "CREATE TABLE more (text TEXT)",
                "trigger": f"CREATE TRIGGER more AFTER DELETE ON {table} BEGIN SELECT 1; END",
            }[instead],
        )
    with pytest.raises(Integrity, match="damaged; `ledger replay` makes it again"):
        store.check(study.directory, study.log)
    with store.current(study.directory, study.log) as generation:
        assert generation.path != path.parent
    assert store.check(study.directory, study.log).differences == ()


def test_damaged_files_are_not_passed_over(study: TinyStudy) -> None:
    path = make(study)
    (path / store.OUTCOMES).unlink()
    with pytest.raises(Integrity, match="missing or damaged"):
        store.check(study.directory, study.log)


def test_another_log_under_the_projections_is_found(study: TinyStudy) -> None:
    make(study)
    shorter = MemoryLog()
    other = TinyStudy(study.directory.root, shorter)
    other.create()
    with pytest.raises(Integrity, match="truncated or replaced"):
        store.check(study.directory, shorter)


def test_deleting_every_file_and_replaying_gives_the_same_tables(study: TinyStudy) -> None:
    with store.current(study.directory, study.log) as generation:
        before = store.digests(generation)
    shutil.rmtree(study.directory.projections)
    with store.current(study.directory, study.log) as generation:
        assert store.digests(generation) == before


def test_an_artifact_of_another_content_stops_the_replay(study: TinyStudy) -> None:
    ref = study.put("Repair it.\n")
    assert isinstance(ref, ArtifactRef)
    plan = next(fact.event for fact in study.facts() if fact.event.TYPE == "plan.prepared.v1")
    path = study.artifacts.path(plan.plan.digest)  # type: ignore[attr-defined]
    os.chmod(path, 0o600)
    path.write_bytes(study.artifacts.path(ref.digest).read_bytes())
    with pytest.raises(Integrity, match=plan.plan.digest):  # type: ignore[attr-defined]
        make(study)
