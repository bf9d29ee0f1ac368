"""Whatever is recorded or missing: nothing turns `unobserved` into `pass`."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.log import Fact
from projections.fold import fold
from projections.transfer.scores import RunScore, TransferScores
from schemas.events.transfer import Capabilities, CaseFinished, Claim
from schemas.identifiers import parse_cell_id
from schemas.transfer.family import NEEDS_RESOLUTION, STAGES
from tests.transfer_scores.transfer_story import FAMILY, Story

OPTIONS = (*FAMILY.decision_options, "nonsense")
STORE_IDS = ("s-CT-1", "s-CT-2", "s-CT-3", "s-CT-4", "noise", "unknown")
GRADES = st.sampled_from(["captured", "captured", "reported"])
CALLS = st.sampled_from(
    [
        ("source_read", {"source": "ledger-a"}),
        ("report_write", {"source_ref": "ledger-a"}),
        ("report_write", {"source_ref": "queue"}),
        ("ask", {"question": "which?"}),
        ("nowhere", {}),
    ]
)
KNOBS = st.fixed_dictionaries(
    {},
    optional={
        "capabilities": st.builds(
            Capabilities,
            trace=st.sampled_from(["retrieval", "admitted", "used", "none"]),
            plan=st.sampled_from(["before_action", "final", "none"]),
        ),
        "clock_control": st.sampled_from(["settable", "system"]),
        "kept": st.lists(st.sampled_from(["CT-1", "CT-2", "CT-3", "CT-4"]), unique=True),
        "readable": st.booleans(),
        "store_grade": GRADES,
        "delivered": st.lists(st.sampled_from(STORE_IDS), unique=True, max_size=4),
        "admitted": st.one_of(
            st.just(True), st.just(False), st.lists(st.sampled_from(STORE_IDS), max_size=3)
        ),
        "trace_grade": GRADES,
        "decisions": st.lists(
            st.tuples(
                st.sampled_from(OPTIONS),
                st.lists(st.sampled_from(["CT-1", "CT-2", "s-CT-1", "x"]), max_size=3),
            ),
            max_size=2,
        ),
        "decided_late": st.booleans(),
        "final": st.sampled_from(["ledger-a", NEEDS_RESOLUTION]),
        "calls": st.lists(CALLS, max_size=4),
        "refused": st.lists(st.integers(0, 3), max_size=1),
        "false_write": st.booleans(),
        "claims": st.lists(
            st.builds(Claim, kind=st.sampled_from(["recalled", "saved", "checked"])), max_size=2
        ),
        "side_effects": st.sampled_from([(), ("report",)]),
    },
)
POLICY = st.fixed_dictionaries(
    {
        "basis": st.sampled_from(["captured", "reported"]),
        "reported": st.sampled_from(["unobserved", "counts"]),
    }
)
CASE = st.sampled_from([case.case_id for case in FAMILY.cases])


def score(story: Story, cell: str, facts: list[Fact]) -> RunScore | None:
    return fold(TransferScores(story.read), facts).runs.get(cell)


def assert_not_better(one: RunScore, other: RunScore) -> None:
    """``other`` has no pass that ``one`` has not, and is not verified where ``one`` is not."""
    for stage in STAGES:
        if other.stages[stage].verdict == "pass":
            assert one.stages[stage].verdict == "pass", (stage, one.stages[stage].why)
    if other.result == "verified":
        assert one.result == "verified"


@settings(max_examples=150, deadline=None)
@given(case=CASE, knobs=KNOBS, policy=POLICY, data=st.data())
def test_taking_evidence_away_never_makes_a_verdict_better(
    case: str, knobs: dict[str, Any], policy: dict[str, Any], data: st.DataObject
) -> None:
    story = Story(**policy)
    cell = story.run(case, **knobs)
    whole = score(story, cell, story.facts)
    assert whole is not None
    own = [fact.seq for fact in story.facts if fact.stream == f"cell/{cell}"]
    gone = data.draw(st.sets(st.sampled_from(own[1:-1]), min_size=1, max_size=3))
    less = score(story, cell, [fact for fact in story.facts if fact.seq not in gone])
    assert less is not None
    assert_not_better(whole, less)


@settings(max_examples=60, deadline=None)
@given(case=CASE, knobs=KNOBS, other=KNOBS)
def test_no_later_record_turns_unobserved_into_pass(
    case: str, knobs: dict[str, Any], other: dict[str, Any]
) -> None:
    """A run that has ended keeps its verdicts, whatever is recorded of its cell afterwards."""
    story = Story()
    cell = story.run(case, **knobs)
    before = score(story, cell, story.facts)
    late = story.events(parse_cell_id(cell), FAMILY.case(case), **other)[1:]
    for event in late:
        story.add(f"cell/{cell}", event)
    assert score(story, cell, story.facts) == before


@settings(max_examples=100, deadline=None)
@given(case=CASE, knobs=KNOBS, policy=POLICY, data=st.data())
def test_any_order_of_any_events_gives_verdicts_with_evidence(
    case: str, knobs: dict[str, Any], policy: dict[str, Any], data: st.DataObject
) -> None:
    story = Story(**policy)
    cell = story.run(case, **knobs)
    own = [fact for fact in story.facts if fact.stream == f"cell/{cell}"]
    inner = data.draw(st.permutations(own[1:-1]))
    start = own[0].seq
    shuffled = [
        *story.facts[: start + 1],
        *(
            Fact(
                start + place, fact.id, fact.stream, fact.version, fact.at,
                fact.actor, fact.cause, fact.run, fact.event,
            )
            for place, fact in enumerate([*inner, own[-1]], start=1)
        ),
    ]  # fmt: skip
    run = score(story, cell, shuffled)
    assert run is not None
    required = FAMILY.case(case).required
    seqs = {fact.seq for fact in shuffled}
    for stage in STAGES:
        found = run.stages[stage]
        assert (found.verdict == "not_required") == (stage not in required)
        if found.verdict in ("pass", "fail"):
            assert found.evidence and set(found.evidence) <= seqs
            assert found.grade == "captured" or policy["reported"] == "counts"
    if run.result == "verified":
        assert all(run.stages[stage].verdict == "pass" for stage in required)
        assert not run.prohibited or run.kind == "baseline"


def test_a_run_that_has_not_ended_has_no_score() -> None:
    story = Story()
    cell = story.run("positive")
    assert isinstance(story.facts[-1].event, CaseFinished)
    assert score(story, cell, story.facts[:-1]) is None
