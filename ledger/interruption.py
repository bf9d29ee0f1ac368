"""Ctrl-C and termination signals, not lost where Python cannot raise them.

An exception that is raised in a destructor or a weak reference's callback is ignored: a signal that
arrives there would leave a long command running. Whoever works in a loop asks again.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_signalled = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it both signals raise KeyboardInterrupt in the main thread. Where SIGINT is ignored,
    as in what a shell runs in the background, it stays so."""
    global _signalled
    _signalled = False
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    previous = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def check_interrupted() -> None:
    """Raises KeyboardInterrupt where a signal came since ``interruptible``, raised or not."""
    if _signalled:
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: object) -> None:
    global _signalled
    _signalled = True
    raise KeyboardInterrupt
