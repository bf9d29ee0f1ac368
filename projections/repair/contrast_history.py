"""What a repair study declared when: which contrasts are confirmatory, which were withdrawn, and
with which budgets a cell was run."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from projections.declaration_history import Declaration, spans
from projections.repair.outcomes import Outcomes
from projections.repair.results import DeclaredBudgets, Withdrawn
from schemas.repair.study import Contrast, RepairStudy
from schemas.study import Stopping


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
    contrast: Contrast, study: RepairStudy, declarations: Sequence[Declaration[RepairStudy]]
) -> tuple[Literal["confirmatory", "exploratory"], int | None]:
    """Since which record the contrast is what it is, and what that makes it.

    Documents decide about every contrast; of the program's components those that its cells, their
    grades and its analysis rest on. A study that is not preregistered has no confirmatory
    contrast, whatever was changed.
    """
    if not study.preregistered:
        return "exploratory", None
    now = _declared(study, contrast.id)
    arms = (f"arm {contrast.new}", f"arm {contrast.baseline}")
    rests_on = (*study.shared_components, "analysis", *arms)
    since = None
    for version in reversed(declarations):
        if _declared(version.study, contrast.id) != now:
            break
        since = version
        if version.documents or version.changes_any(rests_on):
            break
    if since is None or since.finding == "frozen":
        return "confirmatory", None
    late = since.finding in ("after_first_cell", "after_inspection")
    return "exploratory" if late else "confirmatory", since.seq


def replaced_late(
    study: RepairStudy, declarations: Sequence[Declaration[RepairStudy]]
) -> RepairStudy | None:
    """The study as it stood when the first cell began, where an amendment since then declared its
    primary contrast otherwise, or none."""
    early = [each for each in declarations if each.finding in ("frozen", "before_first_cell")]
    if not early or not early[-1].study.preregistered:
        return None
    before = early[-1].study
    primary = next((contrast for contrast in before.contrasts if contrast.primary), None)
    if primary is None or _declared(before, primary.id) == _declared(study, primary.id):
        return None
    return before


def withdrawn_contrasts(
    study: RepairStudy, declarations: Sequence[Declaration[RepairStudy]]
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


def declared_budgets(
    declarations: Sequence[Declaration[RepairStudy]], outcomes: Outcomes
) -> tuple[DeclaredBudgets, ...]:
    """Every version of the budgets, with how many cells began under it."""
    began = [cell.began for cell in outcomes.cells.values() if cell.began is not None]
    return tuple(
        DeclaredBudgets(
            since=since, cells=sum(since <= seq < until for seq in began), budgets=budgets
        )
        for since, until, budgets in spans(
            [(version.seq, version.study.budgets) for version in declarations]
        )
    )
