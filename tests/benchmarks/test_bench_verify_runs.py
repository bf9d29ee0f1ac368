"""The benchmark of verification runs and shows nothing absurd; its targets are for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path


def test_verification_is_of_the_same_order_as_a_plain_loop() -> None:
    script = Path(__file__).with_name("bench_verify.py")
    command = [sys.executable, str(script), "--json", "--records", "1200", "--rounds", "1"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    rates = result["records_per_second"]
    assert rates["cpu"]["main thread"] > rates["cpu"]["plain"] / 50
    assert rates["wall"]["verify"] > rates["wall"]["git fsck"] / 50
    assert result["memory_mib"] < 200
    assert set(result["checkpoint_share_of_append"]) == {"1", "10", "100"}
    assert 0 < result["checkpoint_share_of_append"]["1"] < 1
