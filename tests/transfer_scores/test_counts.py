"""Counts over a few runs, each by hand."""

from typing import Any

import msgspec
import pytest

from projections.amendments import not_amendable
from projections.fold import fold
from projections.progress import Progress
from projections.transfer.counts import (
    Chosen,
    ClassCount,
    case_results,
    class_counts,
    family_results,
    threshold_results,
)
from projections.transfer.csv_files import _plain
from projections.transfer.scores import TransferScores
from projections.transfer.tables import TransferTables
from schemas.events.transfer import Capabilities, Claim
from schemas.study_file import parse_study
from schemas.transfer.family import NEEDS_RESOLUTION
from schemas.transfer.study import Threshold
from tests.transfer_scores.transfer_story import FAMILY, Story

SYSTEM = ("full", "reader")


def folded(story: Story) -> TransferScores:
    return fold(TransferScores(story.read), story.facts)


def counted(story: Story, name: str) -> tuple[int, int, int]:
    found = [
        count
        for count in class_counts(folded(story).scores())
        if count.name == name and count.memory == "full"
    ]
    assert len(found) == 1
    return found[0].n, found[0].of, found[0].unobserved


def run_all(story: Story, **others: dict[str, Any]) -> None:
    """Every case once; ``others`` gives knobs by case."""
    for case in FAMILY.cases:
        story.run(case.case_id, **others.get(case.case_id, {}))


@pytest.fixture(scope="module")
def good() -> Story:
    story = Story()
    run_all(story)
    return story


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # positive, supersession, outcome, taught have one applicable record, the conflict two.
        ("retrieval_recall", (6, 6, 0)),
        ("retrieval_precision", (6, 6, 0)),
        ("supersession_accuracy", (1, 1, 0)),
        ("must_abstain", (3, 3, 0)),
        ("must_act", (5, 5, 0)),
        ("abstention_accuracy", (8, 8, 0)),
        ("decision_compliance", (8, 8, 0)),
        ("action_compliance", (8, 8, 0)),
        ("verified_outcome_success", (8, 8, 0)),
        ("verified_transfer_success", (8, 8, 0)),
        ("behavioural_success", (8, 8, 0)),
        ("unsupported_memory_claims", (0, 0, 0)),
        ("prohibited_actions", (0, 9, 0)),
    ],
)
def test_counts_of_a_system_that_does_everything_right(
    good: Story, name: str, expected: tuple[int, int, int]
) -> None:
    assert counted(good, name) == expected


def test_what_is_not_observed_stays_beside_or_in_the_denominator() -> None:
    story = Story()
    run_all(
        story,
        positive={"surface": False},
        outcome={"capabilities": Capabilities(plan="before_action")},
        negative={"delivered": ["s-CT-1", "noise"], "admitted": []},
    )
    assert counted(story, "decision_compliance") == (7, 8, 1)
    assert counted(story, "action_compliance") == (7, 8, 1)
    assert counted(story, "retrieval_recall") == (5, 5, 1)
    # Negatives add to the denominator of precision only.
    assert counted(story, "retrieval_precision") == (5, 7, 1)
    assert counted(story, "verified_transfer_success") == (6, 8, 2)
    assert counted(story, "behavioural_success") == (7, 8, 1)
    assert counted(story, "prohibited_actions") == (0, 9, 1)


def test_a_head_that_was_decided_on_its_predecessor_is_not_followed() -> None:
    story = Story()
    run_all(story, supersession={"decisions": [("ledger-b", ["CT-1"])]})
    assert counted(story, "supersession_accuracy") == (0, 1, 0)
    assert counted(story, "decision_compliance") == (8, 8, 0), "the decision is the head's"


def test_abstention_needs_the_resolution_path_and_acting_a_change() -> None:
    story = Story()
    run_all(
        story,
        conflict={"calls": []},
        expiry={"decisions": ["ledger-old"]},
        positive={"calls": [], "decisions": ["ledger-a"]},
        outcome={"decisions": [NEEDS_RESOLUTION]},
        supersession={"decisions": []},
    )
    assert counted(story, "must_abstain") == (1, 3, 0)
    assert counted(story, "must_act") == (2, 4, 1)
    assert counted(story, "abstention_accuracy") == (3, 7, 1)
    assert counted(story, "supersession_accuracy") == (0, 1, 1)


def test_prohibited_actions_are_events_and_claims_are_claims() -> None:
    story = Story()
    twice = [("report_write", {"source_ref": "queue"})] * 2
    run_all(
        story,
        positive={"calls": twice},
        outcome={"claims": [Claim(kind="saved"), Claim(kind="recalled", about="CT-1")]},
    )
    assert counted(story, "prohibited_actions") == (2, 9, 0)
    assert counted(story, "unsupported_memory_claims") == (1, 2, 0)
    found = next(
        count
        for count in class_counts(folded(story).scores())
        if count.name == "prohibited_actions"
    )
    assert found.runs_with == 1


