"""Four policies over the same store, and where each of them goes wrong."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harnesses.memory.contract import Notice, StoredItem
from harnesses.memory.policies import POLICIES, may_be_kept
from harnesses.memory.ranking import ranked
from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.lifecycle import eligible, standings_of
from schemas.transfer.rendering import render, render_note

NOW = "2026-07-01T09:00:00Z"
SESSION = Session(principal="role:a", project="alder", task_class="report", now=NOW)
QUERY = "Is Project Alder complete? File the status report."


def item(
    number: int,
    decision: str,
    *,
    meaning: str = "For Project Alder reports use the ledger.",
    principal: str = "role:a",
    project: str = "alder",
    task: str = "report",
    start: str = "2026-01-01T00:00:00Z",
    end: str = "without an end",
    replaces: str = "nothing",
) -> StoredItem:
    return StoredItem(
        f"m{number}",
        f"Correction CT-{number} (procedure)\nMeaning: {meaning}\n"
        f"Holds for: principal {principal}; project {project}; task classes {task}\n"
        f"Valid: from {start} {end}\nReplaces: {replaces}\nDecision: {decision}\n"
        f"Action: write report {decision}\nMark: 0123456789abcdef",
    )


def admitted(policy: str, *items: StoredItem, query: str = QUERY) -> tuple[str, ...]:
    return POLICIES[policy](items, query, SESSION, 8).admitted or ()


def notices(*items: StoredItem) -> tuple[Notice, ...]:
    return POLICIES["full"](items, QUERY, SESSION, 8).notices


def test_none_delivers_nothing_and_everything_all() -> None:
    store = (item(1, "no"), StoredItem("x", "some other text"))
    assert admitted("none", *store) == ()
    assert admitted("everything", *store) == ("m1", "x")
    assert admitted("retrieval", *store) == ("m1",)


def test_only_full_minds_the_scope() -> None:
    for other in (
        item(1, "no", project="birch"),
        item(1, "no", principal="role:b"),
        item(1, "no", task="code"),
    ):
        assert admitted("retrieval", other) == ("m1",)
        found = POLICIES["full"]((other,), QUERY, SESSION, 8)
        assert (found.delivered, found.admitted, found.notices) == ((), (), ())
    assert admitted("full", item(1, "no", project="*", principal="*", task="*")) == ("m1",)


def test_only_full_retires_what_a_chain_replaces() -> None:
    store = (item(1, "a"), item(2, "b", replaces="CT-1"), item(3, "c", replaces="CT-2"))
    assert set(admitted("retrieval", *store)) == {"m1", "m2", "m3"}
    assert admitted("full", *store) == ("m3",)
    assert notices(*store) == ()


def test_a_successor_that_has_lapsed_retires_nothing() -> None:
    lapsed = item(2, "b", replaces="CT-1", end="until 2026-02-01T00:00:00Z")
    assert admitted("full", item(1, "a"), lapsed) == ("m1",)


def test_only_full_minds_validity_and_says_so() -> None:
    lapsed = item(1, "a", end="until 2026-07-01T09:00:00Z")
    early = item(2, "b", start="2026-07-15T00:00:00Z")
    assert set(admitted("retrieval", lapsed, early)) == {"m1", "m2"}
    assert admitted("full", lapsed, early) == ()
    assert notices(lapsed, early) == (
        Notice("lapsed", ("CT-1",)),
        Notice("not_yet_valid", ("CT-2",)),
    )
    assert admitted("full", item(3, "c", start=NOW)) == ("m3",)


def test_only_full_says_that_records_disagree() -> None:
    store = (item(1, "a"), item(2, "b"))
    assert set(admitted("full", *store)) == {"m1", "m2"}
    assert [notice.kind for notice in notices(*store)] == ["conflict"]
    assert notices(item(1, "a"), item(2, "a")) == ()
    assert POLICIES["retrieval"](store, QUERY, SESSION, 8).notices == ()


def test_a_sibling_about_something_else_is_no_conflict() -> None:
    plan = item(1, "cedar", meaning="Account seven is on the Cedar plan.")
    region = item(2, "harbour", meaning="Account seven is billed in the harbour region.")
    asked = "Fill in the record for account seven: which region is it billed in?"
    found = POLICIES["full"]((plan, region), asked, SESSION, 8)
    assert (found.admitted, found.notices) == (("m2",), ())


def test_a_note_counts_where_no_record_was_approved() -> None:
    note = StoredItem("n", render_note("Alder reports use the sheet.", SESSION))
    assert admitted("full", note) == ("n",)
    assert admitted("full", note, item(1, "a")) == ("m1",)


def test_what_is_not_to_be_kept_is_known_by_what_is_said() -> None:
    assert may_be_kept("Please keep this for next time: the archive step needs a check.")
    for text in (
        "Do not save this: the code is blue.",
        "For this session only, use the sheet.",
        "Use the sheet, just this once.",
        "This must not be stored anywhere.",
    ):
        assert not may_be_kept(text), text


texts = st.text(alphabet="abc d", max_size=20)


@given(store=st.lists(texts, max_size=12), query=texts)
def test_ranking_is_a_stable_subset(store: list[str], query: str) -> None:
    items = [StoredItem(str(number), text) for number, text in enumerate(store)]
    found = ranked(items, query)
    assert found == ranked(items, query)
    assert len({entry.id for entry in found}) == len(found) <= len(items)
    twice = ranked([*items, *(StoredItem(f"z{entry.id}", entry.text) for entry in items)], query)
    order = {entry.id: index for index, entry in enumerate(twice)}
    assert all(order[entry.id] < order[f"z{entry.id}"] for entry in found)


scopes = st.builds(
    Scope,
    principal=st.sampled_from(["role:a", "role:b", "*"]),
    project=st.sampled_from(["alder", "birch", "*"]),
    task_classes=st.sampled_from([("report",), ("code",), ("code", "report"), ("*",)]),
)
spans = st.sampled_from(
    [
        ("2026-01-01T00:00:00Z", None),
        ("2026-01-01T00:00:00Z", "2026-05-31T00:00:00Z"),
        ("2026-01-01T00:00:00Z", NOW),
        (NOW, "2026-12-31T00:00:00Z"),
        ("2026-08-01T00:00:00Z", None),
    ]
)
drawn = st.lists(
    st.tuples(scopes, spans, st.sampled_from(["x", "y"]), st.integers(-1, 4)), max_size=5
)


@given(drawn)
def test_full_admits_what_the_lifecycle_says_applies(records: list[Any]) -> None:
    made = [
        Correction(
            correction_id=f"CT-{number}",
            class_="procedure",
            semantic_expectation="Alder reports.",
            source_reference="ref:1",
            persistence_allowed=True,
            scope=scope,
            valid_from=start,
            expires_at=end,
            lifecycle="active",
            supersedes=f"CT-{earlier}" if 0 <= earlier < number else None,
            expected_decision=decision,
            expected_action=f"write report {decision}",
            prohibited_actions=("nothing",),
            authoritative_outcome_check="the report",
            consequence="low",
        )
        for number, (scope, (start, end), decision, earlier) in enumerate(records)
    ]
    store = [record.correction_id for record in made]
    items = [StoredItem(record.correction_id, render(record, "0" * 16)) for record in made]
    found = POLICIES["full"](items, "", SESSION, 100)
    expected = eligible(standings_of(made), store, SESSION)
    assert tuple(sorted(found.admitted or ())) == expected
