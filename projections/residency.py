"""Residency: which model is in memory by the log, every load and unload, and their time.

A server that shows no memory adds nothing to what is resident: there it is not observed.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from ledger.log import Fact
from projections.fold import Row
from schemas.base import Event
from schemas.events.server import (
    ModelLoaded,
    ModelLoadStarted,
    ModelLost,
    ModelUnloaded,
    ServerMismatched,
)


class ResidencyRow(Row):
    TABLE: ClassVar[str] = "residency"
    KEY: ClassVar[tuple[str, ...]] = ("seq",)
    seq: int
    what: str
    model: str
    instance: str
    duration_ns: int
    resident: int


@dataclass
class Residency:
    """``loading`` names a model whose load was sent and has no recorded end."""

    NAME: ClassVar[str] = "residency"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        ModelLoadStarted,
        ModelLoaded,
        ModelUnloaded,
        ModelLost,
        ServerMismatched,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (ResidencyRow,)

    model: str = ""
    instance: str = ""
    loading: str = ""
    most_resident: int = 0
    history: list[ResidencyRow] = field(default_factory=list)
    _instances: set[str] = field(default_factory=set)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case ModelLoadStarted():
                self.loading = event.model
                return
            case ModelLoaded():
                self.model, self.instance, self.loading = event.model, event.instance, ""
                if event.residency == "checked":
                    self._instances.add(event.instance)
                self._add(fact.seq, "loaded", event.model, event.instance, event.duration_ns)
            case ModelUnloaded():
                self.model = self.instance = self.loading = ""
                self._instances.discard(event.instance)
                self._add(fact.seq, "unloaded", event.model, event.instance, event.duration_ns)
            case ModelLost():
                self.model = self.instance = self.loading = ""
                self._instances.clear()
                self._add(fact.seq, "lost", event.model, event.instance, 0)
            case ServerMismatched():
                self._add(fact.seq, "mismatched", event.model, "", 0)
        self.most_resident = max(self.most_resident, len(self._instances))

    def _add(self, seq: int, what: str, model: str, instance: str, duration_ns: int) -> None:
        self.history.append(
            ResidencyRow(
                seq=seq,
                what=what,
                model=model,
                instance=instance,
                duration_ns=duration_ns,
                resident=len(self._instances),
            )
        )

    def rows(self) -> list[ResidencyRow]:
        return self.history
