"""What a study declared when: as it was frozen, and as each amendment left it.

Says of a contrast whether it is confirmatory, and of which models and budgets a cell was run with.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta

from ledger.log import Fact
from projections.fold import ReadArtifact
from projections.repair.outcomes import Outcomes
from projections.repair.results import DeclaredBudgets, DeclaredModel, Withdrawn
from schemas.base import Event, Position, Value
from schemas.credentials import without_credentials
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.repair.study import Contrast, RepairStudy
from schemas.study import Model, Stopping, of_kind
from schemas.study_file import parse_study

Part = TypeVar("Part")


class Declaration(Value):
    """The study as it was frozen, or as an amendment left it."""

    seq: Position
    finding: Literal["frozen", "before_first_cell", "after_first_cell", "after_inspection"]
    study: RepairStudy
    beside: Annotated[
        tuple[str, ...],
        Meta(description="what else an amendment changed or removed: code, libraries, documents"),
    ] = ()


class Declarations:
    """Every version of the study from the freeze on, in order."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (StudyFrozen, AmendmentRecorded)

    def __init__(self, read: ReadArtifact) -> None:
        self._read = read
        self.versions: list[Declaration] = []

    def apply(self, fact: Fact) -> None:
        event = fact.event
        assert isinstance(event, StudyFrozen | AmendmentRecorded)
        self.versions.append(
            Declaration(
                seq=fact.seq,
                finding="frozen" if isinstance(event, StudyFrozen) else event.finding,
                study=of_kind(RepairStudy, parse_study(self._read(event.study))),
                beside=() if isinstance(event, StudyFrozen) else _beside(event),
            )
        )


def _beside(event: AmendmentRecorded) -> tuple[str, ...]:
    names = {*(file.name for file in event.changed), *event.removed}
    return tuple(sorted(names - {"study.toml"}))


def _declared(study: RepairStudy, contrast_id: str) -> object:
    """Everything in ``study.toml`` that can decide about a contrast, as one comparable value."""
    contrast = next((found for found in study.contrasts if found.id == contrast_id), None)
    family = contrast.family if contrast is not None else ""
    members = sorted(other.id for other in study.contrasts if family and other.family == family)
    rest = msgspec.structs.replace(
        study,
        title="",
        question="",
        documents=(),
        contrasts=(),
        stopping=Stopping(),
        server=msgspec.structs.replace(study.server, url="", lms=""),
    )
    return contrast, members, rest


def standing_of(
    contrast: Contrast, study: RepairStudy, declarations: Sequence[Declaration]
) -> tuple[Literal["confirmatory", "exploratory"], int | None]:
    """Since which record the contrast is what it is, and what that makes it.

    Code, libraries and documents decide about every contrast, so a change of one is a change of
    all.
    """
    now = _declared(study, contrast.id)
    since = None
    for version in reversed(declarations):
        if _declared(version.study, contrast.id) != now:
            break
        since = version
        if version.beside:
            break
    if since is None or since.finding == "frozen":
        return "confirmatory", None
    late = since.finding in ("after_first_cell", "after_inspection")
    return "exploratory" if late else "confirmatory", since.seq


def withdrawn_contrasts(
    study: RepairStudy, declarations: Sequence[Declaration]
) -> tuple[Withdrawn, ...]:
    """What was declared once and is not now, by the record that took it out last."""
    declared = {contrast.id for contrast in study.contrasts}
    found: dict[str, Withdrawn] = {}
    for before, after in pairwise(declarations):
        kept = {contrast.id for contrast in after.study.contrasts}
        for contrast in before.study.contrasts:
            if contrast.id not in kept and contrast.id not in declared:
                found[contrast.id] = Withdrawn(
                    id=contrast.id, primary=contrast.primary, at=after.seq
                )
    return tuple(found.values())


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
        for since, until, model in _spans(known)
        if model is not None
    )


def declared_budgets(
    declarations: Sequence[Declaration], outcomes: Outcomes
) -> tuple[DeclaredBudgets, ...]:
    """Every version of the budgets, with how many cells began under it."""
    began = [cell.began for cell in outcomes.cells.values() if cell.began is not None]
    return tuple(
        DeclaredBudgets(
            since=since, cells=sum(since <= seq < until for seq in began), budgets=budgets
        )
        for since, until, budgets in _spans(
            [(version.seq, version.study.budgets) for version in declarations]
        )
    )


def _spans(versions: Sequence[tuple[int, Part]]) -> list[tuple[int, float, Part]]:
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
