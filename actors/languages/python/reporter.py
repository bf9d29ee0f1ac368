"""pytest plugin that reports what happened as JSON lines on descriptor 3.

It is copied into a run under a name of its own and loaded with ``-p``; standard library and pytest
only, in any Python from 3.7 on. ``PYTHONPATH`` names its folder, then those of the repository's own
packages, which alone stay there. Before any other code of the run is imported it reads the run's
nonce from descriptor 4, closes it, and moves descriptor 3 out of the way; so neither stands in the
environment, on the command line or in a file. Every line carries the nonce. The reading side is
``report.py``.

In a process that is not the run's own (a worker of pytest-xdist, a forked child, pytest run by a
test) it does nothing.

It also says what code of the workspace did to the process, with the file that did it: functions
that it put into modules and classes of others, test files that it opened, frames and objects of the
interpreter that it reached for. Its author can hide that from us with enough effort, as anything in
one process; a reader sees what was not hidden.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import types
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_TEXT = 2000
_MEDDLING = 50
_dumps, _write_bytes, _getpid = json.dumps, os.write, os.getpid
"""As they were before other code could put its own in their place."""


class _Channel:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.nonce = os.read(4, 4096).decode("ascii")
        os.close(4)
        # Tests that close the low descriptors, as daemons do, do not meet it there.
        self.descriptor = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 200)
        os.close(3)

    def write(self, kind: str, fields: dict[str, object], also_children: bool = False) -> None:
        if _getpid() != self.process and not also_children:
            return
        line = _dumps({"kind": kind, "nonce": self.nonce, **fields}).encode("ascii") + b"\n"
        while line:
            line = line[_write_bytes(self.descriptor, line) :]


def _open_channel() -> _Channel | None:
    here = os.path.dirname(os.path.abspath(__file__))
    first, _, own_packages = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first != here:
        return None
    # Code under test sees the declared variables and nothing of ours; workers still find us.
    del os.environ["PYTHONPATH"]
    if own_packages:
        os.environ["PYTHONPATH"] = own_packages
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

# --- what code of the workspace does to the process ---------------------------------------------

_TOP = os.getcwd() + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_TEST_FILES = {os.path.realpath(word) for word in sys.argv if word.endswith(".py")}
_REACHED_FOR = {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
_FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
_seen: set[tuple[str, str]] = set()
"""(file below the workspace, what it did)."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (PEP 578): it sees the act, however the code spells it."""
    if event in ("os.kill", "os.killpg", "signal.pthread_kill"):
        if arguments[1] and _channel is not None and _reaches_the_run(event, arguments[0]):
            _channel.write("signals", {"signal": int(arguments[1])}, also_children=True)
        return
    if event == "open" and isinstance(arguments[0], str):
        if os.path.realpath(arguments[0]) not in _TEST_FILES:
            return
        frame = sys._getframe(1)  # through pathlib, io, tokenize, … to who asked them
        while frame.f_back and _is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        what = f"opens {os.path.relpath(arguments[0], _TOP)}"
    elif event in _REACHED_FOR:
        frame, what = sys._getframe(1), f"calls {event}"
    elif event == "object.__getattr__" and arguments[1] in _FRAMES:
        frame, what = sys._getframe(1), f"reads {arguments[1]}"
    else:
        return
    file = _below_workspace(frame.f_code.co_filename)
    if file:
        _seen.add((file, what))


def _reaches_the_run(event: str, target: int) -> bool:
    """Whether a signal to ``target`` reaches the process of the run."""
    assert _channel is not None
    if event == "signal.pthread_kill":
        return _getpid() == _channel.process
    if event == "os.killpg" or target < -1:
        return abs(target) in (0, os.getpgid(_channel.process))
    return target in (_channel.process, 0, -1)


def _is_standard(file: str) -> bool:
    return file.startswith(("<frozen", _STANDARD)) and "site-packages" not in file


def _below_workspace(file: str) -> str:
    """Its path from the workspace's top; empty for one that lies elsewhere."""
    return file[len(_TOP) :] if file.startswith(_TOP) else ""


def _replaced() -> Iterator[tuple[str, str]]:
    """(file, what) of functions of the workspace in modules that do not belong to it, and of
    modules of the workspace that are imported in the place of others."""
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType):
            continue
        name, file = module.__name__, getattr(module, "__file__", None)
        ours = _below_workspace(file) if file else ""
        if ours and "." not in name and _is_also_elsewhere(name):
            yield ours, f"shadows {name}"
        if ours or not (file or name in sys.builtin_module_names):
            continue
        members = list(vars(module).items())
        places = [(name, members)]
        places += [
            (f"{name}.{key}", list(vars(value).items()))
            for key, value in members
            if isinstance(value, type) and value.__module__ == name
        ]
        for place, held in places:
            for key, value in held:
                if isinstance(value, (staticmethod, classmethod)):
                    value = value.__func__
                if isinstance(value, property):
                    value = value.fget
                if not isinstance(value, types.FunctionType):
                    continue
                by = _below_workspace(value.__code__.co_filename)
                if by:
                    yield by, f"replaces {place}.{key}"


def _is_also_elsewhere(module: str) -> bool:
    return any(
        os.path.exists(os.path.join(place, module + end))
        for place in sys.path
        if not (os.path.abspath(place) + os.sep).startswith(_TOP)
        for end in (".py", os.sep + "__init__.py")
    )


if _channel is not None and hasattr(sys, "addaudithook"):  # since Python 3.8
    sys.addaudithook(_audit)

# --- what pytest reports ------------------------------------------------------------------------


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


# A repository may ask for these in its configuration. A run has no run before it, all of its tests
# are wanted in the order of the files, and how much they cover is nobody's question: pytest-cov
# counts too little of it as one more failure. To unregister the plugins would make their options
# an error of usage.
_LEFT_ALONE = {
    "lf": False, "failedfirst": False, "newfirst": False,
    "stepwise": False, "stepwise_skip": False,
    "no_cov": True, "cov_source": [], "cov_fail_under": 0,
    "randomly_reorganize": False, "randomly_reset_seed": False, "randomly_seed": 0,
    "maxfail": 0,
}  # fmt: skip


def _leave_alone(options: Any) -> None:
    for name, value in _LEFT_ALONE.items():
        if hasattr(options, name):
            setattr(options, name, value)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _leave_alone(config.option)
    if _channel is not None:
        # The canary is collected whatever the repository calls its own tests.
        name = "canary " + _channel.nonce
        name = "test_c" + hashlib.sha256(name.encode()).hexdigest()[:16]
        config.addinivalue_line("python_functions", name)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, None]:
    _leave_alone(early_config.known_args_namespace)
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
    if _channel is not None:
        for file, what in sorted({*_seen, *_replaced()})[:_MEDDLING]:
            _write("meddled", file=_plain(file)[:200], what=_plain(what)[:200])
    _write(
        "end",
        exit_status=int(session.exitstatus),
        failed=session.testsfailed,
        collected=session.testscollected,
        stopped=bool(session.shouldfail or session.shouldstop),
    )
