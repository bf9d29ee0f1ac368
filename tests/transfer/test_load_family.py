"""Families from files: what may be left out is filled in, and bad files are refused by file, line
and key."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given as given_text
from hypothesis import strategies as st

from actors.families.load import FamilyError, load_family
from actors.families.review import review
from actors.families.yaml_file import MAX_BYTES, BadFile, read_yaml
from schemas.transfer.family import (
    ArgumentTest,
    CallPattern,
    Check,
    Expected,
    Family,
)
from schemas.transfer.family_checks import malformed

GIVEN = Path(__file__).parents[2] / "actors" / "families" / "examples"
NAMES = ("F101", "F102", "F103", "F104", "F105", "F106")


def given(name: str) -> str:
    return (GIVEN / f"{name}.yaml").read_text(encoding="utf-8")


def family(name: str) -> Family:
    return load_family(given(name).encode(), f"{name}.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_a_family_written_out_whole_loads_as_the_same(name: str) -> None:
    loaded = family(name)
    whole = msgspec.json.encode(loaded)  # JSON is YAML
    assert load_family(whole, "whole.yaml") == loaded
    assert all(
        malformed(check, loaded.fixture.surfaces) == ""
        for case in loaded.cases
        for check in case.expected.outcome
    )
    assert [case.case_id for case in loaded.cases if case.acknowledgements] == [
        case.case_id for case in loaded.cases if case.kind == "outcome"
    ]


SHORT = """\
format: 1
family_id: F
title: Where notes go
records:
  - correction_id: CT-1
    class: procedure
    semantic_expectation: Notes of alder go on the left shelf.
    source_reference: ref:log/1
    scope: {principal: "user:a", project: alder, task_classes: [note]}
    valid_from: 2026-01-01T00:00:00Z
    expected_decision: left
    expected_action: note_put on the left shelf
    prohibited_actions: [note_put on the right shelf]
    authoritative_outcome_check: "surface shelf: the note is there"
    consequence: low
  - correction_id: CT-2
    semantic_expectation: Notes of alder go on the upper shelf.
    scope: {project: birch}
    supersedes: CT-1
    expected_decision: upper
    expected_action: note_put on the upper shelf
twin_decision: right
topic_terms: [note]
session: {principal: "user:a", project: alder, task_class: note, now: 2026-07-01T09:00:00Z}
fixture:
  state: {shelves: {}}
  tools:
    - name: note_put
      effect: write
      description: Puts a note.
      parameters: {shelf: string}
      operation: {do: set, path: "shelves/{shelf}", value: true}
    - name: ask
      effect: resolve
      description: Asks.
      parameters: {question: string}
      operation: {do: nothing}
  surfaces: {shelf: shelves}
cases:
  - kind: not_yet_valid
    store: [CT-2]
  - kind: positive
    prompt: Put the note away.
    expected:
      action: [{tool: note_put, arguments: {shelf: left}}]
      outcome: [{surface: shelf, path: left, value: true}]
    prohibited: [{tool: note_put, arguments: {shelf: {op: in, value: [right, upper]}}}]
  - kind: supersession
    store: [CT-1, CT-2]
    expected: {action: [], outcome: [{surface: shelf, op: unchanged}]}
  - kind: conflict
    store: [CT-1, CT-2]
    prohibited: [{tool: note_put, arguments: {shelf: left}}]
  - kind: outcome
    acknowledgements: {note_put: {kind: late}}
  - kind: scope_negative
    session: {project: cedar}
    prompt: Put the other note away.
    expected: {decision_accept: [right], action: [[], [{tool: ask}]]}
  - kind: persistence
    write_session: {turns: [Please remember it.]}
  - kind: baseline
