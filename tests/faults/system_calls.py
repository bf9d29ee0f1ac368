"""Forked children whose system calls are counted, recorded, failed or killed, by strace.

A child of ``fork`` has everything imported, so that one fault costs milliseconds. It tells its
parent what it has done over a socket, by calls (``sendto``) that no fault is injected into.
"""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from ledger.errors import LedgerError, of_the_machine
from tests.faults.storage_work import Failed, Message, Tell

WRITES = ("write", "pwrite64", "writev", "pwritev", "ftruncate")
SYNCS = ("fsync", "fdatasync")
NAMES = ("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir")
FOLDERS = ("mkdir", "mkdirat")
NEED_ROOM = (*WRITES, *SYNCS, "rename", "renameat", "renameat2", "link", "linkat")
"""What can fail on a full disk. A sync can: some file systems look for room only then."""
CHANGES = (*WRITES, *SYNCS, *NAMES)
"""With FOLDERS every system call by which the ledger changes what is on a disk, but for the
creation of an empty file, which changes nothing that is looked at before the next of these."""

STRACE = shutil.which("strace")
_CALL = re.compile(r"([a-z0-9_]+)\(")


class Ended(NamedTuple):
    """How a child ended: a signal, or 0 after what it told last."""

    signal: int
    told: list[Message]
    trace: str
    """What strace wrote down."""


def tracing_works() -> bool:
    """False where there is no strace, or where a process may not be traced."""
    if STRACE is None:
        return False
    tried = subprocess.run([STRACE, "-e", "trace=none", "true"], capture_output=True, check=False)
    return tried.returncode == 0


class Child:
    """A forked child that works, traced with these options of strace if there are any.

    An error that the program would explain to its user ends it in order and is the last thing told.
    ``before`` runs in it first.
    """

    def __init__(
        self,
        work: Callable[[Tell], None],
        strace: Sequence[str] = (),
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self._channel.close()
                theirs.recv(1)
                before()
                status = _work_and_tell(work, theirs)
            finally:
                os._exit(status)
        theirs.close()
        self._trace = tempfile.NamedTemporaryFile("r")  # noqa: SIM115  (closed by finish)
        self._tracer = ExitStack()
        if strace:
            self._tracer.enter_context(_attached(self.pid, [*strace, "-o", self._trace.name]))
        self._channel.sendall(b"!")
        self._received = bytearray()

    def hear_one(self) -> Message:
        """Wait for the next message."""
        while b"\n" not in self._received:
            piece = self._channel.recv(1 << 16)
            assert piece, "the child ended"
            self._received += piece
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return msgspec.json.decode(line, type=Message)

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def finish(self) -> Ended:
        """Wait for its end. Raises AssertionError, with the child's traceback, where it ended with
        an error that the program does not explain."""
        while piece := self._channel.recv(1 << 16):
            self._received += piece
        self._channel.close()
        self._tracer.close()
        _, status = os.waitpid(self.pid, 0)
        with self._trace:
            trace = self._trace.read()
        lines = bytes(self._received).split(b"\n")[:-1]
        told = [msgspec.json.decode(line, type=Message) for line in lines]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            raise AssertionError(f"a fault of the program: {told[-1:]}")
        return Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, told, trace)


def in_child(
    work: Callable[[Tell], None],
    strace: Sequence[str] = (),
    before: Callable[[], None] = lambda: None,
) -> Ended:
    """Run ``work`` in a forked child to its end."""
    return Child(work, strace, before).finish()


@contextmanager
def _attached(child: int, options: Sequence[str]) -> Iterator[None]:
    """strace holds the child from now on, until it ends."""
    assert STRACE is not None
    command = [STRACE, "-p", str(child), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        assert attached.endswith("attached\n"), attached
        yield


def _work_and_tell(work: Callable[[Tell], None], channel: socket.socket) -> int:
    def tell(message: Message) -> None:
        channel.sendall(msgspec.json.encode(message) + b"\n")

    try:
        work(tell)
    except (LedgerError, OSError) as error:
        explained = error if isinstance(error, LedgerError) else of_the_machine(error)
        if explained is None:
            tell(Failed("fault of the program", traceback.format_exc()))
            return 1
        tell(Failed(type(explained).__name__, str(explained)))
    except BaseException:
        tell(Failed("fault of the program", traceback.format_exc()))
        return 1
    return 0


def calls_of(trace: str) -> list[str]:
    """Names of the traced calls, in order."""
    return [match[1] for line in trace.splitlines() if (match := _CALL.match(line))]


def record(
    work: Callable[[Tell], None], calls: Sequence[str] = CHANGES, options: Sequence[str] = ()
) -> Ended:
    """Let it run undisturbed and record these calls."""
    return in_child(work, ["-e", f"trace={existing(calls)}", *options])


def inject(work: Callable[[Tell], None], calls: Sequence[str], fault: str, lasting: bool) -> Ended:
    """Let it run with a fault (``error=EIO``, ``signal=SIGKILL``) at the last of these calls, which
    are those of an undisturbed run up to there; and, if ``lasting``, at all after it.

    strace counts the calls of each name by themselves.
    """
    counts = Counter(calls)
    options = ["-e", f"trace={existing(list(counts))}"]
    for name, before in counts.items():
        if name == calls[-1]:
            options += ["-e", f"inject={name}:{fault}:when={before}{'+' if lasting else ''}"]
        elif lasting:
            options += ["-e", f"inject={name}:{fault}:when={before + 1}+"]
    return in_child(work, options)


def existing(calls: Sequence[str]) -> str:
    """A set for strace; a name that this architecture does not have is left out."""
    return ",".join(f"?{name}" for name in calls)


def limit_file_size(size: int) -> Callable[[], None]:
    """For ``before``: no file may grow beyond ``size`` bytes."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
