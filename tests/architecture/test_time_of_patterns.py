"""Text that others wrote is searched in a time that is a multiple of its length.

A repetition without a bound, begun again at every character, takes the square: a commit message or
a patch of a megabyte then keeps its reader busy for hours.
"""

import time
from collections.abc import Callable

import pytest

from actors.languages.go import GO
from actors.languages.python import PYTHON
from actors.mining.criteria import _REVERT_BODY
from schemas.credentials import without_credentials
from schemas.secret_shapes import secret_kinds


def as_added(text: str) -> bytes:
    return b"+" + text.encode().replace(b"\n", b"\n+")


READERS: dict[str, Callable[[str], object]] = {
    "reverts": _REVERT_BODY.search,
    "credentials": without_credentials,
    "secrets": secret_kinds,
    "patches of Python": lambda text: PYTHON.tests.deceptive_patterns(as_added(text)),
    "patches of Go": lambda text: GO.tests.deceptive_patterns(as_added(text)),
}
AGAIN = (
    "\n", " ", "a.", "?", "?token", "-eyJaaaaaaaaa", "-SG.", "a://", "test_*", "exec ", " then",
    " or a(", "a == ", "import ", "from os import (", "def __bool__ (", "def __eq__(a, b",
)  # fmt: skip


@pytest.mark.parametrize("again", AGAIN, ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_four_times_the_text_takes_about_four_times_as_long(reader: str, again: str) -> None:
    def seconds(length: int) -> float:
        text = "x" + again * (length // len(again)) + "x"
        begun = time.process_time()
        READERS[reader](text)
        return time.process_time() - begun

    some = 16_000
    once = max(seconds(some), seconds(some), 0.003)
    assert min(seconds(4 * some), seconds(4 * some)) < 12 * once