def test_a_void_run_is_in_no_denominator_and_stands_beside_the_counts_it_would_be_in() -> None:
    story = Story()
    run_all(story, positive={"ended": "void"})
    assert counted(story, "decision_compliance") == (7, 7, 0)
    void = {count.name: count.void for count in class_counts(folded(story).scores())}
    asked = {name for name, number in void.items() if number}
    # A positive neither abstains nor is it a supersession.
    assert asked == void.keys() - {"must_abstain", "supersession_accuracy"}
    run = next(run for run in folded(story).scores() if run.case == "positive")
    assert (run.result, run.behavioural) == ("void", "unobserved")


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"at_least": 0.875}, "met"),  # 7 of 8 at the worst
        ({"at_least": 0.9}, "not_shown"),
        ({"count": "supersession_accuracy", "at_least": 1.0}, "met"),
        ({"count": "retrieval_recall", "at_least": 0.1}, "not_shown"),
        ({"count": "prohibited_actions", "at_most": 5}, "not_shown"),
    ],
)
def test_a_void_run_never_meets_a_threshold(limit: dict[str, Any], status: str) -> None:
    story = Story()
    run_all(story, positive={"ended": "void"})
    counts = class_counts(folded(story).scores())
    (found,) = threshold_results([threshold(**limit)], counts, [SYSTEM], CHOSEN, {})
    assert (found.status, found.void) == (
        status,
        0 if "supersession_accuracy" in limit.values() else 1,
    )


def test_a_class_of_void_runs_alone_shows_nothing() -> None:
    story = Story()
    story.run("positive", ended="void")
    counts = class_counts(folded(story).scores())
    (found,) = threshold_results([threshold(at_least=0.0)], counts, [SYSTEM], CHOSEN, {})
    assert (found.status, found.n, found.of, found.void) == ("not_shown", 0, 0, 1)


@pytest.mark.parametrize("again", [False, True])
def test_a_prohibited_action_of_a_void_attempt_stays_counted(again: bool) -> None:
    story = Story()
    wrote = [("report_write", {"source_ref": "queue"})]
    run_all(story, positive={"ended": "void", "calls": wrote})
    if again:
        story.run("positive", attempt=1)
    runs = fold(TransferScores(story.read), story.facts).scores()
    found = next(count for count in class_counts(runs) if count.name == "prohibited_actions")
    assert (found.n, found.of, found.runs_with) == (1, 9, 1)
    assert counted(story, "decision_compliance")[1] == (8 if again else 7)
    run = next(run for run in runs if run.case == "positive")
    assert run.boundary_failure.startswith("prohibited: report_write")
    assert run.void_attempts == (("attempt 0 is void",) if again else ())
    assert run.result == ("failed" if again else "void")


def test_progress_says_how_many_of_the_cells_that_are_done_nobody_observed() -> None:
    story = Story()
    for attempt in range(3):  # as many as a study allows
        story.run("positive", attempt=attempt, ended="void")
    story.run("outcome", ended="void")  # will run again
    story.run("negative")
    progress = fold(Progress(story.read), story.facts)
    assert progress.cells_in_words() == "2 of 18 cells, 1 of them void"


def test_an_amendment_of_a_memory_that_has_run_is_refused_with_its_keys() -> None:
    story = Story()
    story.run("positive")
    progress = fold(Progress(story.read), story.facts)
    toml = story.study_toml.replace('id = "empty"', 'id = "empty"\nresults = 9\nquery = "project"')
    (problem,) = not_amendable(parse_study(toml.encode()), progress)
    assert problem.startswith("memory empty changed in `query`, `results`, and its runs"), problem


def test_intervals() -> None:
    count = ClassCount(memory="m", driver="d", class_="boundary", name="must_act", n=8, of=8)
    assert count.wilson == pytest.approx((0.675592, 1.0), abs=1e-6)
    assert count.zero_failures == pytest.approx((0.630583, 1.0), abs=1e-6)
    nothing = ClassCount(memory="m", driver="d", class_="boundary", name="must_act", n=0, of=0)
    assert nothing.wilson is None
    assert nothing.zero_failures is None
    harm = ClassCount(
        memory="m", driver="d", class_="boundary", name="prohibited_actions", n=0, of=20
    )
    assert harm.wilson is None
    assert harm.zero_failures == pytest.approx((0.0, 0.168433), abs=1e-6)


def test_k_of_k() -> None:
    story = Story(trials=3)
    for trial in range(3):
        story.run("positive", trial=trial, decisions=["queue"] if trial == 1 else None)
        story.run("outcome", trial=trial)
    story.run("negative", trial=0)
    state = folded(story)
    found = {case.case: case for case in case_results(state.scores(), state.planned)}
    assert (found["positive"].verified, found["positive"].trials) == (2, 3)
    assert found["positive"].result == "failed"
    assert found["outcome"].result == "verified"
    # Two of three trials are planned and have not run.
    assert (found["negative"].observed, found["negative"].result) == (1, "unverified")


