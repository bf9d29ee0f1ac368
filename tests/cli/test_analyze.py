"""``ledger analyze``: the gate first, then the numbers; and the check that shows none."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from actors.study.components import Identity
from ledger.artifacts import Artifacts
from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import IMPORTED_MARK, StudyDirectory
from schemas.events.study import AnalysisCompleted, OutcomesInspected
from tests.cli.conftest import Run, facts_of, inspections, record
from tests.projections.tiny_study import TinyStudy, of_type
from tests.report.small_study import SmallStudy


@pytest.fixture(scope="session")
def graded_study(config_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small study, complete and never looked at. Not to be written to."""

    def write(tiny: TinyStudy) -> None:
        small = SmallStudy(tiny.directory.root, tiny.log)
        small.write_run()
        small.grade_everything()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(config_home))
        return record(tmp_path_factory.mktemp("small"), write)


@pytest.fixture
def small(graded_study: Path, tmp_path: Path) -> Path:
    """A copy to write to."""
    return Path(shutil.copytree(graded_study, tmp_path / "small"))


def test_the_inspection_stands_before_the_analysis(ledger: Run, small: Path) -> None:
    ran = ledger("analyze", "--reason", "as planned", "--study", small)
    assert ran.status == 0, ran.err
    facts = facts_of(small)
    (inspected,), (analysed,) = of_type(facts, OutcomesInspected), of_type(facts, AnalysisCompleted)
    assert inspected.seq < analysed.seq
    assert isinstance(inspected.event, OutcomesInspected)
    assert inspected.event.reason == "as planned"
    lines = ran.out.splitlines()
    assert lines[0] == "SIMULATED: a rehearsal, not evidence"
    assert (ran.out + ran.err).count("SIMULATED") == 1
    assert lines[1].startswith("H018 against H000 with M002: 3/3 of the tasks resolved against 1/3")
    assert f"record {analysed.seq}, computed from records 0 to" in ran.out


def test_what_is_not_as_frozen_is_said(ledger: Run, small: Path, tmp_path: Path) -> None:
    out = ledger("status", "--study", small).out
    assert 'next        `ledger analyze --reason "…"`' in out
    ran = ledger("analyze", "--reason", "as planned", "--study", small)
    assert "not as frozen" not in ran.out + ran.err
    assert "next        `ledger report`" in ledger("status", "--study", small).out
    (small / "study.toml").write_text("other")
    ran = ledger("analyze", "--reason", "as planned", "--study", small)
    said = "of the study as it was frozen or last amended, without what has changed since in "
    assert ran.status == 0 and ran.err == f"ledger: this analysis is {said}study.toml\n"
    ran = ledger("report", "--study", small)
    assert ran.status == 0 and ran.err == f"ledger: this report is {said}study.toml\n"
    ledger("analyze", "--reason", "again", "--study", small)
    assert "next        `ledger report`" in ledger("status", "--study", small).out
    ledger("report", "--study", small)
    assert "next        nothing: the report of the last" in ledger("status", "--study", small).out
    pages = list(Path(small / "var" / "reports").rglob("report.md"))
    assert pages and all(said not in page.read_text() for page in pages)  # a report tells the log


def test_other_code_than_the_frozen_is_said(ledger: Run, tmp_path: Path) -> None:
    def write(tiny: TinyStudy) -> None:
        other = Identity({"actors/gone.py": "0" * 64}, {})
        study = SmallStudy(tiny.directory.root, tiny.log, changed={"analysis": other})
        study.write_run()
        study.grade_everything()

    study = record(tmp_path / "study", write)
    ran = ledger("analyze", "--reason", "as planned", "--study", study)
    assert ran.status == 0
    assert "program    not as frozen: analysis: actors/gone.py is gone, ledger/" in ran.out
    assert ledger("report", "--out", tmp_path / "out", "--study", study).status == 0
    page = (tmp_path / "out" / "report.md").read_text()
    assert "Not as frozen: 1 component of what computed this; see Deviations." in page


def test_all_contrasts_are_printed(ledger: Run, small: Path) -> None:
    out = ledger("analyze", "--reason", "as planned", "--study", small).out.splitlines()
    rows = {line.split()[0]: line for line in out if line}
    assert {"primary", "replication", "reversed", "gap"} <= set(rows)
    assert "1/3" in rows["replication"] and "not shown" in rows["replication"]
    assert rows["gap"].endswith("estimate")


