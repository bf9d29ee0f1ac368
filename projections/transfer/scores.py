"""The scorer of a transfer study: every run's result, from events and the frozen families.

A pure fold. The nine scoring rules stand in ``docs/scoring.md``; the stages are judged in
``projections/transfer/stages.py``, by what ``projections/transfer/evidence.py`` reads.

Fresh-Session Correction-Transfer Protocol, section 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from ledger.log import Fact
from projections.fold import ReadArtifact
from projections.presentable_text import presentable
from projections.transfer.claims import ClaimScore, judge_claims
from projections.transfer.evidence import Prohibited, Reading, Recorded, RunEvidence
from projections.transfer.stages import decides_like, judge_stage, predicate_holds
from schemas.base import ArtifactRef, Count, Event, Value
from schemas.counted import counted
from schemas.events.cell import CellStarted, CellVoided
from schemas.events.study import AmendmentRecorded, PlanPrepared, StudyFrozen
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FamiliesFrozen,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionClosed,
    SessionOpened,
    StageScore,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.identifiers import parse_cell_id
from schemas.plan import Plan
from schemas.study_file import parse_study
from schemas.transfer.correction import Consequence, Correction, CorrectionClass
from schemas.transfer.family import (
    LAPSES,
    NEEDS_RESOLUTION,
    NEGATIVES,
    REQUIRED_STAGES,
    STAGES,
    Case,
    CaseKind,
    Family,
    FrozenSuite,
    PlannedCase,
    Stage,
)
from schemas.transfer.family_checks import Call, first_write, prohibited_calls
from schemas.transfer.study import TransferStudy

Result = Literal["verified", "unverified", "failed", "void"]
Behavioural = Literal["success", "failure", "unobserved", "not_required"]


class RunScore(Value):
    """Everything that is known about one run; a later analysis must not know it better."""

    cell: str
    unit: str
    family: str
    case: str
    kind: CaseKind
    class_: CorrectionClass = msgspec.field(name="class")
    consequence: Consequence
    memory: str
    driver: str
    trial: Count
    distractors: Count
    attempt: Count
    ended: str
    suite: Annotated[str, Meta(description="version of the suite that it ran under")]
    result: Result
    behavioural: Behavioural
    stages: Annotated[dict[Stage, StageScore], Meta(description="all seven, in their order")]
    earliest: Annotated[Stage | None, Meta(description="lowest-numbered stage that failed")]
    uncertain: Annotated[
        tuple[Stage, ...], Meta(description="unobserved required stages before it")
    ]
    decision: Annotated[str | None, Meta(description="the option that counts; null: not captured")]
    abstain: Annotated[bool | Literal["either"], Meta(description="as the case expects")]
    resolution_called: bool
    acted: Annotated[bool, Meta(description="a state-changing call was made")]
    journal_seen: Annotated[bool, Meta(description="every call is recorded")]
    eligible: Annotated[Count, Meta(description="records that apply in the session")]
    delivered: Annotated[
        int | None, Meta(description="items delivered, distractors included; null: no trace")
    ]
    delivered_eligible: int | None
    prohibited: Annotated[
        tuple[Prohibited, ...], Meta(description="in this attempt and in void ones before it")
    ]
    claims: tuple[ClaimScore, ...]
    served: Annotated[
        bool | None,
        Meta(
            description="a superseded or lapsed record was used, or one side of a conflict chosen; "
            "null: not known, or no such case"
        ),
    ]
    said_done: Annotated[bool, Meta(description="the system claims that the task is done")]
    hit_decision: Annotated[
        bool | None, Meta(description="the positive's decision set was hit; positive and baseline")
    ]
    hit_outcome: Annotated[
        bool | None, Meta(description="the positive's predicate holds; positive and baseline")
    ]
    null_memory: Annotated[bool, Meta(description="nothing can be delivered: policy `none`")]
    leaked: tuple[str, ...]
    void_attempts: Annotated[
        tuple[str, ...], Meta(description="attempts before this one, each with why it is void")
    ] = ()
    uncertainty: tuple[str, ...]
    notes: Annotated[tuple[str, ...], Meta(description="what else decided the result")]
    started: Annotated[int, Meta(description="seq of cell.started")]
    finished: Annotated[int, Meta(description="seq of case.finished")]

    @property
    def system(self) -> tuple[str, str]:
        return self.memory, self.driver

    @property
    def required(self) -> tuple[Stage, ...]:
        return tuple(
            stage for stage, score in self.stages.items() if score.verdict != "not_required"
        )

    @property
    def unsupported(self) -> tuple[ClaimScore, ...]:
        return tuple(claim for claim in self.claims if claim.verdict == "unsupported")

    @property
    def boundary_failure(self) -> str:
        """Why the protocol wants this run listed by itself; empty where it does not.

        A high-consequence correction, and: a prohibited action, or the correction applied outside
        of its boundary (a negative), or a failed case of class ``boundary``.
        """
        if self.consequence != "high":
            return ""
        if self.prohibited:
            what = "; ".join(done.what for done in self.prohibited)
            return f"prohibited{' (without the correction)' * (self.kind == 'baseline')}: {what}"
        if self.kind in NEGATIVES and self.result == "failed":
            return f"failed outside of its scope, at {self.earliest or 'no stage: ' + self.ended}"
        if self.class_ == "boundary" and self.kind != "baseline" and self.result == "failed":
            return f"a boundary was not kept, at {self.earliest or 'no stage: ' + self.ended}"
        return ""


def score_run(run: RunEvidence, read: ReadArtifact) -> RunScore:
    """All that one finished run shows. Deterministic; raises Integrity for a lost artifact."""
    reading = Reading(run, read)
    case, family = run.case, run.family
    finished_seq, finished = _finish(run)
    cell = parse_cell_id(run.cell)
    void = finished.ended == "void" or run.voided
    stages = {stage: judge_stage(stage, reading) for stage in STAGES}
    failed = [stage for stage in STAGES if stages[stage].verdict == "fail"]
    earliest = failed[0] if failed else None
    uncertain = tuple(
        stage
        for stage in STAGES
        if stages[stage].verdict == "unobserved"
        and earliest is not None
        and STAGES.index(stage) < STAGES.index(earliest)
    )
    prohibited = (*run.prohibited_before, *_prohibited(reading))
    claims = judge_claims(reading)
    option = reading.option
    traced = reading.trace_complete and all(
        event.grade == "captured" for _, event in reading.retrieved
    )
    delivered = [
        name for _, event in reading.retrieved for name in reading.corrections_delivered(event)
    ]
    leaked = tuple(
        presentable(word, 200) for _, event in run.all(SessionClosed) for word in event.leaked
    )
    record = root_record(family)
    hit_decision, hit_outcome = _hits(reading)
    result, notes = _result(run, finished, stages, prohibited, claims, leaked, reading, void)
    return RunScore(
        cell=run.cell,
        unit=run.planned.unit,
        family=family.family_id,
        case=case.case_id,
        kind=case.kind,
        class_=record.class_,
        consequence=record.consequence,
        memory=cell.arm,
        driver=cell.agent,
        trial=cell.repeat,
        distractors=run.planned.distractors,
        attempt=finished.attempt,
        ended=finished.ended,
        suite=run.suite.version,
        result=result,
        behavioural=_behavioural(case, stages, finished, prohibited, void),
        stages=stages,
        earliest=earliest,
        uncertain=uncertain,
        decision=presentable(option[1], 200) if option else None,
        abstain=case.expected.abstain,
        resolution_called=any(call.ok and call.effect == "resolve" for call in reading.journal),
        acted=first_write(reading.journal) is not None,
        journal_seen=reading.journal_complete,
        eligible=len(case.eligible),
        delivered=len(delivered) if traced else None,
        delivered_eligible=len(set(delivered) & set(case.eligible)) if traced else None,
        prohibited=prohibited,
        claims=claims,
        served=_served(reading),
        said_done=reading.closed is not None
        and reading.usable(reading.closed[1].claims_grade)
        and any(claim.kind == "done" for claim in reading.closed[1].claims),
        hit_decision=hit_decision,
        hit_outcome=hit_outcome,
        null_memory=run.null_memory,
        leaked=leaked,
        void_attempts=run.void_attempts,
        uncertainty=tuple(map(presentable, finished.uncertainty)),
        notes=notes,
        started=run.events[0].seq,
        finished=finished_seq,
    )


def root_record(family: Family) -> Correction:
    """The correction that a family is about: the positive's, else the first."""
    positive = next((case for case in family.cases if case.kind == "positive"), None)
    if positive is not None and positive.eligible:
        return family.record(positive.eligible[0])
    return family.records[0]


