"""For every test, wherever it stands."""

import signal
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.faults.fault_points import counted

fault_points: Counter[str] = Counter()
"""By kind, how many the processes of this session have counted."""

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")  # a busy one is no fault of what is tested


def pytest_configure() -> None:
    """Let Ctrl-C reach the tests that send it, and the programs that they start: a shell that runs
    something in the background has it ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that runs a part of the tests hands its count to the one that reports. No point is
    counted in two of them: every test goes through its own."""
    points = {kind: len(places) for kind, places in counted.items()}
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["fault points"] = points
    else:
        fault_points.update(points)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    fault_points.update(getattr(node, "workeroutput", {}).get("fault points", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if fault_points:
        terminalreporter.write_line(f"{sum(fault_points.values())} distinct fault points:")
        for kind, points in fault_points.items():
            terminalreporter.write_line(f"{points:6} {kind}")
