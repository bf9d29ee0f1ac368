"""``ledger audit transfer``: no verdict without evidence, and no word about any verdict."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.loop import Context
from projections.audits.finding import Verdict
from projections.audits.registry import AUDITS
from projections.audits.run import run_audits
from projections.fold import fold
from projections.progress import Progress
from projections.transfer.scores import RunScore, TransferScores
from schemas.events.run import RunStopped
from schemas.events.transfer import (
    RemediationAbandoned,
    RemediationChanged,
    RemediationClosed,
    RemediationOpened,
    RemediationRerun,
    SessionOpened,
    TransferScored,
)
from schemas.transfer.family import LAYERS, Stage
from tests.transfer_scores.recorded_story import append, record, two_systems
from tests.transfer_scores.transfer_story import FAMILY, Story


def audited(context: Context, name: str = "transfer") -> Verdict:
    (verdict,) = run_audits(context.log, context.artifacts.get, [name])
    return verdict


def texts(verdict: Verdict) -> list[str]:
    return [finding.text for finding in verdict.findings if finding.severity == "violation"]


def scores_of(story: Story) -> list[RunScore]:
    return fold(TransferScores(story.read), story.facts).scores()


def with_scoring(story: Story, root: Path, runs: list[RunScore]) -> Context:
    context = record(story, root)
    scores = context.artifacts.put(msgspec.json.encode(runs), "application/json")
    event = TransferScored(scorer="0" * 64, head=10_000, scores=scores)
    append(context, "study", event)
    return context


def changed(run: RunScore, stage: Stage, **changes: Any) -> RunScore:
    found = msgspec.structs.replace(run.stages[stage], **changes)
    return msgspec.structs.replace(run, stages={**run.stages, stage: found})


def test_a_suite_without_a_flaw(tmp_path: Path) -> None:
    verdict = audited(record(two_systems(Story()), tmp_path / "study"))
    assert (verdict.status, verdict.findings) == ("ok", ())
    assert verdict.checked == {
        "runs": 18,
        "verdicts": 87,
        "scorings": 0,
        "closed_remediations": 0,
        "abandoned_remediations": 0,
    }


def test_a_recorded_verdict_without_evidence(tmp_path: Path) -> None:
    story = Story()
    story.run("positive")
    runs = [changed(scores_of(story)[0], "action", evidence=())]
    found = texts(audited(with_scoring(story, tmp_path / "study", runs)))
    assert any("the recorded verdict of action has no evidence" in text for text in found)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_run_that_was_stopped_is_none_of_the_attempts(tmp_path: Path, recorded: bool) -> None:
    """Four attempts where three are allowed: the first was under way when somebody stopped."""
    story = Story()
    for attempt in range(4):
        ended = "void" if attempt < 3 else "completed"
        events = story.events(story.cells[0], FAMILY.cases[0], attempt=attempt, ended=ended)
        begun, *rest, finished = events
        story.add(story.cells[0].stream, begun)
        if attempt == 0:
            finished = msgspec.structs.replace(finished, stopped=True)
            if recorded:
                stop = RunStopped(reason="interrupted", detail="Ctrl-C", cells_finished=0)
                story.add("runs", stop)
        for event in (*rest, finished):
            story.add(story.cells[0].stream, event)
    context = record(story, tmp_path / "study")
    verdict = audited(context, "retries")
    notes = [finding.text for finding in verdict.findings if "a time more" in finding.text]
    assert notes
    assert all(note.endswith("; a stop of the run ended 1 before it)") for note in notes)
    found = texts(verdict)
    assert bool(found) is not recorded, found
    assert all("a stop that nobody recorded" in text for text in found)
    progress = fold(Progress(context.artifacts.get), context.log_facts())
    assert progress.cells[str(story.cells[0])].stopped == 1


def test_an_upgrade_between_two_scorings(tmp_path: Path) -> None:
    story = Story()
    story.run("positive")
    good = scores_of(story)[0]
    # A log holds one record more at its start than the story does.
    good = msgspec.structs.replace(good, started=good.started + 1, finished=good.finished + 1)
    context = with_scoring(
        story, tmp_path / "study", [changed(good, "retrieval", verdict="unobserved", evidence=())]
    )
    assert audited(context).status == "ok"
    scores = context.artifacts.put(msgspec.json.encode([good]), "application/json")
    append(context, "study", TransferScored(scorer="0" * 64, head=10_000, scores=scores))
    (text,) = texts(audited(context))
    assert "retrieval was unobserved in an earlier scoring of this run" in text


BEFORE = dict.fromkeys(LAYERS, "0" * 64)
AFTER = {**BEFORE, "query": "1" * 64}
FAILING, RERUN = "positive.d1/full/reader/0", "positive.d1/empty/reader/0"
BOTH = {**AFTER, "relevance_filter": "1" * 64}


@pytest.mark.parametrize(
    ("shown_before", "shown_after", "missing"),
    [
        (BEFORE, AFTER, []),
        ({}, {}, []),  # what the system does not show is as the receipt says
        ({"query": "0" * 64}, {"query": "1" * 64}, []),
        (BOTH, AFTER, [f"the query, relevance_filter before the change as {FAILING} shows"]),
        (BEFORE, BOTH, [f"{RERUN} with the recorded relevance_filter of the change"]),
        ({"query": "0" * 64}, {}, [f"{RERUN} with the recorded query of the change"]),
    ],
)
def test_a_receipt_whose_layers_its_runs_do_not_show(
    tmp_path: Path,
    shown_before: dict[str, str],
    shown_after: dict[str, str],
    missing: list[str],
) -> None:
    story = Story()
    story.run("positive", decisions=["queue"], layers=shown_before)
    for event in (
        RemediationOpened(
            remediation="R", cell=FAILING, stage="decision", layer="query", manifest=BEFORE
        ),
        RemediationChanged(
            remediation="R",
            layer="query",
            before=BEFORE,
            after=AFTER,
            attributed=True,
            new_memory="empty",
            new_driver="reader",
        ),
        RemediationRerun(remediation="R", cells=(RERUN,), sample_seed="s"),
    ):
        story.add("remediation/R", event)
    story.run("positive", memory="empty", layers=shown_after)
    story.add(
        "remediation/R", RemediationClosed(remediation="R", suite_version="1", limitation="none")
    )
    found = texts(audited(record(story, tmp_path / "study")))
    assert [text.partition("closed without ")[2] for text in found] == missing


def test_a_remediation_that_went_on_after_its_end(tmp_path: Path) -> None:
    story = Story()
    story.run("positive", decisions=["queue"])
    for event in (
        RemediationOpened(
            remediation="R", cell=FAILING, stage="decision", layer="query", manifest={}
        ),
        RemediationAbandoned(remediation="R", reason="no time"),
        RemediationRerun(remediation="R", cells=(FAILING,), sample_seed="s"),
    ):
        story.add("remediation/R", event)
    (text,) = texts(audited(record(story, tmp_path / "study")))
    assert "remediation R went on after it was abandoned" in text


def test_another_prompt_than_the_frozen_one(tmp_path: Path) -> None:
    story = Story()
    story.run("positive")
    prompt = story.put("Write the report, and remember the ledger.")
    story.facts = [
        msgspec.structs.replace(fact, event=msgspec.structs.replace(fact.event, prompt=prompt))
        if isinstance(fact.event, SessionOpened)
        else fact
        for fact in story.facts
    ]
    (text,) = texts(audited(record(story, tmp_path / "study")))
    assert "not the frozen prompt" in text


def test_a_session_that_was_not_fresh(tmp_path: Path) -> None:
    story = Story()
    story.run("positive", leaked=["system prompt"])
    (text,) = texts(audited(record(story, tmp_path / "study")))
    assert "canary" in text


def test_a_fixture_that_began_otherwise(tmp_path: Path) -> None:
    story = Story()
    story.run("positive")
    story.run("positive", memory="empty")
    last = max(fact.seq for fact in story.facts if isinstance(fact.event, SessionOpened))
    story.facts = [
        msgspec.structs.replace(fact, event=msgspec.structs.replace(fact.event, fixture="e" * 64))
        if fact.seq == last and isinstance(fact.event, SessionOpened)
        else fact
        for fact in story.facts
    ]
    (text,) = texts(audited(record(story, tmp_path / "study")))
    assert "another state" in text


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ({"memory": "empty"}, []),
        ({"memory": "empty", "ended": "void"}, ["without the run positive.d1/empty/reader/0"]),
        (None, ["without the run positive.d1/empty/reader/0"]),
    ],
)
def test_a_closed_remediation_is_asked_again_for_its_runs(
    again: dict[str, Any] | None, expected: list[str], tmp_path: Path
) -> None:
    story = Story()
    failing = story.run("positive", decisions=["queue"])
    stream = "remediation/R"
    story.add(
        stream,
        RemediationOpened(
            remediation="R", cell=failing, stage="decision", layer="unknown", manifest={}
        ),
    )
    story.add(
        stream,
        RemediationChanged(
            remediation="R",
            layer="unknown",
            before={},
            after={},
            attributed=False,
            new_memory="empty",
            new_driver="reader",
        ),
    )
    cells = ("positive.d1/empty/reader/0",)
    story.add(stream, RemediationRerun(remediation="R", cells=cells, sample_seed="s"))
    if again is not None:
        story.run("positive", **again)
    story.add(stream, RemediationClosed(remediation="R", suite_version="1", limitation="one case"))
    verdict = audited(record(story, tmp_path / "study"))
    assert verdict.checked["closed_remediations"] == 1
    found = [text for text in texts(verdict) if "remediation R" in text]
    assert len(found) == len(expected)
    assert all(words in text for words, text in zip(expected, found, strict=True))


def test_no_finding_says_how_a_run_ended(tmp_path: Path) -> None:
    story = Story()
    story.run("positive", decisions=["queue"], leaked=["x"], ended="crashed")
    verdict = audited(record(story, tmp_path / "study"))
    words = " ".join(finding.text for finding in verdict.findings)
    for outcome in ("fail", "pass", "crash", "queue", "verified"):
        assert outcome not in words


@pytest.mark.parametrize(
    "name", ["funnel", "contamination", "leak-probes", "residency", "budgets", "transfer"]
)
def test_audits_that_do_not_apply_say_so(name: str, tmp_path: Path) -> None:
    known = {audit.NAME for audit in AUDITS}
    assert name in known, known
    verdict = audited(record(two_systems(Story()), tmp_path / "study"), name)
    assert verdict.status == ("ok" if name == "transfer" else "not_applicable"), verdict


def test_a_void_run_may_be_run_again(tmp_path: Path) -> None:
    story = Story()
    story.run("positive", ended="void")
    story.run("positive", attempt=1)
    verdict = audited(record(story, tmp_path / "study"), "retries")
    assert (verdict.status, verdict.checked["cell_reruns"]) == ("ok", 1)
