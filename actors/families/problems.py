"""What a review finds: one problem a line, with the rule it breaks and what to do."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
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


def said_once(problems: Iterable[Problem]) -> list[Problem]:
    """The same problems for a reader: one that several cases share, as a prompt does that all of
    them repeat, stands once and its ``place`` lists them, separated by commas."""
    places: dict[Problem, list[str]] = {}
    for problem in problems:
        found = places.setdefault(msgspec.structs.replace(problem, place=""), [])
        if problem.place and problem.place not in found:
            found.append(problem.place)
    return [
        msgspec.structs.replace(problem, place=", ".join(found))
        for problem, found in places.items()
    ]
