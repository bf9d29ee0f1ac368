"""A suite is a study: the same commands freeze, run, amend, replay and audit it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from schemas.events.cell import CellStarted
from schemas.events.study import AmendmentRecorded
from schemas.events.transfer import CaseFinished, FamiliesFrozen
from tests.end_to_end.rehearsal_study import ROOT, StudyOnDisk, initialise
from tests.end_to_end.transfer_study import BY_PROJECT, keep_one_family

FAMILY = ROOT / "actors" / "families" / "examples" / "F106.yaml"
CASES, SYSTEMS = 7, 4
CELLS = CASES * SYSTEMS  # every system here is deterministic: one trial


def begin(folder: Path) -> StudyOnDisk:
    """A study directory with one family, without distractors."""
    study = StudyOnDisk(folder / "study", folder / "config")
    initialise(study, "--template", "transfer")
    keep_one_family(study.path / "study.toml")
    return study


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    study = begin(tmp_path_factory.mktemp("transfer"))
    refused = study.ledger_command("run")
    assert (refused.status, "not frozen" in refused.err) == (1, True), refused
    frozen = study.ledger_command("freeze", "--json")
    assert frozen.status == 0, frozen.err
    assert frozen.json["cells"] == CELLS
    ran = study.ledger_command("run", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["completed"], ran.json["cells"]["done"]) == (True, CELLS)
    return study


def test_every_planned_case_ran_once_with_the_frozen_identities(completed: StudyOnDisk) -> None:
    facts = completed.facts()
    started = [fact.event for fact in facts if isinstance(fact.event, CellStarted)]
    ended = [fact.event for fact in facts if isinstance(fact.event, CaseFinished)]
    assert Counter(event.ended for event in ended) == {"completed": CELLS}
    assert {str(event.cell) for event in started} == {str(event.cell) for event in ended}
    assert len({event.arm for event in started}) == SYSTEMS
    assert len({event.unit for event in started}) == CASES
    families = [fact.event for fact in facts if isinstance(fact.event, FamiliesFrozen)]
    assert [(event.families, event.cases) for event in families] == [(1, CASES)]


def test_the_chain_holds_and_replay_agrees(completed: StudyOnDisk) -> None:
    assert completed.ledger_command("replay").status == 0
    checked = completed.ledger_command("replay", "--check", "--json")
    assert (checked.status, checked.json["identical"]) == (0, True)
    assert completed.ledger_command("verify-chain").status == 0
    audited = completed.ledger_command("audit", "--json")
    assert audited.status == 0, audited.out


def test_commands_for_repositories_say_that_this_is_another_kind(completed: StudyOnDisk) -> None:
    for words in (("tasks", "mine"), ("tasks", "freeze")):
        refused = completed.ledger_command(*words)
        assert refused.status in (1, 2) and "Traceback" not in refused.err, (words, refused.err)
        assert "transfer" in refused.err, (words, refused.err)


def test_an_amendment_adds_a_system_and_changes_none(
    completed: StudyOnDisk, tmp_path: Path
) -> None:
    study = completed.copy(tmp_path / "copy")
    toml = study.path / "study.toml"
    text = toml.read_text()

    toml.write_text(text.replace('policy = "full"', 'policy = "everything"'))
    refused = study.ledger_command("amend", "--reason", "x")
    assert refused.status == 1 and "declare another memory" in refused.err
    toml.write_text(text.replace("trials = 3", "trials = 4"))
    refused = study.ledger_command("amend", "--reason", "x")
    assert refused.status == 1 and "another suite.version" in refused.err
    toml.write_text(text)
    family = study.path / "families" / "F106.yaml"
    family.write_text(family.read_text().replace("File the status", "Write the status"))
    refused = study.ledger_command("amend", "--reason", "x")
    assert refused.status == 1 and "families/F106.yaml changed" in refused.err
    shutil.copy(FAMILY, family)

    toml.write_text(text + BY_PROJECT)
    amended = study.ledger_command("amend", "--reason", "the query by project is a new system")
    assert amended.status == 0, amended.err
    status = study.ledger_command("status", "--json").json
    assert (status["completed"], status["cells"]["planned"]) == (False, CELLS + CASES)
    ran = study.ledger_command("run", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["completed"], ran.json["cells"]["done"]) == (True, CELLS + CASES)
    recorded = [f.event for f in study.facts() if isinstance(f.event, AmendmentRecorded)]
    assert [event.finding for event in recorded] == ["after_first_cell"]
    assert study.ledger_command("audit").status == 0


def test_a_suite_that_leaks_its_answer_is_not_frozen(tmp_path: Path) -> None:
    study = begin(tmp_path)
    family = study.path / "families" / "F106.yaml"
    text = family.read_text()
    leaking = text.replace("Is Project Alder complete?", "Remember CT-106, is it complete?")
    assert leaking != text
    family.write_text(leaking)
    refused = study.ledger_command("freeze")
    assert refused.status == 1
    assert "not ready to be frozen" in refused.err and "CT-106" in refused.err
