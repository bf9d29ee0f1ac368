"""``ledger replay``: rebuild, compare, and execute a recorded cell again."""

import sqlite3
from pathlib import Path

import msgspec
import pygit2
import pytest

from actors.loop import Context, carry_out
from actors.mining import pack_trees
from actors.model_turns import RecordedAnswer, RecordedCall
from actors.repair.cell_engine import AnsweredTurn, Ended, NeedModel
from actors.repair.cells import CellActor, finish, new_engine, started
from actors.repair.frozen_study import FrozenRepair
from projections import store
from schemas.base import Event
from schemas.commands import AdvanceCell, AskModel
from schemas.events.cell import BudgetCharged, ToolCalled
from schemas.events.study import CellReexecuted
from tests.cli.conftest import Run, facts_of, record
from tests.projections.tiny_study import CELLS, STUDY_TOML, TinyStudy, asked, of_type

CELL = str(CELLS[1])


def live(study: Path) -> Path:
    folder = study / "var" / "projections"
    return folder / (folder / "current").read_text().split()[0]


# ---- rebuilding ----------------------------------------------------------------------------------


def test_a_replay_switches_to_new_tables(ledger: Run, study: Path) -> None:
    head = facts_of(study)[-1]
    first = ledger("replay", "--json", "--study", study)
    assert first.status == 0
    assert first.json["seq"] == head.seq
    rows = {row["table"]: row["rows"] for row in first.json["tables"]}
    assert (rows["cells"], rows["commits"], rows["outcomes"]) == (2, 3, 2)
    assert study / first.json["path"] == live(study)
    second = ledger("replay", "--json", "--study", study)
    assert second.json["path"] != first.json["path"]
    assert second.json["tables"] == first.json["tables"]


def test_a_replay_prints_head_leaf_tables_and_rows(ledger: Run, study: Path) -> None:
    out = ledger("replay", "--study", study).out
    lines = out.splitlines()
    assert lines[0].split() == ["head", str(facts_of(study)[-1].seq)]
    assert lines[1].split()[0] == "leaf"
    assert any(line.split()[:2] == ["commits", "3"] for line in lines)


def test_the_digest_of_outcomes_is_not_printed(ledger: Run, study: Path) -> None:
    """Whoever knows the form of a small table could try all values against its digest."""
    rows = ledger("replay", "--json", "--study", study).json["tables"]
    digests = {row["table"]: row["digest"] for row in rows}
    assert digests["outcomes"] == "behind the inspection gate"
    assert len(digests["cells"]) == 64


