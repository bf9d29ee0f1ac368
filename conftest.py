"""For every test, wherever it stands."""

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the tests that send it, and the programs that they start: a shell that runs
    something in the background has it ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