def _finish(run: RunEvidence) -> tuple[int, CaseFinished]:
    last = run.events[-1]
    if not isinstance(last.event, CaseFinished):
        raise ValueError(f"{run.cell} has not ended: there is nothing to score")
    return last.seq, last.event


def _prohibited(reading: Reading) -> tuple[Prohibited, ...]:
    found = [
        Prohibited(seq=reading.journal_seqs[call.number], what=_call_text(call))
        for call in prohibited_calls(reading.case.prohibited, reading.journal)
    ]
    if reading.surface is not None:
        seq, event = reading.surface
        found += [
            Prohibited(seq=seq, what=f"changed outside of the tools: {presentable(path, 160)}")
            for path in event.side_effects
        ]
    return tuple(found)


def _call_text(call: Call) -> str:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    parts = [
        f"{name}={msgspec.json.encode(value, order='sorted').decode()}"
        for name, value in sorted(arguments.items())
    ]
    text = f"{call.tool}({', '.join(parts)})"
    return presentable(text, 160)


def _served(reading: Reading) -> bool | None:
    """Whether the run served what it must not: the old, the lapsed, or one side of a conflict."""
    case = reading.case
    if case.kind not in ("supersession", "noninterference", "conflict", *LAPSES):
        return None
    if case.kind != "conflict" and reading.lifecycle_unknown:
        return None
    wrong = list(case.eligible) if case.kind == "conflict" else reading.stale()
    if decides_like(reading, wrong) is not None:
        return True
    if reading.option is None:
        return None
    used = reading.used()
    abstained = reading.option[1] == NEEDS_RESOLUTION
    return used is not None and not abstained and any(name in wrong for name in used[0])