def test_json_has_the_whole_results(ledger: Run, small: Path) -> None:
    ran = ledger("analyze", "--reason", "as planned", "--json", "--study", small)
    found = ran.json
    (analysed,) = of_type(facts_of(small), AnalysisCompleted)
    assert isinstance(analysed.event, AnalysisCompleted)
    assert found["record"] == analysed.seq
    assert found["results_digest"] == analysed.event.results.digest
    assert found["sentence"].startswith("H018 against H000")
    primary = found["results"]["contrasts"][0]
    assert (primary["table"]["new_only"], primary["test"]["p_exact"]) == (2, 0.5)
    assert found["results"]["computed_from"]["head"] == analysed.event.head


def test_without_a_reason_nothing_is_shown_or_recorded(ledger: Run, small: Path) -> None:
    before = len(facts_of(small))
    ran = ledger("analyze", "--study", small)
    assert ran.status == 1
    assert "--reason" in ran.err and ran.out == ""
    assert len(facts_of(small)) == before


def test_an_unfinished_study_is_refused_at_the_gate(ledger: Run, running: Path) -> None:
    ran = ledger("analyze", "--reason", "too early", "--study", running)
    assert ran.status == 1
    assert "grades at the end" in ran.err and ran.out == ""
    assert inspections(running) == []


def test_the_check_computes_the_recorded_results_again(ledger: Run, small: Path) -> None:
    ledger("analyze", "--reason", "as planned", "--study", small)
    before = len(facts_of(small))
    ran = ledger("analyze", "--check", "--json", "--study", small)
    assert ran.status == 0
    assert ran.json["identical"] is True
    assert ran.json["recorded"] == ran.json["computed"]
    assert len(facts_of(small)) == before
    printed = ledger("analyze", "--check", "--study", small)
    assert printed.status == 0 and "identical" in printed.out
    assert "resolved" not in printed.out


def record_other_results(study: Path, old: bytes, new: bytes) -> bytes:
    """Record the last analysis once more with other results; returns their bytes."""
    directory = StudyDirectory(study)
    (analysed,) = of_type(facts_of(study), AnalysisCompleted)
    assert isinstance(analysed.event, AnalysisCompleted)
    artifacts = Artifacts(directory.artifacts)
    content = artifacts.get(analysed.event.results)
    assert old in content
    content = content.replace(old, new)
    event = AnalysisCompleted(
        head=analysed.event.head,
        leaf=analysed.event.leaf,
        results=artifacts.put(content, "application/json"),
    )
    log = SqliteLog.open(directory.ledger)
    log.append(Batch(events=[NewEvent("study", event)], actor="test", run="test"))
    log.close()
    return content


def test_the_check_finds_results_that_the_ledger_does_not_give(ledger: Run, small: Path) -> None:
    ledger("analyze", "--reason", "as planned", "--study", small)
    content = record_other_results(small, b'"new_only": 2', b'"new_only": 3')
    ran = ledger("analyze", "--check", "--study", small)
    assert ran.status == 3
    assert sha256(content).hexdigest() in ran.out and "resolved" not in ran.out


def test_the_check_is_about_numbers_and_names_other_code(ledger: Run, small: Path) -> None:
    ledger("analyze", "--reason", "as planned", "--study", small)
    assert ledger("analyze", "--check", "--json", "--study", small).json["same_code"] is True
    then = b'"code_not_as_frozen": [\n    "projections/fold.py"\n  ]'
    record_other_results(small, b'"code_not_as_frozen": []', then)
    ran = ledger("analyze", "--check", "--json", "--study", small)
    assert ran.status == 0
    assert (ran.json["identical"], ran.json["same_code"]) == (True, False)
    assert "note: other files of code" in ledger("analyze", "--check", "--study", small).out


def test_the_check_takes_no_reason(ledger: Run, small: Path) -> None:
    assert ledger("analyze", "--check", "--reason", "x", "--study", small).status == 2
    missing = ledger("analyze", "--check", "--study", small)
    assert missing.status == 1 and "`ledger analyze" in missing.err


@pytest.mark.usefixtures("somebody_else")
def test_an_imported_ledger_is_analysed_and_not_written(ledger: Run, small: Path) -> None:
    before = len(facts_of(small))
    StudyDirectory(small).ledger.with_name(IMPORTED_MARK).touch()
    ran = ledger("analyze", "--reason", "an audit", "--study", small)
    assert ran.status == 0
    assert "not recorded" in ran.err and "not recorded" in ran.out
    assert "H018 against H000 with M002" in ran.out
    assert len(facts_of(small)) == before
