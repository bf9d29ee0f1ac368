"""A run that a signal has ended: an observation only where the code under test has caused it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.languages.contract import Environment
from actors.languages.python import PYTHON
from actors.sandbox import Sandbox
from actors.sandbox.launcher import descendants
from actors.test_runs import task_runs
from actors.test_runs.templates import make_template
from schemas.repair.overlay import Changes
from tests.test_runs.conftest import Repository, RunTests

MakeChanges = Callable[..., Changes]
SLOW = b"import time\n\ndef test_slow():\n    time.sleep(20)\n"


@contextmanager
def somebody_who_kills(
    number: signal.Signals = signal.SIGKILL, word: bytes = b"--continue-on-collection-errors"
) -> Iterator[list[int]]:
    """Sends the signal to every process of ours that was started with ``word``, once it runs;
    yields whom it has killed."""
    killed: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for process in descendants(os.getpid()) - set(killed):
                try:
                    words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if any(one.startswith(word) for one in words):
                    time.sleep(0.3)
                    killed.append(process)
                    os.kill(process, number)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_from_outside_is_no_observation(
    number: signal.Signals, run_tests: RunTests
) -> None:
    with somebody_who_kills(number):
        run = run_tests({"tests/test_it.py": SLOW})
    assert (run.verdict, run.signal, run.killed) == ("infrastructure", number, True)
    assert (run.flags, run.outcomes) == ((), {})


@pytest.mark.parametrize(
    ("code", "killed", "flags"),
    [
        (b"import os\nos.kill(os.getpid(), 9)\n", False, ("kills its own run",)),
        (b"import os\nos.killpg(0, 15)\n", False, ("kills its own run",)),
        (
            b"import os, time\nif os.fork() == 0:\n    os.kill(os.getppid(), 9)\ntime.sleep(5)\n",
            False,
            ("kills its own run",),
        ),
        (b"import ctypes\nctypes.string_at(0)\n", False, ()),  # a fault is nobody else's
        (b"import os\nos.abort()\n", False, ()),
        (b"import signal, time\nsignal.alarm(1)\ntime.sleep(9)\n", False, ()),
        (b"import os\nos._exit(0)\n", False, ()),
        (b"import signal\nsignal.raise_signal(9)\n", True, ()),  # the patch tells: see below
    ],
)
def test_a_run_that_ends_itself_is_an_observation(
    code: bytes, killed: bool, flags: tuple[str, ...], run_tests: RunTests
) -> None:
    run = run_tests({"app.py": code, "tests/test_it.py": b"import app\ndef test_it(): pass\n"})
    assert (run.verdict, run.killed, run.flags) == ("infrastructure", killed, flags)


def test_a_patch_that_can_send_a_signal_is_taken_to_have_sent_it() -> None:
    diff = b"+++ b/app.py\n+import signal\n+signal.raise_signal(9)\n"
    assert PYTHON.tests.can_signal(PYTHON.tests.deceptive_patterns(diff))
    assert not PYTHON.tests.can_signal(PYTHON.tests.deceptive_patterns(b"+++ b/a.py\n+x = 1\n"))


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_killed_run_is_made_again_within_the_declared_cap(
    attempts: int,
    repository: Repository,
    environment: Environment,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    template = make_template(
        repository.directory, repository.tree({"tests/test_it.py": SLOW}), tmp_path / "templates"
    )
    with somebody_who_kills() as killed:
        last = task_runs.run_tests(
            PYTHON,
            sandbox,
            environment,
            template,
            (),
            ("tests/test_it.py",),
            package_roots=(),
            hash_seed=0,
            time_limit_ns=30_000_000_000,
            scratch=tmp_path / "scratch",
            min_free_bytes=0,
            attempts=attempts,
        )
    assert (len(killed), last.killed) == (attempts, True)
