"""The small study, analysed and reported in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.loop import Context, carry_out
from actors.repair.analysis import ANALYSIS
from actors.study.analysis import compute, handlers, report_files
from ledger.memory_log import MemoryLog
from projections.repair.results import Results
from schemas.commands import AnalyseStudy, WriteReport
from tests.report.small_study import SmallStudy

Make = Callable[..., SmallStudy]


def context_of(study: SmallStudy) -> Context:
    return Context(study.log, study.artifacts, study.directory, "test")


def analysed(study: SmallStudy) -> Results:
    """Record an analysis and return what it recorded."""
    carry_out(context_of(study), AnalyseStudy(), handlers(ANALYSIS))
    return compute(context_of(study), ANALYSIS)


def reported(study: SmallStudy) -> dict[str, bytes]:
    """Record an analysis and a report; its files."""
    carry_out(context_of(study), AnalyseStudy(), handlers(ANALYSIS))
    carry_out(context_of(study), WriteReport(), handlers(ANALYSIS))
    return report_files(context_of(study), ANALYSIS)[1]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make small studies, each in its own folder and log."""
    number = 0

    def of(**changes: object) -> SmallStudy:
        nonlocal number
        number += 1
        root = tmp_path / f"study-{number}"
        root.mkdir()
        return SmallStudy(root=root, log=MemoryLog(), **changes)  # type: ignore[arg-type]

    yield of


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> SmallStudy:
    """The small study up to its inspection. Not to be written to."""
    study = SmallStudy(root=tmp_path_factory.mktemp("complete"), log=MemoryLog())
    study.write_complete()
    return study


@pytest.fixture(scope="session")
def results(complete: SmallStudy) -> Results:
    return compute(context_of(complete), ANALYSIS)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of the small study's report."""
    study = SmallStudy(root=tmp_path_factory.mktemp("report"), log=MemoryLog())
    study.write_complete()
    return reported(study)
