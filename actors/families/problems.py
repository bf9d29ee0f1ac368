"""What a review finds: one problem a line, with the rule it breaks and what to do."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from schemas.base import Value


class Problem(Value):
    """One finding. ``waived`` carries the reason where a waiver of the family accepts it."""

    rule: Annotated[str, Meta(description="id of the rule, as waivers name it")]
    place: Annotated[str, Meta(description="case or record; empty: the whole family")] = ""
    message: str
    waived: str = ""

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        waived = f" (waived: {self.waived})" if self.waived else ""
        return f"{where}{self.message} [{self.rule}]{waived}"


Findings = Iterator[Problem]
