"""What several folders of tests share: a frozen rehearsal, made once, and copies of it."""

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rehearsal_study import (
    StudyOnDisk,
    freeze,
    make_validated_study,
    take_steps,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--load-events",
        type=int,
        default=1_000_000,
        help="how many events the load test in tests/load writes (default: %(default)s)",
    )


MAY_BE_SKIPPED = {
    "only some of the attacks were run": "with several processes no one of them sees every attack",
    "root may write everywhere": "CI runs as root; another test takes its privileges away",
    "only root can make a folder of somebody else's": "CI that does not run as root",
    "the extra mem0 is installed": "the opposite of the tests that need it",
    "could not import 'mem0'": "`make systems-sweep` installs it and runs them",
    "the extra real-model is not installed": "`make slow-sweeps` installs it",
    "needs node, and `npm ci`": "`make systems-sweep` runs it",
    "faults at system calls need strace": "a container may forbid tracing",
    "mounting a small file system": "a container may forbid mounting",
    "nothing on this host contains a program": "a container may forbid name spaces",
    "nothing on this host hides a folder": "a container may forbid name spaces",
}
"""What may be skipped in CI, by the beginning of the reason that pytest shows, and why."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """In CI a test that is skipped for a reason that is not listed has failed."""
    outcome = yield
    report = outcome.get_result()
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or "LEDGER_CI" not in os.environ:
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(allowed in reason for allowed in MAY_BE_SKIPPED):
        report.outcome = "failed"
        report.longrepr = f"{reason}: skipped in CI, and not listed in tests/conftest.py"


@pytest.fixture(scope="session")
def validated_study(tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    """A rehearsal whose one task is validated. Not to be changed: copy it."""
    return make_validated_study(tmp_path_factory.mktemp("validated"))


@pytest.fixture(scope="session")
def frozen_study(
    validated_study: StudyOnDisk, tmp_path_factory: pytest.TempPathFactory
) -> StudyOnDisk:
    """The same, frozen: two cells. Not to be run: copy it."""
    study = validated_study.copy(tmp_path_factory.mktemp("frozen") / "study")
    freeze(study)
    return study


@pytest.fixture(scope="session")
def completed_study(
    frozen_study: StudyOnDisk, tmp_path_factory: pytest.TempPathFactory
) -> StudyOnDisk:
    """The same, run to its end without any disturbance. Not to be changed: copy it."""
    study = frozen_study.copy(tmp_path_factory.mktemp("completed") / "study")
    take_steps(study, "run")
    return study


@pytest.fixture
def new_study(frozen_study: StudyOnDisk, tmp_path: Path) -> Callable[[str], StudyOnDisk]:
    """Copies of the frozen rehearsal, by name."""
    return lambda name: frozen_study.copy(tmp_path / name)
