"""A small rehearsal from git history to verdicts: what its records and its model server say."""

import msgspec

from actors.model_turns import ModelRequest
from actors.test_runs.git_trees import read_snapshot
from actors.test_runs.leak_probe import gold_only_lines
from ledger.artifacts import Artifacts
from ledger.study_directory import StudyDirectory
from schemas.events.cell import CellFinished, ToolCalled, TurnAnswered, TurnStarted
from schemas.events.grading import CellGraded, GoldChecked
from schemas.events.study import TasksFrozen
from schemas.repair.task import Overlay, Task
from tests.end_to_end.rehearsal_study import StudyOnDisk, check_sound, outcomes

CELLS = ["R001-001/H000/M002/0", "R001-001/H018/M002/0"]


def test_every_cell_is_run_and_graded_once(completed_study: StudyOnDisk) -> None:
    facts = completed_study.facts()
    check_sound(completed_study, outcomes(facts))
    finished = [fact.event for fact in facts if isinstance(fact.event, CellFinished)]
    assert [str(event.cell) for event in finished] == CELLS
    assert {event.ended for event in finished} == {"submitted"}
    graded = [fact.event for fact in facts if isinstance(fact.event, CellGraded)]
    assert sorted(str(event.cell) for event in graded) == CELLS
    assert all(event.verdict == "resolved" for event in graded)
    gold = [fact.event for fact in facts if isinstance(fact.event, GoldChecked)]
    assert [(event.number, event.passed) for event in gold] == [(0, True), (1, True)]
    # Grading waited for the last cell: until then outcomes did not exist.
    last_end = max(fact.seq for fact in facts if isinstance(fact.event, CellFinished))
    assert min(fact.seq for fact in facts if isinstance(fact.event, CellGraded)) > last_end


def test_the_server_was_asked_what_is_recorded_and_held_one_model(
    completed_study: StudyOnDisk,
) -> None:
    facts = completed_study.facts()
    started = sum(isinstance(fact.event, TurnStarted) for fact in facts)
    answered = sum(isinstance(fact.event, TurnAnswered) for fact in facts)
    assert completed_study.chat_requests() == started == answered > 0
    entries = completed_study.server_log()
    assert {len(entry["resident"]) for entry in entries} == {0, 1}


def test_a_cell_is_executed_again_from_the_log_alone(completed_study: StudyOnDisk) -> None:
    study = completed_study
    for cell in CELLS:
        executed = study.ledger_command("replay", "--execute", cell, "--json")
        assert executed.status == 0, executed.err
        assert executed.json["identical"] and executed.json["compared"] > 5


def test_no_agent_is_shown_what_only_gold_or_the_hidden_tests_have(
    completed_study: StudyOnDisk,
) -> None:
    """Gold lines until the agent writes them itself, lines of hidden tests ever."""
    directory = StudyDirectory(completed_study.path)
    artifacts = Artifacts(directory.artifacts)
    facts = completed_study.facts()
    frozen = next(fact.event for fact in facts if isinstance(fact.event, TasksFrozen))
    (task,) = msgspec.json.decode(artifacts.get(frozen.tasks), type=list[Task])
    base = [
        file.content
        for file in read_snapshot(directory.templates / task.base_tree / ".git", task.base_tree)
    ]

    def only_in(overlay: Overlay) -> list[bytes]:
        return gold_only_lines(base, (artifacts.get(file.content) for file in overlay.write))

    gold, hidden = only_in(task.gold), only_in(task.hidden)
    assert gold and hidden
    edited: set[str] = set()
    looked_at = 0
    for fact in facts:
        match fact.event:
            case ToolCalled(tool="edit_file" | "create_file"):
                edited.add(fact.stream)
                continue
            case ToolCalled() as event:
                shown = artifacts.get(event.result)
            case TurnStarted() as event:
                request = msgspec.json.decode(artifacts.get(event.request), type=ModelRequest)
                shown = "\n".join(m.get("content") or "" for m in request.messages).encode()
            case _:
                continue
        looked_at += 1
        secret = hidden if fact.stream in edited else gold + hidden
        assert [line for line in secret if line in shown] == [], f"record {fact.seq}"
    assert looked_at > 10 and len(edited) == len(CELLS)
