"""Test runs of tasks: the sandbox, the environment and the overlays of a task, put together.

What the miner validates with and the grader grades with is the same code in the same kind of
sandbox and the same environment.
"""

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.languages.contract import BuildFailed, Environment, Language, Requested
from actors.languages.registry import LANGUAGES
from actors.sandbox import Limits, Sandbox, SandboxReport, open_sandbox
from actors.sandbox.contract import Kind
from actors.test_runs.builds import Step, build_once
from actors.test_runs.execution import REPORT_BYTES, TestRun, execute
from actors.test_runs.templates import copy_workspace
from actors.untrusted_trees import remove_tree
from ledger.artifacts import Artifacts
from ledger.clock import salt
from ledger.errors import PreflightMismatch, SafetyStop
from ledger.log import EventLog, NewEvent, decode
from schemas.events.mining import EnvironmentBuilt, SandboxProbed
from schemas.identifiers import repository_stream
from schemas.repair.overlay import Changes, WrittenFile
from schemas.repair.task import EnvironmentInputs, Overlay

WARM_UP_LIMITS = Limits(wall_s=1800.0, cpu_s=3600, disk_bytes=16 << 30)
ROOM_OF_A_RUN = 16 << 20
"""Bytes for the files of one run of tests. Where they do not fit, tests fail that would pass."""


def changes_of(overlay: Overlay, artifacts: Artifacts) -> Changes:
    """An overlay of the task with the contents read from their artifacts."""
    return Changes(
        write=tuple(
            WrittenFile(path=file.path, mode=file.mode, content=artifacts.get(file.content))
            for file in overlay.write
        ),
        delete=overlay.delete,
    )


def accepted_sandbox(report: SandboxReport, allow_unsafe: bool) -> SandboxProbed:
    """The event that says what contains test runs here.

    Raises PreflightMismatch where nothing does and nobody accepted that. A rehearsal is no reason:
    its agents are simulated, the repository and its tests may be anybody's.
    """
    if report.kind == "none" and not allow_unsafe:
        raise PreflightMismatch(
            f"nothing on this host can contain test runs. {report.remedy} Or accept the risk with "
            "--unsafe-no-sandbox, which is recorded and reported."
        )
    return SandboxProbed(
        kind=report.kind,
        enforced={row.name: row.state for row in report.isolation},
        accepted_unsafe=report.kind == "none",
    )


