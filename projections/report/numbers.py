"""How numbers are printed, everywhere alike: counts with their denominators first.

Percentages only from ten observations on; 0 of 0 is "not estimable"; a p-value gets as many digits
as it takes for the printed number to stand on the same side of alpha as the exact one.
"""

from projections.results import Share

MINUS = "\u2212"
NOT_ESTIMABLE = "not estimable"
NONE = "\u2013"
PERCENTAGES_FROM = 10


def share(part: Share) -> str:
    """``15/60 (25 %)``, ``3/8``, ``not estimable (0/0)``."""
    if part.of == 0:
        return f"{NOT_ESTIMABLE} (0/0)"
    counts = f"{part.n}/{part.of}"
    if part.of < PERCENTAGES_FROM:
        return counts
    digits = 0 if part.of < 1000 else 1
    return f"{counts} ({100 * part.n / part.of:.{digits}f} %)"


def difference(value: float | None) -> str:
    """A difference of proportions with its sign: ``+0.167``."""
    if value is None:
        return NOT_ESTIMABLE
    return (
        f"{value:+.3f}".replace("-", MINUS)
        .replace(f"{MINUS}0.000", "0.000")
        .replace("+0.000", "0.000")
    )


def interval(endpoints: tuple[float, float] | None) -> str:
    """``−0.017 to +0.333``."""
    if endpoints is None:
        return NOT_ESTIMABLE
    return f"{difference(endpoints[0])} to {difference(endpoints[1])}"


def p_value(p: float | None, alpha: float) -> str:
    """``0.0386``; small ones as ``1.2e−07``; more digits where rounding would cross alpha."""
    if p is None:
        return NOT_ESTIMABLE
    for digits in range(4, 18):
        text = f"{p:.{digits}f}" if p >= 0.0001 or p == 0 else f"{p:.{digits - 3}e}"
        if (float(text) <= alpha) == (p <= alpha):
            break
    return text.replace("-", MINUS)


def level(confidence: float) -> str:
    """``95 %``."""
    return f"{round(100 * confidence, 6):g} %"


def count(number: int) -> str:
    """With commas between thousands."""
    return f"{number:,}"


def mean(total: int, of: int) -> str:
    """The sum, and how much that is for each: ``240 (4.0 each)``."""
    if of == 0:
        return count(total)
    each = total / of
    return f"{total:,} ({each:,.{1 if each < 100 else 0}f} each)"


def seconds(nanoseconds: int) -> str:
    """``12.3 s``; whole seconds from 100 on."""
    value = nanoseconds / 1e9
    return f"{value:,.1f} s" if value < 100 else f"{value:,.0f} s"


def ratio(value: float | None) -> str:
    """A ratio of sums; ``not estimable`` where nothing was resolved."""
    return NOT_ESTIMABLE if value is None else f"{value:,.0f}"
