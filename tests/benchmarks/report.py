"""Runs every benchmark and writes `docs/performance.md`: each ratio beside its target.

Usage: python tests/benchmarks/report.py [--output FILE] [--results FILE] [--quick]

Ratios by the clock are what counts; those of processor time stand beside them, because on a machine
that others use too the clock measures the others. Nothing here fails: what is missed says so.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import bench_append
import bench_replay
import bench_verify
import bench_writers

FOLDER = Path(__file__).parent
OUTPUT = FOLDER.parents[1] / "docs" / "performance.md"
QUICK = {
    "bench_append.py": ["--rounds", "1"],
    "bench_replay.py": ["--records", "8000", "--cells", "20", "--rounds", "1"],
    "bench_verify.py": ["--records", "1200", "--rounds", "1"],
    "bench_writers.py": ["--writers", "4", "--seconds", "1"],
}


class Line(NamedTuple):
    what: str
    wall: str
    cpu: str
    target: str
    met: bool | None = None
    """By the clock; None where there is no target."""


def ratio(rates: dict[str, dict[str, float]], one: str, other: str, of: str = "wall") -> float:
    return rates[of][one] / rates[of][other]


def compared(
    what: str,
    rates: dict[str, dict[str, float]],
    one: str,
    other: str,
    target: float | None = None,
) -> Line:
    wall, cpu = (ratio(rates, one, other, clock) for clock in ("wall", "cpu"))
    return Line(
        what,
        f"{wall:.2f}",
        f"{cpu:.2f}",
        "" if target is None else f"≥ {target}",
        None if target is None else wall >= target,
    )


def lines(results: dict[str, Any]) -> Iterator[Line]:
    appended = results["bench_append.py"]["events_per_second"]
    for size, target in bench_append.TARGETS.items():
        rates = appended[str(size)]
        batch = f"append, {size} event{'s' if size > 1 else ''} a commit"
        yield compared(f"{batch} / bare `sqlite3` table", rates, "log", "bare", target)
        yield compared("its statements alone / bare `sqlite3` table", rates, "statements", "bare")
        yield compared(f"{batch} / `eventsourcing`", rates, "log", "eventsourcing", 1.0)
        yield compared(f"{batch} / raw file with fdatasync", rates, "log", "file")
    verified = results["bench_verify.py"]["records_per_second"]
    required = bench_verify.REQUIRED_OF_PLAIN
    yield compared("verify, every check / plain loop", verified, "verify", "plain", required)
    yield compared("its main thread alone / plain loop", verified, "main thread", "plain")
    yield compared(
        "verify, every check / `git fsck` of as many objects", verified, "verify", "git fsck"
    )
    replayed = results["bench_replay.py"]["events_per_second"]
    yield compared(
        "replay: decode and fold / bare decode", replayed, "replay", "bare", bench_replay.TARGET
    )
    yield compared(
        "replay into SQLite projections / fold in memory",
        results["bench_replay.py"]["projected_per_second"],
        "into SQLite",
        "in memory",
        bench_replay.TARGET_INTO_SQLITE,
    )
    allowed = bench_verify.ALLOWED_CHECKPOINT_SHARE
    for size, share in results["bench_verify.py"]["checkpoint_share_of_append"].items():
        what = f"checkpoints, share of append time, {size} a commit"
        # By default the product commits few events at a time.
        target = f"≤ {allowed:.0%}" if size == "1" else ""
        yield Line(what, f"{share:.1%}", "", target, share <= allowed if target else None)
    writers = results["bench_writers.py"]["log"]
    longest = writers["longest_wait_seconds"]
    yield Line(
        f"eight writing processes, longest wait at {writers['events_per_second']:,.0f} events/s",
        f"{longest:.2f} s",
        "",
        f"≤ {bench_writers.LONGEST_WAIT} s at 10,000",
        # Slower than that, the target says nothing.
        longest <= bench_writers.LONGEST_WAIT if writers["events_per_second"] >= 10_000 else None,
    )
    yield Line(
        "the slowest of them / the fastest",
        f"{writers['slowest_of_fastest']:.2f}",
        "",
        "> 0",
        writers["slowest_of_fastest"] > 0,
    )
    memory = results["bench_verify.py"]["memory_mib"]
    yield Line(
        f"memory of a verification of {results['bench_verify.py']['records']:,} records",
        f"{memory:.0f} MiB",
        "",
        f"≤ {bench_verify.ALLOWED_MEMORY_MIB} MiB at 1,000,000",
    )
    growth = results["bench_replay.py"]["memory_of_4_times"]
    yield Line(
        "memory of a replay of four times the records",
        f"{growth:.2f} times",
        "",
        "constant",
        growth < 1.5,
    )


def page(results: dict[str, Any], load: str) -> str:
    rows = [
        f"| {line.what} | {line.wall} | {line.cpu} | {line.target} "
        f"| {'' if line.met is None else 'met' if line.met else 'missed'} |"
        for line in lines(results)
    ]
    return f"""\
# Performance

Written by `make bench`, from one run. Ratios are of rates, so more is better; contenders take turns
and medians are compared. *Processor* leaves out what waits for the disk and for other programs.
Targets are for an idle machine and for the clock; where a run cannot judge one, nothing is said.

- Machine: {results["bench_append.py"]["machine"]}
- Load average of one minute, before and after: {load}

| what | by the clock | processor | target | |
|---|---|---|---|---|
{chr(10).join(rows)}

Every append is durable when it returns, for every contender (WAL, `synchronous=FULL`; the raw file
syncs each batch). The bare table has two columns and keeps the event's JSON. `eventsourcing` maps
and stores domain events and has no chain. The log checks that each event reads back, links and
hashes it, and keeps two unique indices and a trigger; *its statements alone* are rows made before,
which is what SQLite takes of an append (`docs/decisions/0012-what-an-append-costs.md`). The plain
loop reads record and leaf with `sqlite3` and compares hashes with `hashlib`; verification also
checks columns, canonical form, types, versions, artifacts, the Merkle root, signatures and SQLite's
own structure, and uses a second thread for what SQLite does by itself. `git fsck` checks a pack
with one blob a record. What each script does stands at its head, in `tests/benchmarks/`; a million
events from eight processes are the sweep `tests/load/`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--results", type=Path, help="where to write what was measured, as JSON")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    results = {}
    for script, small in QUICK.items():
        command = [sys.executable, str(FOLDER / script), "--json"]
        command += small if arguments.quick else []
        print(f"{script} ...", file=sys.stderr, flush=True)
        results[script] = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
    text = page(results, f"{before:.1f}, {os.getloadavg()[0]:.1f}")
    arguments.output.write_text(text)
    if arguments.results:
        arguments.results.write_text(json.dumps(results))
    print(text)


if __name__ == "__main__":
    main()
