"""``ledger audit``: every audit in one table, status 3 for a violation."""

import sqlite3
from pathlib import Path

from projections.audits.registry import AUDITS
from schemas.events.cell import BudgetCharged
from tests.cli.conftest import Run, record
from tests.projections.tiny_study import CELLS, TinyStudy

NAMES = ["chain", *(audit.NAME for audit in AUDITS)]


def test_audits_are_listed(ledger: Run) -> None:
    ran = ledger("audit", "--list", "--json")
    assert [row["audit"] for row in ran.json["audits"]] == NAMES
    assert all(name in ledger("audit", "--list").out for name in NAMES)


def test_a_whole_study_is_status_0(ledger: Run, study: Path) -> None:
    ran = ledger("audit", "--json", "--study", study)
    assert ran.status == 0, ran.out
    assert ran.json["ok"] is True
    assert [row["audit"] for row in ran.json["audits"]] == NAMES
    assert all(row["ok"] for row in ran.json["audits"])
    chain = ran.json["audits"][0]
    assert chain["status"] == "ok"
    assert chain["checked"]["records"] > 100


def test_the_table_says_what_was_checked(ledger: Run, study: Path) -> None:
    ran = ledger("audit", "--study", study)
    assert ran.status == 0
    budgets = next(line for line in ran.out.splitlines() if line.startswith("budgets"))
    assert budgets.split() == ["budgets", "ok", "2", "cell", "attempts,", "10", "charges"]
    assert "registration: note at record" in ran.out


def test_one_audit_alone(ledger: Run, study: Path) -> None:
    ran = ledger("audit", "retries", "budgets", "--json", "--study", study)
    assert [row["audit"] for row in ran.json["audits"]] == ["budgets", "retries"]


def test_an_unknown_audit_is_status_2(ledger: Run, study: Path) -> None:
    ran = ledger("audit", "nonsense", "--study", study)
    assert ran.status == 2
    assert "audits are chain, registration" in ran.err


def test_a_violation_is_status_3_and_names_the_record(ledger: Run, tmp_path: Path) -> None:
    seqs = []

    def write(tiny: TinyStudy) -> None:
        tiny.write_everything()
        charge = BudgetCharged(kind="turn", used=9, limit=3)
        seqs.append(tiny.append(CELLS[0].stream, charge))

    study = record(tmp_path / "study", write)
    ran = ledger("audit", "--study", study)
    assert ran.status == 3
    assert f"budgets: violation at record {seqs[0]}: budget.charged.v1 in a cell that" in ran.out
    found = ledger("audit", "--json", "--study", study)
    assert found.status == 3
    assert [row["audit"] for row in found.json["audits"] if not row["ok"]] == ["budgets"]


def test_an_altered_record_violates_the_chain(ledger: Run, study: Path) -> None:
    connection = sqlite3.connect(study / "var" / "ledger.db")
    connection.execute("DROP TRIGGER records_update")
    connection.execute(
        "UPDATE records SET record = CAST(replace(CAST(record AS TEXT), 'bubble', 'soap') AS BLOB)"
        " WHERE type = 'test_run.finished.v1'"
    )
    connection.commit()
    connection.close()
    ran = ledger("audit", "chain", "--json", "--study", study)
    assert ran.status == 3
    (chain,) = ran.json["audits"]
    assert chain["status"] == "violated"
    assert any(found["text"].startswith("LINK") for found in chain["findings"])


def test_no_audit_prints_an_outcome(ledger: Run, tmp_path: Path) -> None:
    printed = []
    for number, resolved in enumerate([(False, False), (True, True)]):
        study = record(
            tmp_path / f"study-{number}" / "tiny",
            lambda tiny, resolved=resolved: tiny.write_everything(resolved),  # type: ignore[misc]
        )
        names = [name for name in NAMES if name not in ("chain", "commands")]
        printed.append(ledger("audit", *names, "--json", "--study", study).json["audits"])
    assert printed[0] == printed[1]
