"""Predicates and call patterns: every operator holds and fails, and nothing raises."""

from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.transfer.family import ArgumentTest, CallPattern, Check
from schemas.transfer.family_checks import (
    MISSING,
    Call,
    Decision,
    Observed,
    all_hold,
    expected_calls,
    holds,
    in_order,
    look_up,
    malformed,
    passes,
    prohibited_calls,
    same,
)

SURFACES = {"tree": "trees", "state": ""}
BEFORE = {"trees": {"a": {"limits.toml": {"limit": 25}}, "b": {}}, "log": []}
AFTER = {"trees": {"a": {"limits.toml": {"limit": 40}}, "b": {}}, "log": ["x", "y"]}
JOURNAL = (
    Call(number=0, tool="read", effect="read", arguments={"source": "a"}, ok=True),
    Call(number=1, tool="ask", effect="resolve", arguments={"question": "which?"}, ok=True),
    Call(number=2, tool="save", effect="write", arguments={"steps": ["x", "y"]}, ok=True),
    Call(number=3, tool="save", effect="write", arguments="not a dictionary", ok=False),
)
OBSERVED = Observed(SURFACES, BEFORE, AFTER, JOURNAL, Decision(option="a", basis=("CT-1",)))


@pytest.mark.parametrize(
    ("surface", "path", "op", "value", "expected"),
    [
        ("tree", "a/limits.toml/limit", "equals", 40, True),
        ("tree", "a/limits.toml/limit", "equals", 25, False),
        ("tree", "a/limits.toml/none", "equals", None, False),
        ("tree", "a/limits.toml/limit", "not_equals", 25, True),
        ("tree", "nowhere", "not_equals", 25, True),
        ("tree", "a/limits.toml/limit", "not_equals", 40, False),
        ("tree", "a/limits.toml/limit", "in", [39, 40], True),
        ("tree", "a/limits.toml/limit", "in", [39], False),
        ("state", "log/0", "starts_with", "x", True),
        ("state", "log", "starts_with", ["x"], True),
        ("state", "log", "starts_with", ["y"], False),
        ("state", "log", "count", 2, True),
        ("state", "log", "count", 1, False),
        ("state", "nowhere", "count", 0, True),
        ("tree", "b", "unchanged", None, True),
        ("tree", "a", "unchanged", None, False),
        ("tree", "", "unchanged", ["a/limits.toml/limit"], True),
        ("tree", "", "unchanged", ["a/limits.toml"], True),
        ("tree", "", "unchanged", ["b"], False),
        ("state", "", "unchanged", ["log"], False),
        ("state", "", "unchanged", ["log", "trees/a"], True),
        ("state", "log", "includes", ["y", "x"], True),
        ("state", "log", "includes", ["y", "z"], False),
        ("state", "log", "excludes", ["z"], True),
        ("state", "log", "excludes", ["z", "x"], False),
        ("state", "nowhere", "excludes", ["z"], True),
        ("decision", "basis/0", "excludes", ["ct-1"], False),
        ("decision", "basis", "includes", ["CT-1"], True),
        ("state", "log", "between", {"after": "x", "before": "y", "equals": []}, True),
        ("state", "log", "between", {"after": "y", "before": "x", "equals": []}, True),
        ("state", "log", "between", {"after": "x", "before": "y", "equals": ["z"]}, False),
        ("tree", "b", "between", {"after": "x", "before": "y", "equals": []}, False),
        ("decision", "option", "equals", "a", True),
        ("decision", "basis", "equals", ["CT-1"], True),
        ("decision", "option", "equals", "b", False),
        ("journal", "", "count", {"tool": "save", "is": 1}, True),
        ("journal", "", "count", {"tool": "read", "is": 0}, False),
        ("journal", "", "journal_order", [{"tool": "read"}, {"tool": "save"}], True),
        ("journal", "", "journal_order", [{"tool": "save"}, {"tool": "read"}], False),
        ("unknown", "", "equals", 1, False),
        ("journal", "", "equals", 1, False),
        ("journal", "", "count", 3, False),
    ],
)
def test_a_check_holds_or_not(surface: str, path: str, op: Any, value: Any, expected: bool) -> None:
    check = Check(surface=surface, path=path, op=op, value=value)
    result, sentence = holds(check, OBSERVED)
    assert (result, bool(sentence)) == (expected, True)


def test_all_lines_of_a_predicate_must_hold() -> None:
    good = Check(surface="tree", path="b", op="unchanged")
    bad = Check(surface="tree", path="a", op="unchanged")
    assert all_hold([good, good], OBSERVED)[0]
    result, lines = all_hold([good, bad], OBSERVED)
    assert (result, [line for line, _ in lines]) == (False, [True, False])


def test_true_is_not_one() -> None:
    assert not same(True, 1)
    assert not same([1], [True])
    assert same({"a": [1, 2.0]}, {"a": (1.0, 2)})
    assert not same({"a": 1}, {"a": 1, "b": 2})


def test_a_path_finds_in_dictionaries_and_lists_only() -> None:
    assert look_up({"a": [{"b": 1}]}, "a/0/b") == 1
    assert look_up({"a": 1}, "") == {"a": 1}
    for path in ("b", "a/0", "a/-1", "a//b", "/"):
        assert look_up({"a": 1}, path) is MISSING


