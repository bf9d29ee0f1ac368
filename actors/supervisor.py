"""Runs the right set of workers for one machine, watches them, and stops them in order.

Every worker is a process of its own, started by exec of the worker command, with a pipe on its
standard input: when the supervisor dies, however it dies, the pipe closes and the worker ends.
A worker that was killed takes the whole set with it, and the set is started again: what had been
started and not finished stands in the log. A helper (the stand-in server of a rehearsal) is watched
in the same way. The same happens to a set whose supervisor was killed, at the next ``ledger run``.
Workers of other programs (``ledger worker``) may join on the same log: what one of them refused
ends the run as if the set had refused it.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from actors.loop import Context, clear_scratch, request
from actors.wakeup import clean_up_abandoned
from ledger.checkpoint import CHECKPOINT_INTERVAL
from ledger.errors import LedgerError, Refused, Unfinished
from ledger.interruption import check_interrupted
from ledger.log import decode
from projections.fold import Follower
from projections.pending_commands import PendingCommands
from projections.progress import Progress
from schemas.commands import ContinueStudy, Role
from schemas.events.command import CommandRefused

MAX_RESTARTS = 5
"""How often a set is started again without a cell that ends or is graded in between."""
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.2
SET_ROLES: tuple[Role, ...] = (
    "scheduler",
    "model_server",
    "cell",
    "test_run",
    "grader",
    "memory_session",
)
"""What the set of one machine works on. A study is over when nothing of it is pending."""


@dataclass
class Worker:
    """One child process: a worker of some roles.

    A ``helper`` holds no lease: it is watched like a worker, but ended by the set's stack, when
    nobody needs it any more.
    """

    name: str
    process: "subprocess.Popen[bytes]"
    helper: bool = False


Launch = Callable[[ExitStack], Sequence[Worker]]
"""Starts a set of workers; whatever else the set needs is entered into the stack."""


@dataclass
class Supervisor:
    """``look`` is called several times a second with the progress fold, for the live display;
    ``sign`` every 1,000 records, for a checkpoint."""

    context: Context
    launch: Launch
    look: Callable[[Progress], None]
    sign: Callable[[], object]
    restarts: int = 0
    _workers: Sequence[Worker] = ()
    _set: ExitStack = field(default_factory=ExitStack)
    _begun_at: int = 0
    """Seq of the first record that the present set can have written."""
    _cells_over: int = 0

    def run(self) -> None:
        """Return when the study is complete.

        Raises what a worker refused (with its status), Unfinished when workers keep dying, and
        KeyboardInterrupt when it is interrupted. The workers have ended in every case.
        """
        progress = Progress(self.context.artifacts.get)
        commands = PendingCommands()
        follower = Follower(self.context.log, progress, commands)
        signed = 0
        try:
            self._start()
            while True:
                follower.catch_up()
                self.look(progress)
                over = progress.done_cells() + progress.graded()
                if over > self._cells_over:
                    self._cells_over, self.restarts = over, 0
                if follower.position - signed >= CHECKPOINT_INTERVAL:
                    self.sign()
                    signed = follower.position
                pending = commands.of_roles(SET_ROLES)
                if progress.completed and not pending:
                    return
                dead = [worker for worker in self._workers if worker.process.poll() is not None]
                if dead:
                    self._settle(dead)
                elif not pending:
                    self._nothing_pending()
                check_interrupted()
                time.sleep(LOOK_SECONDS)
        finally:
            self._stop()

    def _start(self) -> None:
        prove_no_worker(self.context)
        head = self.context.log.head()
        self._begun_at = 0 if head is None else head.seq + 1
        self._workers = self.launch(self._set)

    def _settle(self, dead: Sequence[Worker]) -> None:
        """Somebody ended. A worker by a refusal: raise it. By a signal: start the set again.

        Without its helper a worker may refuse what it would do with it, so that is not asked then.
        """
        refusal = self._last_refusal()
        if refusal is not None and not any(worker.helper for worker in dead):
            raise refusal
        self.restarts += 1
        if self.restarts > MAX_RESTARTS:
            ends = "; ".join(map(self._end_of, dead))
            raise Unfinished(
                f"worker processes keep ending: {ends}; see {diagnostics_folder(self.context)}"
            )
        self._stop()
        self._start()
        # A refused command has no successor; asked twice, the scheduler requests nothing twice.
        request(self.context, ContinueStudy())

    def _nothing_pending(self) -> None:
        """Nobody has anything to do, and the study is not complete: the command that would have led
        on was refused. All of the set may live: it was a joined worker that refused."""
        refusal = self._last_refusal()
        if refusal is not None:
            raise refusal
        self.restarts += 1  # refused before this set began: ask again what is next
        if self.restarts > MAX_RESTARTS:
            raise Unfinished("the scheduler requests nothing though the study is not complete")
        request(self.context, ContinueStudy())

    def _end_of(self, worker: Worker) -> str:
        """How a worker ended, and its last words where it had any."""
        status = worker.process.returncode
        end = f"{worker.name} (status {status})"
        log = diagnostics_folder(self.context) / f"{worker.name}.log"
        if status < 0 or not log.exists():
            return end
        words = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
        return f"{end}: {words[:500]}"

    def _last_refusal(self) -> LedgerError | None:
        """The error with which a command of the set's roles was refused since the present set was
        started, if one was; whoever carried it out."""
        last = None
        for stored in self.context.log.read(self._begun_at):
            envelope = stored.envelope()
            if envelope.actor in SET_ROLES and envelope.type == CommandRefused.TYPE:
                last = decode(stored).event
        if not isinstance(last, CommandRefused):
            return None
        kinds = {kind.exit_status: kind for kind in LedgerError.__subclasses__()}
        return kinds.get(last.exit_status, Refused)(last.reason)

    def _stop(self) -> None:
        """Ask every worker to end, then insist. Nothing is lost: leases are released later."""
        workers = [worker for worker in self._workers if not worker.helper]
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in workers:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.process.stdin:
                worker.process.stdin.close()
        self._workers = ()
        self._set.close()
        clean_up_abandoned(self.context.directory.sockets)


def start_worker(
    context: Context, name: str, roles: Sequence[str], options: Sequence[str] = ()
) -> Worker:
    """Start a supervised worker by exec of ``ledger worker``; it writes to its diagnostics file."""
    command = [sys.executable, "-m", "ledger", "worker", "--study", str(context.directory.root)]
    command += ["--roles", ",".join(roles), "--supervised", context.run, *options]
    folder = diagnostics_folder(context)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.log", "ab") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C reaches the supervisor, which stops them in order
        )
    return Worker(name, process)


def diagnostics_folder(context: Context) -> Path:
    return context.directory.var / "diagnostics"


def prove_no_worker(context: Context) -> None:
    """Give every pending command of a set free again, having proven that no worker of this log is
    alive. What a person ordered is in the hands of its own program and stays there.

    Each worker holds the lock ``workers`` together with the others for as long as it lives. Where
    somebody else's worker is alive (``ledger worker``), leases run out by themselves instead.
    """
    try:
        with context.directory.exclusive("workers", ""):
            clear_scratch(context, SET_ROLES)
            context.log.release_all(SET_ROLES)
    except Refused:
        return
