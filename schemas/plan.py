"""The order of a study: computed once, frozen, never decided while it runs."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import Value
from schemas.identifiers import CellId


class PlannedCell(Value):
    """One line of the plan."""

    position: Annotated[int, Meta(ge=0, description="place in the order of execution, from 0")]
    cell: CellId
    block: Annotated[
        Literal["matrix", "repeat", "added"],
        Meta(description="main matrix, reliability repeats, or added by an amendment"),
    ]


class Plan(Value):
    """Every cell of a study in the order in which it is run."""

    cells: tuple[PlannedCell, ...]
