"""How even is a plan? Its margins, the positions of every treatment, the order within pairs.

A cyclic order gives each treatment each position about equally often, and still one treatment of a
pair may run first on most tasks: both are counted, and what is uneven is said in words.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from schemas.base import Count, Value
from schemas.plan import PlannedCell


class Margin(Value):
    """Cells of the matrix by one factor."""

    factor: str
    cells: dict[str, Count]


class Positions(Value):
    """How often a treatment stood first, second … among those of its task and model."""

    treatment: str
    counts: tuple[Count, ...]


class PairOrder(Value):
    """On how many tasks ``new`` ran before ``baseline`` with one model."""

    contrast: str
    new: str
    baseline: str
    model: str
    new_first: Count
    tasks: Annotated[int, Meta(ge=0, description="tasks on which both are planned")]


class PlanBalance(Value):
    margins: tuple[Margin, ...]
    positions: tuple[Positions, ...]
    pair_orders: tuple[PairOrder, ...]
    uneven: Annotated[tuple[str, ...], Meta(description="what is uneven, a sentence each")]


def plan_balance(
    cells: Sequence[PlannedCell],
    repository_of: Mapping[str, str],
    contrasts: Iterable[tuple[str, str, str, str]],
) -> PlanBalance:
    """Of the matrix at seed 0.

    cells: the plan, in order. repository_of: of each task. contrasts: (id, new, baseline, model).
    """
    matrix = [planned.cell for planned in cells if planned.block == "matrix"]
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in matrix:
        rows.setdefault((cell.unit, cell.agent), []).append(cell.arm)
    of_model: dict[str, list[list[str]]] = {}
    for (_, model), row in rows.items():
        of_model.setdefault(model, []).append(row)
    treatments = list(dict.fromkeys(cell.arm for cell in matrix))
    longest = max(map(len, rows.values()), default=0)
    positions = tuple(
        Positions(
            treatment=treatment,
            counts=tuple(
                sum(place < len(row) and row[place] == treatment for row in rows.values())
                for place in range(longest)
            ),
        )
        for treatment in treatments
    )
    margins = tuple(
        Margin(factor=factor, cells=dict(Counter(names)))
        for factor, names in (
            ("treatment", [cell.arm for cell in matrix]),
            ("model", [cell.agent for cell in matrix]),
            ("repository", [repository_of[cell.unit] for cell in matrix]),
        )
    )
    pair_orders = tuple(
        PairOrder(
            contrast=name,
            new=new,
            baseline=baseline,
            model=model,
            new_first=sum(row.index(new) < row.index(baseline) for row in both),
            tasks=len(both),
        )
        for name, new, baseline, model in contrasts
        for both in [[row for row in of_model.get(model, ()) if {new, baseline} <= {*row}]]
    )
    return PlanBalance(
        margins=margins,
        positions=positions,
        pair_orders=pair_orders,
        uneven=tuple(_uneven(margins, positions, pair_orders)),
    )


def _uneven(
    margins: Iterable[Margin], positions: Iterable[Positions], pair_orders: Iterable[PairOrder]
) -> Iterable[str]:
    for margin in margins:
        if len({*margin.cells.values()}) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in margin.cells.items())
            yield f"cells by {margin.factor} differ: {listed}"
    for position in positions:
        low, high = min(position.counts), max(position.counts)
        if high - low > 1:
            yield f"{position.treatment} stands {low} to {high} times in a position"
    for pair in pair_orders:
        if abs(2 * pair.new_first - pair.tasks) > 1:
            yield (
                f"{pair.contrast}: {pair.new} runs before {pair.baseline} on {pair.new_first} of "
                f"{pair.tasks} tasks with {pair.model}"
            )
