"""``ledger report``: five files, recorded, the same bytes whenever they are made."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.study_directory import IMPORTED_MARK, StudyDirectory
from schemas.events.study import AnalysisCompleted, ReportWritten
from tests.cli.conftest import Run, facts_of, record
from tests.projections.tiny_study import TinyStudy, of_type
from tests.report.small_study import SmallStudy

FILES = ("report.html", "report.md", "cells.csv", "results.json", "PROTOCOL_AMENDMENTS.md")


@pytest.fixture(scope="session")
def inspected_study(config_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small study up to its inspection. Not to be written to."""

    def write(tiny: TinyStudy) -> None:
        small = SmallStudy(tiny.directory.root, tiny.log)
        small.write_complete()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(config_home))
        return record(tmp_path_factory.mktemp("inspected"), write)


@pytest.fixture
def analysed(inspected_study: Path, tmp_path: Path, ledger: Run) -> Path:
    """A copy with an analysis, to write to."""
    copy = Path(shutil.copytree(inspected_study, tmp_path / "study"))
    assert ledger("analyze", "--reason", "as planned", "--study", copy).status == 0
    return copy


def test_a_report_needs_an_analysis(ledger: Run, inspected_study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(inspected_study, tmp_path / "study"))
    ran = ledger("report", "--study", copy)
    assert ran.status == 1
    assert "`ledger analyze" in ran.err
    assert not (copy / "var" / "reports").exists()


def test_the_files_lie_under_the_head_of_the_analysis(ledger: Run, analysed: Path) -> None:
    ran = ledger("report", "--study", analysed)
    assert ran.status == 0, ran.err
    facts = facts_of(analysed)
    analysis = next(of_type(facts, AnalysisCompleted)).event
    written = next(of_type(facts, ReportWritten)).event
    assert isinstance(analysis, AnalysisCompleted) and isinstance(written, ReportWritten)
    folder = analysed / "var" / "reports" / str(analysis.head)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    for name in FILES:
        assert str(folder / name) in ran.out
    digests = {name: sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    assert digests["report.html"] == written.html.digest
    assert digests["report.md"] == written.markdown.digest
    assert digests["results.json"] == analysis.results.digest
    amendments = (folder / "PROTOCOL_AMENDMENTS.md").read_text()
    assert "No amendment has been recorded." in amendments
    for what in ("study.toml", "documents", "components", "treatments", "tasks"):
        assert what in amendments, "it says what can be amended"
    assert "Families" not in amendments, "in a study of this kind"


def test_a_second_report_has_the_same_bytes(ledger: Run, analysed: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "deeper" / "second"
    assert ledger("report", "--out", first, "--study", analysed).status == 0
    ran = ledger("report", "--out", second, "--json", "--study", analysed)
    assert ran.status == 0
    assert ran.json["html"] == str(second / "report.html")
    assert ran.json["recorded"] is True
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert b"root " in (first / "report.md").read_bytes().split(b"Checkpoint: ")[1]
    assert len(list(of_type(facts_of(analysed), ReportWritten))) == 2


def test_a_report_is_not_written_among_the_files_of_the_study(ledger: Run, analysed: Path) -> None:
    before = len(facts_of(analysed))
    for place in (analysed, analysed / "var" / "artifacts", analysed / "var" / ".." / "var"):
        ran = ledger("report", "--out", place, "--study", analysed)
        assert ran.status == 1 and "own files: name a folder for the report" in ran.err
    assert len(facts_of(analysed)) == before
    assert ledger("report", "--out", analysed / "report", "--study", analysed).status == 0


def test_a_folder_that_cannot_be_written_is_named(
    ledger: Run, analysed: Path, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    ran = ledger("report", "--out", in_the_way / "report", "--study", analysed)
    assert ran.status == 5
    assert str(in_the_way) in ran.err and "--out" in ran.err


def test_an_imported_ledger_gives_the_same_report_and_is_not_written(
    ledger: Run, analysed: Path, tmp_path: Path
) -> None:
    assert ledger("report", "--out", tmp_path / "first", "--study", analysed).status == 0
    before = len(facts_of(analysed))
    StudyDirectory(analysed).ledger.with_name(IMPORTED_MARK).touch()
    ran = ledger("report", "--out", tmp_path / "second", "--study", analysed)
    assert ran.status == 0
    assert "not recorded" in ran.out
    assert len(facts_of(analysed)) == before
    for name in FILES:
        first, second = (tmp_path / folder / name for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
