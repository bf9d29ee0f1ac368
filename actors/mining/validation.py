"""The executed criteria: does a candidate's gold patch make tests pass that fail without it?

Three arms: A base, B base + hidden tests, C base + hidden tests + gold. The runner is handed in, so
everything here is a function of arm results: the same results give the same split anywhere.

**What is run.** The test files in the folders of those that the hidden patch changes: the changed
ones alone may hold no test that the change leaves as it is (a study may choose them alone). When
the whole suite below the test roots needs no more than :data:`WHOLE_SUITE_NS` at the base, every
arm runs all of it, so that pass-to-pass tests guard the whole package. The suite of a big
repository would take longer than the study.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from actors.languages.contract import Language, Outcome, RunVerdict
from actors.mining.criteria import EXECUTED_CRITERIA
from actors.mining.walk import Candidate
from schemas.base import Count, Nanoseconds, Value
from schemas.repair.task import FailToPass

HASH_SEEDS = (0, 1)
TIE_BREAK_SEED = 2
"""Seed of the third run of an arm in which any test differed."""

SECOND = 1_000_000_000
WHOLE_SUITE_NS = 60 * SECOND
MIN_TIME_LIMIT_NS = 60 * SECOND
MAX_TIME_LIMIT_NS = 300 * SECOND


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What one run is made of: the base tree, what is laid over it, and the test files to run."""

    name: Literal["A", "B", "C"]
    test_files: tuple[str, ...]

    @property
    def with_hidden(self) -> bool:
        return self.name in ("B", "C")

    @property
    def with_gold(self) -> bool:
        return self.name == "C"


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One finished run, as its reporter wrote it: never parsed from standard output."""

    outcomes: Mapping[str, Outcome]
    """Test id → outcome; ids begin with the test file's path and ``::``."""
    verdict: RunVerdict
    """``finished`` only with an end record and an exit status that agrees with the outcomes."""
    reason: str = ""
    collection_errors: tuple[str, ...] = ()
    """Test files that could not be collected."""
    first_error: str = ""
    """The words of the first of them."""
    duration_ns: int = 0


class RunSummary(Value):
    """What a run contributed, for the audit."""

    arm: Literal["A", "B", "C"]
    seed: Count
    test_files: Count
    verdict: RunVerdict
    reason: str
    outcomes: Annotated[dict[str, Count], Meta(description="number of ids by outcome")]
    collection_errors: tuple[str, ...]
    first_error: Annotated[str, Meta(description="words of the first collection error")] = ""
    duration_ns: Nanoseconds


class Unstable(Value):
    """A test whose outcomes differ between runs of one arm; it is in no list of the task."""

    id: str
    arm: Literal["A", "B", "C"]
    outcomes: Annotated[tuple[str, ...], Meta(description="by run; `absent` where not seen")]


