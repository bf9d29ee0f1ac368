"""What a sandboxed run is given and what it gives back."""

import dataclasses
from typing import Literal

from ledger.errors import Unfinished

Kind = Literal["bubblewrap", "namespaces", "landlock", "none"]
State = Literal["enforced", "not enforced", "unknown"]

RESULT_DESCRIPTOR = 3
"""Descriptor on which the command may write results that the workspace never holds."""
REQUEST_DESCRIPTOR = 4
"""Descriptor from which the command reads the ``request`` of the run (a nonce), once."""


class SandboxError(Unfinished):
    """The sandbox itself could not be set up; says nothing about the code that should have run.
    The message says what failed and what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use. Seconds may be fractions; sizes are bytes."""

    wall_s: float = 300.0
    grace_s: float = 5.0
    """Between SIGTERM at ``wall_s`` and SIGKILL of everything."""
    cpu_s: int = 600
    """Of one process (RLIMIT_CPU)."""
    memory_bytes: int = 4 << 30
    """Address space of one process (RLIMIT_AS)."""
    file_bytes: int = 256 << 20
    """Largest file that may be written (RLIMIT_FSIZE)."""
    disk_bytes: int = 2 << 30
    """What the files of a run may take up together, beyond what was there when it began. The run is
    watched and ended; what it writes within a second comes on top."""
    processes: int = 256
    """Processes and threads of the run together (RLIMIT_NPROC)."""
    output_bytes: int = 1_000_000
    """How much of the output is kept: its first and its last half. All of it is hashed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that has ended. Exactly one of ``exit_status`` and ``signal`` is set."""

    exit_status: int | None
    signal: int | None
    timed_out: bool
    disk_exceeded: bool
    """The run was ended because its files took up more than ``Limits.disk_bytes``."""
    output: bytes
    """Standard output and error as one stream of bytes, at most ``Limits.output_bytes`` plus a
    notice of what was left out."""
    output_digest: str
    """SHA-256 of all bytes, also of those that ``output`` leaves out."""
    output_bytes: int
    output_closed: bool
    """False: something still held the output open when the run had ended (see ``survivors``)."""
    duration_ns: int
    survivors_killed: int
    """Processes that were still alive when the command had ended, and were killed."""
    results: bytes
    """What the command wrote on descriptor 3."""
    results_complete: bool
    """False: more came than the caller allowed, and the rest was dropped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Isolation:
    """One row of the isolation matrix."""

    name: Literal[
        "network",
        "host loopback",
        "unix sockets",
        "other sockets",
        "files outside",
        "kernel objects",
        "memory",
        "disk",
        "processes",
        "survivors",
        "signals",
    ]
    state: State
    how: str
    """What was tried, and what happened."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung of the ladder as found on this host. ``offered``: it works and contains the run."""

    name: str
    offered: bool
    reason: str
    """Why it is not offered; empty where it is."""
    isolation: tuple[Isolation, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """The ladder as far as it was tried: from the top to the first rung that is offered."""

    kind: Kind
    """``none``: nothing here can contain a run, and the study must refuse."""
    rungs: tuple[Rung, ...]
    remedy: str
    """The command that would make a better rung available here; empty where none is needed."""

    @property
    def isolation(self) -> tuple[Isolation, ...]:
        """The matrix of the chosen rung, with what was tried."""
        return next((rung.isolation for rung in self.rungs if rung.name == self.kind), ())

    @property
    def matrix(self) -> dict[str, State]:
        """Row → state, for the event and the report's table."""
        return {row.name: row.state for row in self.isolation}
