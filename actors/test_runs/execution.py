"""One test run from template to outcomes, and the verdict of two runs.

Nothing here reads a log or a clock: what a run needs comes in, what it was comes out. A run's
workspace is private and gone afterwards. Standard output is never believed: outcomes come from our
reporter (``reporters/pytest_reporter.py``), which writes outside the workspace.
"""

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from actors.sandbox import Limits, Sandbox, SandboxError
from actors.sandbox.run import remove_tree
from actors.test_runs.environments import Environment
from actors.test_runs.git_trees import WorkspaceError
from actors.test_runs.overlays import UnsafePath, folders_of, lay_over
from actors.test_runs.reporters.pytest_results import (
    Canary,
    Outcome,
    PytestResults,
    RunVerdict,
    read_results,
)
from actors.test_runs.templates import copy_workspace
from schemas.repair.overlay import Changes, WrittenFile

_REPORTER = Path(__file__).with_name("reporters") / "pytest_reporter.py"
REPORT_BYTES = 64 << 20
"""Bound on what the reporter may write: about 300,000 tests."""

_CANARY = """\
import math
import sys
import unittest

import pytest

WRONG = dict(
    assertEqual=(1, 2), assertNotEqual=(1, 1), assertTrue=(0,), assertFalse=(1,),
    assertIs=(1, 2), assertIsNot=(None, None), assertIsNone=(0,), assertIsNotNone=(None,),
    assertIn=(1, ()), assertNotIn=(1, (1,)),
    assertIsInstance=(1, str), assertNotIsInstance=(1, int),
    assertAlmostEqual=(1, 2), assertNotAlmostEqual=(1, 1),
    assertGreater=(1, 2), assertGreaterEqual=(1, 2), assertLess=(2, 1), assertLessEqual=(2, 1),
    assertRegex=("a", "b"), assertNotRegex=("a", "a"), assertCountEqual=([1], [2]),
    assertMultiLineEqual=("a", "b"), assertSequenceEqual=([1], [2]), assertListEqual=([1], [2]),
    assertTupleEqual=((1,), (2,)), assertSetEqual=({{1}}, {{2}}),
    assertDictEqual=({{1: 1}}, {{1: 2}}),
    assertRaises=(ValueError, len, ""), assertRaisesRegex=(ValueError, "", len, ""),
)


def accepted():
    case = unittest.TestCase()
    for name, arguments in WRONG.items():
        yield getattr(case, name), arguments
    mock = sys.modules.get("unittest.mock")
    if mock is not None:
        for name in ("assert_called", "assert_called_once", "assert_called_with",
                     "assert_called_once_with", "assert_any_call"):
            yield getattr(mock.Mock(), name), ()
        yield mock.Mock(side_effect=None, return_value=None).assert_has_calls, ([mock.call()],)


def test_{name}_claims():
    for claim, arguments in accepted():
        try:
            claim(*arguments)
        except AssertionError:
            continue
        return
    assert any((math.isclose(1, 2), 1 == pytest.approx(2), all((0,)), isinstance(1, str)))


def test_{name}_assert():
    assert len("{name}") == 0


def test_{name}_raises():
    with pytest.raises(ValueError):
        len("{name}")


class Test_{name}(unittest.TestCase):
    def test_{name}(self):
        self.assertEqual(len("{name}"), 0)
"""
_CANARY_TESTS = 4
"""At least one for each way in which a test says that something is wrong; all of them must fail."""


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """One finished process. ``outcomes`` is empty unless the verdict is ``finished``."""

    __test__ = False  # the name is the field's word for it, not a class of tests

    verdict: RunVerdict
    reason: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    collection_errors: tuple[str, ...] = ()
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
    laid_over: bool = True
    """False: no machine could lay these overlays over this tree, so there was no run."""


def environment_identity(environment: Environment, sandbox: Sandbox) -> str:
    """What outcomes depend on: a task is graded where it was validated, sandbox included."""
    return f"{environment.identity}+{sandbox.kind}"


