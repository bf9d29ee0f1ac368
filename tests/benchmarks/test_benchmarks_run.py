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
        assert row["log"] > row["bare"] / 50


def test_replay_is_of_the_same_order_as_decoding_and_takes_constant_memory() -> None:
    result = run("bench_replay.py", "--records", "8000", "--rounds", "1")
    rates = result["events_per_second"]
    assert rates["replay"] > rates["bare"] / 20
    assert result["memory_of_4_times"] < 2


def test_no_writer_starves() -> None:
    result = run("bench_writers.py", "--writers", "4", "--seconds", "1")
    assert result["log"]["slowest_of_fastest"] > 0.1
