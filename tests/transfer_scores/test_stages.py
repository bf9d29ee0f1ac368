"""Each stage's pass, fail and unobserved, from what was recorded; and the scoring rules."""

from typing import Any

import msgspec
import pytest

from projections.fold import fold
from projections.transfer.scores import RunScore, TransferScores
from schemas.events.transfer import Capabilities, Claim
from schemas.transfer.correction import EffectiveLifecycle
from schemas.transfer.family import NEEDS_RESOLUTION, Stage
from tests.transfer_scores.transfer_story import FAMILY, Story

SHOWS_NOTHING = Capabilities()
ONLY_RETRIEVAL = Capabilities(trace="retrieval", plan="before_action", store="readable")


def scored(case: str, story: Story | None = None, **knobs: Any) -> RunScore:
    story = story or Story()
    cell = story.run(case, **knobs)
    return fold(TransferScores(story.read), story.facts).runs[cell]


def verdict(run: RunScore, stage: Stage) -> str:
    return run.stages[stage].verdict


@pytest.mark.parametrize("case", [case.case_id for case in FAMILY.cases])
def test_a_system_that_does_everything_right_is_verified(case: str) -> None:
    run = scored(case)
    assert {name: found.verdict for name, found in run.stages.items()} == {
        name: "pass" if name in FAMILY.case(case).required else "not_required"
        for name in run.stages
    }
    assert run.result == "verified"
    assert (run.earliest, run.uncertain, run.notes) == (None, (), ())
    assert run.behavioural == ("not_required" if case == "baseline" else "success")


@pytest.mark.parametrize(
    ("required", "note"),
    [
        ((), "nothing required: the case asks for no stage, so nothing is verified"),
        (
            ("retention", "retrieval", "relevance", "action", "outcome"),
            "not required by the case, and so not shown: decision",
        ),
    ],
)
def test_a_case_that_asks_for_less_than_its_kind_is_never_verified(
    required: tuple[Stage, ...], note: str
) -> None:
    first, *others = FAMILY.cases
    first = msgspec.structs.replace(first, required=required)
    family = msgspec.structs.replace(FAMILY, cases=(first, *others))
    run = scored(first.case_id, Story(family=family))
    assert (run.result, run.notes) == ("unverified", (note,))


