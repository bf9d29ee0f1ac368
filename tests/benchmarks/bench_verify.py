"""Verification against a plain loop, and what checkpoints cost an append.

Run as `python tests/benchmarks/bench_verify.py`. The plain loop is what anyone would write first:
read seq, record and leaf with `sqlite3`, compute every leaf with `hashlib`, compare it with the
column and with the link of the record that follows. Verification has every check on: links,
canonical form, types, stream versions, artifacts, Merkle roots, signatures, and in a second thread
the columns and SQLite's own integrity check; `main thread` leaves that thread's time out, which a
second idle processor hides. Memory is that of a process that verifies. `git fsck` checks as many
objects, one for each record with the record's bytes, in one pack.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import Seconds, Stopwatch, describe_machine, interleave, rates

from ledger.artifacts import Artifacts
from ledger.checkpoint import CHECKPOINT_INTERVAL, Checkpointer
from ledger.codec import encode_data
from ledger.creation import create_ledger
from ledger.log import Batch, NewEvent
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import verify
from schemas.base import ArtifactRef
from schemas.commands import AdvanceCell
from schemas.events.cell import ToolCalled
from schemas.events.command import CommandRequested

REQUIRED_OF_PLAIN = 0.35
ALLOWED_CHECKPOINT_SHARE = 0.03
ALLOWED_MEMORY_MIB = 200
DATA_BYTES = 400
CHECKPOINT_BATCHES = {1: 2_000, 10: 6_000, 100: 10_000}
"""Events a commit, and events in all. The product commits 1 to 14 at a time."""


def make_event(ref: ArtifactRef, number: int, padding: int) -> ToolCalled:
    return ToolCalled(
        turn=3,
        number=number,
        tool="read_file",
        arguments=ref,
        result=ref,
        ok=True,
        shown=("p" * padding,),
    )


def append(
    directory: StudyDirectory, events: int, batch: int, streams: int = 500
) -> tuple[float, float]:
    """Fill a log; returns the seconds spent in appends and in checkpoints."""
    log = SqliteLog.open(directory.ledger)
    checkpointer = Checkpointer(directory)
    ref = Artifacts(directory.artifacts).put(b"def f(): ...\n" * 99, "text/x-python")
    padding = DATA_BYTES - len(encode_data(make_event(ref, 0, 0)))
    advance = AdvanceCell(cell="R001-000/H000/M001/0")
    request = NewEvent("role/cell", CommandRequested(role="cell", command=advance))
    command = log.append(Batch(events=[request], actor="scheduler", run="bench"))[0].envelope().id
    appending = checkpointing = 0.0
    for first in range(0, events, batch):
        stream = f"cell/R001-{first // batch % streams:03}/H000/M001/0"
        written = Batch(
            events=[
                NewEvent(stream, make_event(ref, number, padding))
                for number in range(min(batch, events - first))
            ],
            actor="cell",
            run="bench",
            cause=command,
            first_index=first,
        )
        begin = time.perf_counter()
        stored = log.append(written)
        end = time.perf_counter()
        if stored[0].seq // CHECKPOINT_INTERVAL < (stored[-1].seq + 1) // CHECKPOINT_INTERVAL:
            checkpointer.sign(log)
        appending += end - begin
        checkpointing += time.perf_counter() - end
    checkpointer.sign(log)
    log.close()
    return appending, checkpointing


def plain_loop(database: Path) -> Seconds:
    watch = Stopwatch()
    connection = sqlite3.connect(database)
    link = b'"prev":"' + b"0" * 64
    for _, record, leaf in connection.execute("SELECT seq, record, leaf FROM records ORDER BY seq"):
        computed = sha256(b"\x00" + record).digest()
        if computed != leaf or link not in record[:128]:
            raise SystemExit("the chain is broken")
        link = b'"prev":"' + computed.hex().encode()
    connection.close()
    return watch.read()


def whole_verification(directory: StudyDirectory) -> Seconds:
    watch = Stopwatch()
    report = verify(directory.root)
    seconds = watch.read()
    if report.status != "verified":
        raise SystemExit(str(report.findings or report.assurance))
    return seconds


def main_thread(directory: StudyDirectory) -> Seconds:
    """Processor time of the thread that waits for the other one, as both."""
    begin = time.thread_time()
    whole_verification(directory)
    return Seconds(*[time.thread_time() - begin] * 2)


def make_repository(database: Path, repository: Path) -> None:
    """Every record as a blob."""
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    command = ["git", "-C", str(repository), "fast-import", "--quiet"]
    with sqlite3.connect(database) as connection:
        records = connection.execute("SELECT record FROM records ORDER BY seq")
        blobs = b"".join(b"blob\ndata %d\n%b\n" % (len(record), record) for (record,) in records)
    connection.close()
    subprocess.run(command, input=blobs, check=True)


def git_fsck(repository: Path) -> Seconds:
    watch = Stopwatch()
    before = os.times()
    command = ["git", "-C", str(repository), "fsck", "--full", "--no-dangling", "--no-progress"]
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system
    return Seconds(watch.read().wall, cpu - before.children_user - before.children_system)


def memory_of_a_verification(root: Path) -> float:
    """MiB at the highest, of a process that does nothing else."""
    program = (
        "import resource; from pathlib import Path; from ledger.verify.verification import verify; "
        f"verify(Path({str(root)!r})); "
        "status = Path('/proc/self/status'); "
        # What getrusage says on Linux counts the process before it became this program.
        "lines = status.read_text().splitlines() if status.exists() else []; "
        "print(next((line.split()[1] for line in lines if line.startswith('VmHWM')), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
    )
    command = [sys.executable, "-c", program]
    highest = int(subprocess.run(command, check=True, capture_output=True).stdout)
    return highest / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's)")
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        os.environ[CONFIG_HOME_VARIABLE] = str(Path(name) / "home")
        machine = describe_machine(Path(name))
        shares = {}
        for batch, events in CHECKPOINT_BATCHES.items():
            directory = StudyDirectory(Path(name) / f"batch-{batch}")
            create_ledger(directory)
            appending, checkpointing = append(directory, min(events, arguments.records), batch)
            shares[batch] = checkpointing / appending
        directory = StudyDirectory(Path(name) / "study")
        create_ledger(directory)
        append(directory, arguments.records, 100)
        repository = Path(name) / "repository"
        make_repository(directory.ledger, repository)
        seconds = interleave(
            {
                "plain": lambda: plain_loop(directory.ledger),
                "verify": lambda: whole_verification(directory),
                "main thread": lambda: main_thread(directory),
                "git fsck": lambda: git_fsck(repository),
            },
            arguments.rounds,
        )
        memory = memory_of_a_verification(directory.root)
    measured = rates(seconds, arguments.records)
    result = {
        "machine": machine,
        "records": arguments.records,
        "records_per_second": measured,
        "memory_mib": memory,
        "checkpoint_share_of_append": shares,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(machine)
    for clock, row in measured.items():
        for key, value in row.items():
            print(f"{clock:>5} {key:>12} {value:>10,.0f} records/s, {value / row['plain']:.2f}")
    print(
        f"of the plain loop at least {REQUIRED_OF_PLAIN}; {memory:,.0f} MiB (at most "
        f"{ALLOWED_MEMORY_MIB} for 1,000,000 records)"
    )
    for batch, share in shares.items():
        print(
            f"checkpoints at {batch:>3} events a commit: {share:.1%} of append time (at most "
            f"{ALLOWED_CHECKPOINT_SHARE:.0%} for single commits)"
        )


if __name__ == "__main__":
    main()