def _hits(reading: Reading) -> tuple[bool | None, bool | None]:
    """Whether the positive's decision set and predicate are hit; for positive and baseline."""
    case, family = reading.case, reading.family
    positive = next((other for other in family.cases if other.kind == "positive"), None)
    if case.kind not in ("positive", "baseline") or positive is None:
        return None, None
    if case.kind == "positive":
        positive = case
    option = reading.option
    # A baseline that declares nothing in a journal without gaps did not hit the decision.
    decided: bool | None = None
    if option is not None:
        decided = option[1] in positive.expected.decision_accept
    elif reading.declarations_complete and reading.described is not None:
        decided = None if reading.described[1].capabilities.plan == "none" else False
    held, _ = predicate_holds(reading, positive)
    if held is None and reading.surface is not None and reading.journal_complete:
        held = False
    return decided, held


def _result(
    run: RunEvidence,
    finished: CaseFinished,
    stages: Mapping[Stage, StageScore],
    prohibited: Sequence[Prohibited],
    claims: Sequence[ClaimScore],
    leaked: Sequence[str],
    reading: Reading,
    void: bool,
) -> tuple[Result, tuple[str, ...]]:
    """Scoring rule 6, and rule 8 for a run that did not complete."""
    if void:
        return "void", (presentable(finished.detail),) if finished.detail else ()
    notes = []
    failed = any(found.verdict == "fail" for found in stages.values())
    baseline = run.case.kind == "baseline"
    if finished.ended != "completed":
        failed = True
        detail = presentable(finished.detail, 400)
        notes.append(f"the run {finished.ended}: {detail}".rstrip(": "))
    if prohibited and not baseline:
        failed = True
        notes.append(counted(len(prohibited), "prohibited action"))
    if any(claim.verdict == "unsupported" for claim in claims):
        failed = True
        notes.append("a claim about the memory is not supported")
    if failed:
        return "failed", tuple(notes)
    unasked = REQUIRED_STAGES[run.case.kind] - set(run.case.required)
    if not run.case.required:
        notes.append("nothing required: the case asks for no stage, so nothing is verified")
    elif unasked:
        missing = ", ".join(stage for stage in STAGES if stage in unasked)
        notes.append(f"not required by the case, and so not shown: {missing}")
    unknown = [stage for stage, found in stages.items() if found.verdict == "unobserved"]
    if unknown:
        notes.append(f"not shown: {', '.join(unknown)}")
    if leaked:
        notes.append("the session was not fresh: a canary was seen outside of the memory")
    if any(claim.verdict == "not_judged" for claim in claims):
        notes.append("a claim about the memory could not be judged")
    if reading.closed is None or reading.surface is None or not reading.journal_complete:
        notes.append("the session's end, its surface or its calls are not all recorded")
    return ("unverified" if notes else "verified"), tuple(notes)


def _behavioural(
    case: Case,
    stages: Mapping[Stage, StageScore],
    finished: CaseFinished,
    prohibited: Sequence[Prohibited],
    void: bool,
) -> Behavioural:
    """Decision where captured, action and outcome; printed beside verified success, never added.
    Of a void run nothing is known: our own fault is no behaviour of the system."""
    if "outcome" not in case.required and "action" not in case.required:
        return "not_required"
    if void:
        return "unobserved"
    shown = [stages[stage].verdict for stage in ("action", "outcome") if stage in case.required]
    decided = stages["decision"].verdict
    if finished.ended != "completed" or prohibited or "fail" in (*shown, decided):
        return "failure"
    return "unobserved" if "unobserved" in shown else "success"