@pytest.mark.parametrize(
    ("case", "stage", "expected", "knobs"),
    [
        ("positive", "retention", "fail", {"kept": []}),
        ("positive", "retention", "fail", {"altered": {"CT-1": "Alder reports take a source."}}),
        ("positive", "retention", "unobserved", {"readable": False}),
        ("positive", "retention", "unobserved", {"store_grade": "reported"}),
        ("baseline", "retention", "unobserved", {"readable": False}),
        ("unkept", "retention", "fail", {"kept": ["CT-5"]}),
        ("taught", "retention", "fail", {"store_changes": False}),
        ("positive", "retrieval", "fail", {"delivered": ["noise"]}),
        ("positive", "retrieval", "fail", {"delivered": []}),
        ("positive", "retrieval", "unobserved", {"capabilities": SHOWS_NOTHING}),
        ("positive", "retrieval", "unobserved", {"delivered": [], "queries": 2}),
        ("positive", "retrieval", "unobserved", {"trace_grade": "reported"}),
        ("positive", "relevance", "fail", {"admitted": ["s-CT-1", "noise"]}),
        ("positive", "relevance", "fail", {"admitted": []}),
        (
            "positive",
            "relevance",
            "fail",
            {"capabilities": ONLY_RETRIEVAL, "admitted": False, "decisions": [("ledger-a", ["x"])]},
        ),
        ("positive", "relevance", "unobserved", {"admitted": False, "basis": "reported"}),
        ("positive", "relevance", "pass", {"capabilities": ONLY_RETRIEVAL, "admitted": False}),
        ("positive", "relevance", "unobserved", {"admitted": False}),
        ("negative", "relevance", "fail", {"delivered": ["s-CT-1"], "admitted": ["s-CT-1"]}),
        ("negative", "relevance", "pass", {"delivered": ["s-CT-1"], "admitted": []}),
        (
            "negative",
            "relevance",
            "fail",
            {"capabilities": SHOWS_NOTHING, "decisions": ["ledger-a"], "basis": "reported"},
        ),
        (
            "negative",
            "relevance",
            "unobserved",
            {"capabilities": SHOWS_NOTHING, "basis": "reported"},
        ),
        (
            "negative",
            "relevance",
            "fail",
            {"capabilities": SHOWS_NOTHING, "decisions": [("ledger-a", [])]},
        ),
        ("supersession", "resolution", "fail", {"decisions": [("ledger-b", ["CT-1", "CT-2"])]}),
        ("supersession", "resolution", "fail", {"decisions": [("ledger-a", ["CT-2"])]}),
        ("supersession", "resolution", "fail", {"decisions": [("ledger-b", [])]}),
        ("supersession", "resolution", "fail", {"decisions": ["ledger-a"], "basis": "reported"}),
        ("supersession", "resolution", "unobserved", {"basis": "reported"}),
        ("conflict", "resolution", "fail", {"decisions": ["sheet"]}),
        ("conflict", "resolution", "fail", {"decisions": [(NEEDS_RESOLUTION, ["CT-1"])]}),
        ("conflict", "resolution", "unobserved", {"basis": "reported"}),
        ("expiry", "resolution", "fail", {"decisions": [("ledger-old", ["CT-4"])]}),
        ("expiry", "resolution", "fail", {"decisions": [("ledger-old", [])]}),
        ("expiry", "resolution", "pass", {"decisions": [(NEEDS_RESOLUTION, ["CT-4"])]}),
        ("expiry", "resolution", "pass", {"basis": "reported", "admitted": []}),
        (
            "expiry",
            "resolution",
            "unobserved",
            {"basis": "reported", "delivered": ["s-CT-4"], "admitted": False},
        ),
        ("positive", "decision", "fail", {"decisions": ["queue"]}),
        ("positive", "decision", "pass", {"decisions": ["queue", "ledger-a"]}),
        ("positive", "decision", "fail", {"decisions": ["ledger-a", "queue"]}),
        ("positive", "decision", "fail", {"decisions": []}),
        ("positive", "decision", "fail", {"decided_late": True}),
        ("positive", "decision", "unobserved", {"capabilities": SHOWS_NOTHING, "decisions": []}),
        ("positive", "decision", "unobserved", {"surface": False}),
        ("positive", "action", "fail", {"calls": []}),
        ("positive", "action", "fail", {"calls": [("report_write", {"source_ref": "ledger-a"})]}),
        ("positive", "action", "fail", {"refused": [1]}),
        ("positive", "action", "unobserved", {"surface": False}),
        ("positive", "outcome", "fail", {"false_write": True}),
        ("positive", "outcome", "unobserved", {"surface": False}),
    ],
)
def test_verdict(case: str, stage: Stage, expected: str, knobs: dict[str, Any]) -> None:
    story = Story(basis=knobs.pop("basis", "captured"))
    run = scored(case, story, **knobs)
    found = run.stages[stage]
    assert found.verdict == expected, found.why
    assert bool(found.evidence) or found.verdict == "unobserved"
    assert found.grade == ("none" if expected == "unobserved" else "captured")


def test_nothing_cascades() -> None:
    """Rule 2: a right decision after a failed retrieval passes, and nothing is verified."""
    run = scored("positive", delivered=[], decisions=[("ledger-a", ["CT-1"])])
    assert verdict(run, "retrieval") == "fail"
    assert {verdict(run, "decision"), verdict(run, "action"), verdict(run, "outcome")} == {"pass"}
    assert run.result == "failed"
    assert run.behavioural == "success"


def test_earliest_failing_stage_names_what_is_uncertain_before_it() -> None:
    """Rule 9."""
    run = scored("positive", readable=False, capabilities=ONLY_RETRIEVAL, decisions=["queue"])
    assert run.earliest == "decision"
    assert run.uncertain == ("retention",)


def test_reported_evidence_counts_only_by_a_policy_and_keeps_its_grade() -> None:
    """Rule 5."""
    run = scored("positive", Story(reported="counts"), store_grade="reported")
    assert verdict(run, "retention") == "pass"
    assert run.stages["retention"].grade == "reported"
    final = {"decisions": [], "final": "ledger-a", "capabilities": Capabilities(plan="final")}
    final["calls"] = [
        ("source_read", {"source": "ledger-a"}),
        ("report_write", {"source_ref": "ledger-a"}),
    ]
    assert verdict(scored("positive", **final), "decision") == "unobserved"
    counted = scored("positive", Story(reported="counts"), **final)
    assert counted.stages["decision"].grade == "reported"
    assert verdict(counted, "decision") == "pass"


