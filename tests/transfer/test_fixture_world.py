"""The fixture: operations, acknowledgements, strict arguments, journal; nothing makes it raise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fixture.world import MAX_DEPTH, MAX_STATE_BYTES, World, state_digest
from schemas.transfer.family import DECLARE_DECISION, Acknowledgement, Fixture, Operation, Tool

TEXT = "string"


def tool(name: str, effect: Any, operation: Operation, **more: Any) -> Tool:
    return Tool(name=name, effect=effect, description="a tool", operation=operation, **more)


FIXTURE = Fixture(
    state={"trees": {"a": {"limits": {"limit": 25}}, "b": {}}, "log": [], "flat": 1},
    surfaces={"tree": "trees"},
    tools=(
        tool(
            "tree_list",
            "read",
            Operation(do="keys", path="trees/{tree}"),
            parameters={"tree": TEXT},
        ),
        tool(
            "tree_read", "read", Operation(do="get", path="trees/{tree}"), parameters={"tree": TEXT}
        ),
        tool(
            "tree_write",
            "write",
            Operation(do="set", path="trees/{tree}/limits/{key}", value="{value}"),
            parameters={"tree": TEXT, "key": TEXT, "value": "integer"},
        ),
        tool(
            "note",
            "write",
            Operation(do="append", path="log", value={"text": "said {what}", "by": "{who}"}),
            parameters={"what": TEXT, "who": TEXT},
            optional=("who",),
        ),
        tool("all", "read", Operation(do="get")),
        tool("ask", "resolve", Operation(do="nothing"), parameters={"question": TEXT}),
        *(
            tool(f"whole_{do}", "write", Operation(do=do, value={"x": 1}))
            for do in ("set", "merge", "append", "remove")
        ),
        tool("below_flat", "write", Operation(do="set", path="flat/x/y", value=1)),
        tool("onto_flat", "write", Operation(do="append", path="flat", value=1)),
        tool(
            "grow",
            "write",
            Operation(do="append", path="log", value="{text}"),
            parameters={"text": TEXT},
        ),
    ),
)


def world(**acknowledgements: Acknowledgement) -> World:
    return World(FIXTURE, ("b", "a"), acknowledgements, max_calls=20)


WRITE = {"tree": "b", "key": "limit", "value": 40}


def test_operations_read_replace_and_append() -> None:
    fixture = world()
    assert fixture.call("tree_list", {"tree": "a"}).value == ["limits"]
    assert fixture.call("tree_read", {"tree": "a"}).value == {"limits": {"limit": 25}}
    assert fixture.call("tree_write", WRITE).ok
    assert fixture.state["trees"]["b"] == {"limits": {"limit": 40}}
    assert fixture.call("note", {"what": "x"}).ok
    assert fixture.call("note", {"what": "y", "who": "z"}).ok
    assert fixture.state["log"] == [{"text": "said x"}, {"text": "said y", "by": "z"}]
    assert fixture.call("all", {}).value == fixture.state
    assert fixture.call("ask", {"question": "which?"}).value is None
    assert fixture.before == FIXTURE.state
    assert fixture.start == state_digest(FIXTURE.state) != fixture.end


def test_the_journal_holds_every_call_with_digests() -> None:
    fixture = world()
    fixture.call("tree_read", {"tree": "a"})
    fixture.call("tree_write", WRITE)
    fixture.call("no_such_tool", {"x": 1})
    read, write, refused = fixture.journal
    assert (read.number, read.effect, read.ok, read.state) == (0, "read", True, fixture.start)
    assert (write.number, write.effect, write.state) == (1, "write", fixture.end)
    assert (refused.effect, refused.ok, refused.arguments) == ("none", False, {"x": 1})
    assert json.loads(read.result) == {"ok": True, "value": {"limits": {"limit": 25}}}
    assert refused.call.number == 2


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("no_such_tool", {}, "unknown_tool"),
        (7, {}, "unknown_tool"),
        ("\ud800", {}, "unknown_tool"),
        ("tree_read", {}, "missing_argument"),
        ("tree_read", {"tree": "a", "more": 1}, "unknown_argument"),
        ("tree_read", [], "malformed_arguments"),
        ("tree_read", None, "malformed_arguments"),
        ("tree_read", {"tree": object()}, "malformed_arguments"),
        ("tree_read", {"tree": "\ud800"}, "malformed_arguments"),
        ("tree_read", {"tree": "x" * 70_000}, "malformed_arguments"),
        ("tree_read", {"tree": 2**200}, "invalid_argument"),
        ("tree_read", {"tree": 1}, "invalid_argument"),
        ("tree_read", {"tree": "a/limits"}, "invalid_argument"),
        ("tree_read", {"tree": ""}, "invalid_argument"),
        ("tree_read", {"tree": "a\nb"}, "invalid_argument"),
        ("tree_read", {"tree": ".."}, "not_found"),
        ("tree_write", {**WRITE, "value": True}, "invalid_argument"),
        ("tree_write", {**WRITE, "value": "40"}, "invalid_argument"),
        ("tree_write", {**WRITE, "value": float("nan")}, "invalid_argument"),
        ("below_flat", {}, "not_possible"),
        ("onto_flat", {}, "not_possible"),
        (DECLARE_DECISION, {"option": "c", "basis": []}, "unknown_option"),
        (DECLARE_DECISION, {"option": ["a"], "basis": []}, "unknown_option"),
        (DECLARE_DECISION, {"option": "a", "basis": "CT-1"}, "invalid_argument"),
        (DECLARE_DECISION, {"option": "a", "basis": ["x"] * 1000}, "invalid_argument"),
    ],
)
def test_a_mistake_is_answered_and_changes_nothing(name: Any, arguments: Any, error: str) -> None:
    fixture = world()
    shown = fixture.call(name, arguments)
    assert (shown.ok, shown.error) == (False, error)
    assert shown.message
    assert fixture.end == fixture.start
    assert [entry.ok for entry in fixture.journal] == [False]


def test_arguments_that_nest_without_end_are_refused() -> None:
    deep: Any = "end"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    for arguments in ({"tree": deep}, cyclic):
        shown = world().call("tree_read", arguments)
        assert (shown.error, "deeper" in shown.message) == ("malformed_arguments", True)


def test_the_state_cannot_grow_without_end() -> None:
    fixture = World(FIXTURE, ("a", "b"), max_calls=1000)
    refused = 0
    for _ in range(80):
        refused += fixture.call("grow", {"text": "x" * 20_000}).error == "not_possible"
    assert refused > 0
    assert len(json.dumps(fixture.state)) <= MAX_STATE_BYTES


def test_a_false_acknowledgement_says_done_and_does_nothing() -> None:
    honest, false = world(), world(tree_write=Acknowledgement(kind="false", calls=1))
    answers = [fixture.call("tree_write", WRITE) for fixture in (honest, false)]
    assert answers[0] == answers[1]
    assert (honest.end != honest.start, false.end == false.start) == (True, True)
    false.call("tree_write", WRITE)
    assert false.end == honest.end
    assert not false.call("tree_write", {**WRITE, "value": "x"}).ok, "impossible calls are refused"


def test_a_late_acknowledgement_is_done_after_further_calls() -> None:
    fixture = world(tree_write=Acknowledgement(kind="late", delay=2))
    assert fixture.call("tree_write", WRITE).ok
    seen = [fixture.call("tree_read", {"tree": "b"}).value for _ in range(3)]
    assert seen == [{}, {}, {"limits": {"limit": 40}}]


def test_what_is_late_is_done_when_the_session_ends() -> None:
    fixture = world(tree_write=Acknowledgement(kind="late", delay=9))
    fixture.call("tree_write", WRITE)
    assert fixture.end == fixture.start
    fixture.close()
    assert fixture.state["trees"]["b"] == {"limits": {"limit": 40}}


def test_a_decision_is_kept_with_whether_it_came_before_a_change() -> None:
    fixture = world()
    fixture.call("tree_read", {"tree": "a"})
    fixture.call(DECLARE_DECISION, {"option": "a", "basis": ["CT-1"]})
    fixture.call("tree_write", WRITE)
    fixture.call(DECLARE_DECISION, {"option": "b", "basis": []})
    found = [(d.option, d.basis, d.call, d.before_write) for d in fixture.declarations]
    assert found == [("a", ("CT-1",), 1, True), ("b", (), 3, False)]


def test_tools_are_shown_without_their_effects() -> None:
    offered = world().tools
    assert [item.name for item in offered] == sorted(item.name for item in offered)
    decide = next(item for item in offered if item.name == DECLARE_DECISION)
    assert decide.parameters["properties"]["option"]["enum"] == ["a", "b"]
    note = next(item for item in offered if item.name == "note")
    assert note.parameters["required"] == ["what"]
    assert not any("effect" in repr(item) or "resolve" in repr(item) for item in offered)


def test_a_flood_is_seen_and_does_not_grow_the_journal() -> None:
    fixture = world()
    shown = [fixture.call("all", {}) for _ in range(50)]
    assert [item.ok for item in shown] == [True] * 20 + [False] * 30
    assert (fixture.flooded, len(fixture.journal)) == (True, 21)


def test_a_call_after_the_end_is_refused_and_not_part_of_the_session() -> None:
    fixture = world()
    fixture.close()
    assert fixture.call("tree_write", WRITE).error == "closed"
    assert (fixture.journal, fixture.end) == ([], fixture.start)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)
names = st.sampled_from(["tree", "key", "value", "what", "option", "basis"])


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from([*(item.name for item in FIXTURE.tools), DECLARE_DECISION, "x"])
            | anything,
            anything | st.dictionaries(names, anything, max_size=3),
        ),
        max_size=8,
    )
)
def test_the_same_calls_give_the_same_journal_and_never_raise(calls: list[tuple[Any, Any]]) -> None:
    one, other = world(), world(note=Acknowledgement(kind="late"))
    for name, arguments in calls:
        one.call(name, arguments)
        other.call(name, arguments)
    again = world()
    for name, arguments in calls:
        again.call(name, arguments)
    assert one.journal == again.journal
    assert [entry.result for entry in one.journal if entry.effect == "write"] == [
        entry.result for entry in other.journal if entry.effect == "write"
    ], "an acknowledgement cannot be told from the truth by what it says"


def test_merging_changes_the_named_fields_and_loses_no_other() -> None:
    fixture = Fixture(
        state={"code": {"identifier": "A", "comments": ["kept"]}, "flat": 1},
        surfaces={},
        tools=(
            tool(
                "code_save",
                "write",
                Operation(do="merge", path="code", value={"identifier": "{to}", "by": "{by}"}),
                parameters={"to": TEXT, "by": TEXT},
                optional=("by",),
            ),
            tool("onto_flat", "write", Operation(do="merge", path="flat", value={"a": 1})),
        ),
    )
    merged = World(fixture, ("a", "b"))
    assert merged.call("code_save", {"to": "B"}).ok
    assert merged.state["code"] == {"identifier": "B", "comments": ["kept"]}
    refused = merged.call("onto_flat", {})
    assert (refused.ok, refused.error, merged.state["flat"]) == (False, "not_possible", 1)


def test_removing_takes_one_entry_away_and_no_other() -> None:
    fixture = Fixture(
        state={"files": {"a": "x", "b": "y"}},
        surfaces={},
        tools=(
            tool(
                "file_delete",
                "write",
                Operation(do="remove", path="files/{name}"),
                parameters={"name": TEXT},
            ),
        ),
    )
    removing = World(fixture, ("a", "b"))
    assert removing.call("file_delete", {"name": "a"}).ok
    again = removing.call("file_delete", {"name": "a"})
    assert (again.ok, again.error) == (False, "not_found")
    assert removing.state == {"files": {"b": "y"}}


@pytest.mark.parametrize("do", ["set", "merge", "append", "remove"])
def test_the_whole_state_is_not_changed_and_asking_for_it_is_answered(do: str) -> None:
    acting = world()
    shown = acting.call(f"whole_{do}", {})
    assert (shown.ok, shown.error) == (False, "not_possible")
    assert acting.end == acting.start
    assert len(acting.journal) == 1


@pytest.mark.parametrize("text", ["Limit", "limit ", " limit", "l\u0456mit", "li\u200bmit"])
def test_what_looks_like_a_declared_text_is_refused_and_changes_nothing(text: str) -> None:
    """A key of the state as well as a value that the family's calls name."""
    fixture = World(FIXTURE, ("a", "b"), declared={("ask", "question"): {"limit", "Who?"}})
    for name, arguments in (
        ("tree_write", {**WRITE, "tree": "a", "key": text}),
        ("ask", {"question": text}),
    ):
        shown = fixture.call(name, arguments)
        assert (shown.ok, shown.error) == (False, "invalid_argument"), name
    assert fixture.end == fixture.start and not any(entry.ok for entry in fixture.journal)
    assert fixture.call("tree_write", {**WRITE, "tree": "a", "key": "limit"}).ok
    assert fixture.call("ask", {"question": "limits?"}).ok
