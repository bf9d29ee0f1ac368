"""Which counts, probabilities and significance levels the analyses admit.

Probabilities arrive from a command line, a frozen study file or a fold. They are taken as the
decimal that was written, never as the binary float next to it: a decision such as "p <= 0.05"
is then one of rational arithmetic, with the same answer on every machine.
"""

import math
import operator
import re
from fractions import Fraction

# What a caller may write for a probability: Fraction(1, 20), "0.05", "1/20", 0.05.
Rational = Fraction | str | int | float

# Bounded on purpose: Fraction("1e999999999") would try to build that power of ten.
_NUMBER = re.compile(
    r"-?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][-+]?\d{1,2})?|-?\d{1,30}/\d{1,30}", re.ASCII
)


def admit_count(value: int, what: str, *, minimum: int = 0) -> int:
    """Return `value` as a Python int of at least `minimum`.

    Raises ValueError for anything that is not a whole number (True and 3.0 included) or is
    below `minimum`; `what` names the value in the message.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or count < minimum:
        raise ValueError(f"{what} must be a whole number of at least {minimum}, not {value!r}")
    return count


def admit_rational(value: Rational, what: str) -> Fraction:
    """Return `value` exactly, a float as its shortest decimal (0.05 is 1/20).

    Raises ValueError for text that is no decimal or fraction, for NaN and for infinities.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(float.__repr__(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            return Fraction(value)
        except ZeroDivisionError:
            pass
    shown = value[:60] if isinstance(value, str) else value
    raise ValueError(
        f"{what} must be a number such as 0.05 or 1/20 (at most 30 digits), not {shown!r}"
    )


def admit_probability(value: Rational, what: str) -> Fraction:
    """Return `value` exactly if it lies between 0 and 1 inclusive, else raise ValueError."""
    probability = admit_rational(value, what)
    if not 0 <= probability <= 1:
        raise ValueError(f"{what} must lie between 0 and 1, not {value}")
    return probability


def admit_level(value: Rational, what: str) -> Fraction:
    """Return a significance or confidence level exactly, else raise ValueError.

    0 and 1 are refused: they decide without data.
    """
    level = admit_rational(value, what)
    if not 0 < level < 1:
        raise ValueError(f"{what} must lie strictly between 0 and 1, not {value}")
    return level
