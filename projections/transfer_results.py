"""The results of a transfer study as one value: scores, counts, thresholds, and who shows what.

This is what ``ledger analyze`` writes down and ``ledger report`` renders; the same records give the
same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from ledger.log import Fact
from projections.declared_analyses import ComputedFrom
from projections.fold import ReadArtifact
from projections.repairs import Repair, Repairs
from projections.transfer_counts import (
    Behaviour,
    CaseResult,
    ClassCount,
    FamilyResult,
    ThresholdResult,
    behaviours,
    cannot_show,
    case_results,
    class_counts,
    family_results,
    threshold_results,
    with_events,
)
from projections.transfer_scores import RunScore, TransferScores
from schemas.base import Count, Digest, Event, Position, Value
from schemas.events.study import AmendmentRecorded, StudyFrozen
from schemas.events.transfer import Capabilities, SystemDescribed
from schemas.study_file import parse_study
from schemas.transfer import Stage, Waiver
from schemas.transfer_study import Threshold, TransferStudy


class Identity(Value):
    """One identity that a system had, as it was described when a run began."""

    memory: Annotated[Digest, Meta(description="digest of the memory's manifest")]
    driver: Annotated[Digest, Meta(description="digest of the driver's manifest")]
    capabilities: Capabilities
    clock_control: str
    runs: Count


class SystemClass(Value):
    """One class of corrections with one system. Verified and behavioural success are never added,
    and classes are never pooled."""

    class_: str
    verified: Annotated[Count, Meta(description="runs, baselines left out; so are the next two")]
    unverified: Count
    failed: Count
    behavioural: Annotated[Count, Meta(description="decision where captured, action, outcome")]
    behavioural_of: Count
    behavioural_unobserved: Count
    behaviours: tuple[Behaviour, ...]

    @property
    def runs(self) -> int:
        """Runs of all cases but baselines."""
        return self.verified + self.unverified + self.failed


class SystemResult(Value):
    """One system: a memory and a driver."""

    memory: str
    driver: str
    planned: Count
    ended: Count
    void: Count
    classes: tuple[SystemClass, ...]
    cannot_show: tuple[Stage, ...]
    reported: Annotated[
        tuple[Stage, ...], Meta(description="stages with a verdict on the system's own word")
    ]
    identities: tuple[Identity, ...]

    @property
    def name(self) -> str:
        return f"{self.memory} + {self.driver}"


class FrozenWaiver(Value):
    """A lint finding that was accepted before the freeze."""

    family: str
    waiver: Waiver


class DroppedThreshold(Value):
    """A threshold that an amendment took away or changed."""

    id: str
    was: str
    seq: Position
    finding: str


class RepairResult(Value):
    """One repair, and what its runs came to."""

    repair: str
    cell: str
    stage: str
    layer: str
    attributed: Annotated[bool | None, Meta(description="null: nothing was changed yet")]
    system: Annotated[str, Meta(description="the changed system; empty: none yet")]
    status: str
    reruns: Count
    ended: Count
    verified: Count
    failed: Count
    limitation: str
    records: Annotated[tuple[Position, ...], Meta(description="of its steps")]


class TransferResults(Value):
    """Everything that a report prints."""

    kind: Literal["transfer"] = "transfer"
    computed_from: ComputedFrom
    simulated: bool
    suite: str
    suite_version: str
    reported_evidence: str
    declared_basis: str
    systems: tuple[SystemResult, ...]
    runs: tuple[RunScore, ...]
    cases: tuple[CaseResult, ...]
    families: tuple[FamilyResult, ...]
    counts: tuple[ClassCount, ...]
    thresholds: tuple[ThresholdResult, ...]
    dropped: tuple[DroppedThreshold, ...]
    waivers: tuple[FrozenWaiver, ...]
    repairs: tuple[RepairResult, ...]
    scorer: Annotated[Digest, Meta(description="digest of the scorer's code")]
    code_not_as_frozen: Annotated[
        tuple[str, ...], Meta(description="files of code that differ from the frozen ones")
    ]

    @property
    def missed(self) -> tuple[ThresholdResult, ...]:
        """Thresholds that are not met; what was not shown is among them."""
        return tuple(found for found in self.thresholds if found.status != "met")

    @property
    def boundary_failures(self) -> tuple[RunScore, ...]:
        return tuple(run for run in self.runs if run.boundary_failure)


def encode_results(results: TransferResults) -> bytes:
    """JSON for programs and for people: the same results give the same bytes."""
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


# --- when a threshold was chosen ------------------------------------------------------------------

_CHOSEN = {
    "frozen": "frozen before the first run",
    "before_first_cell": "set by an amendment before the first run",
    "after_first_cell": "chosen after the first run",
    "after_inspection": "chosen after viewing",
}


@dataclass
class ThresholdHistory:
    """Every version of the thresholds: (seq, finding, thresholds)."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (StudyFrozen, AmendmentRecorded)

    read: ReadArtifact
    versions: list[tuple[int, str, tuple[Threshold, ...]]] = field(default_factory=list)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        if not isinstance(event, StudyFrozen | AmendmentRecorded):
            return
        study = parse_study(self.read(event.study))
        if isinstance(study, TransferStudy):
            finding = "frozen" if isinstance(event, StudyFrozen) else event.finding
            self.versions.append((fact.seq, finding, study.thresholds))

    def chosen(self) -> dict[str, str]:
        """By id of a present threshold: since when it stands as it is, in words."""
        words = {}
        for threshold in self.versions[-1][2] if self.versions else ():
            since = self.versions[-1]
            for version in reversed(self.versions):
                if threshold not in version[2]:
                    break
                since = version
            words[threshold.id] = f"{_CHOSEN[since[1]]} (record {since[0]})"
        return words

    def dropped(self) -> tuple[DroppedThreshold, ...]:
        """Thresholds that stood and do not stand any more as they were."""
        found = []
        for (_, _, before), (seq, finding, after) in zip(
            self.versions, self.versions[1:], strict=False
        ):
            for threshold in before:
                if threshold not in after:
                    found.append(
                        DroppedThreshold(
                            id=threshold.id,
                            was=threshold_words(threshold),
                            seq=seq,
                            finding=_CHOSEN[finding]
                            .replace("chosen", "changed")
                            .replace("set by", "changed by"),
                        )
                    )
        return tuple(found)


