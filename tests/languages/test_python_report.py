"""The reading side of the reporter: what is believed, and what is not."""

import json
from typing import Any

import pytest

from actors.languages.contract import Report
from actors.languages.python.report import Canary, read_results

NONCE = "a1b2"


def line(kind: str, nonce: str = NONCE, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "nonce": nonce, **fields}


def phase(test: str, when: str, outcome: str = "passed", xfail: bool = False) -> dict[str, Any]:
    return line("phase", id=test, when=when, outcome=outcome, xfail=xfail)


def whole(test: str, call: str = "passed", xfail: bool = False) -> list[dict[str, Any]]:
    return [phase(test, "setup"), phase(test, "call", call, xfail), phase(test, "teardown")]


def session(
    *reports: dict[str, Any],
    tests: int,
    failed: int = 0,
    exit_status: int = 0,
    stopped: bool = False,
) -> list[dict[str, Any]]:
    return [
        line("begin", pytest="8.0"),
        line("collected", tests=tests, items=tests),
        *reports,
        line("end", exit_status=exit_status, failed=failed, collected=tests, stopped=stopped),
    ]


def read(lines: list[dict[str, Any]], exit_status: int | None = 0, **other: Any) -> Report:
    content = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    arguments: dict[str, Any] = {"complete": True, "signal": None, "timed_out": False} | other
    return read_results(content, nonce=NONCE, exit_status=exit_status, **arguments)


def test_outcomes_by_phase() -> None:
    reports = [
        *whole("passes"),
        *whole("fails", "failed"),
        *(phase("teardown fails", "setup"), phase("teardown fails", "call")),
        phase("teardown fails", "teardown", "failed"),
        *(phase("setup fails", "setup", "failed"), phase("setup fails", "teardown")),
        *(phase("skipped", "setup", "skipped"), phase("skipped", "teardown")),
        *whole("skips itself", "skipped"),
        *whole("xfails", "skipped", xfail=True),
        *(phase("not run", "setup", "skipped", xfail=True), phase("not run", "teardown")),
        *whole("xpasses", "passed", xfail=True),
        *(phase("subtests", "setup"), phase("subtests", "call", "failed")),
        *(phase("subtests", "call"), phase("subtests", "teardown")),
        *(phase("rerun", "setup"), phase("rerun", "call", "rerun"), phase("rerun", "teardown")),
        *whole("rerun"),
    ]
    results = read(session(*reports, tests=11, failed=4, exit_status=1), 1)
    assert (results.verdict, results.reason) == ("finished", "")
    assert results.outcomes == {
        "fails": "failed",
        "not run": "xfailed",
        "passes": "passed",
        "rerun": "failed",
        "setup fails": "error",
        "skipped": "skipped",
        "skips itself": "skipped",
        "subtests": "failed",
        "teardown fails": "error",
        "xfails": "xfailed",
        "xpasses": "xpassed",
    }


def test_collection_errors_are_named_and_leave_tests_absent() -> None:
    broken = line("collection", id="tests/test_b.py", outcome="failed", text="SyntaxError")
    skipped = line("collection", id="tests/test_c.py", outcome="skipped", text="no tool")
    results = read(session(broken, skipped, *whole("a"), tests=1, failed=1, exit_status=1), 1)
    assert results.verdict == "finished"
    assert results.outcomes == {"a": "passed"}
    assert results.collection_errors == ("tests/test_b.py",)


def test_a_conftest_that_cannot_be_imported_is_a_finding() -> None:
    lines = [
        line("begin", pytest="8.0"),
        line("conftest_failed", path="/workspace/tests/conftest.py", text="ImportError: x"),
    ]
    results = read(lines, 4, workspace="/workspace")
    assert (results.verdict, results.outcomes) == ("finished", {})
    assert results.collection_errors == ("tests/conftest.py",)
    assert "ImportError: x" in results.reason
    assert read(lines, 0).verdict == "infrastructure"
    assert read(lines[:1], 4).verdict == "infrastructure"


GOOD = session(*whole("a"), *whole("b", "failed"), tests=2, failed=1, exit_status=1)


