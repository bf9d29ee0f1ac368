"""A context on an in-memory log, as handlers get it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.loop import Context, Work, request
from ledger.artifacts import Artifacts
from ledger.log import Fact, decode
from ledger.memory_log import MemoryLog
from ledger.study_directory import StudyDirectory


@pytest.fixture
def context(tmp_path: Path) -> Context:
    directory = StudyDirectory(tmp_path)
    directory.var.mkdir(parents=True)
    return Context(MemoryLog(), Artifacts(directory.artifacts), directory, "run-1")


@pytest.fixture
def take(context: Context) -> Callable[[Any], Work]:
    """Request a command and claim it: the work that its handler is given."""

    def take(command: Any) -> Work:
        command_id = request(context, command)
        role = command.ROLE
        claim = context.log.claim([role], 60.0)
        assert claim is not None and claim.lease.command == command_id
        return Work(context, claim, role, command, 0)

    return take


@pytest.fixture
def events(context: Context) -> Callable[[], list[Fact]]:
    return lambda: [decode(stored) for stored in context.log.read()]