def threshold_words(threshold: Threshold) -> str:
    """``decision_compliance at least 0.9 (class boundary)``."""
    limit = (
        f"at least {threshold.at_least:g}"
        if threshold.at_least is not None
        else f"at most {threshold.at_most}"
    )
    about = [
        f"{key} {value}"
        for key, value in (
            ("memory", threshold.memory),
            ("driver", threshold.driver),
            ("class", threshold.class_),
        )
        if value
    ]
    return f"{threshold.count} {limit}" + (f" ({', '.join(about)})" if about else "")


# --- everything -----------------------------------------------------------------------------------


def transfer_results(
    scores: TransferScores,
    history: ThresholdHistory,
    repairs: Repairs,
    computed_from: ComputedFrom,
    simulated: bool,
    scorer: str,
    code_not_as_frozen: Sequence[str],
) -> TransferResults:
    """From folds up to one head. ``scores`` has seen the freeze."""
    suite, study = scores.suite, scores.study
    if suite is None or study is None:
        raise ValueError("no suite is frozen")
    runs = scores.scores()
    counts = class_counts(runs)
    declared = [(system.memory, system.driver) for system in study.systems]
    ran = [run.system for run in runs if run.system not in declared]
    systems = list(dict.fromkeys([*declared, *ran]))
    return TransferResults(
        computed_from=computed_from,
        simulated=simulated,
        suite=suite.suite_id,
        suite_version=suite.version,
        reported_evidence=study.suite.reported_evidence,
        declared_basis=study.suite.declared_basis,
        systems=tuple(_system(*system, runs, scores) for system in systems),
        runs=tuple(runs),
        cases=tuple(case_results(runs, scores.planned)),
        families=tuple(family_results(runs, scores.planned, suite)),
        counts=tuple(counts),
        thresholds=tuple(threshold_results(study.thresholds, counts, systems, history.chosen())),
        dropped=history.dropped(),
        waivers=tuple(
            FrozenWaiver(family=family.family_id, waiver=waiver)
            for family in suite.families
            for waiver in family.waivers
        ),
        repairs=tuple(_repair(name, found, scores) for name, found in repairs.repairs.items()),
        scorer=scorer,
        code_not_as_frozen=tuple(sorted(code_not_as_frozen)),
    )


def _repair(name: str, repair: Repair, scores: TransferScores) -> RepairResult:
    changed = repair.changed
    cells = repair.rerun.cells if repair.rerun else ()
    results = [scores.runs[cell].result for cell in cells if cell in scores.runs]
    steps = (repair.opened_at, repair.changed_at, repair.rerun_at, repair.closed_at)
    return RepairResult(
        repair=name,
        cell=repair.opened.cell,
        stage=repair.opened.stage,
        layer=repair.opened.layer,
        attributed=changed.attributed if changed else None,
        system=f"{changed.new_memory} + {changed.new_driver}" if changed else "",
        status=repair.status,
        reruns=len(cells),
        ended=len(results) - results.count("void"),
        verified=results.count("verified"),
        failed=results.count("failed"),
        limitation=repair.closed.limitation if repair.closed else "",
        records=tuple(seq for seq in steps if seq >= 0),
    )


def _system(
    memory: str, driver: str, runs: Sequence[RunScore], scores: TransferScores
) -> SystemResult:
    own = [run for run in runs if run.system == (memory, driver)]
    seen = [run for run in own if run.result != "void"]
    reported = {
        stage
        for run in seen
        for stage, found in run.stages.items()
        if found.grade == "reported" and found.verdict in ("pass", "fail")
    }
    identities: dict[tuple[str, str, Capabilities, str], int] = {}
    for run in own:
        described = scores.evidence[run.cell].last(SystemDescribed)
        if described is not None:
            event = described[1]
            key = (
                event.memory.digest,
                event.driver.digest,
                event.capabilities,
                event.clock_control,
            )
            identities[key] = identities.get(key, 0) + 1
    return SystemResult(
        memory=memory,
        driver=driver,
        planned=sum(cell.split("/")[1:3] == [memory, driver] for cell in scores.planned),
        ended=len(own),
        void=len(own) - len(seen),
        classes=tuple(
            _class(class_, [run for run in own if run.class_ == class_])
            for class_ in sorted({run.class_ for run in with_events(own)})
        ),
        cannot_show=cannot_show(own),
        reported=tuple(stage for stage in own[0].stages if stage in reported) if own else (),
        identities=tuple(
            Identity(
                memory=key[0], driver=key[1], capabilities=key[2], clock_control=key[3], runs=count
            )
            for key, count in identities.items()
        ),
    )


def _class(class_: str, runs: Sequence[RunScore]) -> SystemClass:
    results = [run.result for run in runs if run.kind != "baseline"]
    behaved = [
        run.behavioural
        for run in runs
        if run.result != "void" and run.behavioural != "not_required"
    ]
    return SystemClass(
        class_=class_,
        verified=results.count("verified"),
        unverified=results.count("unverified"),
        failed=results.count("failed"),
        behavioural=behaved.count("success"),
        behavioural_of=len(behaved),
        behavioural_unobserved=behaved.count("unobserved"),
        behaviours=tuple(behaviours(runs)),
    )
