"""A case from its start to its end: what is recorded, in order, and what each fault becomes."""

import errno
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from actors.memory_systems.contract import (
    Acknowledgement,
    Delivery,
    Opening,
    Snapshot,
    SystemFailure,
)
from actors.memory_systems.store import StoreMemory
from harnesses.memory.contract import Notice, StoredItem
from ledger.errors import Unfinished
from ledger.log import Batch, NewEvent
from ledger.named_artifacts import named_artifacts
from schemas.base import Event
from schemas.commands import ContinueStudy
from schemas.events.cell import CellStarted
from schemas.events.run import RunStopped
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.identifiers import RUN_STREAM
from schemas.transfer.correction import Session
from schemas.transfer.rendering import is_intact
from schemas.transfer.study import Memory

Make = Callable[..., Any]
POSITIVE = "F101-01-positive.d0/full/reader/0"


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_case_is_recorded_in_the_order_in_which_it_happened(laboratory: Make) -> None:
    events = laboratory().run(POSITIVE)
    kinds = [type(event).__name__ for event in events]
    assert kinds[:6] == [
        "CellStarted",
        "SystemDescribed",
        "MemorySeeded",
        "StoreSnapshotted",
        "SessionOpened",
        "MemoryRetrieved",
    ]
    assert kinds[-4:] == ["SessionClosed", "SurfaceRead", "StoreSnapshotted", "CaseFinished"]
    assert set(kinds[6:-4]) == {"FixtureCalled", "DecisionDeclared"}
    assert [event.when for event in of(events, StoreSnapshotted)] == [
        "before_session",
        "after_session",
    ]
    finished = of(events, CaseFinished)[0]
    assert (finished.ended, finished.attempt, finished.uncertainty) == ("completed", 0, ())


def test_what_was_seeded_is_what_the_snapshot_holds_and_the_memory_delivers(
    laboratory: Make,
) -> None:
    lab = laboratory()
    events = lab.run("F101-01-positive.d50/full/reader/0")
    seeded = of(events, MemorySeeded)[0]
    (stored,) = seeded.ids["CT-101"]
    assert len(seeded.distractors) == 50 and stored not in seeded.distractors
    rendering = lab.read(seeded.renderings)["CT-101"]
    items = {item["id"]: item["text"] for item in lab.read(of(events, StoreSnapshotted)[0].items)}
    assert len(items) == 51
    assert is_intact(rendering, items[stored])
    assert 0 < list(items).index(stored) < 50, "the record does not stand at the store's edge"
    retrieved = of(events, MemoryRetrieved)[0]
    assert ([item.id for item in retrieved.delivered], retrieved.admitted) == ([stored], (stored,))
    assert lab.read(retrieved.content) == [{"id": stored, "text": items[stored]}]


def test_the_journal_counts_and_the_decision_comes_before_the_change(laboratory: Make) -> None:
    lab = laboratory()
    events = lab.run(POSITIVE)
    calls = of(events, FixtureCalled)
    assert [call.number for call in calls] == list(range(len(calls)))
    assert of(events, SurfaceRead)[0].calls == len(calls)
    decision = of(events, DecisionDeclared)[0]
    assert (decision.option, decision.basis, decision.before_write) == (
        "staging",
        ("CT-101",),
        True,
    )
    assert calls[decision.call].tool == "declare_decision"
    after = lab.read(of(events, SurfaceRead)[0].after)
    assert after["trees"]["staging"]["limits.toml"] == {"limit": 40}
    assert lab.read(of(events, SurfaceRead)[0].before)["trees"]["staging"]["limits.toml"] == {
        "limit": 25
    }


def test_the_same_cell_gives_the_same_records(laboratory: Make) -> None:
    first, second = (laboratory().run(POSITIVE) for _ in range(2))
    assert first == second
    other_trial = laboratory().run(POSITIVE[:-1] + "1")
    assert of(other_trial, MemorySeeded) != of(first, MemorySeeded), "a trial has its own nonces"


def test_a_persistence_case_teaches_first_and_starts_anew(laboratory: Make) -> None:
    lab = laboratory()
    events = lab.run("F105-02-persistence.d0/full/reader/0")
    assert [event.when for event in of(events, StoreSnapshotted)] == [
        "before_write",
        "after_write",
        "before_session",
        "after_session",
    ]
    before, after, again, _ = of(events, StoreSnapshotted)
    assert before.digest != after.digest == again.digest
    assert [event.purpose for event in of(events, SessionOpened)] == ["write", "task"]
    assert [event.acknowledged for event in of(events, MemoryWritten)] == [True]
    assert of(events, SessionClosed)[0].claims[0].kind == "saved"
    assert of(events, DecisionDeclared)[0].option == "guard_size"


