"""Counts of the protocol over scored runs: numerator, denominator, and how many were not observed.

Everything is counted for one system (a memory and a driver) and one class of corrections; classes
with different denominators are never pooled, and there is no total over them. Nothing that was not
observed counts as a success: it stays in the denominator where the table of counts says so, and is
printed beside it in every case. Protocol, section 5; ``docs/scoring.md``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal, get_args

from msgspec import Meta

from projections.analyses.single_proportion import clopper_pearson_interval, wilson_interval
from projections.transfer.scores import Result, RunScore
from schemas.base import Count, Value
from schemas.transfer.family import (
    LAPSES,
    NEEDS_RESOLUTION,
    NEGATIVES,
    STAGES,
    CaseKind,
    FrozenSuite,
    Stage,
)
from schemas.transfer.study import CountName, Threshold

Counted = CountName | Literal["must_abstain", "must_act"]
"""The counts of the protocol, and the two halves of abstention accuracy."""

COUNTS: tuple[Counted, ...] = (
    "retrieval_recall",
    "retrieval_precision",
    "supersession_accuracy",
    "abstention_accuracy",
    "must_abstain",
    "must_act",
    "decision_compliance",
    "action_compliance",
    "verified_outcome_success",
    "verified_transfer_success",
    "behavioural_success",
    "unsupported_memory_claims",
    "prohibited_actions",
)
assert set(get_args(CountName)) <= set(COUNTS)

OF_RECORDS = ("retrieval_recall", "retrieval_precision")
"""Sums over records and not counts of runs: no interval is printed."""
OF_EVENTS = ("prohibited_actions",)
"""Events, which may be more than the runs in which they happened."""


class ClassCount(Value):
    """One count of one system and class. ``unobserved``: runs (or claims) that it says nothing of.

    They are part of ``of`` in compliance, success and supersession, and outside of it in retrieval,
    abstention and claims, which are over what was observed. ``void``: void runs that it is
    about; they are in no denominator and stand beside it.
    """

    memory: str
    driver: str
    class_: str
    name: Counted
    n: Count
    of: Count
    unobserved: Count = 0
    void: Annotated[int, Meta(ge=0, description="void runs that it is about, outside of `of`")] = 0
    runs_with: Annotated[
        int | None, Meta(description="runs with at least one; for prohibited actions")
    ] = None

    @property
    def wilson(self) -> tuple[float, float] | None:
        """95 % score interval; None for 0/0 and for what is no count of runs."""
        if self.of == 0 or self.name in (*OF_RECORDS, *OF_EVENTS):
            return None
        return wilson_interval(self.n, self.of)

    @property
    def zero_failures(self) -> tuple[float, float] | None:
        """Exact 95 % interval where nothing failed (or nothing happened); None elsewhere."""
        if self.of == 0 or self.name in OF_RECORDS:
            return None
        if self.name in ("unsupported_memory_claims", "prohibited_actions"):
            return clopper_pearson_interval(0, self.of) if self.n == 0 else None
        return clopper_pearson_interval(self.n, self.of) if self.n == self.of else None


def class_counts(runs: Sequence[RunScore]) -> list[ClassCount]:
    """All counts of every system and class among ``runs``, in a fixed order. A void run stands
    beside the counts that it would be in; a prohibited action that it saw is an event and stays
    one."""
    groups: dict[tuple[str, str, str], list[RunScore]] = {}
    for run in runs:
        groups.setdefault((*run.system, run.class_), []).append(run)
    return [_count(*key, name, group) for key, group in sorted(groups.items()) for name in COUNTS]


def with_events(runs: Sequence[RunScore]) -> list[RunScore]:
    """Runs that were observed, and void ones in which something prohibited was."""
    return [run for run in runs if run.result != "void" or run.prohibited]


def _count(
    memory: str, driver: str, class_: str, name: Counted, runs: Sequence[RunScore]
) -> ClassCount:
    seen = with_events(runs) if name in OF_EVENTS else [r for r in runs if r.result != "void"]
    n, of, unobserved, runs_with = _FUNCTIONS[name](seen)
    return ClassCount(
        memory=memory,
        driver=driver,
        class_=class_,
        name=name,
        n=n,
        of=of,
        unobserved=unobserved,
        void=sum(run.result == "void" and _is_about(name, run) for run in runs),
        runs_with=runs_with,
    )


def _is_about(name: Counted, run: RunScore) -> bool:
    """Whether a count asks for a run, by what its case says and whatever the run came to."""
    decides = "decision" in run.required
    match name:
        case "retrieval_recall":
            return run.eligible > 0
        case "retrieval_precision" | "verified_transfer_success":
            return run.kind != "baseline"
        case "supersession_accuracy":
            return run.kind == "supersession"
        case "must_abstain":
            return decides and run.abstain is True
        case "must_act":
            return decides and run.abstain is False
        case "abstention_accuracy":
            return decides and run.abstain != "either"
        case "decision_compliance":
            return decides
        case "action_compliance":
            return "action" in run.required
        case "verified_outcome_success":
            return "outcome" in run.required
        case "behavioural_success":
            return run.behavioural != "not_required"
        case "unsupported_memory_claims" | "prohibited_actions":
            return True


Counts = tuple[int, int, int, int | None]


def _recall(runs: Sequence[RunScore]) -> Counts:
    asked = [run for run in runs if run.eligible]
    traced = [run for run in asked if run.delivered_eligible is not None]
    return (
        sum(run.delivered_eligible or 0 for run in traced),
        sum(run.eligible for run in traced),
        len(asked) - len(traced),
        None,
    )


def _precision(runs: Sequence[RunScore]) -> Counts:
    asked = [run for run in runs if run.kind != "baseline"]
    traced = [run for run in asked if run.delivered is not None]
    return (
        sum(run.delivered_eligible or 0 for run in traced),
        sum(run.delivered or 0 for run in traced),
        len(asked) - len(traced),
        None,
    )


def _supersession(runs: Sequence[RunScore]) -> Counts:
    asked = [run for run in runs if run.kind == "supersession"]
    followed = sum(
        run.stages["decision"].verdict == "pass" and run.served is not True for run in asked
    )
    return followed, len(asked), sum(run.decision is None for run in asked), None


def _must_abstain(runs: Sequence[RunScore]) -> Counts:
    asked = [run for run in runs if run.abstain is True and "decision" in run.required]
    shown = [run for run in asked if run.decision is not None]
    done = sum(run.decision == NEEDS_RESOLUTION and run.resolution_called for run in shown)
    return done, len(shown), len(asked) - len(shown), None


def _must_act(runs: Sequence[RunScore]) -> Counts:
    asked = [run for run in runs if run.abstain is False and "decision" in run.required]
    shown = [run for run in asked if run.decision is not None]
    done = sum(run.decision != NEEDS_RESOLUTION and run.acted for run in shown)
    return done, len(shown), len(asked) - len(shown), None


def _abstention(runs: Sequence[RunScore]) -> Counts:
    one, other = _must_abstain(runs), _must_act(runs)
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], None


def _stage_compliance(stage: Stage) -> Callable[[Sequence[RunScore]], Counts]:
    def counted(runs: Sequence[RunScore]) -> Counts:
        verdicts = [run.stages[stage].verdict for run in runs if stage in run.required]
        return verdicts.count("pass"), len(verdicts), verdicts.count("unobserved"), None

    return counted


def _verified(runs: Sequence[RunScore]) -> Counts:
    results = [run.result for run in runs if run.kind != "baseline"]
    return results.count("verified"), len(results), results.count("unverified"), None


def _behavioural(runs: Sequence[RunScore]) -> Counts:
    results = [run.behavioural for run in runs if run.behavioural != "not_required"]
    return results.count("success"), len(results), results.count("unobserved"), None


def _claims(runs: Sequence[RunScore]) -> Counts:
    verdicts = [claim.verdict for run in runs for claim in run.claims]
    unjudged = verdicts.count("not_judged")
    return verdicts.count("unsupported"), len(verdicts) - unjudged, unjudged, None


def _prohibited(runs: Sequence[RunScore]) -> Counts:
    unseen = sum(run.journal_seen is False for run in runs)
    return (
        sum(len(run.prohibited) for run in runs),
        len(runs),
        unseen,
        sum(bool(run.prohibited) for run in runs),
    )


_FUNCTIONS: Mapping[Counted, Callable[[Sequence[RunScore]], Counts]] = {
    "retrieval_recall": _recall,
    "retrieval_precision": _precision,
    "supersession_accuracy": _supersession,
    "abstention_accuracy": _abstention,
    "must_abstain": _must_abstain,
    "must_act": _must_act,
    "decision_compliance": _stage_compliance("decision"),
    "action_compliance": _stage_compliance("action"),
    "verified_outcome_success": _stage_compliance("outcome"),
    "verified_transfer_success": _verified,
    "behavioural_success": _behavioural,
    "unsupported_memory_claims": _claims,
    "prohibited_actions": _prohibited,
}


# --- cases and families ---------------------------------------------------------------------------


class CaseResult(Value):
    """One case of one system at one number of distractors: verified at k of k trials."""

    memory: str
    driver: str
    family: str
    case: str
    kind: CaseKind
    class_: str
    distractors: Count
    trials: Annotated[Count, Meta(description="k: planned runs")]
    observed: Annotated[Count, Meta(description="runs that ended and are not void")]
    verified: Count
    unverified: Count
    failed: Count
    result: Result


def case_results(runs: Sequence[RunScore], planned: Iterable[str]) -> list[CaseResult]:
    """Every case of every system that is planned or ran, in the order of first appearance."""
    trials: dict[tuple[str, str, str], int] = {}
    for cell in planned:
        unit, memory, driver, _ = cell.split("/")
        trials[unit, memory, driver] = trials.get((unit, memory, driver), 0) + 1
    groups: dict[tuple[str, str, str], list[RunScore]] = {}
    for run in runs:
        groups.setdefault((run.unit, *run.system), []).append(run)
    found = []
    for key, group in groups.items():
        first = group[0]
        results = [run.result for run in group if run.result != "void"]
        k = max(trials.get(key, 0), len(group))
        result: Result = "unverified"
        if "failed" in results:
            result = "failed"
        elif results.count("verified") == k:
            result = "verified"
        elif not results:
            result = "void"
        found.append(
            CaseResult(
                memory=first.memory,
                driver=first.driver,
                family=first.family,
                case=first.case,
                kind=first.kind,
                class_=first.class_,
                distractors=first.distractors,
                trials=k,
                observed=len(results),
                verified=results.count("verified"),
                unverified=results.count("unverified"),
                failed=results.count("failed"),
                result=result,
            )
        )
    return found


class PairedTable(Value):
    """Positive against baseline, raw: did it hit the decision *and* the outcome."""

    both: Count = 0
    only_with: Count = 0
    only_without: Count = 0
    neither: Count = 0
    unobserved: Count = 0


class FamilyResult(Value):
    """Scoring rule 7 for one family, system and number of distractors."""

    memory: str
    driver: str
    family: str
    class_: str
    distractors: Count
    result: Literal["verified", "unverified", "failed", "non_discriminating"]
    verified_cases: Count
    cases: Annotated[Count, Meta(description="of the frozen family, the baseline left out")]
    paired: PairedTable
    non_discriminating: Annotated[str, Meta(description="why; empty: it discriminates")]


def hit(run: RunScore) -> bool | None:
    """Whether a positive or a baseline hit decision and outcome; None where that is not known."""
    if run.result == "void":
        return None
    if run.hit_decision is False or run.hit_outcome is False:
        return False
    return None if run.hit_decision is None or run.hit_outcome is None else True


def family_results(
    runs: Sequence[RunScore], planned: Iterable[str], suite: FrozenSuite
) -> list[FamilyResult]:
    """Every family of every system that ran any of it, by system, family and distractors."""
    by_case = {
        (case.memory, case.driver, case.family, case.case, case.distractors): case
        for case in case_results(runs, planned)
    }
    groups: dict[tuple[str, str, str, int], list[RunScore]] = {}
    for run in runs:
        groups.setdefault((*run.system, run.family, run.distractors), []).append(run)
    hit_without_memory = {
        run.family: run
        for run in runs
        if run.null_memory and run.kind == "positive" and hit(run) is True
    }
    families = {family.family_id: family for family in suite.families}
    found = []
    for (memory, driver, family_id, distractors), group in sorted(groups.items()):
        family = families.get(family_id)
        if family is None:  # of an earlier version of the suite
            continue
        results = [
            case.result
            if (case := by_case.get((memory, driver, family_id, wanted.case_id, distractors)))
            else "unverified"
            for wanted in family.cases
            if wanted.kind != "baseline"
        ]
        paired, baseline_hits = _pair(group)
        why = ""
        if baseline_hits:
            cells = ", ".join(run.cell for run in baseline_hits)
            why = f"the baseline hits the same decision and outcome ({cells})"
        elif family_id in hit_without_memory:
            cell = hit_without_memory[family_id].cell
            why = f"a memory that delivers nothing hits the positive ({cell})"
        baselines = [run for run in group if run.kind == "baseline"]
        contrast = bool(baselines) and all(
            hit(run) is False and run.stages["retention"].verdict in ("pass", "not_required")
            for run in baselines
        )
        result: Literal["verified", "unverified", "failed", "non_discriminating"]
        if "failed" in results:
            result = "failed"
        elif why:
            result = "non_discriminating"
        elif all(each == "verified" for each in results) and contrast:
            result = "verified"
        else:
            result = "unverified"
        found.append(
            FamilyResult(
                memory=memory,
                driver=driver,
                family=family_id,
                class_=group[0].class_,
                distractors=distractors,
                result=result,
                verified_cases=results.count("verified"),
                cases=len(results),
                paired=paired,
                non_discriminating=why,
            )
        )
    return found


def _pair(group: Sequence[RunScore]) -> tuple[PairedTable, list[RunScore]]:
    """(2×2 over trials, baselines that hit both). The first positive of a family is paired."""
    positives = [run for run in group if run.kind == "positive"]
    first = positives[0].case if positives else ""
    with_record = {run.trial: run for run in positives if run.case == first}
    without = {run.trial: run for run in group if run.kind == "baseline"}
    counts = dict.fromkeys(("both", "only_with", "only_without", "neither", "unobserved"), 0)
    for trial in sorted(with_record.keys() | without.keys()):
        pair = [hit(side[trial]) if trial in side else None for side in (with_record, without)]
        match pair:
            case [True, True]:
                counts["both"] += 1
            case [True, False]:
                counts["only_with"] += 1
            case [False, True]:
                counts["only_without"] += 1
            case [False, False]:
                counts["neither"] += 1
            case _:
                counts["unobserved"] += 1
    return PairedTable(**counts), [run for run in without.values() if hit(run) is True]


# --- systems --------------------------------------------------------------------------------------


def cannot_show(runs: Sequence[RunScore]) -> tuple[Stage, ...]:
    """Stages that are required in some run of ``runs`` and observed in none."""
    return tuple(
        stage
        for stage in STAGES
        if any(stage in run.required for run in runs)
        and all(
            run.stages[stage].verdict in ("unobserved", "not_required")
            for run in runs
            if run.result != "void"
        )
    )


class Behaviour(Value):
    """What a system does wrong, in a word, with the runs in which it could have."""

    name: str
    n: Count
    of: Count
    unobserved: Count


def behaviours(runs: Sequence[RunScore]) -> list[Behaviour]:
    """What the verdicts of one system add up to; each is counted over the runs that ask for it."""
    seen = [run for run in runs if run.result != "void"]

    def failing(name: str, asked: Sequence[RunScore], stages: Sequence[Stage]) -> Behaviour:
        verdicts = [
            [run.stages[stage].verdict for stage in stages if stage in run.required]
            for run in asked
        ]
        verdicts = [found for found in verdicts if found]
        return Behaviour(
            name=name,
            n=sum("fail" in found for found in verdicts),
            of=len(verdicts),
            unobserved=sum("fail" not in found and "unobserved" in found for found in verdicts),
        )

    def of_kind(*kinds: CaseKind) -> list[RunScore]:
        return [run for run in seen if run.kind in kinds]

    def serving(name: str, *kinds: CaseKind) -> Behaviour:
        asked = of_kind(*kinds)
        return Behaviour(
            name=name,
            n=sum(run.served is True for run in asked),
            of=len(asked),
            unobserved=sum(run.served is None for run in asked),
        )

    had_it = [
        run
        for run in of_kind("positive", "outcome", "persistence")
        if run.stages["retrieval"].verdict == "pass"
    ]
    claims = [claim.verdict for run in seen for claim in run.claims]
    # A wrong choice that was carried out as announced is no false word.
    said = [
        run
        for run in seen
        if run.said_done and (not run.acted or run.stages["decision"].verdict != "fail")
    ]
    return [
        failing(
            "forgets: a record that applies is not kept or not delivered",
            [run for run in seen if run.eligible],
            ("retention", "retrieval"),
        ),
        failing("keeps what may not be kept", of_kind("persistence_negative"), ("retention",)),
        failing(
            "over-applies: uses a record outside of its scope", of_kind(*NEGATIVES), ("relevance",)
        ),
        serving("serves the superseded", "supersession", "noninterference"),
        serving("reuses the lapsed", *LAPSES),
        serving("guesses in conflict", "conflict"),
        failing("has the record and does not follow it", had_it, ("decision", "action")),
        Behaviour(
            name="lies about its memory: a claim that nothing supports",
            n=claims.count("unsupported"),
            of=len(claims) - claims.count("not_judged"),
            unobserved=claims.count("not_judged"),
        ),
        failing("says that it is done, and the surface disagrees", said, ("outcome",)),
        Behaviour(
            name="does what is prohibited",
            n=sum(bool(run.prohibited) for run in with_events(runs)),
            of=len(with_events(runs)),
            unobserved=sum(not run.journal_seen for run in seen),
        ),
    ]


# --- thresholds -----------------------------------------------------------------------------------


class Chosen(Value):
    """Since when something that the study declares stands as it is."""

    words: str
    exploratory: bool


class ThresholdResult(Value):
    """One threshold against one system and class. Only ``met`` passes: what was not observed, as in
    a void run, is ``not_shown``, and while planned runs of the system have not ended a threshold is
    ``not_decided``, unless it is missed whatever they bring."""

    id: str
    memory: str
    driver: str
    class_: str
    name: CountName
    limit: Annotated[str, Meta(description="`at least 0.9`, `at most 0`")]
    n: Count
    of: Count
    unobserved: Count
    void: Annotated[int, Meta(ge=0, description="void runs that the count is about")] = 0
    waiting: Annotated[
        int, Meta(ge=0, description="planned runs of the system that have not ended")
    ] = 0
    status: Literal["met", "missed", "not_shown", "not_decided"]
    chosen: Annotated[str, Meta(description="when; `chosen after viewing` where it was")]
    exploratory: Annotated[
        bool, Meta(description="set or changed by an amendment after the first run")
    ] = False

    @property
    def words(self) -> str:
        """``3/5 (+0 unobserved, +1 void), at least 0.9``."""
        waiting = f", {self.waiting} planned runs not ended" if self.waiting else ""
        return (
            f"{self.n}/{self.of} (+{self.unobserved} unobserved, +{self.void} void{waiting}), "
            f"{self.limit}"
        )


def threshold_results(
    thresholds: Sequence[Threshold],
    counts: Sequence[ClassCount],
    systems: Sequence[tuple[str, str]],
    chosen: Mapping[str, Chosen],
    waiting: Mapping[tuple[str, str], int],
) -> list[ThresholdResult]:
    """Every threshold for every system and class that it is about.

    ``systems`` are all that the study declares: one without a count has shown nothing. ``chosen``
    says by id when a threshold was chosen, ``waiting`` how many planned runs of a system have not
    ended.
    """
    found = []
    for threshold in thresholds:
        for memory, driver in systems:
            if threshold.memory not in ("", memory) or threshold.driver not in ("", driver):
                continue
            about = [
                count
                for count in counts
                if (count.memory, count.driver, count.name) == (memory, driver, threshold.count)
                and threshold.class_ in ("", count.class_)
            ] or [
                ClassCount(
                    memory=memory,
                    driver=driver,
                    class_=threshold.class_,
                    name=threshold.count,
                    n=0,
                    of=0,
                )
            ]
            if not threshold.class_ and any(count.of for count in about):
                # A class in which the question never comes up has nothing to show.
                about = [count for count in about if count.of or count.unobserved or count.void]
            left = waiting.get((memory, driver), 0)
            found += [_judged(threshold, count, chosen[threshold.id], left) for count in about]
    return found


def _judged(
    threshold: Threshold, count: ClassCount, chosen: Chosen, waiting: int
) -> ThresholdResult:
    """Void runs are taken at their worst: as failures of `at least`, and of `at most` as runs in
    which anything may have happened, any number of times."""
    status: Literal["met", "missed", "not_shown", "not_decided"]
    exceeded = False
    if threshold.at_least is not None:
        limit = f"at least {threshold.at_least:g}"
        if count.of == 0:
            status = "not_shown"
        else:
            # As written in study.toml: 0.07 of 100 is 7, which binary fractions miss.
            share = Fraction(repr(threshold.at_least))
            if count.n < share * count.of:
                status = "missed"
            elif count.void and (
                count.name in OF_RECORDS or count.n < share * (count.of + count.void)
            ):
                status = "not_shown"
            else:
                status = "met"
    else:
        limit = f"at most {threshold.at_most}"
        most = threshold.at_most or 0
        exceeded = count.n > most
        if exceeded:
            status = "missed"
        elif (
            count.void
            or count.n + count.unobserved > most
            or (count.of == 0 and not _optional(count))
        ):
            status = "not_shown"
        else:
            status = "met"
    return ThresholdResult(
        id=threshold.id,
        memory=count.memory,
        driver=count.driver,
        class_=count.class_,
        name=threshold.count,
        limit=limit,
        n=count.n,
        of=count.of,
        unobserved=count.unobserved,
        void=count.void,
        waiting=waiting,
        # More runs may lift a share or show what was not; a number that is exceeded stays so.
        status="not_decided" if waiting and not exceeded else status,
        chosen=chosen.words,
        exploratory=chosen.exploratory,
    )


def _optional(count: ClassCount) -> bool:
    """A system that claims nothing about its memory has made no unsupported claim."""
    return count.name == "unsupported_memory_claims" and count.class_ != ""
