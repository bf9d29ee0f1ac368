"""Words and numbers that several sections of the report say alike."""

from collections.abc import Iterable, Sequence

from projections.analyses.paired_bootstrap import DEGENERATE_NOTE, BootstrapInterval
from projections.analyses.single_proportion import wilson_interval
from projections.repair.results import ArmSummary, ContrastResult, Results
from projections.report.model import (
    MISSING,
    NOT_RESOLVED,
    RESOLVED,
    WOULD_HAVE_PASSED,
)
from projections.report.numbers import (
    NONE,
    NOT_ESTIMABLE,
    PERCENTAGES_FROM,
    count,
    interval,
)
from projections.results import Share

EXACT_LIMIT = (
    "The exact limit is the interval that ever more resamples come to; it is computed without "
    "drawing any."
)


CLAIMS = {
    "component": "Component claims",
    "system": "System comparisons",
    "generalisation": "Generalisation",
    "estimate": "Estimates",
}
"""The claim types in the order in which they are shown, apart from each other."""


def arm_name(arm: ArmSummary) -> str:
    return f"{arm.treatment} {arm.model}"


def comparison_name(contrast: ContrastResult) -> str:
    primary = " (primary)" if contrast.primary else ""
    return f"{contrast.new} \u2212 {contrast.baseline}, {contrast.model}{primary}"


def verdict_word(found: ContrastResult) -> str:
    """``shown``, ``not shown``, ``estimate``, ``not estimable``; exploratory ones say so."""
    if found.test is None:
        word = NOT_ESTIMABLE
    elif found.rejected is None:
        word = "estimate"
    else:
        word = "shown" if found.rejected else "not shown"
    return f"{word}, exploratory" if found.standing == "exploratory" else word


def mark(resolved: int | None, if_submitted: int | None) -> str:
    if resolved is None:
        return MISSING
    if resolved:
        return RESOLVED
    return WOULD_HAVE_PASSED if if_submitted else NOT_RESOLVED


def by_claim(results: Results) -> list[ContrastResult]:
    """One claim type after the other, the primary contrast first, else as declared."""
    claims = list(CLAIMS)
    return sorted(
        results.contrasts, key=lambda found: (claims.index(found.claim), not found.primary)
    )


def degenerate_note(results: Results) -> str:
    degenerate = (found.bootstrap and found.bootstrap.degenerate for found in results.contrasts)
    return f"{DEGENERATE_NOTE.capitalize()}." if any(degenerate) else ""


def bootstrap_interval(found: BootstrapInterval | None) -> str:
    """Never a bare point: without sampling variation the interval would be one."""
    if found is None:
        return NOT_ESTIMABLE
    return "no sampling variation" if found.degenerate else interval((found.lower, found.upper))


def exact_bootstrap_interval(found: BootstrapInterval | None) -> str:
    if found is None or found.degenerate:
        return bootstrap_interval(found)
    return interval((found.exact_lower, found.exact_upper))


def wilson(part: Share, results: Results) -> str:
    if part.of < PERCENTAGES_FROM:
        return NONE
    return interval(wilson_interval(part.n, part.of, results.confidence)).replace("+", "")


def named_tasks(tasks: Sequence[str]) -> str:
    return f"{len(tasks)}: {', '.join(tasks)}" if tasks else "none"


def value_range(values: Iterable[int]) -> str:
    ordered = sorted(values)
    low, high = count(ordered[0]), count(ordered[-1])
    return low if low == high else f"{low} to {high}"
