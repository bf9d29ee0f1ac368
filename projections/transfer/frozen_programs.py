"""Runs of a program that is not the one which was there at the freeze.

The command of a system under test may read files that no document binds. The freeze records the
digest of each, and every run those that it began with (the manifest in ``system.described``); so a
file that changed in between is found from the records, by an audit years later too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from ledger.log import Fact
from projections.fold import ReadArtifact
from schemas.base import ArtifactRef, Event, Position, Value
from schemas.events.study import AmendmentRecorded
from schemas.events.transfer import FamiliesFrozen, SystemDescribed
from schemas.identifiers import parse_cell_id

Programs = Mapping[str, Mapping[str, str]]
"""By memory, the digest by name of every file that its command brings."""
KINDS = ("command", "mcp")
SHOWN = 5


class OtherProgram(Value):
    """A run whose system was not what it was at the freeze."""

    seq: Annotated[Position, Meta(description="where the run describes its system")]
    cell: str
    memory: str
    what: Annotated[str, Meta(description="the files that differ, or what it says of itself")]
    amendment: Annotated[int, Meta(description="the one that recorded this program; -1: none")]


class _Described(msgspec.Struct):
    """Of a memory's manifest what is compared."""

    kind: str
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}


class FrozenPrograms:
    """What was frozen, and the latest attempt of every cell that ran with something else.

    An amendment moves what is frozen only until the first cell has begun; one that comes later
    brings its own memories and leaves the others as they were. Where nothing was recorded (an
    earlier version froze it), a memory's first run says what it was.
    """

    FOLDS: ClassVar[tuple[type[Event], ...]] = (FamiliesFrozen, AmendmentRecorded, SystemDescribed)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self.recorded: Programs = {}
        """As the freeze or the last amendment found them."""
        self.others: dict[str, OtherProgram] = {}
        """By cell."""
        self._frozen: dict[str, Mapping[str, str]] = {}
        self._first: dict[str, dict[str, Any]] = {}
        self._amendment = -1

    def apply(self, fact: Fact) -> None:
        match event := fact.event:
            case FamiliesFrozen():
                self.recorded = self._programs(event.programs)
                self._frozen = dict(self.recorded)
            case AmendmentRecorded() if event.programs is not None:
                self.recorded = self._programs(event.programs)
                if event.finding == "before_first_cell":
                    self._frozen = dict(self.recorded)
                else:
                    self._frozen = {**self.recorded, **self._frozen}
                    self._amendment = fact.seq
            case SystemDescribed():
                self._compare(fact.seq, fact.stream.removeprefix("cell/"), event.memory)

    def changed(self, present: Programs) -> list[str]:
        """What of the frozen programs is not as it was, in words."""
        return [
            f"{memory}: {what}"
            for memory, files in sorted(self._frozen.items())
            if memory in present
            for what in _differences(files, present[memory])
        ]

    def _programs(self, named: ArtifactRef | None) -> Programs:
        if named is None:
            return {}
        return msgspec.json.decode(self._read(named), type=dict[str, dict[str, str]])

    def _compare(self, seq: int, cell: str, manifest: ArtifactRef) -> None:
        self.others.pop(cell, None)
        described = msgspec.json.decode(self._read(manifest), type=_Described)
        if described.kind not in KINDS:
            return  # our own code, which is bound
        memory = parse_cell_id(cell).arm
        frozen = self._frozen.setdefault(memory, described.sources)
        what = _differences(frozen, described.sources)
        told = bool(what) and self.recorded.get(memory) == described.sources
        if not what:
            first = self._first.setdefault(memory, described.settings)
            what = [
                f"it calls its `{key}` otherwise than in its first run"
                for key in sorted({*first, *described.settings})
                if first.get(key) != described.settings.get(key)
            ]
        if what:
            more = [f"and {len(what) - SHOWN} more"] if len(what) > SHOWN else []
            self.others[cell] = OtherProgram(
                seq=seq,
                cell=cell,
                memory=memory,
                what=", ".join([*what[:SHOWN], *more]),
                amendment=self._amendment if told else -1,
            )


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """``agent/rules.py changed``, by name."""
    return [
        f"{name} {'changed' if name in before and name in after else words}"
        for name in sorted({*before, *after})
        for words in ["is new" if name in after else "is gone"]
        if before.get(name) != after.get(name)
    ]
