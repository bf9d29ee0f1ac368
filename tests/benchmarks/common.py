"""Shared by the benchmark scripts: where they ran, and how to compare on a noisy machine.

Absolute rates say little about another machine, so every script prints ratios of interleaved
rounds: round 1 of every contender, round 2 of every contender, … and the median of each.
"""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of what each contender returns (seconds), over rounds in which all take turns.

    Every second round runs in reverse order: what comes after a writer pays for its write-back.
    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in names:
            samples[name].append(contenders[name]())
    return {name: statistics.median(values) for name, values in samples.items()}


def describe_machine(directory: Path) -> str:
    """One line: processor count, system, Python, SQLite and the fsync rate of ``directory``."""
    return (
        f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{fsync_rate(directory):,.0f} syncs/s"
    )


def fsync_rate(directory: Path, count: int = 100) -> float:
    """Durable 4 KiB appends to one file per second, on the file system that the log will use."""
    with tempfile.TemporaryFile(dir=directory) as file:
        begin = time.perf_counter()
        for _ in range(count):
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return count / (time.perf_counter() - begin)
