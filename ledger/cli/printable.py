"""Untrusted text on its way to a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


def printable(value: Any) -> str:
    """One line of text: control, format and bidirectional characters become escapes."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def printable_lines(text: str) -> str:
    """The same for text of several lines, whose ends stay."""
    return "\n".join(map(printable, text.split("\n")))


class _Escaping:
    """A stream that writes what it is given as printable lines; all else is the stream beneath."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not text.isprintable():
            # Tabs and the line ends of CSV stay too.
            lines = (
                "\t".join(map(printable, line.removesuffix("\r").split("\t")))
                + "\r" * line.endswith("\r")
                for line in text.split("\n")
            )
            text = "\n".join(lines)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """While a command runs, nothing that it prints speaks to the terminal: paths, names and reasons
    come from elsewhere, and a ``print`` that forgets to escape one does no harm."""
    stream = sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")  # a path may be no text
    sys.stdout = cast(TextIO, _Escaping(stream))
    try:
        yield
    finally:
        sys.stdout = stream
