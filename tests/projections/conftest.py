from pathlib import Path

import pytest

from ledger.log import Fact
from ledger.memory_log import MemoryLog
from tests.projections.tiny_study import TinyStudy


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TinyStudy:
    """A complete study without a violation in an in-memory log. Not to be written to."""
    study = TinyStudy(tmp_path_factory.mktemp("whole"), MemoryLog())
    study.write_everything()
    return study


@pytest.fixture(scope="session")
def whole_facts(whole: TinyStudy) -> list[Fact]:
    return whole.facts()


@pytest.fixture
def tiny(tmp_path: Path) -> TinyStudy:
    """An empty study to write to."""
    return TinyStudy(tmp_path, MemoryLog())