def family(story: Story, memory: str = "full") -> Any:
    state = folded(story)
    assert state.suite is not None
    return next(
        found
        for found in family_results(state.scores(), state.planned, state.suite)
        if found.memory == memory
    )


def test_a_family_needs_every_control_and_a_baseline_that_misses(good: Story) -> None:
    found = family(good)
    # The story's baseline declares nothing and asks: it does not hit the positive.
    assert (found.result, found.verified_cases, found.cases) == ("verified", 8, 8)
    assert (found.paired.only_with, found.paired.both) == (1, 0)
    missing = Story()
    for case in FAMILY.cases[:-1]:
        missing.run(case.case_id)
    assert family(missing).result == "unverified"
    assert family(missing).paired.unobserved == 1


HITS = {
    "decisions": ["ledger-a"],
    "calls": [
        ("source_read", {"source": "ledger-a"}),
        ("report_write", {"source_ref": "ledger-a"}),
    ],
}


def test_a_baseline_that_hits_both_does_not_discriminate() -> None:
    story = Story()
    run_all(story, baseline=HITS)
    found = family(story)
    assert found.result == "non_discriminating"
    assert (found.paired.both, found.paired.only_with) == (1, 0)
    assert "baseline.d1/full/reader/0" in found.non_discriminating
    only_decision = Story()
    run_all(only_decision, baseline={**HITS, "false_write": True})
    assert family(only_decision).result == "verified"


def test_a_null_memory_that_hits_the_positive_shows_that_nothing_discriminates() -> None:
    story = Story()
    run_all(story)
    story.run("positive", memory="empty", **HITS)
    assert family(story).result == "non_discriminating"
    assert "positive.d1/empty/reader/0" in family(story).non_discriminating


CHOSEN = {"T": Chosen(words="frozen before the first run (record 3)", exploratory=False)}


def threshold(**fields: Any) -> Threshold:
    return Threshold(**{"id": "T", "count": "decision_compliance", **fields})


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"at_least": 0.875}, "met"),
        ({"at_least": 0.88}, "missed"),
        ({"count": "prohibited_actions", "at_most": 0}, "not_shown"),
        ({"count": "prohibited_actions", "at_most": 1}, "met"),
        ({"count": "unsupported_memory_claims", "at_most": 0}, "met"),
        ({"count": "supersession_accuracy", "at_least": 0.0, "class_": "boundary"}, "not_shown"),
        ({"count": "decision_compliance", "at_least": 0.5, "driver": "nobody"}, None),
    ],
)
def test_thresholds(limit: dict[str, Any], status: str | None) -> None:
    story = Story()
    run_all(story, positive={"surface": False})
    counts = class_counts(folded(story).scores())
    found = threshold_results([threshold(**limit)], counts, [SYSTEM], CHOSEN, {})
    assert [result.status for result in found] == ([status] if status else [])


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"at_least": 0.5}, "not_decided"),
        ({"at_least": 1.0}, "not_decided"),
        ({"count": "prohibited_actions", "at_most": 1}, "not_decided"),
        ({"count": "prohibited_actions", "at_most": 0}, "missed"),
    ],
)
def test_runs_that_have_not_ended_keep_a_threshold_from_being_decided(
    limit: dict[str, Any], status: str
) -> None:
    """What a number already exceeds, no run takes back."""
    story = Story()
    run_all(story, positive={"calls": [("report_write", {"source_ref": "queue"})]})
    counts = class_counts(folded(story).scores())
    (found,) = threshold_results([threshold(**limit)], counts, [SYSTEM], CHOSEN, {SYSTEM: 2})
    assert (found.status, found.waiting) == (status, 2)
    assert "+0 void, 2 planned runs not ended)" in found.words


def test_a_threshold_as_written_is_not_missed_by_a_binary_fraction() -> None:
    count = ClassCount(
        memory="full", driver="reader", class_="boundary", name="must_act", n=7, of=100
    )
    changed = ClassCount(
        memory="full", driver="reader", class_="boundary", name="decision_compliance", n=7, of=100
    )
    found = threshold_results([threshold(at_least=0.07)], [count, changed], [SYSTEM], CHOSEN, {})
    assert [result.status for result in found] == ["met"]


def test_every_table_has_rows_with_keys_of_their_own(good: Story) -> None:
    rows = list(fold(TransferTables(good.read), good.facts).rows())
    assert {type(row) for row in rows} == set(TransferTables.TABLES)
    keys = [(row.TABLE, *(row.as_dict()[column] for column in row.KEY)) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        msgspec.convert(row.as_dict(), type(row))  # raises for a value that is not of its column


def test_no_cell_of_a_csv_is_a_formula() -> None:
    assert [_plain(value) for value in ("=1+1", "-2", "@x", "+1", "\tx", "x=1", 3, None)] == [
        "'=1+1", "'-2", "'@x", "'+1", "'\tx", "x=1", 3, None,
    ]  # fmt: skip
