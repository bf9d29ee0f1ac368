"""What several folders of tests share: a frozen rehearsal, made once, and copies of it."""

from collections.abc import Callable
from pathlib import Path

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
