"""The results of a transfer study as one value: scores, counts, thresholds, and who shows what.

This is what ``ledger analyze`` writes down and ``ledger report`` renders; the same records give the
same bytes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta

from projections.declaration_history import Declaration, declared_models
from projections.results import ComputedFrom, DeclaredModel
from projections.transfer.counts import (
    Behaviour,
    CaseResult,
    Chosen,
    ClassCount,
    FamilyResult,
    ThresholdResult,
    behaviours,
    cannot_show,
    case_results,
    class_counts,
    family_results,
    threshold_results,
)
from projections.transfer.frozen_programs import FrozenPrograms, OtherProgram
from projections.transfer.remediations import Remediation, Remediations
from projections.transfer.scores import RunScore, TransferScores
from schemas.base import Count, Digest, Position, Value
from schemas.events.transfer import Capabilities, SystemDescribed
from schemas.identifiers import parse_cell_id
from schemas.transfer.family import Stage, Waiver
from schemas.transfer.study import System, Threshold, TransferStudy


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
    void: Annotated[int, Meta(ge=0, description="void runs, baselines left out")] = 0
    behaviours: tuple[Behaviour, ...]

    @property
    def runs(self) -> int:
        """Runs of all cases but baselines; void ones are not among them."""
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
    chosen: Annotated[str, Meta(description="when it was declared as it is")] = ""
    exploratory: Annotated[
        bool,
        Meta(
            description="declared or changed by an amendment after the first run, or run with a "
            "program that is not the frozen one"
        ),
    ] = False

    @property
    def waiting(self) -> int:
        """Planned runs that have not ended."""
        return max(0, self.planned - self.ended)

    @property
    def name(self) -> str:
        return f"{self.memory} + {self.driver}"

    @property
    def label(self) -> str:
        """The name as every table shows it: what came late says so beside its own numbers."""
        return f"{self.name} (exploratory)" if self.exploratory else self.name


class FrozenWaiver(Value):
    """A lint finding that was accepted before the freeze."""

    family: str
    waiver: Waiver


class DroppedThreshold(Value):
    """A threshold that an amendment took away or changed."""

    id: str
    was: str
    now: Annotated[str, Meta(description="after the amendment; empty: removed")]
    seq: Position
    finding: Annotated[str, Meta(description="`removed after viewing: exploratory`")]

    @property
    def words(self) -> str:
        """``T: was …, now …; changed after viewing: exploratory (record 9)``."""
        now = f", now {self.now}" if self.now else ""
        return f"{self.id}: was {self.was}{now}; {self.finding} (record {self.seq})"


class RemediationResult(Value):
    """One remediation, and what its runs came to."""

    remediation: str
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
    limitation: Annotated[str, Meta(description="what is left; of an abandoned one, why")]
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
    remediations: tuple[RemediationResult, ...]
    models: Annotated[
        tuple[DeclaredModel, ...],
        Meta(description="that drivers ask: as frozen, and as amendments left them"),
    ] = ()
    other_programs: Annotated[
        tuple[OtherProgram, ...], Meta(description="runs of a program that is not the frozen one")
    ] = ()
    scorer: Annotated[Digest, Meta(description="digest of the scorer's code")]
    code_not_as_frozen: Annotated[
        tuple[str, ...], Meta(description="components that are not as frozen, in words")
    ]

    @property
    def missed(self) -> tuple[ThresholdResult, ...]:
        """Thresholds that are not met; what was not shown, or is not decided yet, is among them."""
        return tuple(found for found in self.thresholds if found.status != "met")

    @property
    def waiting(self) -> int:
        """Planned runs that have not ended; an analysis with any is interim."""
        return sum(system.waiting for system in self.systems)

    def label(self, memory: str, driver: str) -> str:
        """A system as tables show it."""
        own = (each for each in self.systems if (each.memory, each.driver) == (memory, driver))
        return next(own).label

    @property
    def boundary_failures(self) -> tuple[RunScore, ...]:
        return tuple(run for run in self.runs if run.boundary_failure)


# --- when a threshold or a system was chosen ------------------------------------------------------

_CHOSEN = {
    "frozen": "frozen before the first run",
    "before_first_cell": "set by an amendment before the first run",
    "after_first_cell": "chosen after the first run: exploratory",
    "after_inspection": "chosen after viewing: exploratory",
}
EXPLORATORY = ("after_first_cell", "after_inspection")


@dataclass(frozen=True)
class ChosenWhen:
    """Since when thresholds and systems are what they are, by the versions of the study."""

    versions: Sequence[Declaration[TransferStudy]]

    def thresholds(self) -> dict[str, Chosen]:
        """By id of a present threshold: since when it stands as it is."""
        present = self.versions[-1].study.thresholds if self.versions else ()
        return {each.id: self._since(_threshold, (), each.id) for each in present}

    def system(self, memory: str, driver: str) -> Chosen:
        """Since when this system is declared, of the memory and the driver that it has now."""
        own = (f"memory {memory}", f"driver {driver}")
        return self._since(_system_as_declared, own, memory, driver)

    def _since(
        self, part: Callable[..., object], components: Collection[str], *names: str
    ) -> Chosen:
        """Since when ``part`` of the study, by its names, is what it is in the last version, with
        what every result rests on and these ``components``."""
        if not self.versions:
            return Chosen(words="", exploratory=False)
        since = self.versions[-1]
        now = part(since.study, *names)
        rests_on = (*since.study.shared_components, "scorer", "analysis", *components)
        for version in reversed(self.versions):
            if part(version.study, *names) != now:
                break
            since = version
            if version.changes_any(rests_on):
                break
        return Chosen(
            words=f"{_CHOSEN[since.finding]} (record {since.seq})",
            exploratory=since.finding in EXPLORATORY,
        )

    def dropped(self) -> tuple[DroppedThreshold, ...]:
        """Thresholds that stood and do not stand any more as they were."""
        found = []
        for before, after in pairwise(self.versions):
            for threshold in before.study.thresholds:
                if threshold in after.study.thresholds:
                    continue
                now = _threshold(after.study, threshold.id)
                how = "changed" if now else "removed"
                found.append(
                    DroppedThreshold(
                        id=threshold.id,
                        was=threshold_words(threshold),
                        now=threshold_words(now[0]) if now else "",
                        seq=after.seq,
                        finding=_CHOSEN[after.finding]
                        .replace("chosen", how)
                        .replace("set by", f"{how} by"),
                    )
                )
        return tuple(found)


def _threshold(study: TransferStudy, name: str) -> list[Threshold]:
    return [each for each in study.thresholds if each.id == name]


def _system_as_declared(study: TransferStudy, memory: str, driver: str) -> tuple[object, ...]:
    """All of ``study`` that makes a system the one it is; the model of its driver included."""
    memories = [each for each in study.memories if each.id == memory]
    drivers = [each for each in study.drivers if each.id == driver]
    models = [each for each in study.models if each.id in {one.model for one in drivers}]
    return (System(memory=memory, driver=driver) in study.systems, memories, drivers, models)


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
    versions: Sequence[Declaration[TransferStudy]],
    remediations: Remediations,
    programs: FrozenPrograms,
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
    chosen = ChosenWhen(versions)
    counts = class_counts(runs)
    declared = [(system.memory, system.driver) for system in study.systems]
    ran = [run.system for run in runs if run.system not in declared]
    systems = list(dict.fromkeys([*declared, *ran]))
    results = {
        system: _system(*system, runs, scores, chosen.system(*system), programs)
        for system in systems
    }
    waiting = {system: found.waiting for system, found in results.items()}
    return TransferResults(
        computed_from=computed_from,
        simulated=simulated,
        suite=suite.suite_id,
        suite_version=suite.version,
        reported_evidence=study.suite.reported_evidence,
        declared_basis=study.suite.declared_basis,
        systems=tuple(results.values()),
        runs=tuple(runs),
        cases=tuple(case_results(runs, scores.planned)),
        families=tuple(family_results(runs, scores.planned, suite)),
        counts=tuple(counts),
        thresholds=tuple(
            threshold_results(study.thresholds, counts, systems, chosen.thresholds(), waiting)
        ),
        dropped=chosen.dropped(),
        waivers=tuple(
            FrozenWaiver(family=family.family_id, waiver=waiver)
            for family in suite.families
            for waiver in family.waivers
        ),
        remediations=tuple(
            _remediation(name, found, scores) for name, found in remediations.remediations.items()
        ),
        models=declared_models(
            [(version.seq, version.study.models) for version in versions],
            _began(scores, versions),
        ),
        other_programs=tuple(
            programs.others[run.cell] for run in runs if run.cell in programs.others
        ),
        scorer=scorer,
        code_not_as_frozen=tuple(sorted(code_not_as_frozen)),
    )


def _began(
    scores: TransferScores, versions: Sequence[Declaration[TransferStudy]]
) -> list[tuple[str, int]]:
    """(model, record) of the last attempt of every run whose driver asks one. What a driver is does
    not change once a run has begun."""
    asked = {d.id: d.model for version in versions for d in version.study.drivers if d.model}
    runs = [(parse_cell_id(cell).agent, run) for cell, run in scores.evidence.items()]
    return [(asked[driver], run.events[0].seq) for driver, run in runs if driver in asked]


def _remediation(name: str, remediation: Remediation, scores: TransferScores) -> RemediationResult:
    changed = remediation.changed
    cells = remediation.rerun.cells if remediation.rerun else ()
    results = [scores.runs[cell].result for cell in cells if cell in scores.runs]
    steps = (
        remediation.opened_at,
        remediation.changed_at,
        remediation.rerun_at,
        remediation.ended_at,
    )
    return RemediationResult(
        remediation=name,
        cell=remediation.opened.cell,
        stage=remediation.opened.stage,
        layer=remediation.opened.layer,
        attributed=changed.attributed if changed else None,
        system=f"{changed.new_memory} + {changed.new_driver}" if changed else "",
        status=remediation.status,
        reruns=len(cells),
        ended=len(results) - results.count("void"),
        verified=results.count("verified"),
        failed=results.count("failed"),
        limitation=remediation.left,
        records=tuple(seq for seq in steps if seq >= 0),
    )


def _system(
    memory: str,
    driver: str,
    runs: Sequence[RunScore],
    scores: TransferScores,
    chosen: Chosen,
    programs: FrozenPrograms,
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
            for class_ in sorted({run.class_ for run in own})
        ),
        cannot_show=cannot_show(own),
        reported=tuple(stage for stage in own[0].stages if stage in reported) if own else (),
        identities=tuple(
            Identity(
                memory=key[0], driver=key[1], capabilities=key[2], clock_control=key[3], runs=count
            )
            for key, count in identities.items()
        ),
        chosen=chosen.words,
        exploratory=chosen.exploratory or any(run.cell in programs.others for run in own),
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
        void=results.count("void"),
        behavioural=behaved.count("success"),
        behavioural_of=len(behaved),
        behavioural_unobserved=behaved.count("unobserved"),
        behaviours=tuple(behaviours(runs)),
    )
