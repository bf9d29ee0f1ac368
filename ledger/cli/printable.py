"""Untrusted text on its way to a terminal."""

from typing import Any


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
