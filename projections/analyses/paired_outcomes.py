"""Paired binary outcomes of two arms on the same tasks, and their 2 x 2 table.

A pair is (new arm, baseline) on one task. An outcome is missing only when infrastructure kept
the cell from being observed; a failed, stopped or timed-out agent is an observed failure.
"""

from collections.abc import Iterable, Mapping

import msgspec

from projections.analyses.admissible_values import admit_count


class PairedOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcome of two arms on one task.

    task: task identifier, the unit of resampling.
    stratum: repository of the task.
    new, baseline: whether that arm resolved the task; None if the cell is missing.
    """

    task: str
    stratum: str
    new: bool | None
    baseline: bool | None

    @property
    def complete(self) -> bool:
        """Whether both members were observed."""
        return self.new is not None and self.baseline is not None

    @property
    def difference(self) -> int:
        """new - baseline of a complete pair: 1, 0 or -1."""
        if self.new is None or self.baseline is None:
            raise ValueError(f"the pair of task {self.task!r} has a missing member")
        return int(self.new) - int(self.baseline)


class PairedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of complete pairs, in tasks.

    both, neither: concordant pairs, resolved by both arms or by none.
    new_only, baseline_only: discordant pairs.

    Raises ValueError for counts that are negative or no whole numbers.
    """

    both: int
    new_only: int
    baseline_only: int
    neither: int

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            admit_count(getattr(self, name), name)

    @property
    def pairs(self) -> int:
        """Number n of complete pairs."""
        return self.both + self.new_only + self.baseline_only + self.neither

    @property
    def risk_difference(self) -> float:
        """(new only - baseline only)/n, in [-1, 1]; raises ValueError when n is 0."""
        if self.pairs == 0:
            raise ValueError("no complete pair: the risk difference is not estimable")
        return (self.new_only - self.baseline_only) / self.pairs


def pair_by_task(
    new: Mapping[str, bool | None],
    baseline: Mapping[str, bool | None],
    stratum: Mapping[str, str],
) -> tuple[PairedOutcome, ...]:
    """Pair two arms over every planned task, in order of the task identifier.

    new, baseline: task -> resolved; an absent task and None both mean a missing cell.
    stratum: planned task -> repository; it decides which tasks there are.

    Raises ValueError for an outcome of a task that is not planned.
    """
    strangers = sorted((new.keys() | baseline.keys()) - stratum.keys())
    if strangers:
        raise ValueError(f"outcomes of tasks that are not planned: {', '.join(strangers[:5])}")
    return tuple(
        PairedOutcome(
            task=task, stratum=stratum[task], new=new.get(task), baseline=baseline.get(task)
        )
        for task in sorted(stratum)
    )


def in_task_order(outcomes: Iterable[PairedOutcome]) -> list[PairedOutcome]:
    """Sort by task identifier (code points), so that the order of rows decides nothing.

    Raises ValueError when a task occurs twice: it would be two clusters in one.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.task)
    for first, second in zip(ordered, ordered[1:], strict=False):
        if first.task == second.task:
            raise ValueError(f"task {first.task!r} occurs twice: give one pair a task")
    return ordered


def tabulate(outcomes: Iterable[PairedOutcome]) -> PairedTable:
    """Count the complete pairs; pairs with a missing member are left out.

    Raises ValueError when a task occurs twice.
    """
    pairs = [(o.new, o.baseline) for o in in_task_order(outcomes) if o.complete]
    return PairedTable(
        both=pairs.count((True, True)),
        new_only=pairs.count((True, False)),
        baseline_only=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )
