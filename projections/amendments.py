"""Amendments: what is frozen, what changed afterwards, and in which class each change falls.

The class is decided here from the order of records: before the first cell, after it, or after
outcomes had been shown. No author's word goes into it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from ledger.log import Fact
from projections.fold import ReadArtifact, Row, Table
from projections.progress import Progress
from projections.repair.tasks import MinedTasks
from schemas.base import Event, Value
from schemas.changed_values import changed_values
from schemas.events.cell import CellStarted
from schemas.events.study import AmendmentRecorded, FrozenFile, OutcomesInspected, StudyFrozen
from schemas.plan import undeclared
from schemas.selection import NOT_RECORDED
from schemas.study import Study
from schemas.study_file import AnyStudy, parse_study
from schemas.transfer.study import TransferStudy

WHAT_CAN_BE_AMENDED = (
    "Bound by the freeze, and open to amendments: study.toml, the documents that it names, the "
    "program's code and its libraries.",
    "Of a transfer study study.toml may declare further memories, drivers and systems, whose cells "
    "follow the plan, and change everything else but `[suite]`; what is declared already of a "
    "memory, driver or system can be corrected or taken away until the first run has begun. "
    "Families (prompts, fixtures, predicates, records) are bound as documents and open to none: "
    "another family is another suite, a study with another suite.version.",
    "Of a repair study the tasks and how they were selected are open to none; treatments and "
    "models of planned cells can be corrected until the first cell has begun. A model that a "
    "driver of a transfer study asks is held the same way. Of either kind `kind`, `id` and "
    "`simulated` are open to none.",
)
"""Printed with the amendments; ``not_amendable`` and ``transfer_operator`` refuse the rest."""

Finding = Literal["before_first_cell", "after_first_cell", "after_inspection"]
IN_WORDS: Mapping[str, str] = {
    "before_first_cell": "before the first cell",
    "after_first_cell": "after the first cell: exploratory",
    "after_inspection": "after outcomes were inspected: exploratory",
}


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
    TABLES: ClassVar[Mapping[str, Table]] = {
        "amendments": Table(
            key=("seq",),
            columns={
                "seq": int,
                "at": str,
                "reason": str,
                "changes_claim": int,
                "finding": str,
                "inspections": str,
                "changed": str,
                "removed": str,
                "keys": str,
            },
        ),
        "inspections": Table(
            key=("seq",), columns={"seq": int, "at": str, "reason": str, "graded": int}
        ),
    }

    read: ReadArtifact
    frozen: StudyFrozen | None = None
    first_cell: int | None = None
    inspections: list[int] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    study: AnyStudy | None = None
    """As it was frozen or last amended."""
    _bound: dict[str, str] = field(default_factory=dict)
    _inspection_rows: list[dict[str, Any]] = field(default_factory=list)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case StudyFrozen():
                self.frozen = event
                self.study = parse_study(self.read(event.study))
                self._bound = {
                    "study.toml": event.study.digest,
                    **{f"documents/{file.name}": file.digest for file in event.documents},
                    **{f"code/{file.name}": file.digest for file in event.code},
                    "libraries": event.lock,
                }
            case CellStarted():
                if self.first_cell is None:
                    self.first_cell = fact.seq
            case OutcomesInspected():
                self.inspections.append(fact.seq)
                self._inspection_rows.append(
                    {"seq": fact.seq, "at": fact.at, "reason": event.reason, "graded": event.graded}
                )
            case AmendmentRecorded():
                study = parse_study(self.read(event.study))
                changed = changed_values(self.study, study) if self.study else []
                self.study = study
                for file in event.changed:
                    self._bound[file.name] = file.digest
                for name in event.removed:
                    self._bound.pop(name, None)
                self.recorded.append(
                    {
                        "seq": fact.seq,
                        "at": fact.at,
                        "reason": event.reason,
                        "changes_claim": int(event.changes_claim),
                        "finding": event.finding,
                        "inspections": " ".join(map(str, event.inspections)),
                        "changed": "\n".join(file.name for file in event.changed),
                        "removed": "\n".join(event.removed),
                        "keys": "\n".join(map(str, changed)),
                    }
                )

    def bound(self) -> dict[str, str]:
        """Digest by name of everything that must be as it was frozen or last amended."""
        return dict(self._bound)

    def code(self) -> tuple[FrozenFile, ...]:
        """Every file of the five packages as it was frozen or last amended, sorted by name."""
        return tuple(
            FrozenFile(name=name.removeprefix("code/"), digest=digest)
            for name, digest in sorted(self._bound.items())
            if name.startswith("code/")
        )

    def finding(self) -> Finding:
        """The class of an amendment that would be recorded now."""
        if self.inspections:
            return "after_inspection"
        return "before_first_cell" if self.first_cell is None else "after_first_cell"

    def tables(self) -> Mapping[str, Sequence[Row]]:
        return {"amendments": self.recorded, "inspections": self._inspection_rows}


def changed_keys(row: Row) -> list[str]:
    """Of a row of ``amendments``: ``analysis.alpha: 0.05 → 0.2`` for every key of study.toml whose
    value the amendment changed. No line of them has a line end in it."""
    return row["keys"].split("\n") if row["keys"] else []


def not_amendable(study: AnyStudy, progress: Progress, mined: MinedTasks) -> list[str]:
    """What ``study`` declares otherwise and no amendment can change: its kind and name, who
    answers, what planned cells are made of, and how frozen tasks were selected. What cells are made
    of may be corrected until the first of them has begun; a repair study needs all that is planned.

    ``progress``, ``mined``: folded up to the amendment. What an earlier version did not record of
    the selection is not held against anybody.
    """
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
    planned = [cell.planned for cell in progress.cells.values()]
    if isinstance(study, TransferStudy) and isinstance(before, TransferStudy):
        if study.suite != before.suite:
            problems.append(
                "[suite] changed, and families, version, trials, distractors and policies are what "
                "the suite is: another one is another suite.version, and another study"
            )
        if not progress.begun:
            return problems
        problems += _other_systems(before, study)
    if progress.begun:
        problems += _other_models(before, study)
    missing = undeclared(study, planned, progress.tasks.values())
    problems += [f"planned cells need {name}, which is not declared" for name in missing]
    if isinstance(study, Study) and isinstance(before, Study):
        if progress.begun:
            problems += _other_treatments(before, study)
        problems += [
            f"the tasks are frozen, and {setting}"
            for setting in mined.changed_since_frozen(study, None)
            if setting.then != NOT_RECORDED
        ]
    return problems


def _other_systems(before: TransferStudy, after: TransferStudy) -> list[str]:
    """Memories and drivers of planned runs that are not what they were."""
    memories, drivers = {m.id: m for m in after.memories}, {d.id: d for d in after.drivers}
    other = [
        *(("memory", m.id, m, memories.get(m.id, m)) for m in before.memories),
        *(("driver", d.id, d, drivers.get(d.id, d)) for d in before.drivers),
    ]
    return [
        f"{kind} {name} changed in {', '.join(_fields_that_differ(was, now))}, and its runs with "
        f"it would no longer be of one system: keep it as it was and declare another {kind} with "
        "its own id"
        for kind, name, was, now in other
        if was != now
    ]


def _other_models(before: AnyStudy, after: AnyStudy) -> list[str]:
    """Models that are not what they were; cells of one name would then be of two models."""
    models = {model.id: model for model in after.models}
    return [
        f"model {model.id} changed in {', '.join(_fields_that_differ(model, models[model.id]))}, "
        "and cells have begun: keep it as it was. Another model is another id, and another study"
        for model in before.models
        if models.get(model.id, model) != model
    ]


def _other_treatments(before: Study, after: Study) -> list[str]:
    roles = {treatment.id: treatment.role for treatment in after.treatments}
    return [
        f"treatment {treatment.id} was of role {treatment.role} and is {roles[treatment.id]}, and "
        "cells have begun: keep it as it was"
        for treatment in before.treatments
        if roles.get(treatment.id, treatment.role) != treatment.role
    ]


def _fields_that_differ(one: Value, other: Value) -> list[str]:
    """Keys of two tables of one kind, as study.toml writes them."""
    return [
        f"`{field.encode_name}`"
        for field in msgspec.structs.fields(one)
        if getattr(one, field.name) != getattr(other, field.name)
    ]


def render_markdown(amendments: Amendments) -> str:
    """``PROTOCOL_AMENDMENTS.md`` of a study, from the log alone."""
    lines = ["# Protocol amendments", ""]
    if amendments.frozen is None:
        return "\n".join([*lines, "The study is not frozen.", ""])
    lines += [f"Study digest {amendments.frozen.digest}.", ""]
    if not amendments.recorded:
        lines += ["No amendment has been recorded.", ""]
    lines += [f"- {words}" for words in WHAT_CAN_BE_AMENDED]
    lines.append("")
    for number, amendment in enumerate(amendments.recorded, start=1):
        lines += [
            f"## Amendment {number} (record {amendment['seq']})",
            "",
            f"- When: {amendment['at']}, {IN_WORDS[amendment['finding']]}",
            f"- Reason: {amendment['reason']}",
            f"- Changes a claim: {'yes' if amendment['changes_claim'] else 'no'}",
        ]
        if amendment["inspections"]:
            lines.append(f"- Inspections before it: records {amendment['inspections']}")
        for name in amendment["changed"].splitlines():
            lines.append(f"- Changed: `{name}`")
            if name == "study.toml":
                lines += [f"    - `{line}`" for line in changed_keys(amendment)]
        lines += [f"- Removed: `{name}`" for name in amendment["removed"].splitlines()]
        lines.append("")
    return "\n".join(lines)