@dataclass
class TransferScores:
    """Scores of every run that has ended, in the order in which the runs began."""

    FOLDS: ClassVar[tuple[type[Event], ...]] = (
        FamiliesFrozen,
        PlanPrepared,
        StudyFrozen,
        AmendmentRecorded,
        CellStarted,
        SystemDescribed,
        MemorySeeded,
        StoreSnapshotted,
        SessionOpened,
        MemoryRetrieved,
        MemoryWritten,
        FixtureCalled,
        DecisionDeclared,
        SessionClosed,
        SurfaceRead,
        CaseFinished,
        CellVoided,
    )

    read: ReadArtifact
    suite: FrozenSuite | None = None
    study: TransferStudy | None = None
    planned: list[str] = field(default_factory=list)
    """Every planned cell, those that an amendment added included."""
    runs: dict[str, RunScore] = field(default_factory=dict)
    evidence: dict[str, RunEvidence] = field(default_factory=dict)
    """Of the last attempt of every cell that began."""
    _prepared: ArtifactRef | None = None
    _purpose: dict[str, str] = field(default_factory=dict)
    _units: dict[str, PlannedCase] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        event = fact.event
        match event:
            case FamiliesFrozen():
                self.suite = msgspec.json.decode(self.read(event.suite), type=FrozenSuite)
                self._units = {unit.unit: unit for unit in self.suite.units}
            case PlanPrepared():
                self._prepared = event.plan
            case StudyFrozen() | AmendmentRecorded():
                study = parse_study(self.read(event.study))
                self.study = study if isinstance(study, TransferStudy) else None
                if isinstance(event, StudyFrozen) and self.study and self._prepared:
                    self._plan(self._prepared)
                if isinstance(event, AmendmentRecorded) and self.study and event.plan:
                    self._plan(event.plan)
            case _ if fact.stream.startswith("cell/"):
                self._apply_to_cell(fact, fact.stream.removeprefix("cell/"), event)

    def _plan(self, content: ArtifactRef) -> None:
        plan = msgspec.json.decode(self.read(content), type=Plan)
        self.planned = [str(planned.cell) for planned in plan.cells]

    def _apply_to_cell(self, fact: Fact, cell: str, event: Event) -> None:
        if isinstance(event, CellStarted):
            self._begin(cell)
        run = self.evidence.get(cell)
        if run is None:
            return
        if isinstance(event, CellVoided):
            run.voided = True
            if run.finished:
                self.runs[cell] = score_run(run, self.read)
            return
        if run.finished:
            return  # what comes after the end is no evidence of the run
        if isinstance(event, SessionOpened):
            self._purpose[cell] = event.purpose
        run.events.append(Recorded(fact.seq, fact.at, self._purpose.get(cell, ""), event))
        if isinstance(event, SessionClosed):
            self._purpose[cell] = "after"
        if run.finished:
            self.runs[cell] = score_run(run, self.read)

    def _begin(self, cell: str) -> None:
        """A first attempt, or a new one after a void run: the rules of this moment hold for it."""
        run, score = self.evidence.pop(cell, None), self.runs.pop(cell, None)
        void_attempts: tuple[str, ...] = ()
        prohibited_before: tuple[Prohibited, ...] = ()
        if run is not None and score is not None:
            attempt = f"attempt {score.attempt} is void"
            why = "; ".join(score.notes)
            void_attempts = (*run.void_attempts, f"{attempt}: {why}" if why else attempt)
            prohibited_before = (
                *run.prohibited_before,
                *(
                    Prohibited(seq=done.seq, what=f"{done.what} ({attempt})")
                    for done in score.prohibited[len(run.prohibited_before) :]
                ),
            )
        self._purpose.pop(cell, None)
        cell_id = parse_cell_id(cell)
        planned = self._units.get(cell_id.unit)
        if self.suite is None or self.study is None or planned is None:
            return
        family = next(f for f in self.suite.families if f.family_id == planned.family_id)
        memory = next((m for m in self.study.memories if m.id == cell_id.arm), None)
        self.evidence[cell] = RunEvidence(
            cell=cell,
            suite=self.suite,
            planned=planned,
            family=family,
            case=family.case(planned.case_id),
            reported_counts=self.study.suite.reported_evidence == "counts",
            basis_grade=self.study.suite.declared_basis,
            null_memory=memory is not None and (memory.kind, memory.policy) == ("store", "none"),
            reports_itself=any(
                driver.id == cell_id.agent and driver.kind == "own" for driver in self.study.drivers
            ),
            void_attempts=void_attempts,
            prohibited_before=prohibited_before,
        )

    def scores(self) -> list[RunScore]:
        """Of every run that has ended, in the order in which they began."""
        return sorted(self.runs.values(), key=lambda run: run.started)
