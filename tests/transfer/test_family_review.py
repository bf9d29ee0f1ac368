"""The review: the given families pass; every rule is broken alone, is named, and teaches."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.families import leakage_lint
from actors.families.ideal_calls import ideal_calls, ideal_decision, play
from actors.families.leakage_lint import blind_policies, tail
from actors.families.load import load_family
from actors.families.review import review, review_suite, unwaived
from projections.transfer.corrections import Corrections
from schemas.transfer.family import LEAKAGE_RULES, WAIVABLE_RULES, Family
from schemas.transfer.lifecycle import Standing

EXAMPLES = Path(__file__).parents[2] / "actors" / "families" / "examples"
GIVEN = sorted(
    (Path(__file__).parents[2] / "actors" / "families" / "examples").glob("F10[1-6].yaml")
)
Edit = Callable[[dict[str, Any]], Any]


def given(name: str) -> Family:
    path = EXAMPLES / f"{name}.yaml"
    return load_family(path.read_bytes(), path.name)


def edited(edit: Edit, name: str = "F101") -> Family:
    document = json.loads(msgspec.json.encode(given(name)))
    edit(document)
    return load_family(json.dumps(document).encode(), "edited.yaml")


def case(document: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(case for case in document["cases"] if case["kind"] == kind)
    return found


def every_prompt(document: dict[str, Any], change: Callable[[str], str]) -> None:
    for item in document["cases"]:
        item["prompt"] = change(item["prompt"])


def everywhere(addition: str) -> Edit:
    """The same words in every prompt, so that no rule on equal prompts is broken beside."""
    return lambda document: every_prompt(document, lambda prompt: f"{prompt} {addition}")


def each(*edits: Edit) -> Edit:
    return lambda document: [edit(document) for edit in edits]


def set_in(kind: str, **fields: Any) -> Edit:
    return lambda document: case(document, kind).update(fields)


def test_the_given_families_pass_without_a_waiver() -> None:
    families = [load_family(path.read_bytes(), path.name) for path in GIVEN]
    found = review_suite(families)
    assert [str(problem) for problems in found.values() for problem in problems] == []
    assert len(found) == 7


LEAKS: dict[str, tuple[Edit, str]] = {
    "record-named": (everywhere("See ref:review-log/CT-101 too."), "no source reference"),
    "decision-word": (everywhere("The next day is Monday."), "says next"),
    "answer-words": (everywhere("Code is released by night job."), "shares code, job"),
    "shared-run": (
        each(
            lambda d: d["topic_terms"].extend(["in", "the", "are"]),
            lambda d: every_prompt(d, lambda p: f"{p} Edits are made in the open."),
        ),
        "`are made in the` stands in CT-101",
    ),
    "prohibited-words": (
        each(
            lambda d: d["records"][0]["prohibited_actions"].append("paint fences blue"),
            everywhere("Paint all fences."),
        ),
        "says fences, paint of what CT-101 prohibits",
    ),
    "cue-word": (everywhere("Do it as always."), "always: a word of memory, lifecycle"),
    "leading-question": (everywhere("It is Monday, isn't it?"), "ask openly"),
    "negative-prompt": (
        lambda d: case(d, "scope_negative").update(
            prompt=case(d, "scope_negative")["prompt"].replace("say where", "tell where")
        ),
        "declared slots (subject)",
    ),
    "same-prompt": (
        lambda d: case(d, "expiry").update(prompt=case(d, "expiry")["prompt"] + " Thanks."),
        "asks with the positive's prompt",
    ),
    "baseline-prompt": (
        lambda d: case(d, "baseline").update(prompt=case(d, "baseline")["prompt"] + " "),
        "byte for byte",
    ),
    "options-sorted": (lambda d: d["decision_options"].reverse(), "sorted order"),
    "tool-name": (
        lambda d: d["fixture"]["tools"].append(
            {
                "name": "approved_list",
                "effect": "read",
                "description": "Lists.",
                "operation": {"do": "keys"},
            }
        ),
        "judges itself (approved)",
    ),
    "twin": (lambda d: d.update(twin_decision="staging"), "another one than the positive's"),
    "topic-terms": (lambda d: d["topic_terms"].append("Staging"), "cannot be a free word"),
}


@pytest.mark.parametrize("rule", LEAKS)
def test_each_leak_is_found_alone_and_taught(rule: str) -> None:
    edit, says = LEAKS[rule]
    problems = review(edited(edit))
    assert {problem.rule for problem in problems} == {rule}, list(map(str, problems))
    assert says in " ".join(problem.message for problem in problems)


def test_a_prompt_that_says_the_twin_suits_only_one_of_two_records() -> None:
    """The twin is no decision of any record here, so that only its own rule is broken."""

    def edit(document: dict[str, Any]) -> None:
        document["decision_options"] = sorted([*document["decision_options"], "archive"])
        document["twin_decision"] = "archive"
        every_prompt(document, lambda prompt: prompt + " The archive is empty.")

    assert {problem.rule for problem in review(edited(edit))} == {"twin"}


def replace_record(index: int, **fields: Any) -> Edit:
    return lambda document: document["records"][index].update(fields)


BROKEN: dict[str, tuple[Edit, set[str], str]] = {
    "a kind is missing": (
        lambda d: d["cases"].remove(case(d, "outcome")),
        {"kinds"},
        "`outcome` is missing",
    ),
    "no negative": (
        lambda d: d["cases"].remove(case(d, "scope_negative")),
        {"kinds"},
        "stays in its scope",
    ),
    "an exercise without its case": (
        lambda d: d.update(exercises=["persistence"]),
        {"kinds"},
        "exercises persistence",
    ),
    "two positives": (
        lambda d: d["cases"].append({**case(d, "positive"), "case_id": "F101-08-positive"}),
        {"kinds"},
        "one `positive` case",
    ),
    "a tool that takes the whole state away": (
        lambda d: d["fixture"]["tools"].append(
            {
                "name": "wipe",
                "effect": "write",
                "description": "a tool",
                "operation": {"do": "remove", "path": ""},
            }
        ),
        {"operation"},
        "`remove` needs a `path`",
    ),
    "stages": (
        set_in("positive", required=["decision", "action", "outcome"]),
        {"stages"},
        "requires exactly retention, retrieval, relevance, decision, action, outcome",
    ),
    "a baseline that asks for presence": (set_in("baseline", absent=False), {"stages"}, "absent"),
    "a negative that asks for use": (set_in("scope_negative", excluded=False), {"stages"}, "excl"),
    "an unknown record": (
        set_in("positive", store=["CT-999"]),
        {"unknown-record"},
        "names CT-999",
    ),
    "a case id twice": (set_in("expiry", case_id="F101-01-positive"), {"case-id"}, "used once"),
    "an impossible clock": (
        lambda d: case(d, "scope_negative")["session"].update(now="2026-02-31T09:00:00Z"),
        {"clock"},
        "no instant of the calendar",
    ),
    "an unknown option": (
        lambda d: case(d, "scope_negative")["expected"].update(decision_accept=["nowhere"]),
        {"decision"},
        "decision_options does not offer",
    ),
    "abstaining and deciding": (
        lambda d: case(d, "scope_negative")["expected"].update(abstain=True),
        {"decision"},
        "do not agree",
    ),
    "a decision that is not the record's": (
        lambda d: case(d, "positive")["expected"].update(decision_accept=["next"]),
        {"decision"},
        "its eligible record says staging",
    ),
    "a baseline that expects": (
        lambda d: case(d, "baseline")["expected"].update(decision_accept=["staging"]),
        {"decision"},
        "a baseline expects nothing",
    ),
    "a lifecycle": (
        set_in("expiry", effective_lifecycle={"CT-113": "active"}),
        {"lifecycle"},
        "CT-113 is expired in this session, not active",
    ),
    "an eligible record too few": (
        lambda d: case(d, "scope_negative")["session"].update(project="halyard"),
        {"eligible", "kind"},
        "applicable in this session are CT-101",
    ),
    "an outcome case that is honest": (
        set_in("outcome", acknowledgements={}),
        {"kind"},
        "acknowledges falsely or late",
    ),
    "a predicate on no surface": (
        lambda d: case(d, "scope_negative")["expected"]["outcome"][0].update(surface="moon"),
        {"predicate", "satisfiable"},
        "there is no surface 'moon'",
    ),
    "a call of no tool": (
        set_in("scope_negative", prohibited=[{"tool": "fly"}]),
        {"calls"},
        "there is no tool or argument: fly",
    ),
    "an expected call that is prohibited": (
        set_in("scope_negative", prohibited=[{"tool": "tree_write"}]),
        {"satisfiable"},
        "tree_write is prohibited",
    ),
    "a predicate that nothing reaches": (
        lambda d: case(d, "scope_negative")["expected"]["outcome"][0].update(
            path="production/limits.toml/burst"
        ),
        {"satisfiable"},
        "cannot succeed as played",
    ),
    "a state with keys that look alike": (
        lambda d: d["fixture"]["state"].update(
            {"Trees": {}, "trees": d["fixture"]["state"]["trees"]}
        ),
        {"look-alikes"},
        "the state: 'Trees', 'trees' look alike",
    ),
    "a call of two names that look alike": (
        lambda d: case(d, "scope_negative")["prohibited"].extend(
            [
                {"tool": "tree_write", "arguments": {"tree": {"op": "equals", "value": value}}}
                for value in ("m\u043eon", "moon")
            ]
        ),
        {"look-alikes"},
        "look alike, and nobody could tell which was meant",
    ),
    "a predicate that holds anyway": (
        lambda d: case(d, "positive")["expected"].update(
            outcome=[{"surface": "tree", "path": "next", "op": "unchanged"}]
        ),
        {"idle-predicate"},
        "where nothing is done",
    ),
    "a secret": (
        lambda d: d["provenance"].update(details="password: " + "hunter2"),
        {"secret"},
        "`provenance.details` looks like it holds a password",
    ),
    "a text for a pointer": (
        replace_record(0, source_reference="he said so"),
        {"record"},
        "never the text",
    ),
    "clocks backwards": (
        replace_record(3, expires_at="2025-01-01T00:00:00Z"),
        {"record"},
        "validity is half-open",
    ),
    "dangling supersession": (
        replace_record(2, supersedes="CT-999"),
        {"record"},
        "CT-999 does not exist",
    ),
    "cyclic supersession": (
        replace_record(3, supersedes="CT-113"),
        {"record"},
        "cannot replace itself",
    ),
    "what is expected is prohibited": (
        replace_record(2, prohibited_actions=["Write limits.toml under the canary tree."]),
        {"record"},
        "the expected action is prohibited",
    ),
    "an endless ephemeral": (
        replace_record(0, **{"class": "ephemeral"}),
        {"record", "kinds"},
        "an ephemeral record has an expires_at",
    ),
    "never seeded": (
        replace_record(0, persistence_allowed=False),
        {"never-seeded", "kinds"},
        "may not persist, so it is never seeded",
    ),
    "a condition that nobody named": (
        replace_record(0, persistence_allowed="conditional"),
        {"condition"},
        "needs a named condition",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_named(what: str) -> None:
    edit, rules, says = BROKEN[what]
    problems = review(edited(edit))
    assert {problem.rule for problem in problems} == rules, list(map(str, problems))
    assert says in " ".join(problem.message for problem in problems)


def test_a_longer_cycle_is_named_with_its_way() -> None:
    edit = each(replace_record(0, supersedes="CT-111"))
    cycles = [problem for problem in review(edited(edit)) if "a cycle" in problem.message]
    assert cycles[0].message == "`supersedes`: a cycle: CT-101 → CT-111 → CT-101"


def test_a_waiver_accepts_one_rule_and_keeps_its_reason() -> None:
    waiver = {"rule": "cue-word", "reason": "the task is about a calendar"}
    family = edited(each(everywhere("Do it as always."), lambda d: d.update(waivers=[waiver])))
    problems = review(family)
    assert problems and unwaived(problems) == []
    assert {problem.waived for problem in problems} == {"the task is about a calendar"}
    assert "(waived: the task is about a calendar)" in str(problems[0])


def test_a_waiver_that_accepts_nothing_is_a_problem_and_some_rules_accept_none() -> None:
    idle = {"rule": "cue-word", "case": "F101-01-positive", "reason": "x"}
    assert [p.rule for p in review(edited(lambda d: d.update(waivers=[idle])))] == ["waiver"]
    secret = {"rule": "secret", "reason": "x"}
    family = edited(
        each(
            lambda d: d["provenance"].update(details="password: " + "hunter2"),
            lambda d: d.update(waivers=[secret]),
        )
    )
    assert sorted(p.rule for p in unwaived(review(family))) == ["secret", "waiver"]


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        ("stages", set_in("positive", required=[])),
        ("predicate", lambda d: case(d, "positive")["expected"].update(outcome=[])),
        ("kinds", lambda d: d["cases"].remove(case(d, "baseline"))),
        ("decision", lambda d: case(d, "positive")["expected"].update(decision_accept=["no"])),
        ("baseline-prompt", set_in("baseline", prompt="Write another report.")),
    ],
)
def test_what_decides_what_a_verdict_means_is_never_waived(rule: str, edit: Edit) -> None:
    waiver = {"rule": rule, "reason": "it is easier"}
    family = edited(each(edit, lambda d: d.update(waivers=[waiver])))
    assert {rule, "waiver"} <= {problem.rule for problem in unwaived(review(family))}


def test_every_rule_of_the_lint_and_no_other_is_waivable() -> None:
    """The list in the types is what the lint says."""
    source = Path(leakage_lint.__file__).read_text()
    assert set(re.findall(r'rule="([a-z-]+)"', source)) == LEAKAGE_RULES
    assert WAIVABLE_RULES < LEAKAGE_RULES


def test_what_the_ledger_knows_decides() -> None:
    family = given("F101")
    record = family.record("CT-101")
    ledger = Corrections(standings={"CT-101": Standing(record=record, state="proposed")})
    found = {problem.rule for problem in review(family, ledger)}
    assert {"never-seeded", "lifecycle", "eligible"} <= found
    other = msgspec.structs.replace(record, semantic_expectation="something else")
    differing = Corrections(standings={"CT-101": Standing(record=other)})
    assert "record-differs" in {problem.rule for problem in review(family, differing)}
    approved = Corrections(standings={"CT-101": Standing(record=record)})
    assert review(family, approved) == []


def test_a_suite_in_which_one_blind_choice_is_right_is_named() -> None:
    def edit(document: dict[str, Any]) -> None:
        for item in document["cases"]:
            if item["expected"]["decision_accept"]:
                item["expected"]["decision_accept"] = ["canary"]

    problems = list(blind_policies([edited(edit)]))
    assert {problem.rule for problem in problems} == {"blind-policy"}
    assert "the first option decides rightly in 6 of 6 cases" in problems[0].message


def test_the_tail_is_exact() -> None:
    from fractions import Fraction

    half = [Fraction(1, 2)] * 4
    assert [tail(half, hits) for hits in range(6)] == [
        Fraction(n, 16) for n in (16, 15, 11, 5, 1, 0)
    ]


@pytest.mark.parametrize("path", GIVEN, ids=lambda path: path.stem)
def test_every_case_is_satisfied_by_the_expected_action_and_by_no_other(path: Path) -> None:
    family = load_family(path.read_bytes(), path.name)
    played = 0
    for item in family.cases:
        for alternative in item.expected.action:
            calls = ideal_calls(family, item, alternative)
            decision = ideal_decision(item, alternative, family)
            right = play(family, item, calls, decision)
            assert (right.action, right.outcome, right.prohibited) == (True, True, ()), item.case_id
            played += 1
        if not item.expected.action:
            continue
        idle = play(family, item, (), None)
        assert not idle.action, item.case_id
        if not all(p.arguments or p.times for calls in item.expected.action for p in calls):
            assert item.case_id == "F103-06-expiry", "`with the guide default`, which is silent"
            continue
        for wrong in wrong_calls(family, item):
            result = play(family, item, wrong, decision)
            assert not (result.action and result.outcome and not result.prohibited), wrong
    assert played >= 6


def wrong_calls(family: Family, item: Any) -> list[list[tuple[str, dict[str, Any]]]]:
    """The calls of the other cases that decide otherwise."""
    return [
        calls
        for other in family.cases
        if other.expected.decision_accept
        and not set(other.expected.decision_accept) & set(item.expected.decision_accept)
        for calls in [ideal_calls(family, other, other.expected.action[0])]
    ]


def test_every_rule_is_documented() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "corrections-and-families.md").read_text(encoding="utf-8")
    used = {
        rule
        for path in (root / "actors" / "families").glob("*.py")
        for rule in re.findall(r'rule="([a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(used) > 25
    assert {rule for rule in used if f"`{rule}`" not in text} == set()