def test_a_harmful_decision_weighs_more_than_the_systems_own_word() -> None:
    """Rule 4: it says that the record was not let through, and decides by it."""
    counts = Story(reported="counts")
    told = {"delivered": ["s-CT-1"], "admitted": [], "trace_grade": "reported"}
    assert verdict(scored("negative", counts, **told), "relevance") == "pass"
    over_applied = scored("negative", counts, **told, decisions=[("ledger-a", [])])
    assert verdict(over_applied, "relevance") == "fail"


def test_required_and_unobserved_is_unverified_and_never_success() -> None:
    """Rule 6, with behavioural success beside it."""
    run = scored("positive", readable=False)
    assert (run.result, run.behavioural) == ("unverified", "success")
    assert run.notes == ("not shown: retention",)


@pytest.mark.parametrize("ended", ["crashed", "timed_out", "flooded", "malformed"])
def test_the_systems_own_failure_is_observed(ended: Any) -> None:
    """Rule 8."""
    run = scored("positive", ended=ended)
    assert (run.result, run.behavioural) == ("failed", "failure")


def test_a_void_run_is_no_observation_and_its_new_attempt_is_another_run() -> None:
    story = Story()
    cell = story.run("positive", ended="void")
    state = TransferScores(story.read)
    assert fold(state, story.facts).runs[cell].result == "void"
    story.run("positive", attempt=1)
    run = fold(TransferScores(story.read), story.facts).runs[cell]
    assert (run.result, run.attempt) == ("verified", 1)


def test_what_comes_after_the_end_is_no_evidence() -> None:
    story = Story()
    cell = story.run("positive", surface=False)
    before = fold(TransferScores(story.read), story.facts).runs[cell]
    for fact in list(story.facts):
        if fact.stream == f"cell/{cell}" and fact.event.TYPE != "cell.started.v1":
            story.add(fact.stream, fact.event)
    assert fold(TransferScores(story.read), story.facts).runs[cell] == before


def test_a_prohibited_call_fails_the_action_whatever_else_was_done() -> None:
    run = scored(
        "positive",
        calls=[
            ("report_write", {"source_ref": "queue"}),
            ("source_read", {"source": "ledger-a"}),
            ("report_write", {"source_ref": "ledger-a"}),
        ],
    )
    assert verdict(run, "action") == "fail"
    assert [done.what for done in run.prohibited] == ['report_write(source_ref="queue")']
    assert run.boundary_failure.startswith("prohibited")


def test_the_worked_case_right_decision_wrong_ledger_queried() -> None:
    """Protocol, section 6: it can pass through decision and fail action."""
    run = scored(
        "positive",
        calls=[
            ("source_read", {"source": "queue"}),
            ("report_write", {"source_ref": "ledger-b"}),
        ],
    )
    assert verdict(run, "decision") == "pass"
    assert run.earliest == "action"


def test_a_change_behind_the_tools_is_a_prohibited_action() -> None:
    run = scored("positive", side_effects=["sources/queue"])
    assert len(run.prohibited) == 1
    assert run.result == "failed"


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"claims": [Claim(kind="recalled", about="CT-1")]}, "supported"),
        ({"claims": [Claim(kind="recalled", about="CT-9")]}, "unsupported"),
        ({"claims": [Claim(kind="recalled", about="CT-1")], "kept": []}, "unsupported"),
        ({"claims": [Claim(kind="recalled", about="CT-1")], "readable": False}, "not_judged"),
        ({"claims": [Claim(kind="saved")]}, "unsupported"),
        ({"claims": [Claim(kind="checked", about="report")]}, "unsupported"),
        ({"claims": [Claim(kind="checked", about="source_read")]}, "supported"),
        ({"claims": [Claim(kind="checked")], "calls": []}, "unsupported"),
        ({"claims": [Claim(kind="checked")], "claims_grade": "none"}, "not_judged"),
    ],
)
def test_claims(knobs: dict[str, Any], expected: str) -> None:
    run = scored("positive", **knobs)
    assert [claim.verdict for claim in run.claims] == [expected]
    if expected == "unsupported":
        assert run.result == "failed"
    elif expected == "not_judged":
        assert run.result != "verified"