@pytest.mark.parametrize(("driver", "claims"), [("liar", 1), ("ignorer", 0), ("null", 0)])
def test_who_keeps_nothing_leaves_the_store_as_it_was(
    laboratory: Make, driver: str, claims: int
) -> None:
    events = laboratory().run(f"F105-02-persistence.d0/full/{driver}/0")
    before, after = of(events, StoreSnapshotted)[:2]
    assert before.digest == after.digest
    assert len(of(events, SessionClosed)[0].claims) == claims


def test_a_session_is_fresh_and_no_canary_is_seen_outside_the_memory(laboratory: Make) -> None:
    lab = laboratory()
    events = lab.run(POSITIVE)
    assert of(events, SessionClosed)[0].leaked == ()
    opened = of(events, SessionOpened)[0]
    assert opened.freshness["home"] == opened.freshness["directory"] == "new and empty"
    mark = lab.read(of(events, MemorySeeded)[0].renderings)["CT-101"][-16:]
    assert mark.encode() not in lab.context.artifacts.get(opened.prompt)
    assert not list((lab.context.directory.var / "scratch" / "memory_session").iterdir())


@pytest.mark.parametrize(
    "written", ["note {}", "{b64}", "{hex}", "x={split}"], ids=["plain", "base64", "hex", "split"]
)
def test_a_canary_outside_the_memory_channel_is_recorded(
    laboratory: Make, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    lab = laboratory()
    events = lab.run(POSITIVE)
    mark = lab.read(of(events, MemorySeeded)[0].renderings)["CT-101"][-16:]
    encoded = {"b64": b64encode(mark.encode()).decode(), "hex": mark.encode().hex()}
    text = written.format(mark, split="\u200b".join(mark), **encoded)
    monkeypatch.setitem(os.environ, "PROFILE", text)
    assert of(laboratory().run(POSITIVE), SessionClosed)[0].leaked == ("environment",)


def test_what_a_system_declares_and_is_made_of_is_recorded(laboratory: Make) -> None:
    lab = laboratory()
    described = of(lab.run(POSITIVE), SystemDescribed)[0]
    memory, driver = lab.read(described.memory), lab.read(described.driver)
    assert set(memory["layers"]) | set(driver["layers"]) == {
        "representation",
        "indexing",
        "query",
        "relevance_filter",
        "conflict_policy",
        "decision_control",
        "tool_execution",
        "outcome_check",
    }
    assert (described.capabilities.trace, described.clock_control) == ("admitted", "settable")
    early = of(lab.run(POSITIVE.replace("reader", "early_acknowledger")), SystemDescribed)[0]
    other = lab.read(early.driver)["layers"]
    assert [name for name in other if other[name] != driver["layers"][name]] == ["outcome_check"]


# --- what goes wrong ------------------------------------------------------------------------------


class Faulty(StoreMemory):
    """Our store, until it is asked."""

    fault: Exception | None = None
    at: str = "recall"

    def recall(self, query: str, session: Session) -> Delivery:
        if self.at == "recall" and self.fault is not None:
            raise self.fault
        return super().recall(query, session)

    def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        if self.at == "seed" and self.fault is not None:
            raise self.fault
        return super().seed(texts)

    def snapshot(self) -> Snapshot:
        if self.at == "snapshot" and self.fault is not None:
            raise self.fault
        return super().snapshot()

    def remember(self, text: str, session: Session) -> Acknowledgement:
        if self.at == "remember" and self.fault is not None:
            raise self.fault
        return super().remember(text, session)


def faulty(at_: str, fault_: Exception) -> Callable[[Memory, Opening], StoreMemory]:
    class ThisFault(Faulty):
        fault, at = fault_, at_

    return ThisFault


@pytest.mark.parametrize("ended", ["crashed", "timed_out", "flooded", "malformed"])
@pytest.mark.parametrize("at", ["recall", "seed", "snapshot"])
def test_what_the_system_does_wrong_is_an_observed_outcome(
    laboratory: Make, ended: Any, at: str
) -> None:
    lab = laboratory(opener=faulty(at, SystemFailure(ended, "no answer")))
    events = lab.run(POSITIVE)
    finished = of(events, CaseFinished)[0]
    assert (finished.ended, finished.detail) == (ended, "no answer")
    assert len(of(events, SurfaceRead)) == 1, "the surface is read whatever the system did"
    assert len(of(events, SessionClosed)) == (at == "recall")
    assert lab.requested() == [ContinueStudy()]
    assert lab.advance(POSITIVE) == [], "an observed outcome is not run again"


def test_a_failure_while_being_taught_ends_the_case(laboratory: Make) -> None:
    lab = laboratory(opener=faulty("remember", SystemFailure("crashed", "gone")))
    events = lab.run("F105-02-persistence.d0/full/reader/0")
    assert of(events, CaseFinished)[0].ended == "crashed"
    assert [event.purpose for event in of(events, SessionClosed)] == ["write"]


def test_a_fault_of_ours_is_void_and_run_again_up_to_the_attempts(laboratory: Make) -> None:
    lab = laboratory(opener=faulty("recall", ZeroDivisionError("ours")))
    for attempt in range(lab.in_hand.study.attempts):
        events = lab.run(POSITIVE)
        assert of(events, CellStarted)[0].attempt == attempt
        finished = of(events, CaseFinished)[0]
        assert (finished.ended, finished.attempt) == ("void", attempt)
        assert "ZeroDivisionError" in finished.detail
    assert lab.advance(POSITIVE) == [], "no attempts are left"


@pytest.mark.parametrize("error", [RecursionError("deep"), ValueError("surrogate"), KeyError("x")])
def test_what_cannot_be_taken_in_is_the_systems_and_no_fault_of_ours(
    laboratory: Make, error: Exception
) -> None:
    lab = laboratory(opener=faulty("recall", error))
    finished = of(lab.run(POSITIVE), CaseFinished)[0]
    assert finished.ended == "malformed"
    assert type(error).__name__ in finished.detail


@pytest.mark.parametrize("number", [errno.EISDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG])
def test_an_error_of_files_in_a_memorys_store_is_void_and_ends_with_the_attempts(
    laboratory: Make, number: int
) -> None:
    """Were it taken for one of the machine, a system could stop every run by what it leaves."""
    lab = laboratory(opener=faulty("recall", OSError(number, "in its store")))
    for _ in range(lab.in_hand.study.attempts):
        assert of(lab.run(POSITIVE), CaseFinished)[0].ended == "void"
    assert lab.advance(POSITIVE) == []


def test_a_full_disk_is_no_attempt_of_a_case(laboratory: Make) -> None:
    lab = laboratory(opener=faulty("recall", OSError(errno.ENOSPC, "no space left")))
    with pytest.raises(Unfinished, match="no space"):
        lab.advance(POSITIVE)


def test_what_was_stored_and_removed_before_a_commit_is_stored_again(laboratory: Make) -> None:
    """Leftovers of a commit that was lost are removed; the worker that made them lives on."""
    lab = laboratory()
    lab.run(POSITIVE)
    artifacts = lab.context.artifacts
    for digest in list(artifacts.list_digests()):
        artifacts.path(digest).unlink()
    lab.run(POSITIVE.replace("positive.d0", "positive.d50"))
    named = [
        reference
        for fact in lab.facts(POSITIVE.replace("positive.d0", "positive.d50"))
        for reference, _ in named_artifacts(fact.event)
    ]
    assert named and all(len(artifacts.get(item)) == item.length for item in named)


def test_a_void_run_is_followed_by_one_that_counts(laboratory: Make) -> None:
    lab = laboratory(opener=faulty("recall", ZeroDivisionError("ours")))
    lab.run(POSITIVE)
    lab.more = {}
    lab.restart()
    events = lab.run(POSITIVE)
    assert of(events, CaseFinished)[0].ended == "completed"
    assert of(events, CaseFinished)[0].attempt == 1
    assert len(of([fact.event for fact in lab.facts(POSITIVE)], CaseFinished)) == 2, "both recorded"


def test_a_case_is_void_where_our_own_fault_repeats_and_not_where_the_run_is_stopped(
    laboratory: Make,
) -> None:
    class Kills(StoreMemory):
        def recall(self, query: str, session: Session) -> Delivery:
            raise Killed

    lab = laboratory(opener=Kills)
    allowed = lab.in_hand.study.attempts
    for attempt in range(2 * allowed):
        with pytest.raises(Killed):
            lab.run(POSITIVE)
        stops = attempt < allowed
        if stops:
            stopped = RunStopped(reason="interrupted", detail="Ctrl-C", cells_finished=0)
            batch = Batch(events=[NewEvent(RUN_STREAM, stopped)], actor="operator", run="run-1")
            lab.context.log.append(batch)
        lab.restart()
        (finished,) = of(lab.advance_again(POSITIVE), CaseFinished)
        assert (finished.ended, finished.attempt) == ("void", attempt)
        assert finished.stopped == finished.detail.startswith("abandoned") == stops
    assert lab.advance(POSITIVE) == [], "our own fault has repeated as often as it may"


class Killed(BaseException):
    """What ends a process without a word."""


def test_a_worker_that_is_killed_leaves_an_attempt_that_is_recorded_as_void(
    laboratory: Make,
) -> None:
    class Kills(StoreMemory):
        def recall(self, query: str, session: Session) -> Delivery:
            raise Killed

    lab = laboratory(opener=Kills)
    with pytest.raises(Killed):
        lab.advance(POSITIVE)
    assert [type(fact.event) for fact in lab.facts(POSITIVE)] == [CellStarted]
    left = lab.context.log.claim(["memory_session"], 0.0)
    assert left is None, "the lease of the dead worker has not run out"
    lab.more = {}
    lab.restart()
    (finished,) = lab.advance_again(POSITIVE)
    assert isinstance(finished, CaseFinished)
    assert (finished.ended, finished.attempt) == ("void", 0)
    assert "was lost" in finished.detail
    events = lab.run(POSITIVE)
    assert of(events, CellStarted)[0].attempt == 1
    assert of(events, CaseFinished)[0].ended == "completed"


def test_a_prohibited_action_is_recorded_before_it_is_answered(laboratory: Make) -> None:
    """A worker that is killed behind it, by an operator who saw it, takes nothing back."""

    class Killing(StoreMemory):
        def snapshot(self) -> Snapshot:
            if of([fact.event for fact in lab.facts(cell)], FixtureCalled):
                raise Killed
            return super().snapshot()

    cell = "F101-02-scope_negative.d0/everything/over_applier/0"
    lab = laboratory(opener=Killing)
    with pytest.raises(Killed):
        lab.advance(cell)
    lab.more = {}
    lab.restart()
    (lost,) = lab.advance_again(cell)
    assert (lost.ended, lost.attempt) == ("void", 0)
    events = [fact.event for fact in lab.facts(cell)]
    case = lab.in_hand.unit("F101-02-scope_negative.d0")[2]
    assert any(called.tool == case.prohibited[0].tool for called in of(events, FixtureCalled))
    assert of(events, SessionOpened) and not of(events, SessionClosed)
    again = lab.run(cell)
    whole = laboratory().run(cell)
    assert [type(event) for event in again] == [type(event) for event in whole]
    assert of(again, FixtureCalled) == of(whole, FixtureCalled)


def test_more_calls_than_allowed_is_a_flood(laboratory: Make) -> None:
    events = laboratory(max_calls=2).run(POSITIVE)
    finished = of(events, CaseFinished)[0]
    assert (finished.ended, "more than 2 calls" in finished.detail) == ("flooded", True)
    assert [call.ok for call in of(events, FixtureCalled)] == [True, True, False]


def test_a_delivery_without_end_is_a_flood(laboratory: Make) -> None:
    class Floods(StoreMemory):
        def recall(self, query: str, session: Session) -> Delivery:
            return Delivery(query, tuple(StoredItem(str(n), "x") for n in range(20_000)), None)

    events = laboratory(opener=Floods).run(POSITIVE)
    assert of(events, CaseFinished)[0].ended == "flooded"


def test_a_session_without_end_times_out(laboratory: Make) -> None:
    now = iter(range(0, 10_000, 100))
    events = laboratory(monotonic=lambda: float(next(now))).run(POSITIVE)
    finished = of(events, CaseFinished)[0]
    assert (finished.ended, "seconds" in finished.detail) == ("timed_out", True)
    assert len(of(events, SessionClosed)) == 1


def test_words_that_cannot_be_encoded_are_recorded_and_no_fault_of_ours(laboratory: Make) -> None:
    class Garbled(StoreMemory):
        def recall(self, query: str, session: Session) -> Delivery:
            item = StoredItem("\ud800", "half a pair: \udfff")
            notice = Notice("conflict", ("\ud800",))
            return Delivery("\ud800", (item,), ("\ud800",), (notice,))

        def remember(self, text: str, session: Session) -> Acknowledgement:
            return Acknowledgement(True, "\ud800")

    lab = laboratory(opener=Garbled)
    events = lab.run("F105-02-persistence.d0/full/reader/0")
    assert of(events, CaseFinished)[0].ended == "completed"
    retrieved = of(events, MemoryRetrieved)[0]
    assert (retrieved.query, retrieved.admitted) == ("?", ("?",))
    assert lab.read(retrieved.content) == [{"id": "?", "text": "half a pair: ?"}]


def test_a_memory_that_does_not_say_where_it_put_things_is_gone_on_with(laboratory: Make) -> None:
    class Silent(StoreMemory):
        def seed(self, texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
            super().seed(texts)
            return {}

    events = laboratory(opener=Silent).run(POSITIVE)
    assert of(events, MemorySeeded)[0].ids == {"CT-101": ()}
    assert of(events, CaseFinished)[0].ended == "completed"


def test_a_run_that_an_amendment_took_away_is_not_begun(laboratory: Make) -> None:
    """Its command was left by a run that ended before the first cell."""
    lab = laboratory()
    assert lab.advance(POSITIVE.replace("/full/", "/gone/")) == []
    (asked,) = list(lab.context.log.read_stream("role/scheduler"))
    assert b"continue_study" in asked.record
