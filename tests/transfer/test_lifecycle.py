"""The effective lifecycle of records: the six families' own, and every rule apart."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.families.load import load_family
from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.lifecycle import (
    Standing,
    decided_about,
    disagree,
    effective_lifecycle,
    eligible,
    same_subject,
    standings_of,
)

EXAMPLES = Path(__file__).parents[2] / "actors" / "families" / "examples"
GIVEN = sorted(
    (Path(__file__).parents[2] / "actors" / "families" / "examples").glob("F10[1-6].yaml")
)
WIDE = Scope(principal="role:maintainer", project="*", task_classes=("code_edit", "merge"))
NARROW = Scope(principal="role:maintainer", project="halyard", task_classes=("code_edit",))
HERE = Session(
    principal="role:maintainer",
    project="halyard",
    task_class="code_edit",
    now="2026-07-01T09:00:00Z",
)
ELSEWHERE = msgspec.structs.replace(HERE, project="ketch")


def record(name: str, decision: str = "staging", **fields: Any) -> Correction:
    start = Correction(
        correction_id=name,
        class_="boundary",
        semantic_expectation=f"Edits are made in {decision}.",
        source_reference=f"ref:log/{name}",
        persistence_allowed=True,
        scope=NARROW,
        valid_from="2026-01-01T00:00:00Z",
        expires_at=None,
        lifecycle="active",
        supersedes=None,
        expected_decision=decision,
        expected_action=f"write under the {decision} tree",
        prohibited_actions=("start the release job",),
        authoritative_outcome_check="surface tree: it is there",
        consequence="low",
    )
    return msgspec.structs.replace(start, **fields)


def lifecycles(*standings: Standing, session: Session = HERE) -> dict[str, str]:
    known = {standing.record.correction_id: standing for standing in standings}
    return {name: effective_lifecycle(name, known, list(known), session) for name in known}


@pytest.mark.parametrize("path", GIVEN, ids=lambda path: path.stem)
def test_the_given_families_say_the_same(path: Path) -> None:
    family = load_family(path.read_bytes(), path.name)
    standings = standings_of(family.records)
    for case in family.cases:
        found = {
            name: effective_lifecycle(name, standings, case.store, case.session)
            for name in case.store
        }
        assert found == case.effective_lifecycle, case.case_id
        taught = case.write_session.teaches if case.write_session else ()
        there = (*case.store, *taught)
        applying = set(eligible(standings, there, case.session))
        asked = set(case.eligible)
        beside = applying - asked
        assert asked <= applying and (not beside or case.kind == "noninterference")
        assert not any(
            same_subject(family.record(a), family.record(b)) for a in asked for b in beside
        ), "a sibling that the task does not ask for is about another thing"


def test_validity_is_half_open() -> None:
    ending = Standing(record=record("A", expires_at="2026-07-01T09:00:00Z"))
    assert lifecycles(ending) == {"A": "expired"}
    before = msgspec.structs.replace(HERE, now="2026-07-01T08:59:59Z")
    assert lifecycles(ending, session=before) == {"A": "active"}
    starting = Standing(record=record("A", valid_from="2026-07-01T09:00:00Z"))
    assert eligible({"A": starting}, ["A"], HERE) == ("A",)
    assert eligible({"A": starting}, ["A"], before) == ()
    assert lifecycles(starting, session=before) == {"A": "active"}, "active, but not applicable"
    ended = Standing(record=record("A"), ended="2026-06-01T00:00:00Z")
    assert lifecycles(ended) == {"A": "expired"}


@pytest.mark.parametrize("state", ["proposed", "withdrawn"])
def test_what_is_not_approved_is_never_eligible_and_replaces_nothing(state: Any) -> None:
    old = Standing(record=record("A"))
    new = Standing(record=record("B", "next", supersedes="A"), state=state)
    assert lifecycles(old, new) == {"A": "active", "B": state}
    assert eligible({"A": old, "B": new}, ["A", "B"], HERE) == ("A",)


def test_only_a_live_successor_in_the_store_supersedes() -> None:
    old = Standing(record=record("A"))
    new = record("B", "next", supersedes="A")
    assert lifecycles(old, Standing(record=new)) == {"A": "superseded", "B": "active"}
    known = {"A": old, "B": Standing(record=new)}
    assert effective_lifecycle("A", known, ["A"], HERE) == "active", "B is not in the store"
    expired = msgspec.structs.replace(new, expires_at="2026-06-30T00:00:00Z")
    assert lifecycles(old, Standing(record=expired)) == {"A": "active", "B": "expired"}
    future = msgspec.structs.replace(new, valid_from="2026-08-01T00:00:00Z")
    assert lifecycles(old, Standing(record=future)) == {"A": "active", "B": "active"}


def test_a_chain_leads_over_a_link_that_is_gone() -> None:
    first, second = Standing(record=record("A")), record("B", "next", supersedes="A")
    third = Standing(record=record("C", "canary", supersedes="B"))
    ended = msgspec.structs.replace(second, expires_at="2026-06-01T00:00:00Z")
    found = lifecycles(first, Standing(record=ended), third)
    assert found == {"A": "superseded", "B": "expired", "C": "active"}


def test_a_narrower_successor_retires_the_wide_record_unless_the_rest_is_kept() -> None:
    wide = Standing(record=record("A", scope=WIDE))
    narrow = Standing(record=record("B", "next", supersedes="A"))
    assert lifecycles(wide, narrow, session=ELSEWHERE)["A"] == "superseded"
    keeping = msgspec.structs.replace(narrow, keep_residual_scope=True)
    assert lifecycles(wide, keeping, session=ELSEWHERE)["A"] == "active"
    assert lifecycles(wide, keeping, session=HERE)["A"] == "superseded"


def test_a_recorded_transition_links_like_the_record_itself() -> None:
    old = Standing(record=record("A"), superseded_by=("B",))
    new = Standing(record=record("B", "next"))
    assert lifecycles(old, new) == {"A": "superseded", "B": "active"}


def test_two_heads_over_one_predecessor_are_disputed() -> None:
    first = Standing(record=record("A"))
    heads = [Standing(record=record(name, "next", supersedes="A")) for name in ("B", "C")]
    assert lifecycles(first, *heads) == {"A": "superseded", "B": "disputed", "C": "disputed"}
    apart = msgspec.structs.replace(NARROW, task_classes=("merge",))
    other = Standing(record=record("C", "next", supersedes="A", scope=apart))
    assert lifecycles(first, heads[0], other)["B"] == "active"


def test_an_open_dispute_and_a_decided_one() -> None:
    one, other = record("A", "same"), record("B", "same")
    open_ones = (
        Standing(record=one, disputed_with=("B",)),
        Standing(record=other, disputed_with=("A",)),
    )
    assert lifecycles(*open_ones) == {"A": "disputed", "B": "disputed"}
    withdrawn = msgspec.structs.replace(open_ones[1], state="withdrawn")
    assert lifecycles(open_ones[0], withdrawn) == {"A": "active", "B": "withdrawn"}
    won = Standing(record=record("A", "x"), settled_with=("B",))
    lost = Standing(record=record("B", "y"), settled_with=("A",), superseded_by=("A",))
    assert lifecycles(won, lost) == {"A": "active", "B": "superseded"}


def test_a_contradiction_is_about_the_same_thing() -> None:
    plan = record("A", "larch", expected_action="submit reply_record with plan larch")
    other_plan = record("B", "maple", expected_action="submit reply_record with plan maple")
    region = record("C", "harbour", expected_action="submit reply_record with region harbour")
    unclear = record("D", "guard_none", expected_action="save it without anything")
    assert decided_about(plan) == {"plan"} and decided_about(unclear) == frozenset()
    assert disagree(plan, other_plan) and not disagree(plan, region)
    assert disagree(plan, unclear), "what cannot be told apart is asked about"
    apart = msgspec.structs.replace(other_plan, scope=msgspec.structs.replace(NARROW, project="x"))
    assert not disagree(plan, apart)


NAMES = ("A", "B", "C", "D")
INSTANTS = [f"2026-{month:02}-01T00:00:00Z" for month in range(1, 13)]
standings = st.fixed_dictionaries(
    {
        name: st.builds(
            Standing,
            record=st.builds(
                record,
                st.just(name),
                st.sampled_from(("staging", "next")),
                scope=st.sampled_from((WIDE, NARROW)),
                valid_from=st.sampled_from(INSTANTS),
                expires_at=st.none() | st.sampled_from(INSTANTS),
                supersedes=st.none() | st.sampled_from(NAMES),
            ),
            state=st.sampled_from(("proposed", "approved", "approved", "withdrawn")),
            ended=st.none() | st.sampled_from(INSTANTS),
            superseded_by=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
            disputed_with=st.lists(st.sampled_from(NAMES), max_size=1).map(tuple),
            settled_with=st.lists(st.sampled_from(NAMES), max_size=1).map(tuple),
            keep_residual_scope=st.booleans(),
        )
        for name in NAMES
    }
)


@given(known=standings, store=st.permutations(NAMES), size=st.integers(0, 4))
def test_whatever_is_recorded_what_applies_is_approved_valid_and_in_scope(
    known: dict[str, Standing], store: list[str], size: int
) -> None:
    """Also where records replace each other in circles, which the guards keep out of a ledger."""
    there = store[:size]
    for session in (HERE, ELSEWHERE):
        applying = eligible(known, there, session)
        assert applying == eligible(known, sorted(there), session) and set(applying) <= set(there)
        for name in NAMES:
            found = effective_lifecycle(name, known, there, session)
            standing = known[name]
            if name in applying:
                assert standing.state == "approved" and found in ("active", "disputed")
                assert standing.holds_at(session.now) and standing.record.scope.covers(session)
            if standing.state != "approved":
                assert found == standing.state
            alone = effective_lifecycle(name, known, [name], session)
            assert not (found == "expired") ^ (alone == "expired"), "time needs no other record"
