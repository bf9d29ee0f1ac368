"""What a study declared when: as it was frozen, and as each amendment left it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact
from projections.results import DeclaredModel
from schemas.base import Event
from schemas.credentials import without_credentials
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.study import WHOLE_PROGRAM, K, Model, of_kind
from schemas.study_file import parse_study

Part = TypeVar("Part")


@dataclass(frozen=True)
class Declaration(Generic[K]):
    """The study as it was frozen, or as the amendment of record ``seq`` left it."""

    seq: int
    finding: Literal["frozen", "before_first_cell", "after_first_cell", "after_inspection"]
    study: K
    documents: tuple[str, ...] = ()
    """Documents that an amendment changed or removed."""
    components: frozenset[str] = frozenset()
    """Components that an amendment changed, without those whose finished cells were all executed
    again to the same bytes."""

    def changes_any(self, components: Collection[str]) -> bool:
        """Whether this version came with other code of one of them."""
        return not self.components.isdisjoint((*components, WHOLE_PROGRAM))


class Declarations(Generic[K]):
    """Every version of the study from the freeze on, in order."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (StudyFrozen, AmendmentRecorded)

    def __init__(self, form: type[K], read: ReadArtifact) -> None:
        self._form = form
        self._read = read
        self.versions: list[Declaration[K]] = []

    def apply(self, fact: Fact) -> None:
        event = fact.event
        assert isinstance(event, StudyFrozen | AmendmentRecorded)
        self.versions.append(
            Declaration(
                seq=fact.seq,
                finding="frozen" if isinstance(event, StudyFrozen) else event.finding,
                study=of_kind(self._form, parse_study(self._read(event.study))),
                documents=() if isinstance(event, StudyFrozen) else _documents(event),
                components=frozenset()
                if isinstance(event, StudyFrozen)
                else frozenset(each.name for each in event.components if not each.reexecuted),
            )
        )


def _documents(event: AmendmentRecorded) -> tuple[str, ...]:
    names = {*(file.name for file in event.changed), *event.removed}
    return tuple(sorted(names - {"study.toml"}))


def declared_models(
    versions: Sequence[tuple[int, Sequence[Model]]], began: Sequence[tuple[str, int]]
) -> tuple[DeclaredModel, ...]:
    """By model, in the order in which the study names them first, every form that it had.

    versions: (record, models of the study from there on). began: (model, record) of every cell's
    last attempt.
    """
    forms: dict[str, list[tuple[int, Model | None]]] = {}
    for seq, models in versions:
        declared = {model.id: model for model in models}
        for name in declared:
            forms.setdefault(name, [])
        for name, known in forms.items():
            known.append((seq, declared.get(name)))
    return tuple(
        DeclaredModel(
            since=since,
            cells=sum(agent == name and since <= seq < until for agent, seq in began),
            model=_without_credentials(model),
        )
        for name, known in forms.items()
        for since, until, model in spans(known)
        if model is not None
    )


def spans(versions: Sequence[tuple[int, Part]]) -> list[tuple[int, float, Part]]:
    """(record that made it so, record that ended it, part), one for each time that it changed."""
    changes: list[tuple[int, Part]] = []
    for seq, part in versions:
        if not changes or changes[-1][1] != part:
            changes.append((seq, part))
    if not changes:
        return []
    ends = [*(seq for seq, _ in changes[1:]), math.inf]
    return [(seq, end, part) for (seq, part), end in zip(changes, ends, strict=True)]


def _without_credentials(model: Model) -> Model:
    """Results are handed on, and these names may be addresses."""
    return msgspec.structs.replace(
        model,
        key=without_credentials(model.key),
        variant=without_credentials(model.variant),
        quantization=without_credentials(model.quantization),
    )
