"""The sweeps go through hundreds of distinct faults, and say so when they do not."""

import re
from pathlib import Path

import pytest

from tests.faults import fault_points

SWEEPS = Path(__file__).parent


def test_there_are_at_least_five_hundred() -> None:
    assert sum(fault_points.MINIMUM.values()) >= 500


def test_every_kind_is_swept_and_listed() -> None:
    sweeps = [path for path in SWEEPS.glob("test_*.py") if path != Path(__file__)]
    texts = [path.read_text() for path in sweeps]
    listed = (SWEEPS.parents[1] / "docs" / "faults.md").read_text()
    for kind, minimum in fault_points.MINIMUM.items():
        assert sum(f'"{kind}"' in text for text in texts) == 1, kind
        row = re.search(rf"^\| {re.escape(kind)} \| ([0-9,]+) \|", listed, re.MULTILINE)
        assert row is not None, kind
        assert int(row[1].replace(",", "")) >= minimum


def test_too_few_points_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_points, "counted", {})
    with pytest.raises(AssertionError, match="2 points, at least 3 expected"):
        fault_points.count("stopped beyond the lease", ["a", "b"])
    with pytest.raises(AssertionError, match="twice"):
        fault_points.count("stopped beyond the lease", ["c", "c"])
    fault_points.count("stopped beyond the lease", ["c"])
