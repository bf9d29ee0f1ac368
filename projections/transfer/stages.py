"""The seven stages of a run, each judged by its own evidence.

One function a stage; the table that they follow stands in ``docs/scoring.md``. ``unobserved`` is a
value of its own: no rule turns it into ``pass``, and taking evidence away never makes a verdict
better. What was not done is judged only where a count beside the records (calls in the journal,
retrievals of a session) says that all of them are there.

Fresh-Session Correction-Transfer Protocol, section 4.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from projections.presentable_text import presentable
from projections.transfer.evidence import MAX_SHARED_WORDS, Reading
from schemas.events.transfer import DecisionDeclared, StageScore, StoreSnapshotted
from schemas.transfer.family import LAPSES, NEEDS_RESOLUTION, Case, Grade, Stage
from schemas.transfer.family_checks import (
    Decision,
    Observed,
    all_hold,
    expected_calls,
    prohibited_calls,
)

CLOCK_STAGES: tuple[Stage, ...] = ("retrieval", "relevance", "resolution")
"""Stages of a memory that depend on which time it believes."""


def score(verdict: Any, grade: Grade, evidence: Iterable[int], why: str) -> StageScore:
    seqs = tuple(dict.fromkeys(evidence))
    return StageScore(verdict=verdict, grade=grade, evidence=seqs, why=why)


def unobserved(why: str, evidence: Iterable[int] = ()) -> StageScore:
    return score("unobserved", "none", evidence, why)


def retention(reading: Reading) -> StageScore:
    """Stage 1: is the eligible record in the snapshot that the session starts from, intact; or
    absent where it must be."""
    case = reading.case
    before = reading.snapshots()
    if not before:
        return unobserved("no snapshot of the store lies between seeding and the session")
    if case.absent:
        return _retention_absent(reading, before)
    if reading.seeded is None and case.store:
        return unobserved("nothing says what was seeded")
    seq, snapshot = before[-1]
    items = reading.items(snapshot)
    if items is None or not reading.usable(snapshot.grade):
        if case.write_session and (change := _unchanged_by_teaching(reading)):
            return score("fail", "captured", change, "teaching did not change the store")
        return unobserved("the store cannot be read", [seq])
    evidence = [seq] if reading.seeded is None else [reading.seeded[0], seq]
    for name in case.eligible or case.store:
        if not any(reading.holds(name, item.text) for item in items):
            if name not in reading.renderings and case.write_session:
                if change := _unchanged_by_teaching(reading):
                    return score("fail", "captured", change, "teaching did not change the store")
                return unobserved(
                    f"{name}: the store changed, and whether its meaning is intact cannot be told",
                    [seq],
                )
            altered = any(reading.correction_of.get(item.id) == name for item in items)
            how = "is in the store, but not as it was written" if altered else "is not in the store"
            return score("fail", snapshot.grade, evidence, f"{name} {how}")
    names = ", ".join(case.eligible or case.store)
    return score("pass", snapshot.grade, evidence, f"{names} in the store, intact")


def _retention_absent(
    reading: Reading, before: Sequence[tuple[int, StoreSnapshotted]]
) -> StageScore:
    case = reading.case
    teaching = case.write_session
    names = teaching.teaches if teaching else [r.correction_id for r in reading.family.records]
    looked_at = reading.snapshots(after=True) if teaching else before
    for seq, snapshot in looked_at:
        items = (reading.items(snapshot) or ()) if reading.usable(snapshot.grade) else ()
        # A record that was cut in pieces is found in the items one after the other.
        texts = [item.text for item in items] + [item.id for item in items]
        for name in names:
            if any(reading.mentions(name, text) for text in (*texts, " ".join(texts))):
                return score(
                    "fail", snapshot.grade, [seq], f"{name} is in the store ({snapshot.when})"
                )
    seqs = [seq for seq, _ in looked_at]
    if teaching:
        unknown = _cannot_be_told_apart(reading, names, looked_at)
        if unknown:
            return unobserved(unknown, seqs)
    if any(
        reading.items(snapshot) is None or not reading.usable(snapshot.grade)
        for _, snapshot in looked_at
    ):
        return unobserved("the store cannot be read", seqs)
    grade: Grade = "captured"
    if any(snapshot.grade == "reported" for _, snapshot in looked_at):
        grade = "reported"
    return score("pass", grade, seqs, f"nothing of {', '.join(names)} is in the store")


def _cannot_be_told_apart(
    reading: Reading, names: Sequence[str], after: Sequence[tuple[int, StoreSnapshotted]]
) -> str:
    """Why it is not known that nothing of what was taught was kept; empty where it is. A store that
    did not change kept nothing. Of one that did, nothing may lie in it that is not shown, and every
    new item must be about something else."""
    if [snapshot.when for _, snapshot in after] != [
        "after_write",
        "before_session",
        "after_session",
    ]:
        return "the store was not read after teaching, before the session and after it"
    before = [
        event
        for _, event in reading.run.all(StoreSnapshotted)
        if event.when == "before_write" and reading.usable(event.grade)
    ]
    if not before:
        return "the store before teaching was not read"
    known = reading.items(before[-1])
    for _, snapshot in after:
        if not reading.usable(snapshot.grade):
            return "the store cannot be read"
        if snapshot.digest and snapshot.digest == before[-1].digest:
            continue
        if not snapshot.whole:
            return f"the store changed ({snapshot.when}), and not all that lies in it is shown"
        items = reading.items(snapshot)
        if items is None or known is None:
            return "the store changed, and its items cannot be read"
        new = [f"{item.id} {item.text}" for item in items if item not in known]
        for name in names:
            shared = sorted(reading.shared_words(name, " ".join(new)))
            if len(shared) > MAX_SHARED_WORDS:
                return (
                    f"the store changed ({snapshot.when}), and whether its new items say {name} "
                    f"in other words cannot be told: they share {', '.join(shared[:5])}"
                )
    return ""


def _unchanged_by_teaching(reading: Reading) -> tuple[int, int] | None:
    """(seq before, seq after) where both digests were captured and are the same."""
    found = {event.when: (seq, event) for seq, event in reading.run.all(StoreSnapshotted)}
    before, after = found.get("before_write"), found.get("after_write")
    if before is None or after is None:
        return None
    if not before[1].digest or before[1].digest != after[1].digest:
        return None
    if (before[1].grade, after[1].grade) != ("captured", "captured"):
        return None
    return before[0], after[0]


def retrieval(reading: Reading) -> StageScore:
    """Stage 2: was every applicable record delivered to the model."""
    if not reading.trace_shown:
        return unobserved("the system shows no trace of what it delivers")
    applicable = reading.case.eligible
    if not applicable:
        return unobserved("no record applies: there is nothing to deliver")
    usable = [(seq, event) for seq, event in reading.retrieved if reading.usable(event.grade)]
    delivered: dict[str, tuple[int, Grade]] = {}
    for seq, event in usable:
        for name in reading.corrections_delivered(event):
            if name not in delivered or event.grade == "captured":
                delivered[name] = seq, event.grade
    missing = [name for name in applicable if name not in delivered]
    if not missing:
        found = [delivered[name] for name in applicable]
        grade: Grade = "reported" if any(word == "reported" for _, word in found) else "captured"
        return score("pass", grade, (seq for seq, _ in found), f"{', '.join(applicable)} delivered")
    whole = reading.trace_complete and reading.usable(reading.silence)
    if not whole or len(usable) < len(reading.retrieved) or not reading.closed:
        return unobserved(
            f"{', '.join(missing)} not seen, and not every delivery is recorded at our boundary",
            (seq for seq, _ in reading.retrieved),
        )
    grades = {reading.silence, *(event.grade for _, event in usable)}
    grade = "reported" if "reported" in grades else "captured"
    return score(
        "fail",
        grade,
        (*(seq for seq, _ in usable), reading.closed[0]),
        f"{', '.join(missing)} was not delivered",
    )


def relevance(reading: Reading) -> StageScore:
    """Stage 3: were only records admitted whose scope covers the session; for negatives: was the
    record excluded. A record that was superseded or has lapsed within its scope is a matter of
    resolution. Behaviour may prove `fail` only."""
    case = reading.case
    excluded = [name for name in case.store if name not in case.eligible]

    def wrong(name: str) -> bool:
        return name in excluded if case.excluded else not reading.in_scope(name)

    for seq, event in reading.retrieved:
        admitted = reading.corrections_admitted(event) if reading.usable(event.grade) else None
        for name in admitted or ():
            if reading.trace_shown and wrong(name):
                what = name or "an unrelated record"
                return score("fail", event.grade, [seq], f"{what} was admitted")
    delivered = {
        name for _, event in reading.retrieved for name in reading.corrections_delivered(event)
    }
    whole = reading.admitted()
    harmful = decides_like(reading, [name for name in case.store if wrong(name)])
    if whole is not None and not (harmful and whole[1] == "reported"):
        names, grade, evidence = whole
        if case.excluded:
            return score("pass", grade, evidence, f"{', '.join(excluded)} was not admitted")
        left_out = [name for name in case.eligible if name in delivered and name not in names]
        if left_out:
            return score(
                "fail", grade, evidence, f"{', '.join(left_out)} applies and was not admitted"
            )
        if any(name in case.eligible for name in names):
            return score("pass", grade, evidence, "only records in scope were admitted")
    elif (
        case.excluded
        and reading.trace_complete
        and reading.closed is not None
        and reading.silence == "captured"
        and all(event.grade == "captured" for _, event in reading.retrieved)
        and not delivered & set(excluded)
    ):
        evidence = (*(seq for seq, _ in reading.retrieved), reading.closed[0])
        return score("pass", "captured", evidence, f"{', '.join(excluded)} was never delivered")
    trace = reading.described[1].capabilities.trace if reading.described else "none"
    gaps = trace != "none" and not reading.trace_complete
    hidden = trace in ("admitted", "used") and whole is None
    cited = None if gaps or hidden else reading.used()
    if cited is not None:
        names, grade, evidence = cited
        for name in names:
            if wrong(name):
                return score(
                    "fail", grade, evidence, f"the decision rests on {name or 'another record'}"
                )
        stated = case.excluded or any(name in case.eligible for name in names)
        if stated and harmful is None:
            return score("pass", grade, evidence, "the decision rests on records in scope alone")
    if harmful is not None:
        return harmful
    if whole is not None:
        return unobserved("nothing was delivered, so nothing had to be filtered", whole[2])
    return unobserved("which records were admitted is not shown")


def resolution(reading: Reading) -> StageScore:
    """Stage 4: was the active head used; was a conflict or a lapse recognised."""
    case = reading.case
    if case.kind == "conflict":
        return _conflict_recognised(reading)
    if reading.lifecycle_unknown:
        return unobserved("the freeze does not say which records of the store still hold")
    stale = reading.stale()
    harmful = decides_like(reading, stale)
    used = reading.used()
    option = reading.option
    abstained = option is not None and option[1] == NEEDS_RESOLUTION
    if used is not None:
        names, grade, evidence = used
        old = [name for name in names if name in stale]
        if old and not (case.kind in LAPSES and abstained):
            return score("fail", grade, evidence, f"{', '.join(old)} was used")
        if harmful is not None:
            return harmful
        if case.kind in LAPSES:
            return score("pass", grade, evidence, "no lapsed record was used")
        if any(name in case.eligible for name in names):
            return score("pass", grade, evidence, "the head was used, and no predecessor")
        return score("fail", grade, evidence, f"{', '.join(case.eligible)} was not used")
    if harmful is not None:
        return harmful
    whole = reading.admitted() if reading.declarations_complete else None
    if case.kind in LAPSES and whole is not None and not set(whole[0]) & set(stale):
        return score("pass", whole[1], whole[2], "no lapsed record was let through to the decision")
    return unobserved("which records were used is not shown")


def _conflict_recognised(reading: Reading) -> StageScore:
    """Both records named, and nothing decided between them."""
    case = reading.case
    harmful = decides_like(reading, case.eligible)
    if harmful is not None:
        return harmful
    used, option = reading.used(), reading.option
    if used is None or option is None:
        return unobserved("which records were used is not shown")
    names, grade, evidence = used
    if option[1] == NEEDS_RESOLUTION and set(case.eligible) <= set(names):
        return score("pass", grade, evidence, "both records are named, and neither is chosen")
    missing = [name for name in case.eligible if name not in names]
    if missing:
        return score("fail", grade, evidence, f"the decision does not name {', '.join(missing)}")
    return score(
        "fail",
        grade,
        evidence,
        f"decided {presentable(option[1], 200)} between records that disagree",
    )


def decides_like(reading: Reading, names: Sequence[str]) -> StageScore | None:
    """A failure that behaviour proves: the decision is the value of one of these records and of no
    accepted one (scoring rule 4)."""
    case, option = reading.case, reading.option
    if option is None or option[1] in case.expected.decision_accept:
        return None
    for name in names:
        record = reading.record(name)
        if record is not None and record.expected_decision == option[1]:
            return score(
                "fail", "captured", [option[0]], f"decided {option[1]}, the value of {name}"
            )
    return None


def decision(reading: Reading) -> StageScore:
    """Stage 5: is the selected option an accepted one; the last declaration that was captured
    before the first state-changing call counts."""
    accepted = reading.case.expected.decision_accept
    declared = reading.declared
    if declared is not None and reading.usable(declared[1].grade):
        seq, event = declared
        if not reading.declarations_complete:
            return unobserved("the journal has gaps: another declaration may count", [seq])
        verdict = "pass" if event.option in accepted else "fail"
        wanted = "" if verdict == "pass" else f"; accepted: {', '.join(accepted) or 'none'}"
        return score(
            verdict, event.grade, [seq], f"declared {presentable(event.option, 200)}{wanted}"
        )
    plan = reading.described[1].capabilities.plan if reading.described else "none"
    if plan == "none" or reading.described is None:
        return unobserved("the system does not show its decision")
    if not reading.declarations_complete or reading.closed is None:
        return unobserved("whether a decision was declared in time is not known")
    if declared is not None or plan == "final":
        return unobserved("the decision is the system's own word after the fact")
    late = [seq for seq, _ in reading.run.all(DecisionDeclared, "task")]
    why = "acted before it declared a decision" if late else "declared no decision"
    return score("fail", "captured", [*late, reading.closed[0]], why)


def action(reading: Reading) -> StageScore:
    """Stage 6: the expected action seen, and no prohibited one."""
    case = reading.case
    done = prohibited_calls(case.prohibited, reading.journal)
    if done:
        return score(
            "fail",
            "captured",
            (reading.journal_seqs[call.number] for call in done),
            f"prohibited: {', '.join(call.tool for call in done)}",
        )
    if not reading.journal_complete or reading.surface is None or reading.closed is None:
        return unobserved("there is no complete journal of calls")
    found = expected_calls(case.expected.action, reading.journal)
    if found is None:
        return score(
            "fail",
            "captured",
            (*reading.journal_seqs.values(), reading.closed[0]),
            "the expected calls were not made",
        )
    calls = [reading.journal_seqs[call.number] for call in found]
    made = ", then ".join(call.tool for call in found)
    return score(
        "pass",
        "captured",
        (*calls, reading.surface[0]),
        f"{made} called" if made else "nothing was to be done, and nothing prohibited was",
    )


def outcome(reading: Reading) -> StageScore:
    """Stage 7: does the authoritative surface satisfy the predicate; read by the fixture, never
    through the system under test."""
    if reading.surface is None:
        return unobserved("the surface was not read")
    held, results = predicate_holds(reading, reading.case)
    seq = reading.surface[0]
    if held is None:
        return unobserved("the predicate needs a journal or a decision that is not complete", [seq])
    failed = [why for result, why in results if not result]
    return score(
        "pass" if held else "fail",
        "captured",
        [seq],
        presentable(failed[0], 400) if failed else "the predicate holds",
    )


def predicate_holds(
    reading: Reading, case: Case
) -> tuple[bool | None, tuple[tuple[bool, str], ...]]:
    """Whether ``case``'s predicate holds over this run's surfaces; None where that is unknown."""
    if reading.surface is None:
        return None, ()
    surfaces = {check.surface for check in case.expected.outcome}
    if "journal" in surfaces and not reading.journal_complete:
        return None, ()
    if "decision" in surfaces and reading.option is None:
        return None, ()
    event = reading.surface[1]
    declared = reading.declared[1] if reading.option and reading.declared else None
    observed = Observed(
        surfaces=reading.family.fixture.surfaces,
        before=msgspec.json.decode(reading.read(event.before)),
        after=msgspec.json.decode(reading.read(event.after)),
        journal=reading.journal,
        decision=Decision(option=declared.option, basis=declared.basis) if declared else None,
    )
    return all_hold(case.expected.outcome, observed)


STAGE_FUNCTIONS = {
    "retention": retention,
    "retrieval": retrieval,
    "relevance": relevance,
    "resolution": resolution,
    "decision": decision,
    "action": action,
    "outcome": outcome,
}


def judge_stage(stage: Stage, reading: Reading) -> StageScore:
    """The verdict of one stage; ``not_required`` where the frozen case does not ask for it."""
    if stage not in reading.case.required:
        return score("not_required", "none", (), "not required by the frozen case")
    if reading.opened is None:
        return unobserved("no task session was opened")
    if stage in CLOCK_STAGES and reading.clock_unknown():
        return unobserved("the memory's clock was not the case's, and its records depend on it")
    return STAGE_FUNCTIONS[stage](reading)
