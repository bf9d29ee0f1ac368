"""One test run from template to outcomes.

Nothing here reads a log or a clock: what a run needs comes in, what it was comes out. A run's
workspace is private and gone afterwards. Standard output is never believed: outcomes come from the
reporter of the language, which writes outside the workspace.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.languages.contract import (
    Ended,
    Environment,
    Language,
    Outcome,
    Report,
    Requested,
    RunVerdict,
)
from actors.sandbox import Limits, Sandbox, SandboxError
from actors.test_runs.git_trees import WorkspaceError
from actors.test_runs.overlays import UnsafePath, lay_over
from actors.test_runs.templates import copy_workspace
from actors.untrusted_trees import remove_tree
from schemas.repair.overlay import Changes

REPORT_BYTES = 64 << 20
"""Bound on what the reporter may write: about 300,000 tests."""


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """One finished process. ``outcomes`` is empty unless the verdict is ``finished``."""

    __test__ = False  # the name is the field's word for it, not a class of tests

    verdict: RunVerdict
    reason: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    collection_errors: tuple[str, ...] = ()
    first_error: str = ""
    """The words of the first collection error."""
    missing_files: tuple[str, ...] = ()
    """Test files asked for that the tree does not have: their tests are absent."""
    exit_status: int | None = None
    signal: int | None = None
    output: bytes = b""
    output_digest: str = hashlib.sha256(b"").hexdigest()
    output_bytes: int = 0
    survivors_killed: int = 0
    duration_ns: int = 0
    nonce: str
    flags: tuple[str, ...] = ()
    """What the run itself showed of somebody meddling with it, sorted."""
    meddling: tuple[tuple[str, str], ...] = ()
    """(file, what it did) of workspace code that reached out of its own modules, sorted. Honest
    code does so too, so it is a flag only where the candidate has changed that file."""
    disk_exceeded: bool = False
    """It was ended because of what it wrote; it would be so again."""
    killed: bool = False
    """A signal that code under test is not known to have caused has ended the tests."""
    laid_over: bool = True
    """False: no machine could lay these overlays over this tree, so there was no run."""


def execute(
    *,
    language: Language,
    sandbox: Sandbox,
    environment: Environment,
    template: Path,
    overlays: Sequence[Changes],
    tests: Sequence[str],
    package_roots: Sequence[str],
    hash_seed: int,
    nonce: str,
    limits: Limits,
    scratch: Path,
    canary: bool = True,
    warm_cache: Path | None = None,
) -> TestRun:
    """Run test files on a copy of ``template`` with ``overlays`` laid over it, in this order.

    ``package_roots`` are the folders of the template with production code. ``nonce`` must be new
    and unguessable, ASCII. ``scratch`` is an existing folder for the workspace, on the template's
    file system. Trouble with the workspace or the sandbox is an infrastructure verdict. With
    ``canary`` tests that must fail run beside the others, and where they do not the run has no
    outcome; without it code under test may report what it likes, which is right only where the
    outcome decides nothing.
    """

    def not_run(verdict: RunVerdict, reason: str, missing: Sequence[str] = ()) -> TestRun:
        return TestRun(verdict=verdict, reason=reason, missing_files=tuple(missing), nonce=nonce)

    place = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    try:
        os.chmod(place, 0o755)
        workspace = copy_workspace(template, place / "workspace")
        for changes in overlays:
            lay_over(workspace, changes)
        present = tuple(test for test in tests if (workspace / test).is_file())
        missing = sorted(set(tests) - set(present))
        if not present:
            return not_run("finished", "none of the test files exists in this tree", missing)
        requested = Requested(
            environment=environment,
            workspace=workspace,
            inside=sandbox.inside(workspace),
            moves_paths=sandbox.moves_paths,
            place=place,
            tests=present,
            package_roots=tuple(package_roots),
            hash_seed=hash_seed,
            nonce=nonce,
            canary=canary,
            warm_cache=warm_cache,
        )
        command = language.tests.command(requested)
        lay_over(workspace, command.planted)
        done = sandbox.run(
            command.words,
            workspace=workspace,
            read_only=(*environment.read_only, *command.read_only),
            writable=command.writable,
            hidden=environment.hidden,
            environment=command.variables,
            limits=limits,
            request=nonce.encode("ascii"),
            result_bytes=REPORT_BYTES,
        )
        if done.disk_exceeded:
            reason = f"the run's files took up more than {limits.disk_bytes} bytes of disk"
            report = Report(verdict="infrastructure", reason=reason, flags=("disk filled",))
        else:
            report = language.tests.read_report(
                Ended(
                    requested=requested,
                    results=done.results,
                    complete=done.results_complete,
                    exit_status=done.exit_status,
                    signal=done.signal,
                    timed_out=done.timed_out,
                    output=done.output,
                )
            )
    except UnsafePath as error:
        return replace(not_run("infrastructure", str(error)), laid_over=False)
    except (SandboxError, WorkspaceError) as error:
        return not_run("infrastructure", str(error))
    finally:
        remove_tree(place)
    return TestRun(
        verdict=report.verdict,
        reason=report.reason,
        outcomes=report.outcomes,
        collection_errors=report.collection_errors,
        first_error=report.first_error,
        missing_files=tuple(missing),
        exit_status=done.exit_status,
        signal=done.signal,
        output=done.output,
        output_digest=done.output_digest,
        output_bytes=done.output_bytes,
        survivors_killed=done.survivors_killed,
        duration_ns=done.duration_ns,
        nonce=nonce,
        flags=report.flags,
        meddling=report.meddling,
        disk_exceeded=done.disk_exceeded,
        killed=report.killed,
    )