def test_a_replay_appends_nothing(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    ledger("replay", "--study", study)
    ledger("replay", "--check", "--study", study)
    assert facts_of(study) == before


# ---- comparing -----------------------------------------------------------------------------------


def test_a_check_of_untouched_tables_is_status_0(ledger: Run, study: Path) -> None:
    ledger("replay", "--study", study)
    before = live(study)
    ran = ledger("replay", "--check", "--json", "--study", study)
    assert ran.status == 0
    assert ran.json["identical"] is True
    assert ran.json["fresh"] is False
    assert live(study) == before
    assert "are identical" in ledger("replay", "--check", "--study", study).out


def test_a_check_without_tables_says_what_was_compared(ledger: Run, study: Path) -> None:
    assert "two replays of records" in ledger("replay", "--check", "--study", study).out


def test_a_changed_value_is_status_3_with_its_key(ledger: Run, study: Path) -> None:
    ledger("replay", "--study", study)
    connection = sqlite3.connect(live(study) / store.OPEN)
    connection.execute("UPDATE cells SET turns = 9 WHERE arm = 'H018'")
    connection.commit()
    connection.close()
    ran = ledger("replay", "--check", "--study", study)
    assert ran.status == 3
    assert f"cells: differs first where cell = {CELL}" in ran.out
    assert "'turns': 9" in ran.out
    found = ledger("replay", "--check", "--json", "--study", study)
    assert found.status == 3
    (difference,) = found.json["differences"]
    assert (difference["live"]["turns"], difference["replayed"]["turns"]) == (9, 2)


def test_a_changed_outcome_is_status_3_without_its_value(ledger: Run, study: Path) -> None:
    ledger("replay", "--study", study)
    connection = sqlite3.connect(live(study) / store.OUTCOMES)
    connection.execute("UPDATE outcomes SET verdict = 'forged' WHERE treatment = 'H018'")
    connection.commit()
    connection.close()
    for words in ([], ["--json"]):
        ran = ledger("replay", "--check", *words, "--study", study)
        assert ran.status == 3
        assert f"cell = {CELL}" in ran.out
        assert "forged" not in ran.out
        assert '"resolved"' not in ran.out


# ---- executing again -----------------------------------------------------------------------------


def write_a_real_cell(tiny: TinyStudy, *, to_the_end: bool = True) -> None:
    """One cell of H018, driven by the engine itself: it reads the gold file and submits, or is left
    when its first turn has been answered."""
    repository = tiny.directory.root / "repository"
    git = pygit2.init_repository(str(repository), bare=True)
    source = git.TreeBuilder()
    source.insert("__init__.py", git.create_blob(b""), pygit2.enums.FileMode.BLOB)
    source.insert("a.py", git.create_blob(b"a = 1\n"), pygit2.enums.FileMode.BLOB)
    root = git.TreeBuilder()
    root.insert("src", source.write(), pygit2.enums.FileMode.TREE)
    tiny.base_tree = str(root.write())
    tiny.pack = pack_trees(repository, [tiny.base_tree])
    tiny.mine()
    tiny.freeze()
    tiny.start_run()

    frozen = FrozenRepair(Context(tiny.log, tiny.artifacts, tiny.directory, "test"))
    cell = CELLS[1]
    engine = new_engine(frozen, cell, tiny.artifacts.put)
    answers = iter([answer("read_file", {"path": "src/a.py"}), answer("submit", {})])
    need = engine.start()
    events: list[Event] = [started(frozen, cell, 0), *engine.events]
    while isinstance(need, NeedModel):
        stream, name = cell.stream, str(cell)
        tiny.do(AdvanceCell(cell=name), *[(stream, event) for event in events])
        given = next(answers)
        answered = msgspec.structs.replace(
            tiny.answered(need.turn, 0), answer=tiny.put(msgspec.to_builtins(given))
        )
        tiny.do(
            AskModel(cell=name, turn=need.turn, model="M002", request=need.request),
            (stream, asked(need.turn, 0, need.request)),
            (stream, answered),
        )
        if not to_the_end:
            return
        decided = len(engine.events)
        need = engine.resume(AnsweredTurn(given))
        events = engine.events[decided:]
    assert isinstance(need, Ended)
    events.append(finish(frozen, engine, cell, 0, need, tiny.artifacts.put))
    tiny.do(AdvanceCell(cell=str(cell)), *[(cell.stream, event) for event in events])


def answer(tool: str, arguments: dict[str, str]) -> RecordedAnswer:
    call = RecordedCall(id="1", name=tool, arguments=msgspec.json.encode(arguments).decode())
    return RecordedAnswer(content="", reasoning="", calls=(call,), finish_reason="tool_calls")


def reexecutions(study: Path) -> list[Event]:
    return [fact.event for fact in of_type(facts_of(study), CellReexecuted)]


def test_a_recorded_cell_executes_to_the_same_bytes(ledger: Run, tmp_path: Path) -> None:
    study = record(tmp_path / "study", write_a_real_cell)
    ran = ledger("replay", "--execute", CELL, "--json", "--study", study)
    assert ran.status == 0, ran
    assert ran.json["identical"] is True
    assert ran.json["recorded"] is True
    assert ran.json["compared"] >= 6
    assert reexecutions(study) == [
        CellReexecuted(cell=CELL, identical=True, compared=ran.json["compared"])
    ]
    assert "identical" in ledger("replay", "--execute", f"cell/{CELL}", "--study", study).out


SMALLER = STUDY_TOML.replace("turns = 3", "turns = 2").replace("tool_calls = 3", "tool_calls = 1")


def test_a_cell_keeps_the_budgets_that_it_began_with(ledger: Run, tmp_path: Path) -> None:
    """An amendment is for what begins after it: a cell that ran before executes to the same, and
    one that was interrupted goes on."""

    def write(tiny: TinyStudy) -> None:
        write_a_real_cell(tiny)
        tiny.amend(SMALLER)

    study = record(tmp_path / "study", write)
    assert ledger("replay", "--execute", CELL, "--json", "--study", study).json["identical"] is True

    def leave(tiny: TinyStudy) -> None:
        write_a_real_cell(tiny, to_the_end=False)
        tiny.amend(SMALLER)
        context = Context(tiny.log, tiny.artifacts, tiny.directory, "test")
        actor = CellActor(FrozenRepair(context))
        carry_out(context, AdvanceCell(cell=CELL), {AdvanceCell: actor.advance})

    facts = facts_of(record(tmp_path / "left", leave))
    charges = [fact.event for fact in of_type(facts, BudgetCharged)]
    assert charges == [
        BudgetCharged(kind="turn", used=1, limit=3),
        BudgetCharged(kind="tool_call", used=1, limit=3),
        BudgetCharged(kind="turn", used=2, limit=3),
    ]


def test_another_tool_result_is_status_3_with_its_record(ledger: Run, tmp_path: Path) -> None:
    def write(tiny: TinyStudy) -> None:
        """As recorded, but for the result of the tool call."""
        original_do = tiny.do

        def do(command: AdvanceCell, *events: tuple[str, Event]) -> None:
            forged = [
                (stream, msgspec.structs.replace(event, result=tiny.put("another text")))
                if isinstance(event, ToolCalled)
                else (stream, event)
                for stream, event in events
            ]
            original_do(command, *forged)

        tiny.do = do  # type: ignore[method-assign, assignment]
        write_a_real_cell(tiny)

    study = record(tmp_path / "study", write)
    (called,) = of_type(facts_of(study), ToolCalled)
    ran = ledger("replay", "--execute", CELL, "--study", study)
    assert ran.status == 3
    assert f"differs first at seq {called.seq}" in ran.out
    (event,) = reexecutions(study)
    assert isinstance(event, CellReexecuted)
    assert (event.identical, event.first_difference) == (False, called.seq)


def test_an_imported_ledger_is_executed_and_not_written(ledger: Run, tmp_path: Path) -> None:
    study = record(tmp_path / "study", write_a_real_cell)
    (study / "var" / "imported").touch()
    ran = ledger("replay", "--execute", CELL, "--study", study)
    assert ran.status == 0, ran
    assert "not recorded" in ran.out
    assert reexecutions(study) == []


@pytest.mark.parametrize(
    ("cell", "status", "message"),
    [
        ("nonsense", 2, "write UNIT/ARM/AGENT/REPEAT"),
        ("R009-001/H000/M002/0", 1, "is not of this study"),
        ("R001-001/H999/M002/0", 1, "is not of this study"),
        ("R001-001/H000/M002/5", 1, "is not of this study"),
        ("R001-001/H000/M002/0", 1, "has not finished"),
    ],
)
def test_a_cell_that_cannot_be_executed(
    ledger: Run, running: Path, cell: str, status: int, message: str
) -> None:
    ran = ledger("replay", "--execute", cell, "--study", running)
    assert ran.status == status
    assert message in ran.err and "`ledger status --cells`" in ran.err
    assert reexecutions(running) == []


def test_two_questions_at_once_are_status_2(ledger: Run, study: Path) -> None:
    assert ledger("replay", "--check", "--execute", CELL, "--study", study).status == 2
