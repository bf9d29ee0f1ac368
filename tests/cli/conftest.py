"""A recorded study on disk, and a way to run commands on it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ledger.checkpoint import Checkpointer
from ledger.cli.main import main
from ledger.creation import create_ledger
from ledger.log import Fact, decode
from ledger.signing_keys import CONFIG_HOME_VARIABLE, load_or_create_signing_key
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.events.study import OutcomesInspected
from tests.projections.tiny_study import TinyStudy, of_type


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


Run = Callable[..., Ran]


def facts_of(study: Path) -> list[Fact]:
    log = SqliteLog.open_read_only(StudyDirectory(study).ledger)
    facts = [decode(stored) for stored in log.read()]
    log.close()
    return facts


def inspections(study: Path) -> list[OutcomesInspected]:
    return [
        fact.event
        for fact in of_type(facts_of(study), OutcomesInspected)
        if isinstance(fact.event, OutcomesInspected)
    ]


@pytest.fixture(scope="session")
def config_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's configuration folder: one signing key for all tests."""
    folder = tmp_path_factory.mktemp("config")
    load_or_create_signing_key(folder)
    return folder


@pytest.fixture(autouse=True)
def _user(
    config_home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same user in every test, who has seen nothing of the copies that other tests change."""
    forget = shutil.ignore_patterns("last-seen")
    home = tmp_path_factory.mktemp("configuration") / "home"
    shutil.copytree(config_home, home, ignore=forget)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(home))


@pytest.fixture
def own_home(config_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the configuration folder for one test: what its verifier has seen of one copy of a
    study would contradict the others."""
    home = Path(shutil.copytree(config_home, tmp_path / "home"))
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(home))
    return home


def record(root: Path, write: Callable[[TinyStudy], None]) -> Path:
    """Make a ledger under ``root`` and let ``write`` append to it; a checkpoint is signed."""
    directory = StudyDirectory(root)
    create_ledger(directory)
    log = SqliteLog.open(directory.ledger)
    tiny = TinyStudy(root, log)
    write(tiny)
    Checkpointer(directory).sign(log)
    log.close()
    return root


@pytest.fixture(scope="session")
def recorded(config_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete study. Not to be written to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(config_home))
        return record(tmp_path_factory.mktemp("recorded"), TinyStudy.write_everything)


@pytest.fixture
def study(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the complete study, to write to."""
    return Path(shutil.copytree(recorded, tmp_path / "study"))


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """A frozen study whose run has just begun."""

    def write(tiny: TinyStudy) -> None:
        tiny.mine()
        tiny.freeze()
        tiny.start_run()

    return record(tmp_path / "running", write)


@pytest.fixture
def somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on commands are those of a user whose key has signed nothing here."""
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "config of somebody else"))


@pytest.fixture
def ledger(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def run(*words: str | Path) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, captured.out, captured.err)

    return run
