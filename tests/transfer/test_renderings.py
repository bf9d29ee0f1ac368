"""The frozen rendering carries what a record says, and can be read again from wherever it lands."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.distractors import distractors, words
from schemas.transfer.family import Case, Expected, Family, Fixture, Operation, Tool
from schemas.transfer.rendering import (
    is_intact,
    nonce,
    read_record,
    read_records,
    render,
    render_note,
)


def record(**changes: Any) -> Correction:
    return Correction(
        **{
            "correction_id": "CT-1",
            "class_": "procedure",
            "semantic_expectation": "Use the approved\nledger; a queue is no source.",
            "source_reference": "ref:1",
            "persistence_allowed": True,
            "scope": Scope(
                principal="role:reporter", project="alder", task_classes=("report", "b")
            ),
            "valid_from": "2026-01-01T00:00:00Z",
            "expires_at": None,
            "lifecycle": "active",
            "supersedes": None,
            "expected_decision": "incomplete",
            "expected_action": "write report incomplete with source_ref ledger-a",
            "prohibited_actions": ("write report complete",),
            "authoritative_outcome_check": "the report",
            "consequence": "high",
            **changes,
        }
    )


MARK = nonce("f" * 64, "case.d0", 0, "CT-1")


def test_a_rendering_is_read_as_the_record_says() -> None:
    written = record(expires_at="2026-05-31T00:00:00Z", supersedes="CT-0")
    found = read_record(render(written, MARK))
    assert found is not None
    assert (found.record_id, found.decision) == ("CT-1", "incomplete")
    assert found.meaning == "Use the approved ledger; a queue is no source."
    assert found.scope == written.scope
    assert (found.valid_from, found.expires_at) == (written.valid_from, written.expires_at)
    assert found.replaces == "CT-0"
    assert found.action == written.expected_action


def test_line_breaks_and_surroundings_do_not_matter() -> None:
    rendering = render(record(), MARK)
    stored = "observation: " + rendering.replace("\n", "   ") + " (added today)"
    assert is_intact(rendering, stored)
    assert read_record(stored) == read_record(rendering)
    assert not is_intact(rendering, stored.replace("ledger-a", "ledger-b"))
    assert read_record(rendering.replace("Mark", "Work")) is None
    assert read_record("nothing of the kind") is None


def test_a_file_may_hold_many_records_and_notes() -> None:
    session = Session(principal="user:a", project="p", task_class="t", now="2026-07-01T09:00:00Z")
    note = render_note("the archive step needs\na size assertion", session)
    text = f"# Memory\n{note}\n\n{render(record(), MARK)}\n\n{note}"
    found = read_records(text)
    assert [item.record_id for item in found] == ["", "CT-1", ""]
    assert found[0].meaning == "the archive step needs a size assertion" == found[2].meaning
    assert (found[0].decision, found[0].scope.project) == ("", "p")
    assert found[0].valid_from == session.now


def test_every_cell_and_record_has_its_own_nonce() -> None:
    marks = {
        nonce(freeze, unit, trial, key)
        for freeze in ("a" * 64, "b" * 64)
        for unit in ("x.d0", "x.d50")
        for trial in (0, 1)
        for key in ("CT-1", "CT-2")
    }
    assert len(marks) == 16


@given(
    meaning=st.text(alphabet="abc ;:.\n", min_size=1, max_size=40).filter(str.strip),
    decision=st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
    expires=st.sampled_from([None, "2027-01-01T00:00:00Z"]),
)
def test_reading_gives_back_what_was_rendered(
    meaning: str, decision: str, expires: str | None
) -> None:
    written = record(semantic_expectation=meaning, expected_decision=decision, expires_at=expires)
    found = read_record(render(written, MARK))
    assert found is not None
    assert (found.meaning, found.decision) == (" ".join(meaning.split()), decision)
    assert found.expires_at == expires


FAMILY = Family(
    format=1,
    family_id="F1",
    title="t",
    records=(record(scope=Scope(principal="user:x", project="bramble", task_classes=("a",))),),
    decision_options=("amber", "incomplete"),
    twin_decision="amber",
    topic_terms=("invoices", "report"),
    fixture=Fixture(
        state={},
        tools=(
            Tool(name="ask", effect="resolve", description="a", operation=Operation(do="nothing")),
        ),
        surfaces={},
    ),
    cases=(
        Case(
            case_id="C1",
            kind="baseline",
            store=(),
            eligible=(),
            session=Session(
                principal="user:x", project="bramble", task_class="a", now="2026-07-01T09:00:00Z"
            ),
            prompt="Is bramble complete?",
            expected=Expected(abstain=False),
            required=(),
        ),
    ),
)


def test_distractors_share_nothing_with_the_family_and_are_the_same_each_time() -> None:
    found = distractors("s", "1", FAMILY, "C1", 50)
    assert found == distractors("s", "1", FAMILY, "C1", 50)
    assert found != distractors("s", "2", FAMILY, "C1", 50)
    assert found[:10] == distractors("s", "1", FAMILY, "C1", 10)
    assert len({item.correction_id for item in found}) == 50
    assert len({render(item, MARK) for item in found}) == 50
    for item in found:
        said = set(words(f"{item.semantic_expectation} {item.expected_action}"))
        assert not said & {"bramble", "amber", "invoices", "report", "incomplete", "ledger"}
        assert not item.scope.covers(FAMILY.cases[0].session)
