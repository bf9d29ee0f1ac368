"""``ledger show``: records, cells, streams, tasks, and what is masked."""

import sqlite3
from pathlib import Path
from typing import ClassVar

import pytest

from schemas.base import Event
from schemas.events.cell import CellFinished, CellStarted
from schemas.events.grading import CellGraded
from schemas.events.study import AnalysisCompleted
from tests.cli.conftest import Run, facts_of, inspections, record
from tests.projections.tiny_study import CELLS, TinyStudy, of_type

CELL = str(CELLS[0])


def seq_of(study: Path, kind: type) -> int:
    return next(of_type(facts_of(study), kind)).seq


def test_a_record_is_shown_decoded_and_with_its_leaf(ledger: Run, study: Path) -> None:
    seq = seq_of(study, CellStarted)
    ran = ledger("show", str(seq), "--json", "--study", study)
    assert ran.status == 0
    record = ran.json["record"]
    assert (record["seq"], record["type"]) == (seq, "cell.started.v1")
    assert record["data"]["cell"]["arm"] == "H000"
    assert len(record["leaf"]) == 64
    assert '"attempt": 0' in ledger("show", str(seq), "--study", study).out


def test_a_cell_is_a_timeline(ledger: Run, study: Path) -> None:
    ran = ledger("show", CELL, "--study", study)
    assert ran.status == 0
    lines = ran.out.splitlines()
    stream = [fact for fact in facts_of(study) if fact.stream == CELLS[0].stream]
    assert len(lines) == len(stream) + 1  # and the note about what is masked
    assert [int(line.split()[0]) for line in lines[:-1]] == [fact.seq for fact in stream]
    answered = next(line for line in lines if "turn.answered.v1" in line)
    assert "prompt_tokens=100" in answered
    assert "duration=2.000s" in answered
    assert ledger("show", CELLS[0].stream, "--study", study).out == ran.out


def test_a_stream_is_shown(ledger: Run, study: Path) -> None:
    ran = ledger("show", "server/stand_in", "--json", "--study", study)
    assert ran.json["stream"] == "server/stand_in"
    assert [record["type"] for record in ran.json["records"]] == [
        "server.checked.v1",
        "model.load_started.v1",
        "model.loaded.v1",
        "model.unloaded.v1",
    ]


def test_tasks_are_listed(ledger: Run, study: Path) -> None:
    (row,) = ledger("show", "tasks", "--json", "--study", study).json["tasks"]
    assert (row["task"], row["fail_to_pass"]) == ("R001-001", 1)
    assert "R001-001" in ledger("show", "tasks", "--study", study).out


def test_artifacts_are_printed_bounded(ledger: Run, study: Path) -> None:
    seq = str(seq_of(study, CellFinished))
    whole = ledger("show", seq, "--artifacts", "--study", study).out
    assert "diff --git a/src/a.py b/src/a.py" in whole
    cut = ledger("show", seq, "--artifacts", "--max-bytes", "4", "--study", study).out
    assert "(29 more bytes; --max-bytes shows more)" in cut
    assert "diff --git" not in cut
    contents = ledger("show", seq, "--artifacts", "--json", "--study", study).json["artifacts"]
    assert "diff --git a/src/a.py b/src/a.py\n" in contents.values()


def test_a_missing_artifact_does_not_hide_the_others(ledger: Run, study: Path) -> None:
    finished = next(of_type(facts_of(study), CellFinished))
    assert isinstance(finished.event, CellFinished)
    digest = finished.event.patch.digest
    (study / "var" / "artifacts" / digest[:2] / digest).unlink()
    ran = ledger("show", str(finished.seq), "--artifacts", "--json", "--study", study)
    assert ran.status == 0
    assert "missing" in ran.json["artifacts"][digest]
    assert len(ran.json["artifacts"]) == 2


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("100000", "there is no record 100000: the ledger ends at record"),
        ("9" * 40, "there is no record"),
        ("R001-001/H000/M002/1", "did you mean R001-001/H000/M002/0"),
        ("R001-001/H000/M002/x", "is not a cell: write UNIT/ARM/AGENT/REPEAT"),
        ("server/lmstudio", "there is no cell and no stream 'server/lmstudio'"),
        ("studi", "did you mean study?"),
        ("zzz", "write a record's number"),
        ("a\x1b[2Jb", "'a\\x1b[2Jb'"),
    ],
)
def test_an_unknown_target_is_status_2(ledger: Run, study: Path, target: str, message: str) -> None:
    ran = ledger("show", target, "--study", study)
    assert ran.status == 2
    assert message in ran.err
    assert "\x1b" not in ran.err


