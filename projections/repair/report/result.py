"""The primary result in words, and what a reader must know together with it."""

from projections.repair.report.inputs import ReportInputs
from projections.repair.report.phrases import bootstrap_interval
from projections.repair.results import ContrastResult, Results
from projections.report.numbers import (
    NOT_ESTIMABLE,
    difference,
    interval,
    level,
    p_value,
    share,
)
from projections.report.plain_text import listed
from projections.results import Share
from schemas.counted import counted


def primary_sentence(results: Results) -> str:
    """What the primary contrast found, with the verdict that fits alpha; where an amendment after
    the first cell declared it otherwise, first what it found as it was frozen."""
    frozen = ""
    if results.as_frozen is not None:
        found = results.as_frozen.contrast
        frozen = f"As frozen: {_sentence(found, results.as_frozen.alpha)} As amended: "
    if results.primary is None:
        gone = [contrast for contrast in results.withdrawn if contrast.primary]
        if gone:
            return (
                f"{frozen}This study declares no primary contrast any more: {gone[-1].id} was "
                f"taken out by an amendment (record {gone[-1].at})."
            )
        return f"{frozen}This study declares no primary contrast."
    found = results.contrast(results.primary)
    late = ""
    if found.standing == "exploratory":
        late = (
            "Exploratory: this study is not preregistered. "
            if found.changed_at is None
            else f"Exploratory, changed after the first cell (record {found.changed_at}). "
        )
    return f"{frozen}{late}{_sentence(found, results.alpha)}"


def _sentence(found: ContrastResult, alpha: float) -> str:
    what = f"{found.new} against {found.baseline} with {found.model}"
    if found.test is None or found.intervals is None or found.bootstrap is None:
        return (
            f"{what}: {NOT_ESTIMABLE}, because none of the {found.missing.planned} pairs is "
            "complete."
        )
    table = found.table
    new = Share(n=table.both + table.new_only, of=table.pairs)
    baseline = Share(n=table.both + table.baseline_only, of=table.pairs)
    at, tango = level(1 - alpha), interval(found.intervals.tango)
    spread = f"{at} bootstrap interval {bootstrap_interval(found.bootstrap)}, Tango {tango}"
    if found.bootstrap.degenerate:
        spread = f"no sampling variation in the data; {at} Tango {tango}"
    sign = "\u2264" if found.rejected else ">"
    if not found.rejected:
        verdict = "no difference is shown at this level, which does not show that there is none"
    else:
        more = "more" if table.new_only > table.baseline_only else "fewer"
        verdict = f"{found.new} resolves {more} tasks, by a test at this level"
    return (
        f"{what}: {share(new)} of the tasks resolved against {share(baseline)}; risk "
        f"difference {difference(found.risk_difference)} ({spread}). Exact McNemar p = "
        f"{p_value(found.test.p_exact, alpha)} {sign} {alpha:g}: {verdict}."
    )


def _effect_sentence(found: ContrastResult, results: Results) -> str:
    """The interval against the smallest effect of interest."""
    if found.intervals is None or found.bootstrap is None:
        return ""
    lower, upper = found.bootstrap.lower, found.bootstrap.upper
    name = "bootstrap"
    if found.bootstrap.degenerate:
        (lower, upper), name = found.intervals.tango, "Tango"
    smallest = results.smallest_effect
    where = f"the smallest effect of interest ({difference(smallest)})"
    if lower >= smallest:
        return f"The whole {name} interval is at least {where}."
    if upper < smallest:
        return f"The whole {name} interval lies below {where}."
    return f"The {name} interval contains {where}: whether the effect is that large stays open."


def too_few_pairs(pairs: int, alpha: float) -> str:
    """Words where even pairs that all differ in one direction leave the exact p above alpha.

    With n such pairs the two-sided exact McNemar p is 2 · 0.5^n.
    """
    smallest = 2.0 ** (1 - pairs)
    if pairs == 0 or smallest <= alpha:
        return ""
    needed = next(n for n in range(pairs, 1100) if 2.0 ** (1 - n) <= alpha)
    return (
        f"With {counted(pairs, 'pair')} no result could reach p \u2264 {alpha:g}: "
        f"the smallest possible exact p is {p_value(smallest, alpha)}. It takes {needed} pairs at "
        "least."
    )


def remarks(inputs: ReportInputs) -> tuple[str, ...]:
    """What a reader must know together with the result."""
    results = inputs.results
    remarks = []
    if results.primary:
        remarks.append(_effect_sentence(results.contrast(results.primary), results))
        missing = results.contrast(results.primary).missing
        remarks.append(too_few_pairs(missing.used, results.alpha))
        if missing.dropped:
            remarks.append(
                f"{len(missing.dropped)} of {missing.planned} pairs lost a member and are left "
                "out; the bounds under Robustness show what they could change."
            )
    waiting = sum(flow.without_verdict for flow in results.flow)
    if waiting:
        remarks.append(f"Interim: {counted(waiting, 'planned cell')} without a verdict yet.")
    if results.withdrawn:
        names = listed([f"{each.id} (record {each.at})" for each in results.withdrawn])
        remarks.append(f"Contrasts that were declared and that amendments took out: {names}.")
    if results.code_not_as_frozen:
        remarks.append(
            f"Not as frozen: {counted(len(results.code_not_as_frozen), 'component')} of what "
            "computed this; see Deviations."
        )
    late = [row for row in inputs.amendments.recorded if row.finding != "before_first_cell"]
    if late:
        records = listed([row.seq for row in late])
        remarks.append(
            f"Exploratory amendments after the first cell: {len(late)} (records {records}); see "
            "Deviations."
        )
    return tuple(remark for remark in remarks if remark)
