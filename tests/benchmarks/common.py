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
from typing import NamedTuple


class Seconds(NamedTuple):
    """By the clock, and of processor time of this process: on a busy machine the second says what
    the first would be on an idle one."""

    wall: float
    cpu: float


class Stopwatch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Seconds:
        return Seconds(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def interleave(contenders: Mapping[str, Callable[[], Seconds]], rounds: int) -> dict[str, Seconds]:
    """Medians of what each contender returns, over rounds in which all take turns.

    Every second round runs in reverse order: what comes after a writer pays for its write-back.
    """
    samples: dict[str, list[Seconds]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in names:
            samples[name].append(contenders[name]())
    return {
        name: Seconds(*map(statistics.median, zip(*values, strict=True)))
        for name, values in samples.items()
    }


def rates(seconds: Mapping[str, Seconds], count: int) -> dict[str, dict[str, float]]:
    """Things a second, by clock and contender: ``{"wall": {"log": …}, "cpu": {…}}``."""
    return {
        clock: {name: count / getattr(value, clock) for name, value in seconds.items()}
        for clock in Seconds._fields
    }


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