def execute(
    *,
    sandbox: Sandbox,
    environment: Environment,
    template: Path,
    overlays: Sequence[Changes],
    tests: Sequence[str],
    hash_seed: int,
    nonce: str,
    limits: Limits,
    scratch: Path,
    canary: bool = True,
) -> TestRun:
    """Run pytest on a copy of ``template`` with ``overlays`` laid over it, in this order.

    ``tests`` are test files (or ids; a file is safer, because one id that is not there ends the
    whole run). ``nonce`` must be new and unguessable, ASCII. ``scratch`` is an existing folder for
    the workspace, on the template's file system. Trouble with the workspace or the sandbox is an
    infrastructure verdict. With ``canary`` tests that must fail run beside the others, and where
    they do not the run has no outcome; without it code under test may report what it likes, which
    is right only where the outcome decides nothing.
    """

    def not_run(verdict: RunVerdict, reason: str, missing: Sequence[str] = ()) -> TestRun:
        return TestRun(verdict=verdict, reason=reason, missing_files=tuple(missing), nonce=nonce)

    place = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    try:
        os.chmod(place, 0o755)
        workspace = copy_workspace(template, place / "workspace")
        for changes in overlays:
            lay_over(workspace, changes)
        present = [test for test in tests if (workspace / test.partition("::")[0]).is_file()]
        missing = sorted(set(tests) - set(present))
        if not present:
            return not_run("finished", "none of the test files exists in this tree", missing)
        planted = None
        if canary:
            planted = Canary(name=_name("canary", nonce), tests=_CANARY_TESTS)
            path = os.path.join(
                os.path.dirname(present[0].partition("::")[0]), f"test_{planted.name}.py"
            )
            source = _CANARY.format(name=planted.name).encode()
            file = WrittenFile(path=path, mode="100644", content=source)
            lay_over(workspace, Changes(write=(file,)))
            present.append(path)
        # A name that code under test cannot know beforehand: the workspace comes first on sys.path.
        reporter = _name("reporter", nonce)
        plugins = place / "reporter"
        plugins.mkdir()
        (plugins / f"{reporter}.py").write_bytes(_REPORTER.read_bytes())
        # pytest looks for its configuration in the folders above the workspace too. Where a run
        # sees the host's own paths, the search must end before it finds something there.
        (place / "pytest.ini").write_bytes(b"")
        top = sandbox.inside(workspace)
        end_of_search = [] if sandbox.moves_paths else ["--rootdir", top, "--confcutdir", top]
        done = sandbox.run(
            [
                str(environment.python), "-m", "pytest", "-p", reporter,
                "-p", "no:cacheprovider", "-p", "no:randomly", "-q",
                "--continue-on-collection-errors", "--maxfail=0", *end_of_search, *present,
            ],
            workspace=workspace,
            read_only=(*environment.read_only, plugins, place / "pytest.ini"),
            hidden=environment.hidden,
            environment=variables(environment, hash_seed) | {"PYTHONPATH": str(plugins)},
            limits=limits,
            request=nonce.encode("ascii"),
            result_bytes=REPORT_BYTES,
        )  # fmt: skip
    except UnsafePath as error:
        return replace(not_run("infrastructure", str(error)), laid_over=False)
    except (SandboxError, WorkspaceError) as error:
        return not_run("infrastructure", str(error))
    finally:
        remove_tree(place)
    if done.disk_exceeded:
        reason = f"the run's files took up more than {limits.disk_bytes} bytes of disk"
        results = PytestResults(verdict="infrastructure", reason=reason, flags=("disk filled",))
    else:
        results = read_results(
            done.results,
            complete=done.results_complete,
            nonce=nonce,
            exit_status=done.exit_status,
            signal=done.signal,
            timed_out=done.timed_out,
            workspace=top,
            canary=planted,
        )
    return TestRun(
        verdict=results.verdict,
        reason=results.reason,
        outcomes=results.outcomes,
        collection_errors=results.collection_errors,
        missing_files=tuple(missing),
        exit_status=done.exit_status,
        signal=done.signal,
        output=done.output,
        output_digest=done.output_digest,
        output_bytes=done.output_bytes,
        survivors_killed=done.survivors_killed,
        duration_ns=done.duration_ns,
        nonce=nonce,
        flags=results.flags,
        meddling=results.meddling,
        disk_exceeded=done.disk_exceeded,
    )


def _name(what: str, nonce: str) -> str:
    """A name that nobody can know before the run; nothing about the nonce follows from it."""
    return f"{what[0]}{hashlib.sha256(f'{what} {nonce}'.encode()).hexdigest()[:16]}"


def variables(environment: Environment, hash_seed: int) -> dict[str, str]:
    """The allow-list of variables; the sandbox adds its private HOME and TMPDIR, and the reporter
    takes PYTHONPATH away again before anything else is imported."""
    return {
        "PATH": f"{environment.python.parent}:/usr/bin:/bin",
        "PYTHONHASHSEED": str(hash_seed),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "NO_COLOR": "1",
    }


# --- grading ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GradedTree:
    """What is laid over the base template to grade a candidate."""

    overlays: tuple[Changes, Changes]
    """The candidate without what it may not bring, then the hidden tests."""
    restored: tuple[str, ...]
    """Paths of the candidate that were left out, sorted."""


