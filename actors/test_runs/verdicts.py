"""The verdict of two runs, and the tree that is graded."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from actors.languages.contract import Language
from actors.test_runs.execution import TestRun
from actors.test_runs.overlays import folders_of
from schemas.repair.overlay import Changes


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

    ``is_restored(path)`` is the language's rule for such files, wherever they lie: one that the
    candidate added is not in the tree, one that it changed or deleted is the base's. A
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
    points at the candidate (it ends the process on import), where gold runs in the same
    environment."""
    flagged: tuple[str, ...]


def judge(
    language: Language,
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
    flags = {*language.tests.deceptive_patterns(diff), *first.flags, *second.flags, *meddled}
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
        flagged=tuple(sorted(flags)),
    )
