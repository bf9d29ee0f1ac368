"""The benchmark scripts run and show nothing absurd; their targets are for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def run(script: str, *arguments: str) -> Any:
    command = [sys.executable, str(FOLDER / script), "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def test_appending_is_of_the_same_order_as_a_bare_table() -> None:
    rates = run("bench_append.py", "--rounds", "1")["events_per_second"]
    assert set(rates) == {"1", "100", "1000"}
    for row in rates.values():
        assert row["cpu"]["log"] > row["cpu"]["bare"] / 50
        assert row["cpu"]["log"] > row["cpu"]["eventsourcing"] / 5


def test_replay_is_of_the_same_order_as_decoding_and_takes_constant_memory() -> None:
    result = run("bench_replay.py", "--records", "8000", "--cells", "40", "--rounds", "1")
    rates = result["events_per_second"]["cpu"]
    assert rates["replay"] > rates["bare"] / 20
    projected = result["projected_per_second"]["cpu"]
    assert projected["into SQLite"] > projected["in memory"] / 20
    assert result["memory_of_4_times"] < 2


def test_no_writer_starves() -> None:
    result = run("bench_writers.py", "--writers", "4", "--seconds", "1")
    assert result["log"]["slowest_of_fastest"] > 0.1


def test_the_report_names_every_ratio_with_its_target(tmp_path: Path) -> None:
    output = tmp_path / "performance.md"
    command = [sys.executable, str(FOLDER / "report.py"), "--quick", "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    text = output.read_text()
    assert "syncs/s" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    for target in ("≥ 0.8", "≥ 0.35", "≥ 0.3", "≥ 0.5", "≥ 0.25", "≥ 1.0", "≤ 3%", "200 MiB"):
        assert any(target in row for row in rows), target
    assert all(row.split("|")[5].strip() in ("", "met", "missed") for row in rows)
    committed = (FOLDER.parents[1] / "docs" / "performance.md").read_text()
    assert [line.split("|")[4] for line in committed.splitlines() if line.startswith("| ")] == [
        line.split("|")[4] for line in text.splitlines() if line.startswith("| ")
    ], "run `make bench`"
