"""A number with what it counts, for every sentence that a person reads."""


def counted(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``, ``0 families``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"
