"""Numbers with what they count, for every sentence that a person reads."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``, ``0 families``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"


def first_few(items: Sequence[object], shown: int, separator: str = ", ") -> str:
    """``a, b, c and 4 more``: the first ones, and how many are left where some are."""
    left = len(items) - shown
    few = separator.join(map(str, items[:shown]))
    return f"{few} and {left} more" if left > 0 else few
