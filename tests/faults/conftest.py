"""The study that is made to suffer: copies of the frozen rehearsal, and what it comes to when
nobody disturbs it; places for a small ledger."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ledger.log import Fact
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from schemas.events.cell import CellFinished, CellStarted
from tests.end_to_end.rehearsal_study import StudyOnDisk, check_sound, outcomes
from tests.faults.storage_work import Place

INJECTION = Path(__file__).with_name("injection")


@pytest.fixture(autouse=True)
def _temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a killed process has left in the folder for temporary files goes with its test. Its path
    is short, for those of sockets in it, and others may walk through, as in the system's."""
    with tempfile.TemporaryDirectory(prefix="lf-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@dataclass(frozen=True)
class Append:
    """One commit of a cell: the first version of the cell's stream that it wrote, and what it
    wrote there."""

    stream: str
    version: int
    events: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """What happens to a process at an append; ``injection/sitecustomize.py`` lets it happen."""

    stream: str
    when: Literal["before", "after"]
    how: Literal["kill", "kill-set", "stop", "interrupt"]
    version: int | None = None
    type: str | None = None


@dataclass(frozen=True)
class Baseline:
    """The undisturbed run."""

    outcomes: dict[str, tuple[object, ...]]
    appends: dict[str, list[Append]]
    """By cell, in plan order, every append from its first record to its end."""
    records: int
    """How many records the run wrote."""


@pytest.fixture(scope="session")
def baseline(frozen_study: StudyOnDisk, completed_study: StudyOnDisk) -> Baseline:
    facts = completed_study.facts()
    expected = outcomes(facts)
    check_sound(completed_study, expected)
    cells = [f.event.cell for f in facts if isinstance(f.event, CellStarted)]
    return Baseline(
        expected,
        {str(cell): appends_of(facts, cell.stream) for cell in cells},
        len(facts) - len(frozen_study.facts()),
    )


def appends_of(facts: list[Fact], stream: str) -> list[Append]:
    """The appends of a cell. The records of one append share time, actor and cause."""
    found: list[tuple[tuple[str, str, str | None], Append]] = []
    for fact in facts:
        if fact.stream != stream:
            continue
        key = (fact.at, fact.actor, fact.cause)
        if found and found[-1][0] == key:
            append = found.pop()[1]
            events = (*append.events, fact.event.TYPE)
            found.append((key, Append(stream, append.version, events)))
        else:
            found.append((key, Append(stream, fact.version, (fact.event.TYPE,))))
        if isinstance(fact.event, CellFinished):
            break
    return [append for _, append in found]


Disturb = Callable[..., StudyOnDisk]


def disturbed(study: StudyOnDisk, *faults: Fault) -> StudyOnDisk:
    """Let these faults happen to the study's processes, each once."""
    listed = [
        {name: value for name, value in vars(fault).items() if value is not None}
        | {"marker": str(marker(study, number))}
        for number, fault in enumerate(faults)
    ]
    study.variables |= {"PYTHONPATH": str(INJECTION), "LEDGER_FAULTS": json.dumps(listed)}
    return study


def marker(study: StudyOnDisk, number: int) -> Path:
    """Exists once the fault of this number has happened; holds the id of the process."""
    return study.path.parent / f"fault-{number}"


@pytest.fixture
def new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Place]]:
    """Empty places for the storage work, in memory where there is such a file system: what is
    swept is which calls are made, and a disk's own slowness would be most of the time."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="ledger-faults-", dir=parent) as folder:
        places = 0

        def make() -> Place:
            nonlocal places
            places += 1
            place = Place(Path(folder) / str(places))
            place.directory.root.mkdir(parents=True)
            monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(place.home))
            return place

        yield make
