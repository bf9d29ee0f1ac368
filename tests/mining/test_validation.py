"""The executed criteria as a function of arm results."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from actors.languages.python import PYTHON
from actors.mining.criteria import EXECUTED_CRITERIA
from actors.mining.statements import Statement
from actors.mining.validation import (
    SECOND,
    Arm,
    ArmRun,
    Validation,
    narrow_selection,
    time_limit_ns,
    validate,
)
from actors.mining.walk import Candidate
from schemas.repair.overlay import Changes
from schemas.repair.task import FailToPass, Size

TEST = "tests/unit/a/test_a.py"
OTHER = "tests/unit/b/test_b.py"

CANDIDATE = Candidate(
    repository="T001",
    commit="c" * 40,
    base="b" * 40,
    base_tree="1" * 40,
    gold_tree="2" * 40,
    committed="2024-01-01T00:00:00Z",
    statement=Statement(text="# A bug\n", words=2, redactions=(), leaks=()),
    production_paths=("pkg/a.py",),
    test_paths=(TEST,),
    changed_production_lines=1,
    gold=Changes(),
    gold_patch=b"",
    hidden=Changes(),
    hidden_patch=b"",
    protected_paths=(TEST, OTHER),
    dropped_paths=(),
    package_roots=("pkg",),
    base_test_files=(TEST, OTHER),
    hidden_test_files=(TEST,),
    removed_test_files=(),
    unchanged_tests=frozenset({f"{TEST}::test_kept"}),
    known_tests=frozenset({f"{TEST}::test_kept", f"{TEST}::test_new", f"{TEST}::test_changed"}),
    needs_gold_symbol=0,
    size=Size(bytes=0, source_files=0, source_lines=0, estimated_tokens=0),
    languages={},
)

Results = dict[str, dict[str, str]]

GOOD: Results = {
    "A": {"test_kept": "passed", "test_changed": "passed"},
    "B": {"test_kept": "passed", "test_changed": "failed", "test_new": "error"},
    "C": {"test_kept": "passed", "test_changed": "passed", "test_new": "passed"},
}


def runner(
    results: Results, **override: ArmRun
) -> tuple[Callable[[Arm, int], ArmRun], list[tuple[Arm, int]]]:
    """``results``: arm, or arm and seed (``C1``), → outcome by function of :data:`TEST`."""
    calls: list[tuple[Arm, int]] = []

    def run(arm: Arm, seed: int) -> ArmRun:
        calls.append((arm, seed))
        key = f"{arm.name}{seed}"
        if key in override or arm.name in override:
            return override.get(key) or override[arm.name]
        tests = results.get(key) or results[arm.name]
        outcomes: dict[str, Any] = {f"{TEST}::{name}": seen for name, seen in tests.items()}
        if OTHER in arm.test_files:
            outcomes[f"{OTHER}::test_other"] = "passed"
        return ArmRun(outcomes=outcomes, verdict="finished", duration_ns=SECOND)

    return run, calls


def judge(results: Results, candidate: Candidate = CANDIDATE, **override: ArmRun) -> Validation:
    return validate(PYTHON, candidate, runner(results, **override)[0])


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"{TEST}::{name}" for name in names)


def test_a_valid_task() -> None:
    run, calls = runner(GOOD)
    found = validate(PYTHON, CANDIDATE, run)
    assert (found.valid, found.criterion, found.failed) == (True, "", ())
    assert found.fail_to_pass == (
        FailToPass(id=f"{TEST}::test_changed", how="assertion"),
        FailToPass(id=f"{TEST}::test_new", how="assertion"),
    )
    assert found.pass_to_pass == (f"{TEST}::test_kept", f"{OTHER}::test_other")
    assert found.public_tests == found.pass_to_pass
    assert found.public_test_files == found.grading_test_files == (TEST, OTHER)
    assert found.whole_suite
    assert [(arm.name, seed) for arm, seed in calls] == [
        ("A", 0), ("A", 1), ("B", 0), ("B", 1), ("C", 0), ("C", 1),
    ]  # fmt: skip
    assert {arm.name: (arm.with_hidden, arm.with_gold) for arm, _ in calls} == {
        "A": (False, False),
        "B": (True, False),
        "C": (True, True),
    }


def test_a_task_needs_a_public_test_that_gold_keeps() -> None:
    candidate = replace(CANDIDATE, base_test_files=(TEST,))
    results: Results = {
        "A": {"test_old": "passed"},
        "B": {"test_new": "failed"},
        "C": {"test_new": "passed"},
    }
    found = judge(results, candidate)
    assert found.failed == ("public_tests_fail_at_base",)
    assert found.reasons["public_tests_fail_at_base"] == (
        "1 ids pass at the base, none of them with gold"
    )


def test_the_result_is_data_and_the_same_every_time() -> None:
    found = judge(GOOD)
    content = msgspec.json.encode(found)
    assert msgspec.json.decode(content, type=Validation) == found
    reordered = {arm: dict(reversed(tests.items())) for arm, tests in GOOD.items()}
    assert msgspec.json.encode(judge(reordered)) == content


def test_a_slow_suite_is_not_run_as_a_whole() -> None:
    run, calls = runner(GOOD)

    def slow(arm: Arm, seed: int) -> ArmRun:
        done = run(arm, seed)
        return replace(done, duration_ns=SECOND * 40 * len(arm.test_files))

    found = validate(PYTHON, CANDIDATE, slow)
    assert found.valid and not found.whole_suite
    assert [arm.test_files for arm, _ in calls] == [(TEST, OTHER)] + [(TEST,)] * 6
    assert found.pass_to_pass == ids("test_kept")
    assert found.time_limit_ns == 240 * SECOND
    run, calls = runner(GOOD)
    assert validate(PYTHON, CANDIDATE, run, whole_suite_ns=0).valid
    assert {arm.test_files for arm, _ in calls} == {(TEST,)}


def test_a_whole_suite_that_does_not_finish_only_narrows_the_choice() -> None:
    run, calls = runner(GOOD)

    def broken(arm: Arm, seed: int) -> ArmRun:
        if OTHER in arm.test_files:
            return ArmRun(outcomes={}, verdict="timeout", reason="300 s")
        return run(arm, seed)

    found = validate(PYTHON, CANDIDATE, broken)
    assert found.valid and not found.whole_suite
    assert found.runs[0].verdict == "timeout"
    assert len(found.runs) == len(calls) + 1


ALL = tuple(f"tests/unit/{path}" for path in ("a/test_x.py", "a/test_y.py", "test_z.py"))


@pytest.mark.parametrize(
    ("hidden", "removed", "base", "expected"),
    [
        ((ALL[0],), (), ALL, ALL[:2]),
        ((ALL[0],), (ALL[2],), ALL, ALL),
        (("tests/unit/a/test_new.py",), (), ALL, ALL[:2]),
        (("tests/unit/b/c/test_new.py",), (), ALL, (ALL[2],)),
        (("tests/unit/b/test_new.py",), (), (), ()),
        (("tests/unit/b/test_new.py",), (), (ALL[0],), ()),
    ],
)
def test_narrow_selection(
    hidden: tuple[str, ...],
    removed: tuple[str, ...],
    base: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    candidate = replace(
        CANDIDATE, hidden_test_files=hidden, removed_test_files=removed, base_test_files=base
    )
    assert narrow_selection(candidate) == expected


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ((ALL[0],), (ALL[0],)),
        ((ALL[0], "tests/unit/test_new.py"), (ALL[0],)),
        (("tests/unit/a/test_new.py",), ALL[:2]),
    ],
)
def test_a_study_may_choose_the_touched_files_alone(
    hidden: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    candidate = replace(CANDIDATE, hidden_test_files=hidden, base_test_files=ALL)
    assert narrow_selection(candidate, "file") == expected


def changed(arm: str, **tests: str) -> Results:
    return {**GOOD, arm: tests}


@pytest.mark.parametrize(
    ("results", "criterion", "reason"),
    [
        ({**GOOD, "A": {"test_kept": "failed"}}, "", ""),
        (
            changed("B", test_kept="passed", test_changed="passed", test_new="passed"),
            "no_fail_to_pass",
            "3 held-out ids, 0 fail without gold",
        ),
        (
            changed("B", test_kept="passed", test_changed="skipped", test_new="xfailed"),
            "no_fail_to_pass",
            "3 held-out ids, 0 fail without gold",
        ),
        (
            changed("C", test_kept="passed", test_changed="failed", test_new="error"),
            "gold_fails",
            "3 held-out ids, 2 fail without gold, 0 of them pass with gold",
        ),
        (
            changed("C", test_kept="passed", test_changed="skipped", test_new="xpassed"),
            "gold_fails",
            "3 held-out ids, 2 fail without gold, 0 of them pass with gold",
        ),
        (
            {**GOOD, "C1": {"test_kept": "passed", "test_changed": "failed", "test_new": "failed"}},
            "flaky",
            "3 held-out ids, 2 fail without gold, 2 pass with gold, 0 in the same way every time",
        ),
        (
            {**GOOD, "B1": {"test_kept": "passed", "test_changed": "passed", "test_new": "passed"}},
            "flaky",
            "3 held-out ids, 2 fail without gold, 2 pass with gold, 0 in the same way every time",
        ),
    ],
)
def test_criteria(results: Results, criterion: str, reason: str) -> None:
    found = judge(results)
    assert found.criterion == criterion
    assert found.reasons.get(criterion, "") == reason
    assert found.valid is (criterion == "")
    assert criterion == "" or criterion in EXECUTED_CRITERIA


def test_nothing_passes_at_the_base() -> None:
    candidate = replace(CANDIDATE, base_test_files=(TEST,))
    found = judge({**GOOD, "A": {"test_kept": "failed", "test_changed": "skipped"}}, candidate)
    assert found.failed == ("public_tests_fail_at_base",)
    assert {run.arm for run in found.runs} == {"A"}


def test_nothing_can_be_collected_at_the_base() -> None:
    broken = ArmRun(outcomes={}, verdict="finished", collection_errors=(TEST, OTHER))
    found = judge(GOOD, A=broken)
    assert found.criterion == "environment_failed"
    assert found.reasons["environment_failed"].endswith("2 of 2 files broken")


def test_a_base_without_tests() -> None:
    candidate = replace(CANDIDATE, base_test_files=())
    found = judge(GOOD, candidate)
    assert (found.criterion, found.runs) == ("public_tests_fail_at_base", ())


@pytest.mark.parametrize("where", ["A1", "B0", "B1", "C0", "C1"])
@pytest.mark.parametrize("verdict", ["timeout", "infrastructure"])
def test_a_run_that_did_not_finish_is_never_a_failed_test(where: str, verdict: Any) -> None:
    broken = ArmRun(
        outcomes={f"{TEST}::test_new": "failed"}, verdict=verdict, reason="no end record"
    )
    found = validate(PYTHON, CANDIDATE, runner(GOOD, **{where: broken})[0])
    assert found.failed == ("environment_failed",)
    assert found.reasons["environment_failed"] == (
        f"arm {where[0]}, seed {where[1]}: {verdict}: no end record"
    )
    assert found.fail_to_pass == ()
    assert found.runs[-1].verdict == verdict


def test_a_collection_error_does_not_drag_unchanged_tests_along() -> None:
    lost = ArmRun(
        outcomes={f"{OTHER}::test_other": "passed"}, verdict="finished", collection_errors=(TEST,)
    )
    found = judge(GOOD, B=lost)
    assert found.fail_to_pass == (
        FailToPass(id=f"{TEST}::test_changed", how="collection"),
        FailToPass(id=f"{TEST}::test_new", how="collection"),
    )
    assert found.unchanged == ids("test_kept")
    assert f"{TEST}::test_kept" in found.pass_to_pass
    # With unchanged tests alone there is nothing that was held out.
    unchanged = replace(CANDIDATE, unchanged_tests=CANDIDATE.known_tests)
    results = {**GOOD, "A": dict.fromkeys(("test_kept", "test_changed", "test_new"), "passed")}
    found = judge(results, unchanged, B=lost)
    assert found.failed == ("no_fail_to_pass",)
    assert "3 unchanged ones are lost" in found.reasons["no_fail_to_pass"]


def test_an_unchanged_test_that_failed_at_the_base_is_held_out() -> None:
    """The bug was known: the test stood there and failed."""
    results = {
        "A": {"test_kept": "failed"},
        "B": {"test_kept": "failed"},
        "C": {"test_kept": "passed"},
    }
    assert judge(results).fail_to_pass == (FailToPass(id=f"{TEST}::test_kept", how="assertion"),)


def test_a_test_without_a_function_counts_as_unchanged() -> None:
    """Inherited or generated: nothing shows that gold wrote it."""
    results: Results = {
        "A": {"TestX::test_inherited": "passed"},
        "B": {"TestX::test_inherited": "failed"},
        "C": {"TestX::test_inherited": "passed"},
    }
    assert judge(results).criterion == "no_fail_to_pass"


def test_parameters_are_not_part_of_a_tests_name() -> None:
    odd = "test_new[a::b - [c]\n\u00e9]"
    kept = "test_kept[1]"
    results: Results = {
        "A": {kept: "passed"},
        "B": {kept: "failed", odd: "failed"},
        "C": {kept: "passed", odd: "passed"},
    }
    found = judge(results)
    assert [item.id for item in found.fail_to_pass] == list(ids(odd))


def test_an_unstable_test_gets_a_third_run_and_is_dropped() -> None:
    results = {
        **GOOD,
        "C1": {**GOOD["C"], "test_new": "failed"},
        "A1": {**GOOD["A"], "test_kept": "failed"},
    }
    run, calls = runner(results)
    found = validate(PYTHON, CANDIDATE, run)
    assert found.valid
    assert [item.id for item in found.fail_to_pass] == list(ids("test_changed"))
    assert found.pass_to_pass == (f"{OTHER}::test_other",)
    assert [(item.arm, item.id, item.outcomes) for item in found.unstable] == [
        ("A", f"{TEST}::test_kept", ("passed", "failed", "passed")),
        ("C", f"{TEST}::test_new", ("passed", "failed", "passed")),
    ]
    assert [seed for arm, seed in calls if arm.name == "B"] == [0, 1]
    assert [seed for arm, seed in calls if arm.name == "C"] == [0, 1, 2]


def test_a_test_that_is_absent_once_is_unstable() -> None:
    results = {**GOOD, "C0": {"test_kept": "passed", "test_changed": "passed"}}
    found = judge(results)
    assert found.unstable[0].outcomes == ("absent", "passed", "passed")
    assert [item.id for item in found.fail_to_pass] == list(ids("test_changed"))


def test_files_of_other_arms_follow_the_hidden_half() -> None:
    candidate = replace(
        CANDIDATE,
        package_roots=("pkg",),
        base_test_files=(TEST, OTHER),
        hidden_test_files=("tests/unit/c/test_c.py",),
        removed_test_files=(TEST,),
    )
    run, calls = runner({arm: {} for arm in "ABC"})
    validate(PYTHON, candidate, run)
    assert {arm.name: arm.test_files for arm, _ in calls} == {
        "A": (TEST, OTHER),
        "B": (OTHER, "tests/unit/c/test_c.py"),
        "C": (OTHER, "tests/unit/c/test_c.py"),
    }


def test_leaks_come_last() -> None:
    leaking = replace(
        CANDIDATE,
        statement=Statement(text="x\n", words=1, redactions=(), leaks=("symbol 00",)),
    )
    found = judge(GOOD, leaking)
    assert (found.valid, found.failed) == (False, ("statement_leaks",))
    assert found.fail_to_pass
    failing = changed("C", test_kept="passed")
    assert judge(failing, leaking).failed == ("gold_fails", "statement_leaks")


@pytest.mark.parametrize(
    ("durations", "limit"),
    [
        ((), 60),
        ((1,), 60),
        ((12, 3), 60),
        ((13, 2), 120),
        ((14,), 120),
        ((59, 60), 300),
        ((100,), 300),
    ],
)
def test_time_limit(durations: tuple[int, ...], limit: int) -> None:
    assert time_limit_ns(SECOND * seconds for seconds in durations) == SECOND * limit
