"""Every audit accepts a study without a violation, finds each violation, and shows no outcome."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from ledger.log import Fact, StoredRecord
from ledger.memory_log import MemoryLog
from projections.audits.finding import MAX_FINDINGS, Findings, Verdict
from projections.audits.registry import AUDITS
from projections.audits.run import run_audits
from projections.fold import fold
from schemas.base import Event
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellFinished,
    CellStarted,
    CellVoided,
    ToolCalled,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.command import CommandCompleted, CommandRequested
from schemas.events.grading import CellGraded
from schemas.events.ledger import CheckpointAnchored
from schemas.events.mining import CandidateValidated, LeakProbed, RepositoryMined
from schemas.events.run import RunStarted, StudyCompleted
from schemas.events.server import (
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    ServerChecked,
    ServerMismatched,
)
from schemas.events.study import (
    AmendmentRecorded,
    ComponentChange,
    FrozenComponent,
    OutcomesInspected,
    PlanPrepared,
    StudyFrozen,
    TasksFrozen,
)
from schemas.plan import Plan
from schemas.repair.selection import selection_settings, settings_digest
from tests.projections.tiny_study import (
    CELLS,
    INSTANCE,
    STUDY_TOML,
    TinyStudy,
    digest_of,
    graded,
    of_type,
)

Facts = list[Fact]
Edit = Callable[[TinyStudy, Facts], Facts]


def run_audit(name: str, study: TinyStudy, facts: Sequence[Fact]) -> Verdict:
    make = next(make for audit, make in AUDITS.items() if name == audit.NAME)
    return fold(make(study.artifacts.get), facts).verdict()


# ---- changing one thing ------------------------------------------------------------------------


def change(kind: type[Event], number: int = 0, /, **fields: Any) -> Edit:
    """Other values in fields of the ``number``-th event of a type."""

    def edit(study: TinyStudy, facts: Facts) -> Facts:
        chosen = list(of_type(facts, kind))[number]
        values = {
            name: value(study) if callable(value) else value for name, value in fields.items()
        }
        event = msgspec.structs.replace(chosen.event, **values)
        other = msgspec.structs.replace(chosen, event=event)
        return [other if fact is chosen else fact for fact in facts]

    return edit


def remove(kind: type[Event], number: int = 0) -> Edit:
    def edit(study: TinyStudy, facts: Facts) -> Facts:
        chosen = list(of_type(facts, kind))[number]
        return [fact for fact in facts if fact is not chosen]

    return edit


def repeat(kind: type[Event], number: int = 0) -> Edit:
    """The same event once more, right after itself."""

    def edit(study: TinyStudy, facts: Facts) -> Facts:
        chosen = list(of_type(facts, kind))[number]
        place = facts.index(chosen)
        return [*facts[: place + 1], chosen, *facts[place + 1 :]]

    return edit


def move(kind: type[Event], number: int, behind: type[Event], its_number: int = 0) -> Edit:
    def edit(study: TinyStudy, facts: Facts) -> Facts:
        chosen = list(of_type(facts, kind))[number]
        rest = [fact for fact in facts if fact is not chosen]
        place = rest.index(list(of_type(rest, behind))[its_number])
        return [*rest[: place + 1], chosen, *rest[place + 1 :]]

    return edit


def copy(kind: type[Event], number: int, behind: type[Event], its_number: int = 0) -> Edit:
    """The same event once more, behind another one."""

    def edit(study: TinyStudy, facts: Facts) -> Facts:
        chosen = list(of_type(facts, kind))[number]
        place = facts.index(list(of_type(facts, behind))[its_number])
        return [*facts[: place + 1], chosen, *facts[place + 1 :]]

    return edit


def insert(event: Event, stream: str, behind: type[Event], number: int = 0) -> Edit:
    def edit(study: TinyStudy, facts: Facts) -> Facts:
        before = list(of_type(facts, behind))[number]
        place = facts.index(before)
        new = msgspec.structs.replace(before, id="inserted", stream=stream, event=event, cause=None)
        return [*facts[: place + 1], new, *facts[place + 1 :]]

    return edit


def both(*edits: Edit) -> Edit:
    def edit(study: TinyStudy, facts: Facts) -> Facts:
        for each in edits:
            facts = each(study, facts)
        return facts

    return edit


def swap_cells(study: TinyStudy, facts: Facts) -> Facts:
    """The second planned cell runs first."""
    first = [fact for fact in facts if fact.stream == CELLS[0].stream]
    second = [fact for fact in facts if fact.stream == CELLS[1].stream]
    rest = [fact for fact in facts if fact.stream not in (CELLS[0].stream, CELLS[1].stream)]
    place = rest.index(next(of_type(rest, ModelUnloaded)))
    return [*rest[:place], *second, *first, *rest[place:]]


def audit_rows(*rows: dict[str, str]) -> Callable[[TinyStudy], Any]:
    lines = "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    return lambda study: study.put(lines)


def tasks(**fields: Any) -> Callable[[TinyStudy], Any]:
    return lambda study: study.put([msgspec.structs.replace(study.task(), **fields)])


def mined_under(**rules: str) -> Edit:
    """Mined and validated under the settings of the study, but for these rules."""

    def edit(study: TinyStudy, facts: Facts) -> Facts:
        declared = study.study
        other = msgspec.structs.replace(
            declared, tasks=msgspec.structs.replace(declared.tasks, **rules)
        )
        settings = selection_settings(other, declared.repositories[0])
        mined = change(RepositoryMined, settings=settings)(study, facts)
        return change(CandidateValidated, settings=settings_digest(settings))(study, mined)

    return edit


def amended_to(toml: str) -> Edit:
    return change(AmendmentRecorded, study=lambda study: study.put(toml, "application/toml"))


REAL = "\n".join(
    line
    for line in STUDY_TOML.replace('"stand_in"', '"lmstudio"').splitlines()
    if not line.startswith(("simulated", "rehearsal"))
)
REJECTED = {"commit": "1" * 40, "verdict": "rejected", "criterion": "no_test_file"}
CANDIDATES = [{"commit": c * 40, "verdict": "candidate", "criterion": ""} for c in "23"]
VOIDED = CellVoided(cell=CELLS[0], reason="drift")

VIOLATIONS: list[tuple[str, Edit, str]] = [
    ("registration", remove(StudyFrozen), "answered before the study was frozen"),
    ("funnel", change(RepositoryMined, walked=4), "4 commits were walked, 3 have a row"),
    ("funnel", change(RepositoryMined, candidates=1), "1 candidates are counted"),
    ("funnel", change(RepositoryMined, rejected={}), "counts by criterion differ"),
    (
        "funnel",
        change(RepositoryMined, audit=audit_rows(REJECTED, REJECTED, *CANDIDATES)),
        "111111111111 has 2 rows",
    ),
    ("funnel", change(CandidateValidated, commit="9" * 40), "was validated, no candidate"),
    ("funnel", change(CandidateValidated, task=None), "is valid without a task"),
    ("funnel", remove(CandidateValidated), "not its first 1 valid candidates"),
    ("funnel", change(TasksFrozen, count=2), "2 tasks are counted, frozen were 1"),
    ("funnel", change(TasksFrozen, tasks=tasks(redactions=5)), "not its first 1 valid"),
    ("funnel", move(TasksFrozen, 0, TurnStarted), "tasks were frozen after a model was asked"),
    ("funnel", copy(RepositoryMined, 0, StudyFrozen), "mined.v1 came after the study was frozen"),
    ("funnel", copy(CandidateValidated, 0, StudyFrozen), "came after the study was frozen"),
    ("funnel", change(CandidateValidated, settings=digest_of("x")), "under other settings than"),
    ("funnel", mined_under(not_before="2020-01-01"), "tasks.not_before of R001 was"),
    (
        "funnel",
        change(
            StudyFrozen,
            study=lambda study: study.put(
                STUDY_TOML.replace("tasks = 1", "tasks = 2"), "application/toml"
            ),
        ),
        "repositories.tasks of R001 was 1 and is 2",
    ),
    (
        "funnel",
        both(
            change(
                CandidateValidated,
                commit="3" * 40,
                task=lambda study: study.put(
                    msgspec.structs.replace(study.task(), commit="3" * 40)
                ),
            ),
            change(TasksFrozen, tasks=tasks(commit="3" * 40)),
        ),
        "never validated, though newer: 222222222222",
    ),
    (
        "contamination",
        change(TasksFrozen, tasks=lambda study: study.put([study.task(), study.task()])),
        "is 2 tasks of the split",
    ),
    (
        "contamination",
        change(TasksFrozen, tasks=tasks(committed="2022-12-31T23:59:59Z")),
        "before 2023-01-01",
    ),
    ("leak-probes", change(LeakProbed, findings=("object 1234",)), "gold was seen in object 1234"),
    ("leak-probes", change(LeakProbed, tasks=0), "0 of 1 tasks were searched"),
    ("identity", change(CellStarted, unit=digest_of("x")), "the task is not the frozen one"),
    ("identity", change(CellStarted, agent=digest_of("x")), "identity of model M002"),
    ("identity", change(CellStarted, arm=digest_of("x")), "code of H000 is not the frozen"),
    ("identity", change(CellStarted, simulated=False), "simulated is False"),
    ("identity", change(RunStarted, study=digest_of("x")), "which is not the frozen one"),
    ("identity", change(StudyFrozen, dirty=True), "not the digest of what was frozen"),
    (
        "identity",
        change(StudyFrozen, document_contents=lambda study: (study.put("other"),)),
        "document protocol.md has another digest",
    ),
    ("identity", change(TasksFrozen, tasks=tasks(redactions=5)), "binds other tasks"),
    ("identity", remove(TasksFrozen), "R001-001 is not a frozen task"),
    ("completeness", remove(CellFinished, 1), "R001-001/H018/M002/0 has not ended"),
    ("completeness", remove(CellGraded, 0), "is neither graded nor void"),
    ("completeness", repeat(CellFinished), "ended and was not running"),
    ("completeness", repeat(CellGraded), "was graded a second time"),
    ("completeness", repeat(CellStarted), "began again before it had ended"),
    ("completeness", move(CellGraded, 0, CellStarted, 0), "graded before it had ended"),
    ("completeness", change(CellStarted, attempt=1), "attempt 1 follows attempt -1"),
    ("completeness", change(CellFinished, attempt=1), "attempt 1 ended, running was 0"),
    ("completeness", change(CellFinished, ended="infrastructure"), "was not run again"),
    ("completeness", change(StudyCompleted, cells=3), "counts 3 cells, planned were 2"),
    ("completeness", repeat(StudyCompleted), "completed a second time"),
    ("completeness", swap_cells, "began after a cell that comes later in the plan"),
    ("completeness", repeat(StudyFrozen), "frozen a second time"),
    ("completeness", remove(PlanPrepared), "not the plan that was prepared last"),
    ("completeness", move(CellStarted, 0, TasksFrozen), "before the study was frozen"),
    (
        "completeness",
        insert(
            graded(msgspec.structs.replace(CELLS[0], repeat=7), True),
            "cell/R001-001/H000/M002/7",
            CellGraded,
        ),
        "which is not in the plan",
    ),
    (
        "completeness",
        both(*[insert(VOIDED, CELLS[0].stream, CellGraded)] * 2),
        "was voided a second time",
    ),
    (
        "completeness",
        both(
            change(AmendmentRecorded, plan=lambda study: study.put(Plan(cells=()))),
            move(AmendmentRecorded, 0, CellStarted, 1),
        ),
        "takes 2 planned cells away after the first cell",
    ),
    (
        "completeness",
        copy(CellStarted, 0, CellFinished),
        "began again after it had ended as submitted",
    ),
    ("residency", repeat(ModelLoaded), "M002 was loaded while M002 was resident"),
    ("residency", move(ModelLoadStarted, 0, ModelLoaded), "was sent while M002 was resident"),
    ("residency", remove(ModelLoadStarted), "resident without a recorded load"),
    ("residency", change(ModelLoaded, evidence=()), "nothing that the server said"),
    ("residency", change(ServerChecked, simulated=False), "the server is a real one"),
    ("residency", change(ModelLoaded, simulated=False), "the server is a real one"),
    ("residency", change(TurnAnswered, simulated=False), "the server is a real one"),
    ("residency", change(ModelUnloaded, instance="other"), "other was unloaded and had not"),
    ("residency", change(TurnStarted, instance="other"), "asked of other, which is not resident"),
    ("residency", move(ModelUnloaded, 0, ModelLoaded), f"{INSTANCE}, which is not resident"),
    (
        "residency",
        both(change(ModelLoadStarted, model="M003"), change(ModelLoaded, model="M003")),
        "turn 0 of a cell of M002 was asked of M003",
    ),
    ("budgets", change(BudgetCharged, used=2), "turn number 2 follows number 0"),
    ("budgets", change(BudgetCharged, limit=4), "charged against 4; the study allows 3"),
    ("budgets", change(BudgetCharged, 2, used=4), "turn number 4 of at most 3"),
    ("budgets", remove(BudgetCharged), "turn.started.v1 before the turn was charged"),
    ("budgets", move(BudgetCharged, 0, AnswerParsed), "answered.v1 before the turn was charged"),
    ("budgets", remove(BudgetCharged, 1), "tool call 0 was made before it was charged"),
    ("budgets", change(ToolCalled, number=1), "tool call 1 was made before it was charged"),
    ("budgets", remove(BudgetCharged, 4), "test run 0 was made before it was charged"),
    ("budgets", change(CellFinished, turns=1), "the end counts 1 turns, charged were 2"),
    ("budgets", remove(CellStarted), "in a cell that is not running"),
    ("retries", change(TurnFailed, kind="timeout"), "turn 1 is retried after timeout"),
    ("retries", change(TurnFailed, retry=False), "turn 1 was asked again without a reason"),
    ("retries", remove(TurnFailed), "asked again while its answer was awaited"),
    ("retries", change(TurnStarted, 2, attempt=2), "attempt 2 is number 1"),
    ("retries", remove(TurnStarted), "turn.answered.v1 without a request"),
    (
        "retries",
        both(
            change(TurnStarted, 1, turn=0, attempt=1),
            change(TurnFailed, turn=0),
        ),
        "turn 0 was asked again without a reason",
    ),
    (
        "retries",
        copy(TurnFailed, 0, TurnStarted, 2),
        "turn 1 is retried 2 times",
    ),
    ("retries", change(CellStarted, attempt=1), "runs again after it ended as nothing"),
    ("retries", change(CellStarted, attempt=2), "attempt 2; the study allows 2"),
    ("amendments", change(AmendmentRecorded, finding="after_first_cell"), "it is before_first"),
    ("amendments", change(AmendmentRecorded, inspections=(3,)), "lists the inspections [3]"),
    ("amendments", change(AmendmentRecorded, changed=()), "nothing about what was changed"),
    ("amendments", remove(StudyFrozen), "before anything was frozen"),
    ("amendments", amended_to(REAL), "`simulated` (with `server.kind`) was true and is false"),
    (
        "amendments",
        amended_to(STUDY_TOML.replace('id = "H018"', 'id = "H002"')),
        "planned cells need treatments: H018, which is not declared",
    ),
    (
        "amendments",
        amended_to(STUDY_TOML.replace('id = "R001"', 'id = "R002"')),
        "planned cells need repositories: R001, which is not declared",
    ),
    (
        "funnel",
        amended_to(STUDY_TOML.replace("tasks = 1", "tasks = 2")),
        "the tasks are frozen, and repositories.tasks of R001 was 1 and is 2",
    ),
    ("amendments", move(AmendmentRecorded, 0, CellStarted), "it is after_first_cell"),
    ("amendments", move(AmendmentRecorded, 0, OutcomesInspected), "it is after_inspection"),
    ("inspections", change(OutcomesInspected, graded=1), "counts 1 graded cells; there were 2"),
    ("inspections", remove(OutcomesInspected), "analysis.completed.v1 without an inspection"),
    ("inspections", remove(StudyCompleted), "inspected before the study was complete"),
    ("inspections", remove(StudyFrozen), "inspected before the study was frozen"),
    ("inspections", move(CellGraded, 0, CellFinished, 0), "ran after outcomes existed"),
    ("inspections", move(PlanPrepared, 0, CellGraded), "plan.prepared.v1 after outcomes existed"),
    ("commands", repeat(CommandCompleted), "ended a second time"),
    ("commands", change(CommandCompleted, command="nothing"), "ended and was never requested"),
    ("commands", remove(CommandRequested), "names a cause that is no command before it"),
    ("commands", move(RepositoryMined, 0, CommandCompleted), "a command that had ended"),
]


def test_a_complete_study_violates_nothing(whole: TinyStudy, whole_facts: Facts) -> None:
    statuses = {audit.NAME: run_audit(audit.NAME, whole, whole_facts).status for audit in AUDITS}
    unanswered = {"registration", "contamination", "transfer"}
    assert statuses == {name: "not_applicable" if name in unanswered else "ok" for name in statuses}


@pytest.mark.parametrize(
    ("name", "edit", "expected"), VIOLATIONS, ids=[f"{n}: {text}" for n, _, text in VIOLATIONS]
)
def test_a_violation_is_found(
    whole: TinyStudy, whole_facts: Facts, name: str, edit: Edit, expected: str
) -> None:
    facts = edit(whole, whole_facts)
    verdict = run_audit(name, whole, facts)
    assert verdict.status == "violated"
    texts = [found.text for found in verdict.findings if found.severity == "violation"]
    assert any(expected in text for text in texts), texts
    seqs = {fact.seq for fact in whole_facts} | {None}
    assert all(found.seq in seqs for found in verdict.findings)


def test_every_audit_has_a_violated_example() -> None:
    # Those of a transfer study stand in tests/transfer_scores/test_transfer_audit.py.
    assert {name for name, _, _ in VIOLATIONS} == {audit.NAME for audit in AUDITS} - {"transfer"}


def test_a_finding_names_the_record(whole: TinyStudy, whole_facts: Facts) -> None:
    facts = change(TurnStarted, 3, instance="other")(whole, whole_facts)
    (finding,) = run_audit("residency", whole, facts).findings
    assert finding.seq == list(of_type(whole_facts, TurnStarted))[3].seq


def test_findings_are_bounded_and_the_rest_is_counted() -> None:
    findings = Findings("audit")
    for seq in range(MAX_FINDINGS + 5):
        findings.note(seq, "odd")
    findings.violation(None, "wrong")
    verdict = findings.verdict()
    assert verdict.status == "violated"
    assert len(verdict.findings) == MAX_FINDINGS + 1
    assert verdict.findings[-1].text == "6 more findings are not listed"


def test_no_audit_shows_an_outcome(whole: TinyStudy, whole_facts: Facts) -> None:
    def flipped(fact: Fact) -> Fact:
        if not isinstance(fact.event, CellGraded):
            return fact
        return msgspec.structs.replace(fact, event=graded(fact.event.cell, not fact.event.resolved))

    others = [flipped(fact) for fact in whole_facts]
    assert others != whole_facts
    for audit in AUDITS:
        assert run_audit(audit.NAME, whole, whole_facts) == run_audit(audit.NAME, whole, others)


@pytest.mark.parametrize("audit", AUDITS, ids=lambda audit: audit.NAME)
def test_an_audit_of_an_empty_ledger_is_not_applicable(tiny: TinyStudy, audit: Any) -> None:
    assert run_audit(audit.NAME, tiny, []).status == "not_applicable"


def test_names_are_unique_and_questions_end_with_a_mark() -> None:
    assert len({audit.NAME for audit in AUDITS}) == len(AUDITS)
    assert all(audit.QUESTION.endswith("?") for audit in AUDITS)


def test_what_cannot_be_read_is_not_answered_with_yes(tiny: TinyStudy) -> None:
    tiny.write_everything()
    names = [audit.NAME for audit in AUDITS]
    before = run_audits(tiny.log, tiny.artifacts.get, names)
    plan = next(of_type(tiny.facts(), PlanPrepared))
    assert isinstance(plan.event, PlanPrepared)
    tiny.artifacts.path(plan.event.plan.digest).unlink()
    after = run_audits(tiny.log, tiny.artifacts.get, names)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [verdict.audit for verdict in changed] == ["completeness", "amendments"]
    for verdict in changed:
        assert verdict.status == "violated"
        assert "cannot be answered" in verdict.findings[0].text


def test_a_record_that_cannot_be_decoded_leaves_no_audit_answered(tiny: TinyStudy) -> None:
    class Damaged(MemoryLog):
        def read(self, start: int = 0, stop: int | None = None) -> Iterator[StoredRecord]:
            for stored in super().read(start, stop):
                record = stored.record.replace(b'"walked":3', b'"walked":"x"')
                yield StoredRecord(stored.seq, record, stored.leaf)

    damaged = TinyStudy(tiny.directory.root, Damaged())
    damaged.create()
    damaged.mine()
    verdicts = run_audits(damaged.log, tiny.artifacts.get, ["funnel", "commands"])
    assert [verdict.status for verdict in verdicts] == ["violated", "violated"]
    assert "repository.mined.v1" in verdicts[0].findings[0].text


def test_types_of_another_version_are_passed_over(tiny: TinyStudy) -> None:
    class Strange(Event):
        TYPE: ClassVar[str] = "strange.seen.v1"
        STREAMS: ClassVar[tuple[str, ...]] = ("strange",)
        text: str

    tiny.create()
    tiny.append("strange", Strange(text="what"))
    tiny.mine()
    (verdict,) = run_audits(tiny.log, tiny.artifacts.get, ["funnel"])
    assert verdict.status == "ok"


# ---- what is allowed and must not be called a violation -----------------------------------------


def test_a_rerun_after_an_infrastructure_failure_is_allowed(tiny: TinyStudy) -> None:
    tiny.create()
    tiny.mine()
    tiny.freeze()
    tiny.start_run()
    tiny.load()
    tiny.run_cell(CELLS[0])
    first = len(tiny.facts())
    tiny.run_cell(CELLS[0], attempt=1)
    tiny.run_cell(CELLS[1])
    facts = change(CellFinished, ended="infrastructure")(tiny, tiny.facts())
    for audit in AUDITS:
        assert run_audit(audit.NAME, tiny, facts).status != "violated", audit.NAME
    retries = run_audit("retries", tiny, facts)
    assert retries.checked["cell_reruns"] == 1
    assert any(found.seq is not None and found.seq >= first for found in retries.findings)


def test_an_abandoned_turn_may_be_asked_again(whole: TinyStudy, whole_facts: Facts) -> None:
    lost = TurnAbandoned(turn=1, attempt=0, reason="the process was lost")
    facts = [
        msgspec.structs.replace(fact, event=lost) if isinstance(fact.event, TurnFailed) else fact
        for fact in whole_facts
    ]
    verdict = run_audit("retries", whole, facts)
    assert verdict.status == "ok"
    assert verdict.checked["repeated_turns"] == 2


def test_a_stopped_preflight_is_a_note(whole: TinyStudy, whole_facts: Facts) -> None:
    mismatch = ServerMismatched(model="M002", problem="another context length", evidence=())
    facts = insert(mismatch, "server/stand_in", ServerChecked)(whole, whole_facts)
    verdict = run_audit("residency", whole, facts)
    assert verdict.status == "ok"
    assert [found.severity for found in verdict.findings] == ["note"]


def test_other_code_after_an_amendment_is_a_note(whole: TinyStudy, whole_facts: Facts) -> None:
    def changed(name: str) -> tuple[ComponentChange, ...]:
        return (
            ComponentChange(
                name=name,
                before=None,
                after=FrozenComponent(name=name, digest=digest_of("new"), files=None, libraries={}),
                differences=("harnesses/h000_exact_search.py differs",),
            ),
        )

    def verdict_of(name: str) -> Verdict:
        edit = both(
            change(AmendmentRecorded, components=changed(name)),
            change(CellStarted, arm=digest_of("new")),
        )
        return run_audit("identity", whole, edit(whole, whole_facts))

    named, whole_program = verdict_of("arm H000"), verdict_of("program")
    assert named.status == whole_program.status == "ok"
    assert named.findings == ()
    assert "H000 has other code from here on" in whole_program.findings[0].text
    assert verdict_of("arm H018").status == "violated", "another arm is none of its business"


def test_a_cell_is_held_to_the_budgets_that_it_began_with(
    whole: TinyStudy, whole_facts: Facts
) -> None:
    (amendment,) = of_type(whole_facts, AmendmentRecorded)
    smaller = whole.put(STUDY_TOML.replace("turns = 3", "turns = 2"), "application/toml")
    amended = msgspec.structs.replace(amendment.event, study=smaller)
    facts = insert(amended, amendment.stream, CellStarted)(whole, whole_facts)
    verdict = run_audit("budgets", whole, facts)
    second = list(of_type(facts, CellStarted))[1].seq
    assert verdict.status == "violated"
    assert all(found.seq is not None and found.seq > second for found in verdict.findings)
    assert "charged against 3; the study allows 2" in verdict.findings[0].text


def test_an_anchor_between_freeze_and_first_answer_is_a_registration(
    whole: TinyStudy, whole_facts: Facts
) -> None:
    size = next(of_type(whole_facts, StudyFrozen)).seq + 1
    anchor = CheckpointAnchored(
        size=size, note="note", kind="git", where="origin", receipt="receipt"
    )
    in_time = insert(anchor, "ledger", RunStarted)(whole, whole_facts)
    assert run_audit("registration", whole, in_time).status == "ok"
    too_late = insert(anchor, "ledger", TurnAnswered)(whole, whole_facts)
    assert run_audit("registration", whole, too_late).status == "not_applicable"
    early = msgspec.structs.replace(anchor, size=size - 1)
    not_over_the_freeze = insert(early, "ledger", RunStarted)(whole, whole_facts)
    assert run_audit("registration", whole, not_over_the_freeze).status == "not_applicable"


def test_a_pending_command_is_a_note(whole: TinyStudy, whole_facts: Facts) -> None:
    facts = remove(CommandCompleted, -1)(whole, whole_facts)
    verdict = run_audit("commands", whole, facts)
    assert verdict.status == "ok"
    assert verdict.checked["pending"] == 1


def test_a_study_without_probes_says_so(whole: TinyStudy, whole_facts: Facts) -> None:
    verdict = run_audit("leak-probes", whole, remove(LeakProbed)(whole, whole_facts))
    assert verdict.status == "not_applicable"
    assert verdict.findings[0].text == "R001: no leak probe is recorded"


def test_verdicts_do_not_depend_on_the_log(whole: TinyStudy, tmp_path_factory: Any) -> None:
    again = TinyStudy(tmp_path_factory.mktemp("again"), MemoryLog())
    again.write_everything()
    for audit in AUDITS:
        if audit.NAME == "commands":  # its notes name random ids
            continue
        assert run_audit(audit.NAME, whole, whole.facts()) == run_audit(
            audit.NAME, again, again.facts()
        )
