"""Families from files: the six given ones convert, and bad files are refused by file, line, key."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given as given_text
from hypothesis import strategies as st

from actors.families.load import FamilyError, load, load_family
from actors.families.review import review
from actors.families.yaml_file import MAX_BYTES, BadFile, read_yaml
from schemas.transfer.family import Family, Tool
from schemas.transfer.family_checks import malformed

GIVEN = Path(__file__).parent / "given"
NAMES = ("F101", "F102", "F103", "F104", "F105", "F106")


def given(name: str) -> str:
    return (GIVEN / f"{name}.yaml").read_text(encoding="utf-8")


def family(name: str) -> Family:
    return load_family(given(name).encode(), f"{name}.yaml")


def tool(name: str, tool_name: str) -> Tool:
    return next(tool for tool in family(name).fixture.tools if tool.name == tool_name)


@pytest.mark.parametrize("name", NAMES)
def test_a_given_family_converts_and_its_own_form_loads_as_the_same(name: str) -> None:
    converted = family(name)
    own_form = msgspec.json.encode(converted)  # JSON is YAML
    assert load_family(own_form, "own.yaml") == converted
    assert load(own_form, "own.yaml").inferred == ()
    assert all(
        malformed(check, converted.fixture.surfaces) == ""
        for case in converted.cases
        for check in case.expected.outcome
    )
    assert [case.case_id for case in converted.cases if case.acknowledgements] == [
        case.case_id for case in converted.cases if case.kind == "outcome"
    ]


def test_what_the_tools_do_is_inferred() -> None:
    expected = {
        ("F101", "tree_write"): ("set", "trees/{tree}/{file}/{key}", "{value}"),
        ("F101", "tree_list"): ("keys", "trees/{tree}", None),
        ("F101", "policy_read"): ("get", "policy/{project}", None),
        ("F101", "job_start"): ("append", "job", {"name": "{name}"}),
        ("F102", "submit"): ("set", "submit/{kind}", {"plan": "{plan}", "region": "{region}"}),
        ("F102", "plan_change"): ("set", "export/{account}/plan", "{plan}"),
        ("F104", "lane_move"): ("set", "changes/{change}/lane", "{lane}"),
        ("F104", "lane_list"): ("get", "default_lane", None),
        ("F105", "spec_save"): ("set", "jobs/{job}", "{steps}"),
        ("F106", "source_read"): ("get", "{source}/{project}", None),
    }
    found = {
        key: (operation.do, operation.path, operation.value)
        for key in expected
        for operation in [tool(*key).operation]
    }
    assert found == expected
    assert tool("F101", "tree_write").parameters["value"] == "integer"
    assert tool("F105", "spec_save").parameters["steps"] == "list"
    assert tool("F102", "submit").optional == ("plan", "region")
    assert tool("F103", "draft_save").optional == ()


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
    "a time": (
        lambda: changed("valid_from: '2026-01-01T00:00:00Z'", "valid_from: yesterday"),
        r"`records\[0\].valid_from`: allowed: an instant as",
    ),
    "an unknown tool": (
        lambda: changed("tool tree_write(tree=staging", "tool tree_wirte(tree=staging"),
        r"`cases\[0\]`: there is no tool 'tree_wirte'; there are tree_list",
    ),
    "an unknown argument": (
        lambda: changed("tool tree_write(tree=staging", "tool tree_write(three=staging"),
        r"tree_write has no argument 'three'; it has tree, file, key, value",
    ),
    "an unknown verb": (
        lambda: changed("tree_list(tree)", "tree_yodel(tree)"),
        r"`fixture.tools`: the tool tree_yodel has no known verb: .*fixture.operations",
    ),
    "an action that is no call": (
        lambda: changed("action: tool tree_write(tree=staging, file=limits.toml)", "action: write"),
        r"`cases\[0\].expected.action`: 'write' is no call: write `tool NAME",
    ),
    "an unknown clause": (
        lambda: changed("== 40 and others unchanged", "~ 40"),
        r"`cases\[0\].expected.outcome.predicate`: .* is no clause of a predicate",
    ),
    "a field that nothing writes": (
        lambda: changed("status == incomplete", "colour == red", "F106"),
        r"'colour' is nothing of the surface 'report'.*they write project, status, source_ref\); "
        "write `project == …`",
    ),
    "an entry where a written value is meant": (
        lambda: changed("staging/limits.toml.limit == 40", "77 == 40"),
        r"'77' is nothing of the surface 'tree'.*they write value\); write `value == …`, or the",
    ),
    "a misspelt surface": (
        lambda: changed("surface: tree", "surface: tre"),
        r"`cases\[0\].expected.outcome.surface`: there is no surface 'tre' .*; there are .*, tree,",
    ),
    "a misspelt surface that nothing is written to": (
        lambda: changed("surface: state", "surface: sttae"),
        r"where 'sttae' lies cannot be told.*; there are .*, state, .*`fixture.surfaces`",
    ),
    "an entry that cannot be told": (
        lambda: changed("backup-job:\n      - archive", "backup:\n      - archive", "F105").replace(
            "for the backup job", "for that job"
        ),
        r"which job of spec_save is meant cannot be told",
    ),
    "an unreadable source": (
        lambda: changed("export_read(account)", "ledger_read(page)", "F102"),
        r"what ledger_read reads cannot be told: .*`fixture.operations`",
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
    for path in every[len(str(instead)) % 7 :: 7]:
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
