"""Systems that are other people's programs, over the laboratory of ``tests/transfer``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.families.load import load_family
from actors.sandbox import probe
from ledger.log import Batch, NewEvent
from schemas.events.mining import SandboxProbed
from schemas.identifiers import RUN_STREAM
from schemas.transfer.family import Family
from schemas.transfer.study import Memory
from tests.transfer.conftest import GIVEN, InHand, Laboratory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def given_families() -> tuple[Family, ...]:
    return tuple(
        load_family(path.read_bytes(), path.name) for path in sorted(GIVEN.glob("F10[1-6].yaml"))
    )


@pytest.fixture(scope="session")
def sandbox_event() -> SandboxProbed:
    """What this host offers; where nothing contains a program, it runs without, as accepted."""
    report = probe()
    return SandboxProbed(
        kind=report.kind,
        enforced={row.name: row.state for row in report.isolation},
        accepted_unsafe=report.kind == "none",
    )


@pytest.fixture
def worker(
    tmp_path: Path, given_families: tuple[Family, ...], sandbox_event: SandboxProbed
) -> Callable[..., Laboratory]:
    """``worker(*memories, …)``: a worker whose run was started in this host's sandbox."""

    def make(
        *memories: Memory,
        families: Sequence[Family] = given_families,
        probed: SandboxProbed | None = sandbox_event,
        **suite: Any,
    ) -> Laboratory:
        place = tmp_path / f"study-{len(list(tmp_path.iterdir()))}"
        lab = Laboratory(place, InHand(families, memories=memories, **suite))
        if probed is not None:
            lab.context.log.append(
                Batch(events=[NewEvent(RUN_STREAM, probed)], actor="operator", run="run-1")
            )
        return lab

    return make