def test_an_acknowledgement_without_a_store_change_is_unsupported() -> None:
    run = scored("taught", claims=[Claim(kind="saved")], saved=True, store_changes=False)
    assert [claim.verdict for claim in run.claims] == ["unsupported"]
    assert verdict(run, "retention") == "fail"


def test_a_session_that_saw_a_canary_was_not_fresh() -> None:
    assert scored("positive", leaked=["system prompt"]).result == "unverified"


def test_stages_that_depend_on_an_uncontrolled_clock_are_unobserved() -> None:
    """CT-4 lapsed before the case's clock and before the real one, so the clock does not matter
    there; it does where the real time lies on the other side."""
    same = scored("expiry", clock_control="system")
    assert verdict(same, "resolution") == "pass"
    story = Story()
    cell = story.run("expiry", clock_control="system")
    story.facts = [
        fact
        if fact.stream != f"cell/{cell}"
        else type(fact)(
            fact.seq, fact.id, fact.stream, fact.version, "2026-05-01T00:00:00.000000Z",
            fact.actor, fact.cause, fact.run, fact.event,
        )
        for fact in story.facts
    ]  # fmt: skip
    run = fold(TransferScores(story.read), story.facts).runs[cell]
    assert verdict(run, "resolution") == "unobserved"
    assert verdict(run, "decision") == "pass"


def test_a_broken_trace_or_store_is_not_shown() -> None:
    story = Story()
    cell = story.run("positive")
    for digest, content in story.contents.items():
        if content.startswith(b"[{"):
            story.contents[digest] = b"[[["
    run = fold(TransferScores(story.read), story.facts).runs[cell]
    assert verdict(run, "retention") == "unobserved"
    assert run.result == "unverified"


@pytest.mark.parametrize(
    ("frozen", "expected", "served"),
    [({"CT-1": "superseded", "CT-2": "active"}, "fail", True), ({}, "unobserved", None)],
)
def test_a_superseded_record_is_told_by_the_freeze_and_not_by_its_author(
    frozen: dict[str, EffectiveLifecycle], expected: str, served: bool | None
) -> None:
    assert FAMILY.record("CT-1").lifecycle == "active"
    cases = tuple(
        msgspec.structs.replace(case, effective_lifecycle=frozen)
        if case.kind == "supersession"
        else case
        for case in FAMILY.cases
    )
    story = Story(family=msgspec.structs.replace(FAMILY, cases=cases))
    run = scored("supersession", story, decisions=[("ledger-b", ["CT-1", "CT-2"])])
    assert (verdict(run, "resolution"), run.served) == (expected, served)


class DrivesItself(Story):
    """The same study of a system that drives itself: it says what its memory delivered."""

    def freeze(self) -> None:
        text = self.study_toml.replace('kind = "reader"', 'kind = "own"')
        command = 'kind = "command"\ncommand = ["agent"]'
        self.study_toml = text.replace('kind = "store"\npolicy = "none"', command).replace(
            'kind = "store"', command
        )
        super().freeze()


@pytest.mark.parametrize("declares", ["retrieval", "admitted", "used"])
@pytest.mark.parametrize(("reported", "grade"), [("unobserved", "none"), ("counts", "reported")])
def test_silence_of_a_system_that_reports_is_its_own_word(
    declares: str, reported: str, grade: str
) -> None:
    """A program that declared a trace and sent none had relevance and resolution as captured."""
    shows = Capabilities(trace=declares, plan="before_action", store="readable", clock="settable")  # type: ignore[arg-type]
    silent: dict[str, Any] = {"delivered": [], "capabilities": shows}
    own = scored("negative", DrivesItself(reported=reported, basis="reported"), **silent)
    assert own.stages["relevance"].grade == grade
    assert verdict(own, "relevance") == ("unobserved" if grade == "none" else "pass")
    ours = scored("negative", **silent)
    assert (verdict(ours, "relevance"), ours.stages["relevance"].grade) == ("pass", "captured")
    missed = scored("positive", DrivesItself(reported=reported, basis="reported"), **silent)
    assert missed.stages["retrieval"].grade == grade
    assert verdict(missed, "retrieval") == ("unobserved" if grade == "none" else "fail")
    lapsed = scored("expiry", DrivesItself(reported=reported, basis="reported"), **silent)
    assert lapsed.stages["resolution"].grade != "captured"
