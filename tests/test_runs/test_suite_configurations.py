"""What repositories write into their configuration of pytest does not keep a sound suite out."""

from collections.abc import Mapping

import pytest

from tests.test_runs.conftest import RunTests

TESTS = b"def test_a(): pass\ndef test_b(): pass\n"
A, B = "tests/test_it.py::test_a", "tests/test_it.py::test_b"

# As pytest-cov does: its option, and one failure more than there are reports.
COVERAGE = b"""
def pytest_addoption(parser):
    parser.addoption("--cov-fail-under", type=float, dest="cov_fail_under", default=None)

def pytest_sessionfinish(session):
    pass

import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session):
    yield
    if session.config.option.cov_fail_under:
        session.testsfailed += 1
"""


@pytest.mark.parametrize(
    "options", ["--lf", "--ff", "--nf", "--sw", "-x", "--maxfail=1", "-p no:randomly", "-q -q"]
)
def test_options_that_choose_or_stop(options: str, run_tests: RunTests) -> None:
    failing = b"def test_a(): assert False\ndef test_b(): pass\n"
    config = f"[pytest]\naddopts = {options}\n".encode()
    run = run_tests({"tests/test_it.py": failing, "pytest.ini": config})
    assert (run.verdict, run.outcomes) == ("finished", {A: "failed", B: "passed"}), run.reason


def test_too_little_coverage_is_no_failure(run_tests: RunTests) -> None:
    files = {
        "tests/test_it.py": TESTS,
        "covering.py": COVERAGE,
        "pytest.ini": b"[pytest]\naddopts = -p covering --cov-fail-under=90\n",
    }
    run = run_tests(files)
    assert (run.verdict, run.outcomes) == ("finished", {A: "passed", B: "passed"}), run.reason


@pytest.mark.parametrize(
    "config",
    [b"[pytest]\npython_functions = check_*\n", b"[pytest]\npython_files = check_*.py\n"],
)
def test_the_canary_is_collected_whatever_tests_are_called(
    config: bytes, run_tests: RunTests
) -> None:
    files = {
        "tests/check_it.py": b"def check_a(): pass\ndef test_a(): pass\n",
        "pytest.ini": config,
    }
    run = run_tests(files, tests=["tests/check_it.py"])
    name = "check_a" if b"functions" in config else "test_a"
    assert (run.verdict, run.outcomes) == ("finished", {f"tests/check_it.py::{name}": "passed"})


def test_a_refused_option_is_told_in_the_words_of_pytest(run_tests: RunTests) -> None:
    files = {"tests/test_it.py": TESTS, "pytest.ini": b"[pytest]\naddopts = --no-such-option\n"}
    run = run_tests(files)
    assert run.verdict == "infrastructure"
    assert "unrecognized arguments: --no-such-option" in run.reason


VALUE = b"VALUE = 1\n"
IMPORTING = b"""
import subprocess
import sys
from pkg.a import VALUE

def test_a():
    assert VALUE == 1

def test_b():
    subprocess.run([sys.executable, "-c", "import pkg.a"], check=True)
"""


@pytest.mark.parametrize(
    ("files", "roots"),
    [
        ({"src/pkg/__init__.py": b"", "src/pkg/a.py": VALUE}, ["src/pkg"]),
        ({"src/pkg/a.py": VALUE}, ["src"]),
        ({"src/pkg/a.py": VALUE}, ["src/pkg"]),
        ({"lib/python/pkg/__init__.py": b"", "lib/python/pkg/a.py": VALUE}, ["lib/python/pkg"]),
        ({"pkg/a.py": VALUE}, ["pkg"]),
    ],
)
def test_packages_are_imported_from_where_they_lie(
    files: Mapping[str, bytes], roots: list[str], run_tests: RunTests
) -> None:
    test = (
        b"import subprocess, sys\nfrom pkg.a import VALUE\n\ndef test_a():\n    assert VALUE == 1\n"
    )
    test += (
        b"\ndef test_b():\n    subprocess.run([sys.executable, '-c', 'import pkg.a'], check=True)\n"
    )
    run = run_tests({**files, "tests/test_it.py": test}, package_roots=roots)
    assert run.outcomes == {A: "passed", B: "passed"}, run.output


def test_the_first_collection_error_is_kept(run_tests: RunTests) -> None:
    run = run_tests({"tests/test_it.py": b"import nowhere_to_be_found\n"})
    assert (run.verdict, run.collection_errors) == ("finished", ("tests/test_it.py",))
    assert run.first_error.startswith("tests/test_it.py: ")
    assert "No module named 'nowhere_to_be_found'" in run.first_error