"""


def test_what_is_left_out_is_filled_in_by_the_kind_of_the_case() -> None:
    found = load_family(SHORT.encode(), "short.yaml")
    first, second = found.records
    assert (first.expires_at, first.lifecycle, first.supersedes) == (None, "active", None)
    assert second.valid_from == first.valid_from and second.consequence == "low"
    assert (second.scope.principal, second.scope.project) == ("user:a", "birch")
    assert found.decision_options == ("left", "needs_resolution", "right", "upper")
    assert found.exercises == ("valid_from", "persistence")
    assert found.fixture.surfaces == {"shelf": "shelves", "state": ""}
    early, positive, supersession, conflict, outcome, negative, persistence, baseline = found.cases
    assert [case.case_id for case in found.cases][:2] == ["F-01-not_yet_valid", "F-02-positive"]
    assert {case.prompt for case in found.cases} == {"Put the note away.", negative.prompt}
    assert negative.session.project == "cedar" and negative.session.now == positive.session.now
    assert positive.store == positive.eligible == outcome.store == negative.store == ("CT-1",)
    assert (supersession.eligible, conflict.eligible) == (("CT-2",), ("CT-1", "CT-2"))
    assert (early.eligible, negative.eligible, baseline.store) == ((), (), ())
    assert persistence.write_session is not None
    assert (persistence.store, persistence.eligible) == ((), ("CT-1",))
    assert persistence.write_session.teaches == ("CT-1",)
    left = {"shelf": ArgumentTest(op="equals", value="left")}
    assert positive.expected.action == ((CallPattern(tool="note_put", arguments=left),),)
    assert positive.expected.outcome == (
        Check(surface="shelf", path="left", op="equals", value=True),
    )
    assert outcome.expected == persistence.expected == positive.expected
    assert outcome.prohibited == positive.prohibited and baseline.prohibited == ()
    assert supersession.expected.decision_accept == ("upper",) and supersession.prohibited == ()
    assert conflict.expected == Expected(
        abstain=True,
        decision_accept=("needs_resolution",),
        action=((CallPattern(tool="ask", times=1, before="write"),),),
        outcome=(Check(surface="state", path="", op="unchanged"),),
    )
    assert (early.expected, early.prohibited) == (conflict.expected, conflict.prohibited)
    assert negative.expected.action == ((), (CallPattern(tool="ask"),)) and negative.excluded
    assert baseline.expected == Expected(abstain=False) and baseline.absent
    assert baseline.required == ("retention",) and "resolution" in supersession.required


def test_nobody_is_told_how_to_abstain_where_no_conflict_says_it() -> None:
    start, end = SHORT.index("  - kind: conflict"), SHORT.index("  - kind: outcome")
    early = load_family((SHORT[:start] + SHORT[end:]).encode(), "f").cases[0]
    assert early.prohibited == (CallPattern(tool="note_put"),) and early.expected.abstain is True


def changed(old: str, new: str, name: str = "F101") -> str:
    text = given(name)
    assert old in text
    return text.replace(old, new, 1)


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
BAD: dict[str, tuple[Callable[[], str | bytes], str]] = {
    "aliases": (lambda: BOMB, r"bad.yaml:1: .*aliases"),
    "an alias": (lambda: "a: x\nb: *a\n", r"bad.yaml:2: .*"),
    "too large": (lambda: b"a: " + b"x" * 10_000_000, f"at most {MAX_BYTES}"),
    "deep": (lambda: "[" * 2000 + "]" * 2000, r"bad.yaml:1: "),
    "a key twice": (lambda: "a: 1\nb:\n  c: 1\n  c: 2\n", r"bad.yaml:4: `c` stands twice"),
    "a tag": (lambda: "a: !!python/object/apply:os.system [ls]\n", r"bad.yaml:1: tags"),
    "a merge key": (lambda: "a:\n  <<: {b: 1}\n", r"bad.yaml:2: merge keys"),
    "not a number": (lambda: "a: .nan\n", r"bad.yaml:1: .nan is no finite"),
    "infinity": (lambda: "a: [1.0, -.inf]\n", r"bad.yaml:1: -.inf is no finite"),
    "too large a number": (lambda: "a: 1" + "0" * 5000, r"no number here is larger"),
    "not UTF-8": (lambda: b"a: \xff\n", r"not UTF-8 text \(byte 3\)"),
    "a byte order mark": (lambda: "\ufeffa: 1\n", "byte order mark"),
    "control characters": (lambda: "a: \x00\n", "not valid YAML"),
    "half a surrogate pair": (lambda: 'a: "\\ud800"\n', r"bad.yaml"),
    "not YAML": (lambda: "a: [1\n", r"bad.yaml:2: not valid YAML"),
    "two documents": (lambda: "a: 1\n---\na: 2\n", r"bad.yaml:2: a second document"),
    "nothing": (lambda: "", "empty"),
    "a list": (lambda: "- a\n", "a mapping of keys"),
    "an unknown key": (
        lambda: changed("twin_decision:", "twin_decisions:"),
        r"bad.yaml:1: unknown key `twin_decisions` \(did you mean `twin_decision`\?\)",
    ),
    "an unknown kind": (
        lambda: changed("kind: positive", "kind: hopeful"),
        r'bad.yaml:\d+: `cases\[0\].kind`: allowed: "positive".*it is \'hopeful\'',
    ),
    "an unknown class": (lambda: changed("class: boundary", "class: rule"), '"factual_revision"'),
    "an unknown operation": (
        lambda: changed("do: keys", "do: list"),
        r"bad.yaml:68: `fixture.tools\[0\].operation.do`: allowed: .*\"keys\"",
    ),
    "an unknown check": (
        lambda: changed("op: unchanged", "op: same"),
        r"bad.yaml:\d+: `cases\[0\].expected.outcome\[1\].op`: allowed: ",
    ),
    "no kind": (lambda: changed("kind: positive", "note: x"), r"`cases\[0\].kind` is missing"),
    "no store": (
        lambda: changed("    store: [CT-113]\n", ""),
        r"bad.yaml:\d+: `cases\[4\].store` is missing",
    ),
    "a time": (
        lambda: changed("valid_from: '2026-01-01T00:00:00Z'", "valid_from: yesterday"),
        r"`records\[0\].valid_from`: allowed: an instant as",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_by_place_and_rule(what: str) -> None:
    make, message = BAD[what]
    content = make()
    with pytest.raises(FamilyError, match=message):
        load_family(content if isinstance(content, bytes) else content.encode(), "bad.yaml")


def test_surprises_of_yaml_are_texts() -> None:
    text = "a: no\nb: 12:30:45\nc: 0123\nd: 2026-07-01\n812: yes\ne: [1, -2.5, true, null, ~]\n"
    assert read_yaml(text.encode(), "x").value == {
        "a": "no",
        "b": "12:30:45",
        "c": "0123",
        "d": "2026-07-01",
        "812": "yes",
        "e": [1, -2.5, True, None, None],
    }


def paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))


@pytest.mark.parametrize("instead", [None, 3, "x (y", "a/b", ["x"], {"x": 1}], ids=repr)
def test_nothing_in_a_family_s_place_makes_loading_or_review_raise(instead: object) -> None:
    """Every place in turn holds something else: a family with problems, or a clear refusal."""
    document = read_yaml(given("F105").encode(), "f").value
    every = list(paths(document))
    outcomes = {"refused": 0, "reviewed": 0}
    for path in every[len(str(instead)) % 5 :: 5]:
        changed_document = copy.deepcopy(document)
        parent = changed_document
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = instead
        try:
            review(load_family(json.dumps(changed_document).encode(), "f"))
            outcomes["reviewed"] += 1
        except FamilyError as error:
            assert str(error).startswith("f:1: ")
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0 and sum(outcomes.values()) > 40


def test_the_value_of_a_mapping_is_refused_by_its_key() -> None:
    bad = changed("CT-101: active", "CT-101: hopeful")
    with pytest.raises(FamilyError, match=r"bad.yaml:\d+: `cases\[0\].effective_lifecycle"):
        load_family(bad.encode(), "bad.yaml")


def test_a_refusal_does_not_repeat_what_looks_like_a_secret() -> None:
    secret = "ghp_" + "a1B2" * 9
    with pytest.raises(FamilyError, match="`cases.0..kind`: allowed") as refused:
        load_family(changed("kind: positive", f"kind: {secret}").encode(), "bad.yaml")
    assert secret[:12] not in str(refused.value)


@given_text(st.text(max_size=60))
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    try:
        value = read_yaml(text.encode("utf-8", "surrogatepass"), "f").value
    except BadFile as error:
        assert str(error).startswith("f:")
    else:
        json.dumps(value, allow_nan=False)