@pytest.mark.parametrize(
    ("lines", "exit_status", "other", "reason"),
    [
        (GOOD, 0, {}, "disagreement: the process ended with exit status 0"),
        (GOOD, None, {"signal": 11}, "disagreement: the process ended with signal 11"),
        (GOOD[:-1], 0, {}, "no session-finished record (exit status 0)"),
        (GOOD[:-1], None, {"signal": 9}, "no session-finished record (signal 9)"),
        (GOOD[1:], 1, {}, "pytest did not start"),
        ([], 1, {}, "pytest did not start (exit status 1)"),
        ([*GOOD, *whole("c")], 1, {}, "lines after the session's end"),
        ([*GOOD, GOOD[-1]], 1, {}, "lines after the session's end"),
        (GOOD, 1, {"complete": False}, "larger than allowed"),
        ([GOOD[0], line("phase", "wrong", id="a", when="call", outcome="passed", xfail=False),
          *GOOD[1:]], 1, {}, "line 2 has another nonce"),
        ([GOOD[0], {"kind": "phase", "nonce": NONCE}, *GOOD[1:]], 1, {}, "line 2 is not one of"),
        ([GOOD[0], {**GOOD[2], "extra": 1}, *GOOD[1:]], 1, {}, "line 2 is not one of"),
        ([GOOD[0], {**GOOD[2], "kind": "passed"}, *GOOD[1:]], 1, {}, "line 2 is not one of"),
        (session(*whole("a"), tests=2), 0, {}, "1 tests reported of 2 collected"),
        (session(*whole("a"), *whole("b"), tests=1), 0, {}, "2 tests reported of 1 collected"),
        (session(*whole("a"), tests=1, failed=1, exit_status=1), 1, {}, "0 reports failed"),
        (session(*whole("a", "failed"), tests=1), 0, {}, "1 reports failed, the session counted 0"),
        (session(*whole("a", "failed"), tests=1, failed=1), 0, {}, "exit status is 0"),
        (session(*whole("a"), tests=1, exit_status=1), 1, {}, "0 failed and the exit status is 1"),
        (session(*whole("a")[:2], tests=1), 0, {}, "a was not run from setup to teardown"),
        (session(phase("a", "setup"), phase("a", "teardown"), tests=1), 0, {}, "a was not run"),
        (session(*whole("a"), tests=1, exit_status=2), 2, {}, "exit status 2 (interrupted)"),
        (session(line("internal_error", text="INTERNALERROR boom"), tests=0, exit_status=3), 3, {},
         "exit status 3 (internal error): INTERNALERROR boom"),
        (session(tests=0, exit_status=4), 4, {}, "exit status 4 (usage error)"),
        (session(tests=0, exit_status=5), 5, {}, "exit status 5 (no tests collected)"),
        (session(tests=0, exit_status=77), 77, {}, "exit status 77 (unknown)"),
    ],
)  # fmt: skip
def test_whatever_does_not_agree_is_never_a_failed_test(
    lines: list[dict[str, Any]], exit_status: int | None, other: dict[str, Any], reason: str
) -> None:
    results = read(lines, exit_status, **other)
    assert results.verdict == "infrastructure"
    assert reason in results.reason
    assert results.outcomes == {}


def test_time_out_is_its_own_verdict() -> None:
    assert read(GOOD, None, signal=15, timed_out=True).verdict == "timeout"


def test_stopping_early_leaves_tests_absent() -> None:
    results = read(
        session(*whole("a", "failed"), tests=9, failed=1, exit_status=1, stopped=True), 1
    )
    assert results.verdict == "finished"
    assert results.outcomes == {"a": "failed"}


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b'{"kind":"begin"', b"\n", b"x" * 1000]
)
def test_bytes_that_are_no_report(content: bytes) -> None:
    results = read_results(
        content, complete=True, nonce=NONCE, exit_status=0, signal=None, timed_out=False
    )
    assert results.verdict == "infrastructure"


CANARY = Canary(name="c0ffee", tests=2)
FAILING = [
    *whole("tests/test_c0ffee.py::test_c0ffee_a", "failed"),
    *whole("tests/test_c0ffee.py::test_c0ffee_b", "failed"),
]


def test_a_canary_that_failed_is_out_of_the_results() -> None:
    lines = session(*whole("a"), *FAILING, tests=3, failed=2, exit_status=1)
    results = read(lines, 1, canary=CANARY)
    assert (results.verdict, results.outcomes, results.flags) == ("finished", {"a": "passed"}, ())
    assert len(read(lines, 1).outcomes) == 3


@pytest.mark.parametrize(
    ("reports", "failed", "reason", "flags"),
    [
        ([*whole("c0ffee-1"), *whole("c0ffee-2", "failed")], 1,
         "a test that must fail was reported as passed", ("canary did not fail",)),
        ([*whole("c0ffee-1", "skipped"), *whole("c0ffee-2", "failed")], 1,
         "a test that must fail was reported as skipped", ("canary did not fail",)),
        (whole("c0ffee-1", "failed"), 1, "1 of 2 tests that must fail", ("canary is missing",)),
        (whole("a"), 0, "0 of 2 tests that must fail", ("canary is missing",)),
        (FAILING, 2, "no tests collected", ()),
    ],
)  # fmt: skip
def test_without_a_failing_canary_nothing_is_believed(
    reports: list[dict[str, Any]], failed: int, reason: str, flags: tuple[str, ...]
) -> None:
    tests = len({report["id"] for report in reports})
    exit_status = 1 if failed else 0
    lines = session(*reports, tests=tests, failed=failed, exit_status=exit_status)
    results = read(lines, exit_status, canary=CANARY)
    assert (results.verdict, results.outcomes) == ("infrastructure", {})
    assert reason in results.reason
    assert results.flags == flags


def test_a_run_that_ended_early_needs_its_canary_too() -> None:
    lines = session(*whole("a"), tests=9, stopped=True)
    assert read(lines, 0).outcomes == {"a": "passed"}
    assert read(lines, 0, canary=CANARY).verdict == "infrastructure"


def test_a_plugin_that_came_late_is_a_flag_whatever_the_verdict() -> None:
    late = line("late_plugin", name="app.Quiet")
    for lines, status in ((session(late, *whole("a"), tests=1), 0), (session(late, tests=1), 0)):
        assert read(lines, status).flags == ("plugin registered during the run: app.Quiet",)
