"""Which setting of `study.toml` changes which of the eight layers: the table of docs/scoring.md."""

from pathlib import Path
from typing import Any

import pytest

from actors.memory_systems.contract import CaseFolders, Opening
from actors.memory_systems.registry import open_memory
from harnesses.drivers.registry import DRIVERS
from schemas.transfer.family import LAYERS
from schemas.transfer.study import Memory

BOTH = ["relevance_filter", "conflict_policy"]


def layers_of(folder: Path, **settings: Any) -> dict[str, str]:
    folders = CaseFolders(folder)
    folders.create()
    system = open_memory(Memory(id="m", **settings), Opening(folders, 10.0))
    try:
        return system.manifest().layers
    finally:
        system.close()


@pytest.mark.parametrize(
    ("kind", "before", "after", "layers"),
    [
        ("store", {"results": 8}, {"results": 3}, ["indexing"]),
        ("store", {"policy": "everything"}, {"policy": "retrieval"}, ["indexing"]),
        ("store", {"policy": "none"}, {"policy": "everything"}, ["indexing"]),
        ("store", {"query": "prompt"}, {"query": "project"}, ["query"]),
        ("store", {"policy": "retrieval"}, {"policy": "full"}, BOTH),
        ("folder", {"layout": "CLAUDE.md"}, {"layout": "AGENTS.md"}, ["representation"]),
    ],
)
def test_of_a_memory(
    tmp_path: Path, kind: str, before: dict[str, Any], after: dict[str, Any], layers: list[str]
) -> None:
    one = layers_of(tmp_path / "one", kind=kind, **before)
    other = layers_of(tmp_path / "other", kind=kind, **after)
    assert [layer for layer in LAYERS if one.get(layer) != other.get(layer)] == layers


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("ignorer", ["decision_control"]),
        ("over_applier", ["decision_control"]),
        ("early_acknowledger", ["outcome_check"]),
    ],
)
def test_of_a_driver_beside_the_reader(kind: str, layers: list[str]) -> None:
    reader, other = DRIVERS["reader"].layers, DRIVERS[kind].layers
    assert [layer for layer in LAYERS if reader.get(layer) != other.get(layer)] == layers
