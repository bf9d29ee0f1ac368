"""pytest plugin that reports what happened as JSON lines on descriptor 3.

It is copied into a run under a name of its own and loaded with ``-p``; standard library and pytest
only. Before any other code of the run is imported it reads the run's nonce from descriptor 4,
closes it, and moves descriptor 3 out of the way; so neither stands in the environment, on the
command line or in a file. Every line carries the nonce. The reading side is ``pytest_results.py``.

In a process that is not the run's own (a worker of pytest-xdist, a forked child, pytest run by a
test) it does nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

_TEXT = 2000


class _Channel:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.nonce = os.read(4, 4096).decode("ascii")
        os.close(4)
        # Tests that close the low descriptors, as daemons do, do not meet it there.
        self.descriptor = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 200)
        os.close(3)

    def write(self, kind: str, fields: dict[str, object]) -> None:
        if os.getpid() != self.process:
            return
        line = json.dumps({"kind": kind, "nonce": self.nonce, **fields}).encode("ascii") + b"\n"
        while line:
            line = line[os.write(self.descriptor, line) :]


def _open_channel() -> _Channel | None:
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("PYTHONPATH") != here:
        return None
    # Code under test sees the declared variables and nothing of ours; workers still find us.
    del os.environ["PYTHONPATH"]
    sys.path.remove(here)
    sys.path.append(here)
    return _Channel()


_channel = _open_channel()


def _write(kind: str, **fields: object) -> None:
    if _channel is not None:
        _channel.write(kind, fields)


def _plain(text: object) -> str:
    """Text that any JSON reader takes: bytes of a path that are not UTF-8 become escapes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


_write("begin", pytest=pytest.__version__)
_collecting = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    global _collecting
    _collecting = True


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin: object) -> None:
    """Configuration is over when collection begins: from there on only a folder's conftest.py is
    registered in the ordinary way."""
    if not _collecting or os.path.basename(getattr(plugin, "__file__", "") or "") == "conftest.py":
        return
    kind = plugin if isinstance(plugin, type) else type(plugin)
    where = getattr(plugin, "__name__", "") or f"{kind.__module__}.{kind.__qualname__}"
    _write("late_plugin", name=_plain(where)[:200])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, Any, None]:
    outcome = yield
    # pytest ends before it has a session here; without this line nobody would know why.
    error = outcome.excinfo[1] if outcome.excinfo else None
    if isinstance(error, Exception) and not isinstance(error, pytest.UsageError):
        path, cause = getattr(error, "path", ""), getattr(error, "cause", None) or error
        text = f"{type(cause).__name__}: {cause}"
        _write("conftest_failed", path=_plain(path), text=_plain(text)[:_TEXT])


def pytest_collection_finish(session: pytest.Session) -> None:
    ids = {item.nodeid for item in session.items}
    _write("collected", tests=len(ids), items=len(session.items))


@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        text = _plain(report.longrepr)[:_TEXT]
        _write("collection", id=_plain(report.nodeid), outcome=report.outcome, text=text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _write(
        "phase",
        id=_plain(report.nodeid),
        when=report.when,
        outcome=report.outcome,
        xfail=hasattr(report, "wasxfail"),
    )


def pytest_internalerror(excrepr: object) -> None:
    _write("internal_error", text=_plain(excrepr)[-_TEXT:])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, None]:
    yield
    _write(
        "end",
        exit_status=int(session.exitstatus),
        failed=session.testsfailed,
        collected=session.testscollected,
        stopped=bool(session.shouldfail or session.shouldstop),
    )
