"""Text of others on its way into a report: everything that would not be seen is made visible.

Reasons, subjects and names come from people, models and repositories. A control sequence, a
right-to-left override or a zero-width space must not change how the text around it reads.
"""

import re
from collections.abc import Sequence

from schemas.counted import first_few

_LINE_BREAKS = re.compile(r"[ \t\r\n]*[\t\r\n][ \t\r\n]*")

_ANYWHERE = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_AT_THE_START = re.compile(r"^(\d*)([-+=#.)])(?!\d)|^()(>)")
_TAG_OR_ENTITY = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")
"""Only before these may a tag, an address or an entity begin: in ``p < 0.05`` nothing does."""
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
_BACKTICKS = re.compile("`+")

LISTED = 12


def visible(text: str) -> str:
    """The text on one line; control, format and bidirectional characters become ``\\u202e``."""
    line = _LINE_BREAKS.sub(" ", text)
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )


def markdown_text(text: str) -> str:
    """The visible text with everything escaped that Markdown (CommonMark, GFM) or HTML would read.

    For the inside of a line, such as a cell of a table.
    """
    escaped = _ANYWHERE.sub(r"\\\g<0>", visible(text))
    return _TAG_OR_ENTITY.sub(lambda found: _ENTITIES[found[0]], escaped)


def markdown_paragraph(text: str) -> str:
    """The same at the beginning of a line, where it could open a list, a heading or a rule."""
    return _AT_THE_START.sub(
        lambda found: f"{found[1] or ''}\\{found[2] or found[4]}", markdown_text(text)
    )


def markdown_code(text: str) -> str:
    """The visible text as a code span that ends where it should. For digests, names and commands: a
    pipe, which would end a cell of a table, is written as ``\\x7c``.
    """
    line = visible(text).replace("|", "\\x7c")
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{line}{space}{fence}"


def listed(items: Sequence[object]) -> str:
    """``12, 15, 18``; of many only the first ones, and how many there are."""
    return first_few(items, LISTED)
