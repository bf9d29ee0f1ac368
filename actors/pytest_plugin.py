"""A pytest plugin: one test for each threshold of a transfer study.

    pytest -p actors.pytest_plugin --ledger-study DIR

fails where a frozen threshold is missed, and says by which counts. It reads the last recorded
analysis and makes none: looking at outcomes is recorded by `ledger analyze --reason "…"`.

It is asked for by name (``-p``, or ``pytest_plugins`` in a conftest) and is no entry point: pytest
would import it in every session of everybody who has the product installed, and mark all of its
packages for the rewriting of assertions. Without the option it does nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from projections.transfer.results import TransferResults

OPTION = "--ledger-study"
_CHANGED = "ledger_changed_threshold"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("laboratory-ledger").addoption(
        OPTION,
        action="append",
        default=[],
        metavar="DIR",
        help="study of kind transfer: add one test for each of its thresholds (may be repeated)",
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    for folder in session.config.getoption(OPTION):
        study = Study.from_parent(session, name=str(folder), nodeid=str(folder))
        items.extend(study.collect())


class Study(pytest.Collector):
    """A study directory; its tests are its thresholds."""

    def collect(self) -> Iterator["ThresholdTest"]:
        from ledger.errors import LedgerError

        try:
            results = read_results(Path(self.name))
        except LedgerError as error:
            yield ThresholdTest.from_parent(self, name="analysis", problem=str(error))
            return
        ids = dict.fromkeys(found.id for found in results.thresholds)
        if not ids:
            problem = "the study declares no threshold: add [[thresholds]] before the freeze"
            yield ThresholdTest.from_parent(self, name="thresholds", problem=problem)
        for threshold in ids:
            lines = [
                f"{found.memory} + {found.driver}, {found.class_ or 'every class'}: "
                f"{found.name} {found.words}: {found.status.replace('_', ' ')}; {found.chosen}"
                for found in results.missed
                if found.id == threshold
            ]
            test = ThresholdTest.from_parent(self, name=threshold, problem="\n".join(lines))
            # Properties reach the summary from other processes too.
            test.user_properties += [(_CHANGED, dropped.words) for dropped in results.dropped]
            yield test


class ThresholdTest(pytest.Item):
    """Passes where nothing is wrong with the threshold."""

    def __init__(self, *, problem: str, **more: Any) -> None:
        super().__init__(**more)
        self.problem = problem

    def runtest(self) -> None:
        if self.problem:
            raise ThresholdMissed(self.problem)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, ThresholdMissed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        assert self.parent is not None
        return Path(self.parent.name), None, f"{self.parent.name}: {self.name}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Every threshold that stands no more as it was frozen: a gate may be green because of it."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    changed = dict.fromkeys(
        words
        for report in reports
        for name, words in getattr(report, "user_properties", ())
        if name == _CHANGED
    )
    if changed:
        terminalreporter.section("thresholds that stand no more as they did")
    for words in changed:
        terminalreporter.line(words)


class ThresholdMissed(Exception):
    """A frozen threshold is missed, or there is nothing to compare it with."""


def read_results(folder: Path) -> "TransferResults":
    """The results of the last analysis of the study in ``folder``.

    Raises LedgerError where there is no study, no analysis, one that later records outdate, or a
    study of another kind.
    """
    from actors.loop import Context
    from actors.study import analysis, outdated_analysis
    from ledger.artifacts import Artifacts
    from ledger.errors import Refused, Usage
    from ledger.stores import open_log
    from ledger.study_directory import StudyDirectory
    from projections.transfer.results import TransferResults
    from schemas.events.transfer import FamiliesFrozen

    directory = StudyDirectory(folder)
    if not directory.ledger.is_file():
        raise Usage(f"{folder} holds no ledger: name the folder with study.toml that has run")
    log = open_log(directory.ledger, "read")
    try:
        context = Context(log, Artifacts(directory.artifacts), directory, "")
        fact, completed = analysis.last_analysis(context)
        outdated = outdated_analysis.outdated_by(context, completed.head)
        if outdated is not None:
            raise Refused(
                f"record {outdated.seq} ({outdated.event.TYPE}) came after the last analysis: "
                '`ledger analyze --reason "…"` again'
            )
        if not any(isinstance(each.event, FamiliesFrozen) for each in context.study_facts()):
            raise Refused(f"{folder} is no transfer study: it has no thresholds")
        return analysis.read_results(context, fact.seq, completed, TransferResults)
    finally:
        log.close()
