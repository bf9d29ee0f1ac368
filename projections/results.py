"""What the results of every kind of study have in common, and their bytes."""

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from schemas.base import Count, Digest, Position, Value
from schemas.study import Model


class Share(Value):
    """``n`` of ``of``. Never divided here: 0 of 0 is not estimable."""

    n: Count
    of: Count


class ComputedFrom(Value):
    """Which records the numbers rest on."""

    study: Annotated[Digest, Meta(description="digest of the frozen study")]
    head: Annotated[Position, Meta(description="seq of the last record that was read")]
    leaf: Annotated[Digest, Meta(description="leaf of that record")]


class DeclaredModel(Value):
    """A model as it was declared for a while: all that every turn of a cell sent or required."""

    since: Annotated[Position, Meta(description="record of the freeze or of an amendment")]
    cells: Annotated[Count, Meta(description="whose last attempt began while it was declared so")]
    model: Model


class StudyResults(Protocol):
    """The results of one analysis, a msgspec struct: what is written down as ``results.json``."""

    @property
    def computed_from(self) -> ComputedFrom: ...

    @property
    def simulated(self) -> bool:
        """Whether agents were simulated: no evidence."""
        ...

    @property
    def code_not_as_frozen(self) -> tuple[str, ...]:
        """Files of code that differ from the frozen ones."""
        ...


def encode_results(results: StudyResults) -> bytes:
    """JSON for programs and for people: the same results give the same bytes."""
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"
