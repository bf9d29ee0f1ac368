"""A signal that arrives where Python cannot raise is not lost."""

import os
import signal

import pytest

from ledger.interruption import check_interrupted, interruptible


class Deaf:
    """What happens in its destructor raises nothing."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_destructor_is_told_at_the_next_look() -> None:
    with interruptible():
        check_interrupted()
        Deaf()  # the interrupt is ignored here
        with pytest.raises(KeyboardInterrupt):
            check_interrupted()


def test_a_signal_raises_and_the_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with pytest.raises(KeyboardInterrupt), interruptible():
            os.kill(os.getpid(), number)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            check_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