def test_a_planned_cell_that_has_not_begun_is_said_to_be_planned(
    ledger: Run, running: Path
) -> None:
    ran = ledger("show", str(CELLS[1]), "--study", running)
    assert ran.status == 2
    assert "has not begun: it is number 1 of 2 in the plan" in ran.err


# ---- the gate -----------------------------------------------------------------------------------


def test_an_outcome_is_masked(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    seq = str(seq_of(study, CellGraded))
    for words in ([seq], [seq, "--json"], [CELL], [CELL, "--json"], [seq, "--artifacts"]):
        ran = ledger("show", *words, "--study", study)
        assert ran.status == 0
        assert "masked" in ran.out
        assert "resolved" not in ran.out
    assert facts_of(study) == before


def test_a_type_of_another_version_may_carry_anything(ledger: Run, tmp_path: Path) -> None:
    class Strange(Event):
        TYPE: ClassVar[str] = "strange.seen.v1"
        STREAMS: ClassVar[tuple[str, ...]] = ("strange",)
        secret: str

    def write(tiny: TinyStudy) -> None:
        tiny.append("strange", Strange(secret="hidden"))

    study = record(tmp_path / "study", write)
    for words in (["strange"], ["1"], ["1", "--json"]):
        ran = ledger("show", *words, "--study", study)
        assert ran.status == 0
        assert "masked" in ran.out
        assert "hidden" not in ran.out


def test_an_outcome_is_shown_after_it_is_recorded(ledger: Run, study: Path) -> None:
    before = len(inspections(study))
    ran = ledger("show", CELL, "--reason", "a closer look", "--study", study)
    assert ran.status == 0
    assert "resolved=False" in ran.out
    assert "masked" not in ran.out
    assert [event.reason for event in inspections(study)[before:]] == ["a closer look"]


def test_a_reason_without_an_outcome_records_nothing(ledger: Run, study: Path) -> None:
    before = facts_of(study)
    assert ledger("show", "runs", "--reason", "no need", "--study", study).status == 0
    assert facts_of(study) == before


def test_an_analysis_is_shown_after_it_is_recorded(ledger: Run, study: Path) -> None:
    assert ledger("show", "analysis", "--json", "--study", study).status == 1
    before = len(inspections(study))
    ran = ledger("show", "analysis", "--reason", "to quote it", "--json", "--study", study)
    assert ran.json == {"sentence": "No difference."}
    assert len(inspections(study)) == before + 1
    masked = ledger("show", str(seq_of(study, AnalysisCompleted)), "--study", study)
    assert "results" not in masked.out


def test_without_an_analysis_it_says_how_to_make_one(ledger: Run, running: Path) -> None:
    ran = ledger("show", "analysis", "--reason", "to quote it", "--study", running)
    assert ran.status == 2
    assert "ledger analyze" in ran.err
    assert inspections(running) == []


@pytest.mark.parametrize("data", [b'{"a":1,"a":2}', b"[" * 500_000 + b"]" * 500_000])
def test_a_record_that_reads_in_two_ways_is_not_shown(
    ledger: Run, study: Path, data: bytes
) -> None:
    connection = sqlite3.connect(study / "var" / "ledger.db")
    for name in ("records_update", "records_insert", "records_delete"):
        connection.execute(f"DROP TRIGGER {name}")
    (record,) = connection.execute("SELECT record FROM records WHERE seq = 13").fetchone()
    strange = record[: record.index(b'"data":')].replace(b'"type":"', b'"type":"x') + (
        b'"data":' + data + b"}"
    )
    connection.execute("UPDATE records SET record = ? WHERE seq = 13", (strange,))
    connection.commit()
    connection.close()
    ran = ledger("show", "13", "--study", study)
    assert (ran.status, ran.out) == (3, "")
    assert "seq 13: not a canonical record" in ran.err
