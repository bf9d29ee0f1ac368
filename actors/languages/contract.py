"""What the miner and the grader ask of a language.

A path is text in which bytes that are not UTF-8 stand as surrogate escapes (PEP 383). The id of a
test begins with the path of the file that defines it and ``::``.
"""

import hashlib
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from actors.languages.file_classes import FileClasses
from schemas.repair.overlay import Changes
from schemas.repair.study import Layout, Platform
from schemas.repair.task import EnvironmentInputs

Outcome = Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed"]
RunVerdict = Literal["finished", "timeout", "infrastructure"]
ChangeKind = Literal["formatting", "documentation", "code"]


# --- sources ------------------------------------------------------------------------------------


class Sources(Protocol):
    """Source files, seen through their syntax. A file that does not parse is an empty answer."""

    def change_kind(self, before: bytes, after: bytes) -> ChangeKind:
        """How two versions of a file differ.

        ``formatting``: the same program, documentation and comments (apart from white space);
        ``documentation``: only documentation or comments differ; ``code``: anything else, and
        every file that does not parse.
        """
        ...

    def defined_names(self, content: bytes) -> frozenset[str]:
        """Names that a file defines: functions, types, parameters, variables, fields."""
        ...

    def signatures(self, content: bytes) -> dict[str, str]:
        """How each function and type that a file defines is used, by its name."""
        ...

    def test_functions(self, content: bytes) -> dict[str, str]:
        """Digest of the body of every function, named as in the ids of its tests (after the
        ``::``, without parameters or subtests)."""
        ...

    def built_for(self, path: str, content: bytes, platform: Platform) -> bool:
        """Whether a file belongs to the program on a platform, in languages with conditions."""
        ...

    def module_names(self, path: str) -> Iterable[str]:
        """What a source file is called in code and prose, other than by its path."""
        ...


# --- environments -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A built environment and what a sandbox must show of it."""

    identity: str
    """Digest over toolchain, platform, dependency files and fall-back. It names the folder."""
    folder: Path
    program: Path
    """The interpreter or the tool that runs the tests."""
    version: str
    """Of the toolchain."""
    read_only: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    """What lies inside the visible folders and is not part of the environment."""
    packages: tuple[str, ...]
    """``name==version`` of everything in it, sorted."""
    fallback: str
    """The declared fall-back that was needed; empty: none."""
    log: bytes


LOG_TAIL = 4000


@dataclass(frozen=True, kw_only=True)
class BuildFailed:
    """No declared way leads to an environment: the executed criterion ``environment_failed``."""

    reason: str
    log: bytes
    """What every attempt printed."""

    @property
    def tail(self) -> str:
        return self.log[-LOG_TAIL:].decode("utf-8", "replace")


class Environments(Protocol):
    """Building what tests run in; never the project itself."""

    def missing(self, platform: Platform, layout: Layout) -> str:
        """Why no environment of the declared platform can be made here, with what to do; empty
        where one can."""
        ...

    def dependency_files(self, layout: Layout, paths: Iterable[str]) -> Iterable[str]:
        """Of the ``paths`` of a tree, the files that its environment is built from, in order."""
        ...

    def prepare(
        self, root: Path, inputs: EnvironmentInputs, cancelled: threading.Event
    ) -> Environment | BuildFailed:
        """The environment of these inputs beneath ``root``, built if it is not there yet.

        ``cancelled`` is set from another thread to end the build at once. Raises Unfinished then,
        and Integrity where an environment is there already and not as it was built.
        """
        ...

    def installed_copies(self, folder: Path, path: str) -> Iterator[Path]:
        """Files of the environment in ``folder`` that a dependency may have installed in the place
        of the repository's file ``path``."""
        ...


# --- test runs ----------------------------------------------------------------------------------


def secret_name(what: str, nonce: str) -> str:
    """A name that nobody can know before the run; nothing about the nonce follows from it."""
    return f"{what[0]}{hashlib.sha256(f'{what} {nonce}'.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, kw_only=True)
