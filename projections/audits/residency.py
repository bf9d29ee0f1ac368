"""Was there ever more than one model in memory, and was every turn asked of the right one?"""

from collections.abc import Iterator
from typing import ClassVar

from ledger.log import Fact
from projections.audits.finding import Findings, Verdict
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.events.cell import TurnAnswered, TurnStarted
from schemas.events.server import (
    ModelLoaded,
    ModelLoadStarted,
    ModelLost,
    ModelUnloaded,
    ServerChecked,
    ServerMismatched,
)
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.identifiers import parse_cell_id
from schemas.study import Study
from schemas.study_file import parse_study


class ResidencyAudit:
    """Holds the instances that are resident by the log: at most one at any record."""

    NAME: ClassVar[str] = "residency"
    QUESTION: ClassVar[str] = (
        "Was at most one model resident at any time, and every turn asked of the cell's model?"
    )
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        StudyFrozen,
        AmendmentRecorded,
        ServerChecked,
        ModelLoadStarted,
        ModelLoaded,
        ModelUnloaded,
        ModelLost,
        ServerMismatched,
        TurnStarted,
        TurnAnswered,
    )

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self._findings = Findings(self.NAME)
        self._resident: dict[str, str] = {}
        """Model by instance."""
        self._loading = ""
        self._simulated: bool | None = None
        self._study: Study | None = None
        self._unobserved = False
        self._loads = self._turns = self._mismatches = 0

    def apply(self, fact: Fact) -> None:
        for problem in self._problems(fact.event, fact.stream, fact.seq):
            self._findings.violation(fact.seq, problem)
        if isinstance(fact.event, ServerMismatched):
            self._mismatches += 1
            self._findings.note(fact.seq, f"preflight stopped the run: {fact.event.problem}")

    def _problems(self, event: Event, stream: str, seq: int) -> Iterator[str]:
        present = ", ".join(self._resident.values())
        match event:
            case StudyFrozen():
                self._simulated = event.simulated
                self._study = parse_study(self._read(event.study))
            case AmendmentRecorded():
                self._study = parse_study(self._read(event.study))
            case ServerChecked():
                yield from self._wrong_kind(event.simulated)
            case ModelLoadStarted():
                if self._resident:
                    yield f"a load of {event.model} was sent while {present} was resident"
                self._loading = event.model
            case ModelLoaded():
                self._loads += 1
                if self._resident:
                    yield f"{event.model} was loaded while {present} was resident"
                if self._loading != event.model:
                    yield f"{event.model} is resident without a recorded load"
                if not event.evidence:
                    yield f"nothing that the server said about {event.model} was kept"
                yield from self._wrong_kind(event.simulated)
                self._resident[event.instance] = event.model
                if event.residency == "unobserved" and not self._unobserved:
                    self._unobserved = True
                    self._findings.note(
                        seq,
                        "the server shows no memory: that a model was alone in it is unobserved",
                    )
                self._loading = ""
            case ModelUnloaded():
                # A load whose end nobody recorded is undone under the name of its model.
                known = event.instance in self._resident or event.model == self._loading
                if not known:
                    yield f"{event.instance} was unloaded and had not been resident"
                self._resident.pop(event.instance, None)
                self._loading = ""
            case ModelLost():
                self._resident.pop(event.instance, None)
                self._loading = ""
            case TurnStarted():
                self._turns += 1
                agent = parse_cell_id(stream).agent
                wanted = self._model_of(agent)
                model = self._resident.get(event.instance)
                if model is None:
                    yield f"turn {event.turn} was asked of {event.instance}, which is not resident"
                elif model != wanted:
                    yield f"turn {event.turn} of a cell of {wanted} was asked of {model}"
            case TurnAnswered(simulated=bool(simulated)):
                yield from self._wrong_kind(simulated)

    def _model_of(self, agent: str) -> str:
        try:
            return self._study.model_of(agent) if self._study else agent
        except LookupError:
            return agent

    def _wrong_kind(self, simulated: bool) -> Iterator[str]:
        if self._simulated is not None and simulated != self._simulated:
            says = "simulated" if simulated else "real"
            yield f"the server is a {says} one and the frozen study says otherwise"

    def verdict(self) -> Verdict:
        return self._findings.verdict(
            applicable=self._loads + self._turns + self._mismatches > 0,
            loads=self._loads,
            turns=self._turns,
            stopped_by_preflight=self._mismatches,
        )
