"""Amendments: what is frozen, what changed afterwards, and in which class each change falls.

The class is decided here from the order of records: before the first cell, after it, or after
outcomes had been shown. No author's word goes into it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ledger.log import Fact
from projections.fold import ReadArtifact, Row
from projections.progress import Progress
from schemas.base import Event
from schemas.changed_values import changed_values
from schemas.counted import counted, first_few
from schemas.events.cell import CellStarted
from schemas.events.study import (
    AmendmentRecorded,
    ComponentChange,
    FrozenComponent,
    OutcomesInspected,
    StudyFrozen,
)
from schemas.study import Study
from schemas.study_file import parse_study

WHAT_CAN_BE_AMENDED = (
    "Bound by the freeze, and open to amendments: study.toml, the documents that it names, and "
    "the components of the program that decide results, each with its files and libraries. "
    "`kind`, `id` and `simulated` are open to none."
)
"""Printed with the amendments, and what the kind of study adds
(:attr:`schemas.study.Study.OPEN_TO_AMENDMENTS`)."""

SHOWN = 5

Finding = Literal["before_first_cell", "after_first_cell", "after_inspection"]
IN_WORDS: Mapping[str, str] = {
    "before_first_cell": "before the first cell",
    "after_first_cell": "after the first cell: exploratory",
    "after_inspection": "after outcomes were inspected: exploratory",
}


class AmendmentRow(Row):
    TABLE: ClassVar[str] = "amendments"
    KEY: ClassVar[tuple[str, ...]] = ("seq",)
    seq: int
    at: str
    reason: str
    changes_claim: int
    finding: str
    inspections: str
    changed: str
    removed: str
    components: str
    keys: str


@dataclass(frozen=True)
class Reworded:
    """A frozen sentence that an amendment put otherwise: what it is, and how it was."""

    seq: int
    finding: Finding
    what: str
    then: str

    def __str__(self) -> str:
        return (
            f"{self.what} until the amendment of record {self.seq}, {IN_WORDS[self.finding]}: "
            f"{self.then}"
        )


class InspectionRow(Row):
    TABLE: ClassVar[str] = "inspections"
    KEY: ClassVar[tuple[str, ...]] = ("seq",)
    seq: int
    at: str
    reason: str
    graded: int


@dataclass
class Amendments:
    NAME: ClassVar[str] = "amendments"
    GUARDED: ClassVar[bool] = False
    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        StudyFrozen,
        CellStarted,
        OutcomesInspected,
        AmendmentRecorded,
    )
    TABLES: ClassVar[tuple[type[Row], ...]] = (
        AmendmentRow,
        InspectionRow,
    )

    read: ReadArtifact
    frozen: StudyFrozen | None = None
    first_cell: int | None = None
    inspected: list[InspectionRow] = field(default_factory=list)
    recorded: list[AmendmentRow] = field(default_factory=list)
    reworded: list[Reworded] = field(default_factory=list)
    study: Study | None = None
    """As it was frozen or last amended."""
    components: dict[str, FrozenComponent] = field(default_factory=dict)
    """By name, as they were frozen or last amended."""
    _versions: list[tuple[int, Mapping[str, FrozenComponent]]] = field(default_factory=list)
    _bound: dict[str, str] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case StudyFrozen():
                self.frozen = event
                self.study = parse_study(self.read(event.study))
                self._bound = {
                    "study.toml": event.study.digest,
                    **{f"documents/{file.name}": file.digest for file in event.documents},
                }
                self.components = {each.name: each for each in event.components}
                self._versions.append((fact.seq, dict(self.components)))
            case CellStarted():
                if self.first_cell is None:
                    self.first_cell = fact.seq
            case OutcomesInspected():
                self.inspected.append(InspectionRow.of(event, seq=fact.seq, at=fact.at))
            case AmendmentRecorded():
                study = parse_study(self.read(event.study))
                changed = changed_values(self.study, study) if self.study else []
                then, now = _sentences(self.study), _sentences(study)
                self.reworded += [
                    Reworded(fact.seq, event.finding, what, text)
                    for what, text in then.items()
                    if now.get(what) != text
                ]
                self.study = study
                for file in event.changed:
                    self._bound[file.name] = file.digest
                for name in event.removed:
                    self._bound.pop(name, None)
                for change in event.components:
                    self.components.pop(change.name, None)
                    if change.after is not None:
                        self.components[change.name] = change.after
                self._versions.append((fact.seq, dict(self.components)))
                self.recorded.append(
                    AmendmentRow.of(
                        event,
                        seq=fact.seq,
                        at=fact.at,
                        inspections=" ".join(map(str, event.inspections)),
                        changed="\n".join(file.name for file in event.changed),
                        removed="\n".join(event.removed),
                        components="\n".join(map(change_in_words, event.components)),
                        keys="\n".join(map(str, changed)),
                    )
                )

    def bound(self) -> dict[str, str]:
        """Digest by name of study.toml and the documents, as they were frozen or last amended."""
        return dict(self._bound)

    def components_at(self, seq: int | None) -> Mapping[str, FrozenComponent]:
        """The components as they stood at record ``seq``; None: as they are now."""
        if seq is None:
            return self.components
        stood: Mapping[str, FrozenComponent] = {}
        for at, components in self._versions:
            stood = components if at <= seq else stood
        return stood

    @property
    def inspections(self) -> tuple[int, ...]:
        """Records at which outcomes were shown."""
        return tuple(row.seq for row in self.inspected)

    def finding(self) -> Finding:
        """The class of an amendment that would be recorded now."""
        if self.inspected:
            return "after_inspection"
        return "before_first_cell" if self.first_cell is None else "after_first_cell"

    def rows(self) -> list[Row]:
        return [*self.recorded, *self.inspected]


def change_in_words(change: ComponentChange) -> str:
    """``arm H018: harnesses/tools/search.py differs``, with what was shown of it."""
    words = f"{change.name}: {first_few(change.differences, SHOWN)}"
    if change.reexecuted:
        cells = counted(len(change.reexecuted), "finished cell")
        words += f"; infrastructure (replayed identical: {cells})"
    return words


def _sentences(study: Study | None) -> dict[str, str]:
    """What ``study.toml`` says to readers, by name: its title, its question, its readings."""
    if study is None:
        return {}
    readings = {f"Reading of {name}": text for name, text in study.readings.items()}
    return {"Title": study.title, "Question": study.question, **readings}


def changed_keys(row: AmendmentRow) -> list[str]:
    """Of a row of ``amendments``: ``analysis.alpha: 0.05 → 0.2`` for every key of study.toml whose
    value the amendment changed. No line of them has a line end in it."""
    return row.keys.split("\n") if row.keys else []


def not_amendable(study: Study, progress: Progress) -> list[str]:
    """What ``study`` declares otherwise and no amendment can change: its kind and name, who
    answers, and what its kind names (:meth:`schemas.study.Study.not_amendable`). ``progress``:
    folded up to the amendment."""
    before = progress.study
    if before is None:
        return []
    if study.kind != before.kind:
        return [f"`kind` was {before.kind} and is {study.kind}"]
    problems = []
    if study.simulated != progress.simulated:
        was, is_now = str(progress.simulated).lower(), str(study.simulated).lower()
        problems.append(f"`simulated` (with `server.kind`) was {was} and is {is_now}")
    if study.id != before.id:
        problems.append(f"`id` was {before.id} and is {study.id}: that would be another study")
    planned = [cell.cell for cell in progress.cells.values()]
    return [*problems, *study.not_amendable(before, planned, progress.begun)]


def render_markdown(amendments: Amendments) -> str:
    """``PROTOCOL_AMENDMENTS.md`` of a study, from the log alone."""
    lines = ["# Protocol amendments", ""]
    if amendments.frozen is None:
        return "\n".join([*lines, "The study is not frozen.", ""])
    lines += [f"Study digest {amendments.frozen.digest}.", ""]
    if not amendments.recorded:
        lines += ["No amendment has been recorded.", ""]
    lines.append(f"- {WHAT_CAN_BE_AMENDED}")
    if amendments.study is not None:
        lines.append(f"- {amendments.study.OPEN_TO_AMENDMENTS}")
    lines.append("")
    for number, amendment in enumerate(amendments.recorded, start=1):
        lines += [
            f"## Amendment {number} (record {amendment.seq})",
            "",
            f"- When: {amendment.at}, {IN_WORDS[amendment.finding]}",
            f"- Reason: {amendment.reason}",
            f"- Changes a claim: {'yes' if amendment.changes_claim else 'no'}",
        ]
        if amendment.inspections:
            lines.append(f"- Inspections before it: records {amendment.inspections}")
        for name in amendment.changed.splitlines():
            lines.append(f"- Changed: `{name}`")
            if name == "study.toml":
                lines += [f"    - `{line}`" for line in changed_keys(amendment)]
        lines += [f"- Removed: `{name}`" for name in amendment.removed.splitlines()]
        lines += [f"- Component {words}" for words in amendment.components.splitlines()]
        lines.append("")
    return "\n".join(lines)