class Validation(Value):
    """The verdict of the executed criteria and what grading needs."""

    valid: bool
    criterion: Annotated[str, Meta(description="first failed criterion; empty: valid")]
    failed: Annotated[tuple[str, ...], Meta(description="every failed criterion that was reached")]
    reasons: Annotated[dict[str, str], Meta(description="failed criterion: why")]
    whole_suite: Annotated[bool, Meta(description="every test file below the roots was run")] = (
        False
    )
    fail_to_pass: Annotated[tuple[FailToPass, ...], Meta(description="sorted by id")] = ()
    pass_to_pass: Annotated[tuple[str, ...], Meta(description="test ids, sorted")] = ()
    public_tests: Annotated[
        tuple[str, ...], Meta(description="pass-to-pass ids that exist at the base, sorted")
    ] = ()
    public_test_files: tuple[str, ...] = ()
    grading_test_files: tuple[str, ...] = ()
    unchanged: Annotated[
        tuple[str, ...],
        Meta(description="ids that B lost and C passes but whose body gold leaves as it was"),
    ] = ()
    unstable: tuple[Unstable, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    time_limit_ns: Annotated[
        Nanoseconds, Meta(description="5 x the slowest base run in whole minutes, from 1 to 5")
    ] = MIN_TIME_LIMIT_NS


def test_file(test_id: str) -> str:
    """The file that a test id belongs to."""
    return test_id.partition("::")[0]


def narrow_selection(
    candidate: Candidate, beside: Literal["folder", "file"] = "folder"
) -> tuple[str, ...]:
    """Base test files in the folders of the test files that the hidden half touches; for a folder
    that the base does not have, those of the nearest folder above that has some. With ``file``
    only the touched files themselves, where the base has any of them."""
    touched = {*candidate.hidden_test_files, *candidate.removed_test_files}
    files = tuple(path for path in candidate.base_test_files if path in touched)
    if beside == "file" and files:
        return files
    by_folder: dict[str, list[str]] = {}
    for path in candidate.base_test_files:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    selected: set[str] = set()
    for path in (*candidate.hidden_test_files, *candidate.removed_test_files):
        folder = path.rpartition("/")[0]
        while folder and folder not in by_folder:
            folder = folder.rpartition("/")[0]
        selected.update(by_folder.get(folder, ()))
    return tuple(path for path in candidate.base_test_files if path in selected)


def validate(
    language: Language,
    candidate: Candidate,
    run: Callable[[Arm, int], ArmRun],
    *,
    whole_suite_ns: int = WHOLE_SUITE_NS,
    beside: Literal["folder", "file"] = "folder",
) -> Validation:
    """Run the three arms and judge the candidate by the executed criteria, in their order.

    ``run(arm, hash_seed)`` runs ``arm.test_files`` in a fresh workspace and returns what its
    reporter recorded; a run that did not finish is never read as a failed test. Arms after a run
    that did not finish are not run.
    """
    record = _Record(run)
    base = candidate.base_test_files
    selected = narrow_selection(candidate, beside)
    whole_suite = False
    first: ArmRun | None = None

    def rejected(criterion: str, reason: str) -> Validation:
        return record.validation({criterion: reason}, whole_suite=whole_suite)

    # A suite that is too slow or does not finish decides nothing but the choice.
    if base and whole_suite_ns > 0:
        probe = record.run(Arm(name="A", test_files=base), HASH_SEEDS[0])
        whole_suite = probe.verdict == "finished" and probe.duration_ns <= whole_suite_ns
        if whole_suite or selected == base:
            selected, first = base, probe
    if not selected:
        return rejected("public_tests_fail_at_base", "the base has no selectable test file")

    at_base = record.arm(Arm(name="A", test_files=selected), first)
    if at_base is None:
        return rejected("environment_failed", record.unfinished)
    if not any(run.outcomes for run in at_base.runs):
        broken = len({file for run in at_base.runs for file in run.collection_errors})
        return rejected(
            "environment_failed",
            f"nothing could be collected at the base: {broken} of {len(selected)} files broken"
            f"{at_base.first_error}",
        )
    if not at_base.always("passed"):
        return rejected(
            "public_tests_fail_at_base",
            f"0 of {len(at_base.ids)} ids pass in every run of the base{at_base.first_error}",
        )

    kept = set(selected) - set(candidate.removed_test_files)
    files = tuple(sorted(kept | set(candidate.hidden_test_files), key=lambda path: path.encode()))
    without_gold = record.arm(Arm(name="B", test_files=files))
    with_gold = without_gold and record.arm(Arm(name="C", test_files=files))
    if without_gold is None or with_gold is None:
        return rejected("environment_failed", record.unfinished)

    hidden_files = set(candidate.hidden_test_files)
    unstable = {item.id for arm in (at_base, without_gold, with_gold) for item in arm.unstable}
    held_out = {
        test_id
        for test_id in without_gold.ids | with_gold.ids
        if test_file(test_id) in hidden_files
    }
    lost = {test_id for test_id in held_out if without_gold.ever_lost(test_id)}
    # A collection error drags along every test of its file, also what the change is not about.
    unchanged = {
        test_id
        for test_id in lost
        if test_id in at_base.ever("passed") and not _body_changed(language, candidate, test_id)
    }
    failing = lost - unchanged
    gained = failing & with_gold.ever("passed")
    fail_to_pass = {
        test_id
        for test_id in (gained & with_gold.always("passed")) - unstable
        if without_gold.always_lost(test_id)
    }
    pass_to_pass = (at_base.always("passed") & with_gold.always("passed")) - fail_to_pass - unstable
    public = pass_to_pass & at_base.ids

    reasons: dict[str, str] = {}
    counted = f"{len(held_out)} held-out ids, {len(failing)} fail without gold"
    if not failing:
        note = f" ({len(unchanged)} unchanged ones are lost)" if unchanged else ""
        reasons["no_fail_to_pass"] = f"{counted}{note}"
    elif not gained:
        reasons["gold_fails"] = f"{counted}, 0 of them pass with gold{with_gold.first_error}"
    elif not fail_to_pass:
        reasons["flaky"] = f"{counted}, {len(gained)} pass with gold, 0 in the same way every time"
    elif not public:
        reasons["public_tests_fail_at_base"] = (
            f"{len(at_base.always('passed'))} ids pass at the base, none of them with gold"
        )
    if candidate.statement.leaks:
        reasons["statement_leaks"] = "; ".join(candidate.statement.leaks)

    return msgspec.structs.replace(
        record.validation(reasons, whole_suite=whole_suite),
        fail_to_pass=tuple(
            FailToPass(id=test_id, how=without_gold.how_lost(test_id, language))
            for test_id in sorted(fail_to_pass)
        ),
        pass_to_pass=tuple(sorted(pass_to_pass)),
        public_tests=tuple(sorted(public)),
        public_test_files=_files(public),
        grading_test_files=_files(fail_to_pass | pass_to_pass),
        unchanged=tuple(sorted(unchanged & with_gold.always("passed"))),
        unstable=tuple(item for arm in (at_base, without_gold, with_gold) for item in arm.unstable),
        time_limit_ns=time_limit_ns(run.duration_ns for run in at_base.runs),
    )


def time_limit_ns(base_durations: Iterable[int]) -> int:
    """Time limit of a test run, from the durations of the base's runs.

    In whole minutes: a task says the same when it is mined a second time on the same machine.
    """
    minutes = -(-5 * max(base_durations, default=0) // MIN_TIME_LIMIT_NS)
    return min(MAX_TIME_LIMIT_NS, max(1, minutes) * MIN_TIME_LIMIT_NS)


def _files(test_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({test_file(test_id) for test_id in test_ids}, key=lambda p: p.encode()))


def _body_changed(language: Language, candidate: Candidate, test_id: str) -> bool:
    """Whether gold wrote the test. One without a function in its file (inherited, generated) counts
    as unchanged: what is held out must be shown to be new."""
    function = language.tests.function_of(test_id)
    return function in candidate.known_tests and function not in candidate.unchanged_tests


@dataclass(frozen=True)
class _ArmResult:
    """All finished runs of one arm."""

    arm: Arm
    runs: tuple[ArmRun, ...]

    @property
    def ids(self) -> set[str]:
        return {test_id for run in self.runs for test_id in run.outcomes}

    def ever(self, outcome: Outcome) -> set[str]:
        return {i for run in self.runs for i, seen in run.outcomes.items() if seen == outcome}

    def always(self, outcome: Outcome) -> set[str]:
        return {i for i in self.ids if all(run.outcomes.get(i) == outcome for run in self.runs)}

    def ever_lost(self, test_id: str) -> bool:
        return any(_lost(run, test_id) for run in self.runs)

    def always_lost(self, test_id: str) -> bool:
        return all(_lost(run, test_id) for run in self.runs)

    def how_lost(
        self, test_id: str, language: Language
    ) -> Literal["assertion", "collection", "build"]:
        """A test that was never seen was not collected: its file or its parameters broke."""
        return "assertion" if test_id in self.ids else language.lost_to

    @property
    def first_error(self) -> str:
        """For the end of a sentence: the words of the first collection error."""
        errors = [run.first_error for run in self.runs if run.first_error]
        return f"; first: {_in_one_line(errors[0])}" if errors else ""

    @property
    def unstable(self) -> list[Unstable]:
        found = []
        for test_id in sorted(self.ids):
            outcomes = tuple(run.outcomes.get(test_id, "absent") for run in self.runs)
            if len(set(outcomes)) > 1:
                found.append(Unstable(id=test_id, arm=self.arm.name, outcomes=outcomes))
        return found


def _in_one_line(text: str, limit: int = 300) -> str:
    """The last words of a traceback say what is wrong."""
    words = " ".join(text.split())
    return words if len(words) <= limit else f"… {words[-limit:]}"


def _lost(run: ArmRun, test_id: str) -> bool:
    """Failed, broken or not there; a skipped or expected failure is none of these."""
    return run.outcomes.get(test_id) in ("failed", "error", None)


class _Record:
    """Runs arms and remembers every run."""

    def __init__(self, run: Callable[[Arm, int], ArmRun]) -> None:
        self._run = run
        self._summaries: list[RunSummary] = []
        self.unfinished = ""

    def run(self, arm: Arm, seed: int) -> ArmRun:
        done = self._run(arm, seed)
        counted = Counter(str(outcome) for outcome in done.outcomes.values())
        self._summaries.append(
            RunSummary(
                arm=arm.name,
                seed=seed,
                test_files=len(arm.test_files),
                verdict=done.verdict,
                reason=done.reason,
                outcomes=dict(sorted(counted.items())),
                collection_errors=tuple(sorted(done.collection_errors)),
                first_error=done.first_error,
                duration_ns=done.duration_ns,
            )
        )
        return done

    def arm(self, arm: Arm, first: ArmRun | None = None) -> _ArmResult | None:
        """Two runs, a third where any id differs; None at the first that does not finish."""
        runs: list[ArmRun] = []
        for seed in (*HASH_SEEDS, TIE_BREAK_SEED):
            if seed == TIE_BREAK_SEED and not _ArmResult(arm, tuple(runs)).unstable:
                break
            done = first if first is not None and seed == HASH_SEEDS[0] else self.run(arm, seed)
            if done.verdict != "finished":
                self.unfinished = f"arm {arm.name}, seed {seed}: {done.verdict}: {done.reason}"
                return None
            runs.append(done)
        return _ArmResult(arm, tuple(runs))

    def validation(self, reasons: Mapping[str, str], *, whole_suite: bool) -> Validation:
        failed: Sequence[str] = [name for name in EXECUTED_CRITERIA if name in reasons]
        return Validation(
            valid=not failed,
            criterion=failed[0] if failed else "",
            failed=tuple(failed),
            reasons={name: reasons[name] for name in failed},
            whole_suite=whole_suite,
            runs=tuple(self._summaries),
        )
