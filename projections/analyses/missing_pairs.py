"""How much could the missing cells of a paired contrast change?

A pair with a missing member is dropped. Two completions bound what the dropped pairs could have
shown: all missing for the new arm (a missing new cell resolved, a missing baseline cell not) and
all missing against it (the reverse). Only cells that infrastructure kept from being observed are
missing; failures and time-outs of the agent are outcomes.

Worst-case bounds as in Manski (1990), American Economic Review 80(2):319-323.
"""

from collections.abc import Iterable

import msgspec

from projections.analyses.mcnemar import exact_p_value
from projections.analyses.paired_outcomes import (
    PairedOutcome,
    PairedTable,
    in_task_order,
    tabulate,
)


class PairedEstimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One completion of a contrast.

    table: counts of pairs, in tasks.
    risk_difference: (new only - baseline only)/pairs, in [-1, 1].
    p_exact: two-sided exact McNemar p, nearest float.
    """

    table: PairedTable
    risk_difference: float
    p_exact: float


class MissingPairsBounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paired contrast as observed and at both bounds.

    planned: planned pairs, in tasks.
    used: pairs with both members observed.
    dropped: identifiers of the tasks whose pair lost a member, sorted.
    observed: estimate from the used pairs; None when there is none.
    all_for, all_against: estimates over all planned pairs, with every missing cell counted
        for, or against, the new arm. Without missing cells both equal `observed`.
    """

    planned: int
    used: int
    dropped: tuple[str, ...]
    observed: PairedEstimate | None
    all_for: PairedEstimate
    all_against: PairedEstimate


def missing_pairs_bounds(outcomes: Iterable[PairedOutcome]) -> MissingPairsBounds:
    """Bound a contrast over its planned pairs, given in any order.

    Raises ValueError without a planned pair and for a task that occurs twice.
    """
    pairs = in_task_order(outcomes)
    if not pairs:
        raise ValueError("no planned pair: a contrast needs at least one task")
    dropped = tuple(pair.task for pair in pairs if not pair.complete)
    observed = tabulate(pairs)
    return MissingPairsBounds(
        planned=len(pairs),
        used=observed.pairs,
        dropped=dropped,
        observed=_estimate(observed) if observed.pairs else None,
        all_for=_estimate(tabulate(_completed(pair, new=True) for pair in pairs)),
        all_against=_estimate(tabulate(_completed(pair, new=False) for pair in pairs)),
    )


def _completed(pair: PairedOutcome, *, new: bool) -> PairedOutcome:
    """The pair with a missing new cell set to `new` and a missing baseline cell to its reverse."""
    return msgspec.structs.replace(
        pair,
        new=new if pair.new is None else pair.new,
        baseline=(not new) if pair.baseline is None else pair.baseline,
    )


def _estimate(table: PairedTable) -> PairedEstimate:
    return PairedEstimate(
        table=table,
        risk_difference=table.risk_difference,
        p_exact=float(exact_p_value(table.new_only, table.baseline_only)),
    )