class Requested:
    """One run of tests that is about to begin, with everything laid over its workspace."""

    environment: Environment
    workspace: Path
    inside: str
    """The path under which the run sees the workspace."""
    moves_paths: bool
    """Whether the run has a root of its own, so that nothing shows where it lies outside."""
    place: Path
    """A private folder beside the workspace, for what the command needs and a run may read."""
    tests: tuple[str, ...]
    """Test files of the workspace."""
    package_roots: tuple[str, ...]
    """Folders of the base tree with production code."""
    hash_seed: int
    nonce: str
    canary: bool
    warm_cache: Path | None = None
    """What ``warm_up`` has built; a run reads it and writes into a cache of its own."""


@dataclass(frozen=True, kw_only=True)
class TestCommand:
    """How a run is started. The command reads its nonce from descriptor 4 and writes its report on
    descriptor 3."""

    __test__ = False  # the name is the field's word for it, not a class of tests

    words: tuple[str, ...]
    variables: Mapping[str, str]
    """The allow-list of variables; the sandbox adds its private HOME and TMPDIR."""
    read_only: tuple[Path, ...]
    writable: tuple[Path, ...] = ()
    planted: Changes = field(default_factory=Changes)
    """Files of the canary: laid over the workspace last."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run that could be made has ended, and what it reported."""

    requested: Requested
    results: bytes
    """What came on descriptor 3."""
    complete: bool
    """False where the channel's limit cut something off."""
    exit_status: int | None
    signal: int | None
    timed_out: bool
    output: bytes
    """For a reason in words: never believed."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run reported. ``outcomes`` is empty unless the verdict is ``finished``."""

    verdict: RunVerdict
    reason: str = ""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """By test id. The canary is not among them."""
    collection_errors: tuple[str, ...] = ()
    """Files whose tests could not be collected or built, sorted."""
    first_error: str = ""
    """The words of the first of them."""
    flags: tuple[str, ...] = ()
    """What the run itself showed of somebody meddling with it, sorted."""
    meddling: tuple[tuple[str, str], ...] = ()
    """(file, what it did) of workspace code that reached out of its own modules, sorted."""
    killed: bool = False
    """A signal that code under test is not known to have caused has ended the tests."""


class Tests(Protocol):
    """Running the tests of a repository, and reading what they reported."""

    def command(self, requested: Requested) -> TestCommand: ...

    def read_report(self, ended: Ended) -> Report:
        """Judge one run by its report and by how its process ended.

        Everything must agree, and with a canary every test of it must have failed; else the verdict
        is ``infrastructure`` with a reason, never a failed test.
        """
        ...

    def function_of(self, test_id: str) -> str:
        """The id of a test without parameters and subtests."""
        ...

    def deceptive_patterns(self, diff: bytes) -> Sequence[str]:
        """Names of patterns in the lines that a diff adds which could deceive a run from inside,
        sorted. A flag is for a reader."""
        ...

    def can_signal(self, flags: Iterable[str]) -> bool:
        """Whether flags say that the candidate's code could have killed its own run."""
        ...


OWN_SIGNALS = frozenset(
    getattr(signal, name)
    for name in (
        "SIGABRT", "SIGALRM", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGPROF", "SIGSEGV",
        "SIGSYS", "SIGTRAP", "SIGVTALRM", "SIGXCPU", "SIGXFSZ",
    )
)  # fmt: skip
"""Signals that a process brings upon itself: faults, timers and limits of its own. Any other one
comes from somebody, and who that was is not told to a parent."""


# --- the record ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Language:
    """One language of repositories under study."""

    id: str
    files: FileClasses
    sources: Sources
    environments: Environments
    tests: Tests
    only_dependencies: Callable[[str, bytes, bytes], bool]
    """Whether nothing but dependencies differs between two versions of a dependency file, given
    its name."""
    test_name: re.Pattern[str]
    """Matches the names that a test runner takes for tests."""
    assertion: re.Pattern[str]
    """Matches a line of prose that quotes an assertion of a test."""
    assertion_fragment: re.Pattern[str]
    """Is found in a fragment of code that asserts."""
    lost_to: Literal["collection", "build"]
    """Why a test that was never seen did not pass."""
    warm_up: Callable[[Requested, Path], TestCommand] | None = None
    """What builds all that tests of a base tree need into a cache folder, where builds are kept at
    all. It runs nothing of the repository; the request names no tests."""