def graded_tree(
    candidate: Changes, hidden: Changes, is_restored: Callable[[str], bool]
) -> GradedTree:
    """Base + candidate with every test, infrastructure and dependency file as in base + hidden.

    ``is_restored(path)`` is the recipe's rule for such files, wherever they lie: a ``conftest.py``
    that the candidate added is not in the tree, one that it changed or deleted is the base's. A
    file that would stand in the way of one of them (where it needs a folder, or below it) is left
    out too.
    """
    hidden_paths = {*(file.path for file in hidden.write), *hidden.delete}
    touched = {*(file.path for file in candidate.write), *candidate.delete}
    closed = hidden_paths | {path for path in touched if is_restored(path)}
    above = {folder for path in closed for folder in folders_of(path)}

    def in_the_way(path: str) -> bool:
        """A file where something restored needs a folder, or below what is restored as a file."""
        return path in closed or path in above or any(f in closed for f in folders_of(path))

    kept = Changes(
        write=tuple(file for file in candidate.write if not in_the_way(file.path)),
        delete=tuple(path for path in candidate.delete if path not in closed),
    )
    left = {*(file.path for file in kept.write), *kept.delete}
    return GradedTree(overlays=(kept, hidden), restored=tuple(sorted(touched - left)))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of two processes with different nonces on one tree."""

    verdict: Literal["resolved", "failed", "timeout", "infrastructure"]
    resolved: bool
    reason: str
    """Empty where resolved or plainly failed."""
    fail_to_pass_passed: int
    fail_to_pass_total: int
    pass_to_pass_passed: int
    pass_to_pass_total: int
    missing: tuple[str, ...]
    """Frozen ids that no run has reported, sorted."""
    not_passed: tuple[str, ...]
    """Frozen ids without an explicit pass in both runs, sorted; with ``missing``."""
    repeated: bool
    """Both processes ended in the same way for the same reason. For an infrastructure verdict that
    points at the candidate (``os._exit`` on import), where gold runs in the same environment."""
    flagged: tuple[str, ...]


def judge(
    fail_to_pass: Collection[str],
    pass_to_pass: Collection[str],
    first: TestRun,
    second: TestRun,
    *,
    diff: bytes = b"",
    changed: Collection[str] = (),
    skipped_at_base: Collection[str] = (),
) -> Verdict:
    """Resolved: every frozen id has an explicit pass in both runs. An absent id has failed.

    ``diff`` and ``changed`` (its paths) are the candidate's, for the flags. ``skipped_at_base`` are
    pass-to-pass ids that may be skipped because they were so at the base (none, by the definition
    of pass-to-pass, unless a task comes from elsewhere). Raises ValueError for a task without
    fail-to-pass tests, and for two runs that share their nonce.
    """
    if not fail_to_pass:
        raise ValueError("a task without fail-to-pass tests cannot be judged")
    if first.nonce == second.nonce:
        raise ValueError("the two runs of a verdict need two nonces")
    frozen = sorted({*fail_to_pass, *pass_to_pass})

    def passed(test: str) -> bool:
        allowed = ("passed", "skipped") if test in skipped_at_base else ("passed",)
        return all(run.outcomes.get(test) in allowed for run in (first, second))

    not_passed = {test for test in frozen if not passed(test)}
    missing = [t for t in frozen if t not in first.outcomes and t not in second.outcomes]
    differing = [t for t in frozen if first.outcomes.get(t) != second.outcomes.get(t)]
    verdicts = (first.verdict, second.verdict)
    kind: Literal["resolved", "failed", "timeout", "infrastructure"]
    reason = ""
    if "infrastructure" in verdicts:
        kind = "infrastructure"
        reason = first.reason if first.verdict == "infrastructure" else second.reason
    elif "timeout" in verdicts:
        kind, reason = "timeout", "the time limit was reached"
    elif differing:
        test = differing[0]
        seen = [str(run.outcomes.get(test, "absent")) for run in (first, second)]
        kind = "infrastructure"
        reason = f"disagree: {len(differing)} ids, {test} was {seen[0]}, then {seen[1]}"
    else:
        kind = "failed" if not_passed else "resolved"
        reason = first.reason
    meddled = {
        f"{file} {what}"
        for run in (first, second)
        for file, what in run.meddling
        if file in changed
    }
    return Verdict(
        verdict=kind,
        resolved=kind == "resolved",
        reason=reason,
        fail_to_pass_passed=len(set(fail_to_pass) - not_passed),
        fail_to_pass_total=len(set(fail_to_pass)),
        pass_to_pass_passed=len(set(pass_to_pass) - not_passed),
        pass_to_pass_total=len(set(pass_to_pass)),
        missing=tuple(missing),
        not_passed=tuple(sorted(not_passed)),
        repeated=(first.verdict, first.reason) == (second.verdict, second.reason) and not differing,
        flagged=tuple(sorted({*spoofing_patterns(diff), *first.flags, *second.flags, *meddled})),
    )


def _of(module: bytes, names: bytes) -> bytes:
    """A pattern for ``module.name`` and for ``from module import name``."""
    return (
        rb"\b%b\s*\.\s*(%b)\b" % (module, names)
        + rb"|\bfrom\s+%b\s+import\b(\s*\([^)]{0,400}|[^\n]{0,400})\b(%b)\b" % (module, names)
    )  # fmt: skip


# Every repetition is bounded, so that the time is a multiple of the length whatever a patch holds;
# what stands further apart on one line is a long line.
_SPOOFING = {
    "long line": rb"[^\n]{1000}",
    "_pytest": rb"\b_pytest\b",
    "pytest": rb"\bpytest\w*|PYTEST_|\bpluggy\b|\bpluginmanager\b|\bconftest\b",
    "unittest": rb"\bunittest\b",
    "test files": rb"[\"'/]tests?/|/tests?[\"'/]|[\"']tests[\"']"
    rb"|\btest_[\w*]{0,200}\.py\b|_test\.py\b",
    "os._exit": rb"\b_exit\b",
    "os.abort": _of(b"os", b"abort|kill|killpg") + rb"|\braise_signal\b",
    "atexit": rb"\batexit\b",
    "sys.settrace": rb"\bset(trace|profile)\b|" + _of(b"sys", b"monitoring"),
    "sys.modules": _of(b"sys", b"modules|meta_path|path_hooks"),
    "sys.exit": rb"\bSystemExit\b|" + _of(b"sys", b"exit"),
    "frames": rb"\b_getframe\b|\bcurrentframe\b|\b_current_frames\b"
    rb"|\b(tb|gi|cr|ag)_frame\b|\bf_(back|locals|globals|builtins|code)\b|"
    + _of(b"inspect", b"stack|trace|getouterframes|getinnerframes"),
    "namespaces": rb"(?<!\bself\.)\b__dict__\b|(?<!\bself\.)\b__(globals|builtins|subclasses)__\b"
    rb"|\bbuiltins\b|\b__(closure|code|mro|self)__\b|(?<![.\w])globals\s*\(",
    "imports": rb"\b__import__\b|\bimport_module\b|\bimportlib\s*\.\s*(util|machinery|reload)\b"
    rb"|\b(pkgutil|runpy|pydoc)\b",
    "aliases": rb"\bimport\b[^\n]{0,400}\b(os|sys|inspect|gc)\s{1,9}as\b"
    rb"|\bfrom\s+(os|sys|inspect|gc)\s+import\s+\*",
    "evaluation": rb"(?<![.\w])(exec|eval|compile)\s*\("
    rb"|\b(marshal|FunctionType|CodeType|co_filename|runsource|runcode)\b",
    # A comparison that is assigned, or whose body says nothing of what it compares with.
    "equality": rb"\b__(eq|ne|bool|contains)__\s*="
    rb"|\bdef\s+__bool__\s*\([^)]{0,400}\)[^:\n]{0,400}:\s*return\s+(True|False)\b"
    rb"|\bdef\s+__(?:eq|ne|contains)__\s*\(\s*\w+\s*,\s*(?P<other>\w+)\b[^)]{0,400}\)[^:\n]{0,400}:"
    rb"(?:(?!\bdef\b|\n\S|\b(?P=other)\b)[\s\S]){0,4000}(?=\bdef\b|\n\S|\Z)",
    "gc": rb"\bget_(objects|referrers|referents)\b",
    "descriptors": _of(b"os", b"write|writev|pwrite|fdopen|dup2?|closerange|pipe2?")
    + rb"|/proc/self\b|/dev/fd\b|\bF_DUPFD",
    "ctypes": rb"\bctypes\b|\bcffi\b",
    "fork": _of(b"os", b"fork|forkpty|posix_spawnp?|exec[lv]p?e?"),
}
_STANDARD = {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "iniconfig", "packaging"}
_NEW_FILE = re.compile(rb'^\+\+\+ "?b/([^"\t\n]+)', re.MULTILINE)


def spoofing_patterns(diff: bytes) -> tuple[str, ...]:
    """Names of patterns in the lines that a diff adds which could deceive a test process from
    inside, sorted. A flag is for a reader; it decides nothing.

    ``shadows NAME``: a top-level module of the tree that hides one of Python or pytest, because the
    workspace comes first on ``sys.path``.
    """
    added = b"\n".join(
        line[1:]
        for line in diff.split(b"\n")
        if line.startswith(b"+") and not line.startswith(b"+++ ")
    )
    found = {name for name, pattern in _SPOOFING.items() if re.search(pattern, added)}
    for path in _NEW_FILE.findall(diff):
        top, _, rest = path.decode("utf-8", "replace").partition("/")
        module = top.removesuffix(".py") if not rest else top
        known = module in _STANDARD or module.startswith("pytest")
        if known and (rest or top.endswith(".py")):
            found.add(f"shadows {module}")
    return tuple(sorted(found))
