"""Every benchmark runs and shows nothing absurd; the targets are for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
COMMITTED = FOLDER.parents[1] / "docs" / "performance.md"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The page of a small run, and what each script measured."""
    folder = tmp_path_factory.mktemp("report")
    page, results = folder / "performance.md", folder / "results.json"
    script = str(FOLDER / "report.py")
    options = ["--quick", "--output", str(page), "--results", str(results)]
    subprocess.run([sys.executable, script, *options], check=True, capture_output=True)
    return page.read_text(), json.loads(results.read_bytes())


def test_appending_is_of_the_same_order_as_a_bare_table(
    written: tuple[str, dict[str, Any]],
) -> None:
    rates = written[1]["bench_append.py"]["events_per_second"]
    assert set(rates) == {"1", "100", "1000"}
    for row in rates.values():
        assert row["cpu"]["log"] > row["cpu"]["bare"] / 50
        assert row["cpu"]["log"] > row["cpu"]["eventsourcing"] / 5


def test_replay_is_of_the_same_order_as_decoding_and_takes_constant_memory(
    written: tuple[str, dict[str, Any]],
) -> None:
    result = written[1]["bench_replay.py"]
    rates = result["events_per_second"]["cpu"]
    assert rates["replay"] > rates["bare"] / 10
    projected = result["projected_per_second"]["cpu"]
    assert projected["into SQLite"] > projected["in memory"] / 20
    assert result["memory_of_4_times"] < 2


def test_verification_is_of_the_same_order_as_a_plain_loop(
    written: tuple[str, dict[str, Any]],
) -> None:
    result = written[1]["bench_verify.py"]
    rates = result["records_per_second"]
    assert rates["cpu"]["main thread"] > rates["cpu"]["plain"] / 50
    assert rates["wall"]["verify"] > rates["wall"]["git fsck"] / 50
    assert result["memory_mib"] < 200
    assert set(result["checkpoint_share_of_append"]) == {"1", "10", "100"}
    assert 0 < result["checkpoint_share_of_append"]["1"] < 1


def test_no_writer_starves(written: tuple[str, dict[str, Any]]) -> None:
    assert written[1]["bench_writers.py"]["log"]["slowest_of_fastest"] > 0.1


def test_the_page_names_every_ratio_with_its_target(written: tuple[str, dict[str, Any]]) -> None:
    text, _ = written
    assert "syncs/s" in text
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    targets = [row[4].strip() for row in rows]
    for target in (
        "\u2265 0.8",
        "\u2265 0.35",
        "\u2265 0.3",
        "\u2265 0.5",
        "\u2265 0.25",
        "\u2265 1.0",
    ):
        assert target in targets
    assert all(row[5].strip() in ("", "met", "missed") for row in rows)
    committed = COMMITTED.read_text().splitlines()
    listed = [line.split("|")[4].strip() for line in committed if line.startswith("| ")][1:]
    assert listed == targets, "run `make bench`"
