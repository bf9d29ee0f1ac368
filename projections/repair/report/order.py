"""In which order the cells ran, and how even that was."""

from collections.abc import Mapping, Sequence

from projections.plan_balance import plan_balance
from projections.report.model import Block, Section, Table, columns, paragraph
from projections.report.numbers import count
from schemas.plan import PlannedCell
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


def order_section(
    plan: Sequence[PlannedCell], study: RepairStudy, tasks: Mapping[str, Task]
) -> Section:
    """Positions of every treatment and the order within the pairs of every contrast."""
    repository_of = {task.id: task.repository for task in tasks.values()}
    balance = plan_balance(plan, repository_of, study.compared)
    places = max((len(each.counts) for each in balance.positions), default=0)
    blocks: list[Block] = [
        Table(
            caption="How often each treatment ran first, second …",
            columns=columns(
                "treatment", *(f"position {n + 1}" for n in range(places)), numbers=True
            ),
            rows=tuple((each.treatment, *map(count, each.counts)) for each in balance.positions),
            note=f"Design: {study.order.design}.",
        )
    ]
    if balance.pair_orders:
        blocks.append(
            Table(
                caption="Order within pairs",
                columns=columns("contrast", "new ran first", "of tasks", numbers=True),
                rows=tuple(
                    (
                        f"{pair.new} \u2212 {pair.baseline}, {pair.model}",
                        count(pair.new_first),
                        count(pair.tasks),
                    )
                    for pair in balance.pair_orders
                ),
                note="Where one treatment of a pair mostly runs first, whatever changes with time "
                "changes with it.",
            )
        )
    blocks += [paragraph(f"Uneven: {sentence}.") for sentence in balance.uneven]
    return Section(id="order", title="Order of execution", blocks=tuple(blocks))