@pytest.mark.parametrize(
    ("op", "value", "argument", "expected"),
    [
        ("any", None, 0, True),
        ("any", None, MISSING, False),
        ("equals", 40, 40, True),
        ("equals", 40, "40", False),
        ("in", ["a", "b"], "b", True),
        ("in", ["a"], MISSING, False),
        ("includes", "x", ["x", "y"], True),
        ("includes", "led", "ledger", True),
        ("includes", "x", 7, False),
        ("excludes", "x", ["y"], True),
        ("excludes", "x", ["x"], False),
        ("excludes", "x", MISSING, True),
        ("within", ["x", "y"], ["y"], True),
        ("within", ["x", "y"], [], True),
        ("within", ["x", "y"], ["y", "z"], False),
        ("within", ["x"], MISSING, False),
        ("within", 3, ["x"], False),
    ],
)
def test_an_argument_passes_or_not(op: Any, value: Any, argument: Any, expected: bool) -> None:
    assert passes(ArgumentTest(op=op, value=value), argument) is expected


@pytest.mark.parametrize(
    ("op", "value", "argument", "prohibited"),
    [
        ("equals", "release", "release", True),
        ("equals", "release", "Release", True),
        ("equals", "release", "release ", True),
        ("equals", "release", "r\u0435l\u0435ase", True),  # Cyrillic
        ("equals", "release", "re\u200blease", True),
        ("equals", "release", "released", False),
        ("equals", "release", 1, False),
        ("equals", 1, True, False),
        ("in", ["audit", "release"], "RELEASE", True),
        ("includes", "release", ["build", "Release"], True),
        ("excludes", "Audit", "audit", True),  # as written, it is not in it
        ("excludes", "Audit", "Audit", False),
        ("any", None, "x", True),
    ],
)
def test_what_looks_like_a_prohibited_text_is_prohibited(
    op: Any, value: Any, argument: Any, prohibited: bool
) -> None:
    pattern = CallPattern(tool="start", arguments={"job": ArgumentTest(op=op, value=value)})
    call = Call(number=0, tool="start", effect="write", arguments={"job": argument}, ok=True)
    assert prohibited_calls([pattern], [call]) == ([call] if prohibited else [])


def test_a_refused_call_is_no_action() -> None:
    save = CallPattern(tool="save")
    assert [call.number for call in prohibited_calls([save], JOURNAL)] == [2]
    assert prohibited_calls([save, save], JOURNAL[3:]) == []
    assert in_order([save], JOURNAL[3:]) is None


def test_calls_in_order_with_times_and_before_write() -> None:
    once = CallPattern(tool="ask", times=1, before="write")
    assert in_order([once], JOURNAL) is not None
    again = (*JOURNAL, Call(number=4, tool="ask", effect="resolve", arguments={}, ok=True))
    assert in_order([once], again) is None
    late = CallPattern(tool="ask", before="write")
    assert in_order([late], again) is None
    assert in_order([CallPattern(tool="ask", times=2)], again) is not None
    pair = [CallPattern(tool="read"), CallPattern(tool="read")]
    assert in_order(pair, JOURNAL) is None, "one call satisfies one pattern of a sequence"


def test_the_first_alternative_that_was_done() -> None:
    read, never = CallPattern(tool="read"), CallPattern(tool="never")
    assert expected_calls([], JOURNAL) == []
    assert expected_calls([[never], [read]], JOURNAL) == [JOURNAL[0]]
    assert expected_calls([[never]], JOURNAL) is None


def test_a_malformed_check_is_named_to_its_author() -> None:
    def check(surface: str, op: Any, value: Any = None) -> str:
        return malformed(Check(surface=surface, path="", op=op, value=value), SURFACES)

    assert check("tree", "unchanged") == ""
    assert check("journal", "count", {"tool": "a", "is": 1}) == ""
    assert check("journal", "journal_order", [{"tool": "a"}]) == ""
    assert "no surface" in check("shelf", "equals")
    assert "does not go" in check("tree", "journal_order", [])
    assert "does not go" in check("journal", "equals")
    assert "journal" in check("journal", "count", 3)
    assert "list" in check("tree", "in", 3)
    assert "number" in check("tree", "count", "3")
    assert "takes nothing" in check("tree", "unchanged", 3)
    assert "takes nothing" in check("tree", "unchanged", [""])
    assert check("tree", "unchanged", ["a"]) == ""
    assert "list" in check("tree", "includes", "a")
    assert "after" in check("tree", "between", {"after": "a"})
    assert check("tree", "between", {"after": "a", "before": "b", "equals": []}) == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    before=json_values,
    after=json_values,
    value=json_values,
    path=st.text(alphabet="ab/0", max_size=6),
    op=st.sampled_from(get_args(get_type_hints(Check)["op"])),
    surface=st.sampled_from(["state", "tree", "decision", "journal", "none"]),
)
def test_no_observation_makes_a_check_raise(
    before: Any, after: Any, value: Any, path: str, op: Any, surface: str
) -> None:
    observed = Observed(SURFACES, before, after, JOURNAL, None)
    result, sentence = holds(Check(surface=surface, path=path, op=op, value=value), observed)
    assert isinstance(result, bool)
    assert sentence