def require_room(folder: Path, needed: int) -> None:
    """Raises SafetyStop where less disk is free than the study declares, and OSError (ENOSPC) where
    no run of tests has room, whatever it declares. A folder that another process has cleared away
    was on the disk of its parent."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < ROOM_OF_A_RUN:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if free < needed:
        raise SafetyStop(
            f"{free} bytes of disk are free and the study declares a stop below {needed} "
            "(stopping.min_free_disk_bytes): free space, then the same command goes on"
        )


def sandbox_of(probed: SandboxProbed, scratch: Path) -> Sandbox:
    scratch.mkdir(parents=True, exist_ok=True)
    kind = msgspec.convert(probed.kind, Kind)
    return open_sandbox(kind, scratch, unsafe=probed.accepted_unsafe)


def build_environment(
    root: Path, inputs: EnvironmentInputs, cancelled: threading.Event | None = None
) -> Environment | BuildFailed:
    """The environment of these inputs, built if it is not there yet; ``cancelled`` as in
    ``contract.Environments``."""
    environments = LANGUAGES[inputs.language].environments
    return environments.prepare(root, inputs, cancelled or threading.Event())


def recorded_environment(
    log: EventLog, artifacts: Artifacts, root: Path, repository: str, identity: str
) -> Environment:
    """The environment that a task was validated in, built again where it is missing.

    Raises PreflightMismatch where it cannot be built, or comes out as another one: what a
    requirement file leaves open is another version when it is built a year later.
    """
    inputs = None
    packages: tuple[str, ...] = ()
    for stored in log.read_stream(repository_stream(repository)):
        event = decode(stored).event
        if isinstance(event, EnvironmentBuilt) and event.identity == identity:
            inputs = msgspec.json.decode(artifacts.get(event.inputs), type=EnvironmentInputs)
            packages = event.packages
    if inputs is None:
        raise PreflightMismatch(f"no record says what environment {identity} is built from")
    built = build_environment(root, inputs)
    if isinstance(built, BuildFailed):
        raise PreflightMismatch(f"test environment {identity}: {built.reason}\n{built.tail}")
    if built.identity != identity:
        raise PreflightMismatch(
            f"the tasks were validated in environment {identity}, here it is {built.identity}: "
            "use the toolchain and the library versions of the validation, or amend the study"
        )
    if differing := sorted(set(packages) ^ set(built.packages)):
        here = set(built.packages)
        shown = ", ".join(f"{one} ({'now' if one in here else 'then'})" for one in differing[:6])
        raise PreflightMismatch(
            f"test environment {identity} does not hold the packages that the tasks were validated "
            f"with: {shown}. Put {root / identity} back as it was, or have the index give the "
            "recorded versions, remove it and go on"
        )
    return built


def built_event(
    artifacts: Artifacts, repository: str, inputs: EnvironmentInputs, built: Environment
) -> NewEvent:
    return NewEvent(
        repository_stream(repository),
        EnvironmentBuilt(
            identity=built.identity,
            repository=repository,
            fallback=built.fallback,
            inputs=artifacts.put(msgspec.json.encode(inputs), "application/json"),
            packages=built.packages,
            log=artifacts.put(built.log, "text/plain"),
        ),
    )


def run_tests(
    language: Language,
    sandbox: Sandbox,
    environment: Environment,
    template: Path,
    overlays: Sequence[Changes],
    tests: Sequence[str],
    *,
    package_roots: Sequence[str],
    hash_seed: int,
    time_limit_ns: int,
    scratch: Path,
    min_free_bytes: int,
    attempts: int = 3,
    canary: bool = True,
) -> TestRun:
    """One run with a fresh, unguessable nonce; ``canary`` as in ``execute``.

    Raises SafetyStop where too little disk is free before or after it: tests that ran out of room
    say nothing about the code.

    What the machine did to a run (no sandbox, no workspace, a signal that code under test is not
    known to have caused) says nothing about that code, so the run is made again, ``attempts`` times
    altogether; then the last one is returned.
    """
    scratch.mkdir(parents=True, exist_ok=True)  # the sandbox may have been opened for another role
    require_room(scratch, min_free_bytes)
    warm = warm_cache(language, sandbox, environment, template, scratch)
    for _ in range(attempts):
        run = execute(
            language=language,
            sandbox=sandbox,
            environment=environment,
            template=template,
            overlays=overlays,
            tests=tests,
            package_roots=package_roots,
            hash_seed=hash_seed,
            nonce=salt().hex(),
            limits=Limits(wall_s=time_limit_ns / 1e9),
            scratch=scratch,
            canary=canary,
            warm_cache=warm,
        )
        if sandbox.cancelled.is_set() or not (not_made(run) or run.killed):
            break
    require_room(scratch, min_free_bytes)
    return run


def warm_cache(
    language: Language, sandbox: Sandbox, environment: Environment, template: Path, scratch: Path
) -> Path | None:
    """What a language builds of a base tree before its tests are run, built once and read-only for
    every run: of the base tree alone, so there is nothing of gold in it. None for a language that
    builds nothing. A package of the tree that cannot be built is left to the runs."""
    warm_up = language.warm_up
    if warm_up is None:
        return None
    place = environment.folder.with_name(f"{environment.identity}-cache-{template.name[:24]}")

    def build(folder: Path) -> Step:
        cache = folder / "cache"
        cache.mkdir()
        nonce = salt().hex()
        private = Path(tempfile.mkdtemp(prefix="warm-", dir=scratch))
        try:
            os.chmod(private, 0o755)
            workspace = copy_workspace(template, private / "workspace")
            requested = Requested(
                environment=environment,
                workspace=workspace,
                inside=sandbox.inside(workspace),
                moves_paths=sandbox.moves_paths,
                place=private,
                tests=(),
                package_roots=(),
                hash_seed=0,
                nonce=nonce,
                canary=False,
            )
            command = warm_up(requested, cache)
            done = sandbox.run(
                command.words,
                workspace=workspace,
                read_only=(*environment.read_only, *command.read_only),
                writable=command.writable,
                hidden=environment.hidden,
                environment=command.variables,
                limits=WARM_UP_LIMITS,
                request=nonce.encode("ascii"),
                result_bytes=REPORT_BYTES,
            )
        finally:
            remove_tree(private)
        return Step(status=0, log=done.output)

    build_once(place, build, fallback="")
    return place / "cache"


def not_made(run: TestRun) -> bool:
    """True for a run that could not be made at all: nothing that code under test could cause."""
    ended = run.exit_status is not None or run.signal is not None
    return run.verdict == "infrastructure" and not ended and run.laid_over
