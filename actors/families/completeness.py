"""Is a family whole and coherent: kinds, stages, references, decisions, lifecycles.

The table of kinds and the table of required stages are those of the protocol. What is checked is
only what the author declared; nothing is repaired.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.families.problems import Findings, Problem
from projections.transfer.corrections import Corrections
from schemas.look_alikes import as_it_looks
from schemas.secret_shapes import secrets_in
from schemas.transfer.correction import Correction
from schemas.transfer.correction_rules import instant_problem, record_problems
from schemas.transfer.family import (
    ABSENT_KINDS,
    DECLARE_DECISION,
    KIND_OF,
    NEEDS_RESOLUTION,
    NEGATIVES,
    REQUIRED_STAGES,
    STAGES,
    CallPattern,
    Case,
    CaseKind,
    Family,
)
from schemas.transfer.family_checks import declared_texts, malformed
from schemas.transfer.lifecycle import (
    Standings,
    effective_lifecycle,
    eligible,
    opponents,
    same_subject,
)

ALWAYS_NEEDED: tuple[CaseKind, ...] = (
    "positive",
    "supersession",
    "conflict",
    "expiry",
    "outcome",
    "baseline",
)
MAX_CASE_ID = 56
"""A unit is ``<case id>.d<distractors>``, and no identifier is longer than 64."""


def check_records(family: Family, corrections: Corrections, standings: Standings) -> Findings:
    """Record rules, and agreement with what the ledger knows."""
    known = {name: standing.record for name, standing in standings.items()}
    seen: set[str] = set()
    for record in family.records:
        name = record.correction_id
        if name in seen:
            yield Problem(rule="record", place=name, message="duplicate id")
        seen.add(name)
        for field, why in record_problems(record, {**known, **_by_id(family.records)}):
            yield Problem(rule="record", place=name, message=f"`{field}`: {why}")
        recorded = corrections.standings.get(name)
        if recorded is not None and recorded.record != record:
            yield Problem(
                rule="record-differs",
                place=name,
                message="the ledger knows this id with other content: a record is never rewritten; "
                "give the changed one a new id that supersedes it",
            )
        standing = standings[name]
        if record.persistence_allowed == "conditional" and not standing.condition:
            yield Problem(
                rule="condition",
                place=name,
                message="`persistence_allowed: conditional` needs a named condition: approve it in "
                "the ledger (`ledger corrections approve --condition`), or name it in the family's "
                "`conditions`",
            )
    for name in family.conditions:
        if name not in seen:
            yield Problem(rule="condition", place=name, message="the family has no such record")
    for key, kind in secrets_in(msgspec.to_builtins(family)):
        yield Problem(
            rule="secret",
            message=f"`{key}` looks like it holds {kind}: put a pointer in its place and change "
            "the secret",
        )


def _by_id(records: Sequence[Correction]) -> dict[str, Correction]:
    return {record.correction_id: record for record in records}


def check_kinds(family: Family) -> Findings:
    """Every kind that the family needs is there."""
    kinds = Counter(case.kind for case in family.cases)
    for kind in ALWAYS_NEEDED:
        if not kinds[kind]:
            yield Problem(
                rule="kinds", message=f"a case of kind `{kind}` is missing: every family has one"
            )
    for kind in ("positive", "baseline"):
        if kinds[kind] > 1:
            yield Problem(rule="kinds", message=f"one `{kind}` case a family; there are several")
    if not any(kinds[kind] for kind in NEGATIVES):
        yield Problem(
            rule="kinds",
            message=f"a case of one of the kinds {', '.join(NEGATIVES)} is missing: without one "
            "nothing shows that the record stays in its scope",
        )
    for what in family.exercises:
        if not kinds[KIND_OF[what]]:
            yield Problem(
                rule="kinds",
                message=f"the family says that it exercises {what}, which needs a case of kind "
                f"`{KIND_OF[what]}`",
            )
    for record in family.records:
        endless = record.class_ == "ephemeral" and record.expires_at is None
        if (record.persistence_allowed is False or endless) and not kinds["persistence_negative"]:
            yield Problem(
                rule="kinds",
                place=record.correction_id,
                message="a record that may not persist needs a case of kind "
                "`persistence_negative`: taught, and absent from the store afterwards",
            )


def check_operations(family: Family) -> Findings:
    """No tool changes the whole state: an operation that does has no key to change it at."""
    for tool in family.fixture.tools:
        changes = tool.operation.do in ("set", "merge", "append", "remove")
        if changes and not tool.operation.path.strip("/"):
            yield Problem(
                rule="operation",
                place=tool.name,
                message=f"`{tool.operation.do}` needs a `path`: the whole state is neither "
                "replaced nor removed; name the part of it that the tool changes",
            )


def check_look_alikes(family: Family) -> Findings:
    """No two values that a call or a decision could take look alike: options, what cases name of an
    argument, and the keys of every part of the state."""
    named: dict[str, set[str]] = {"the decision options": set(family.decision_options)}
    for (tool, argument), texts in declared_texts(family.cases).items():
        named[f"`{argument}` of {tool}"] = texts
    named.update(_keys_by_place(family.fixture.state, "the state"))
    for where, texts in named.items():
        alike: dict[str, list[str]] = {}
        for text in sorted(texts):
            alike.setdefault(as_it_looks(text), []).append(text)
        for group in alike.values():
            if len(group) > 1:
                yield Problem(
                    rule="look-alikes",
                    message=f"{where}: {', '.join(map(ascii, group))} look alike, and nobody could "
                    "tell which was meant: write one of them otherwise",
                )


def _keys_by_place(value: Any, where: str) -> dict[str, set[str]]:
    if isinstance(value, dict):
        found = {where: set(value)}
        for key, inner in value.items():
            found |= _keys_by_place(inner, f"{where}/{key}")
        return found
    return {}


def check_cases(family: Family, standings: Standings) -> Findings:
    """Each case: ids, references, stages, decision, calls, predicate, lifecycles, and its kind."""
    seen: set[str] = set()
    records = _by_id(family.records)
    for case in family.cases:
        if case.case_id in seen or len(case.case_id) > MAX_CASE_ID:
            yield Problem(
                rule="case-id",
                place=case.case_id,
                message=f"ids are used once and have at most {MAX_CASE_ID} characters",
            )
        seen.add(case.case_id)
        taught = case.write_session.teaches if case.write_session else ()
        unknown = sorted({*case.store, *case.eligible, *taught} - records.keys())
        if unknown:
            yield Problem(
                rule="unknown-record",
                place=case.case_id,
                message=f"names {', '.join(unknown)}, which the family's records do not hold",
            )
            continue
        if instant_problem(case.session.now):
            yield Problem(
                rule="clock", place=case.case_id, message=instant_problem(case.session.now)
            )
        yield from _check_stages(case)
        yield from _check_decision(family, case)
        yield from _check_calls(family, case)
        yield from _check_store(case, records, standings)
        yield from _check_lifecycles(case, standings, taught)
        yield from _check_kind(family, case, records, standings)


def _check_stages(case: Case) -> Findings:
    wanted = REQUIRED_STAGES[case.kind]
    if set(case.required) != wanted:
        stages = ", ".join(stage for stage in STAGES if stage in wanted)
        yield Problem(
            rule="stages",
            place=case.case_id,
            message=f"a `{case.kind}` case requires exactly {stages}; it says "
            f"{', '.join(case.required) or 'none'}",
        )
    absent = case.kind in ABSENT_KINDS
    if case.absent != absent:
        yield Problem(
            rule="stages",
            place=case.case_id,
            message="retention of a baseline and of a persistence_negative case means absent, of "
            "every other kind present: set `absent` so",
        )
    if case.excluded != (case.kind in NEGATIVES):
        yield Problem(
            rule="stages",
            place=case.case_id,
            message="relevance of a scope, principal or task negative means excluded, of every "
            "other kind admitted: set `excluded` so",
        )


def _check_decision(family: Family, case: Case) -> Findings:
    accepted, abstain = case.expected.decision_accept, case.expected.abstain
    unknown = sorted(set(accepted) - set(family.decision_options))
    if unknown:
        yield Problem(
            rule="decision",
            place=case.case_id,
            message=f"accepts {', '.join(unknown)}, which decision_options does not offer",
        )
    if case.kind == "baseline":
        if accepted or case.expected.action or case.expected.outcome:
            yield Problem(
                rule="decision",
                place=case.case_id,
                message="a baseline expects nothing: it is read with the positive's decision and "
                "predicate",
            )
        return
    abstaining = NEEDS_RESOLUTION in accepted
    deciding = any(option != NEEDS_RESOLUTION for option in accepted)
    if (abstaining, deciding) != (abstain is not False, abstain is not True):
        yield Problem(
            rule="decision",
            place=case.case_id,
            message=f"`abstain: {str(abstain).lower()}` and the accepted decisions do not agree: "
            f"true accepts {NEEDS_RESOLUTION} alone, false accepts options but not it, either "
            "accepts both",
        )
    if not case.expected.outcome:
        yield Problem(
            rule="predicate",
            place=case.case_id,
            message="has no predicate: say what a surface must show after the session",
        )
    if not case.expected.action and not case.prohibited:
        yield Problem(
            rule="calls",
            place=case.case_id,
            message="expects no call and prohibits none: say by which call it shows, or write `no "
            "action`",
        )


def _check_calls(family: Family, case: Case) -> Findings:
    tools = {tool.name: tool for tool in family.fixture.tools}
    patterns: list[CallPattern] = [p for calls in case.expected.action for p in calls]
    for pattern in (*patterns, *case.prohibited):
        if pattern.tool == DECLARE_DECISION:
            continue
        tool = tools.get(pattern.tool)
        unknown = sorted(set(pattern.arguments) - set(tool.parameters)) if tool else []
        if tool is None or unknown:
            what = f"argument {', '.join(unknown)} of {pattern.tool}" if tool else pattern.tool
            yield Problem(
                rule="calls", place=case.case_id, message=f"there is no tool or argument: {what}"
            )
    for name in case.acknowledgements:
        if name not in tools or tools[name].effect != "write":
            yield Problem(
                rule="calls",
                place=case.case_id,
                message=f"`acknowledgements` names {name}, which is no writing tool",
            )
    for check in case.expected.outcome:
        why = malformed(check, family.fixture.surfaces)
        if why:
            yield Problem(rule="predicate", place=case.case_id, message=why)


def _check_store(case: Case, records: Mapping[str, Correction], standings: Standings) -> Findings:
    for name in case.store:
        if records[name].persistence_allowed is False:
            yield Problem(
                rule="never-seeded",
                place=case.case_id,
                message=f"{name} may not persist, so it is never seeded: take it out of `store`; a "
                "persistence_negative case teaches it",
            )
        if standings[name].state != "approved":
            yield Problem(
                rule="never-seeded",
                place=case.case_id,
                message=f"{name} is {standings[name].state} in the ledger, so it is never "
                "eligible: `ledger corrections approve` it, or leave it out",
            )


def _check_lifecycles(case: Case, standings: Standings, taught: Sequence[str]) -> Findings:
    found = {
        name: effective_lifecycle(name, standings, case.store, case.session) for name in case.store
    }
    for name, lifecycle in found.items():
        asserted = case.effective_lifecycle.get(name)
        if asserted is not None and asserted != lifecycle:
            yield Problem(
                rule="lifecycle",
                place=case.case_id,
                message=f"{name} is {lifecycle} in this session, not {asserted}: look at its "
                "times, at its successors and at what contradicts it",
            )
    beyond = sorted(set(case.effective_lifecycle) - set(case.store))
    if beyond:
        yield Problem(
            rule="lifecycle",
            place=case.case_id,
            message=f"`effective_lifecycle` names {', '.join(beyond)}, not of `store`",
        )
    there = (*case.store, *taught)
    applying = set(eligible(standings, there, case.session))
    beside = applying - set(case.eligible)
    if case.kind == "noninterference":  # a sibling is about something that the task does not ask
        beside = {
            name
            for name in beside
            if any(
                same_subject(standings[name].record, standings[other].record)
                for other in case.eligible
            )
        }
    if case.kind == "persistence_negative":
        applying, beside = set(case.eligible), set()
    wrong = sorted(set(case.eligible) - applying | beside)
    if wrong:
        yield Problem(
            rule="eligible",
            place=case.case_id,
            message=f"`eligible` and the records disagree on {', '.join(wrong)}: applicable in "
            f"this session are {', '.join(sorted(applying)) or 'none'}",
        )


def _check_kind(
    family: Family, case: Case, records: Mapping[str, Correction], standings: Standings
) -> Findings:
    """What makes a case one of its kind."""
    lifecycles = {
        name: effective_lifecycle(name, standings, case.store, case.session) for name in case.store
    }
    session = case.session
    scopes = [records[name].scope for name in case.store]
    deciding = {records[name].expected_decision for name in case.eligible}
    why = ""
    match case.kind:
        case "positive" | "outcome":
            if len(case.eligible) != 1:
                why = "needs exactly one eligible record"
            elif case.kind == "outcome" and not any(
                answer.kind != "honest" for answer in case.acknowledgements.values()
            ):
                why = "needs a tool that acknowledges falsely or late (`acknowledgements`)"
        case "scope_negative" | "principal_negative" | "task_negative":
            axis = {
                "scope_negative": "project",
                "principal_negative": "principal",
                "task_negative": "task_class",
            }[case.kind]
            if not case.store or any(scope.covers(session) for scope in scopes):
                why = "needs a record in `store` whose scope does not cover the session"
            elif _differing(family, case) != {axis}:
                why = f"differs from the positive's session in its {axis}, and in nothing else"
        case "supersession":
            if "superseded" not in lifecycles.values() or len(case.eligible) != 1:
                why = "needs a superseded record and one active head in `store`"
            elif deciding & {
                records[name].expected_decision
                for name, found in lifecycles.items()
                if found == "superseded"
            }:
                why = (
                    "needs a head that decides otherwise than what it replaces: no decision shows "
                )
                why += "which of them was followed"
        case "conflict":
            disputed = [name for name, found in lifecycles.items() if found == "disputed"]
            if len(disputed) < 2 or case.expected.abstain is not True:
                why = "needs two disputed records in `store`, and `abstain: true`"
            elif not all(opponents(name, standings, case.store, session) for name in disputed):
                why = "needs records that contradict each other"
        case "expiry":
            if "expired" not in lifecycles.values() or case.eligible:
                why = "needs an expired record in `store`, and none that is eligible"
        case "not_yet_valid":
            early = [name for name in case.store if records[name].valid_from > session.now]
            if not early or case.eligible:
                why = "needs a record whose valid_from is after `now`, and none that is eligible"
        case "baseline":
            if case.store or case.eligible or case.write_session:
                why = "has no record: empty `store` and `eligible`, no write session"
        case "persistence":
            taught = case.write_session.teaches if case.write_session else ()
            if not taught or set(taught) & set(case.store):
                why = "teaches in a `write_session` what is not in `store`"
        case "persistence_negative":
            taught = case.write_session.teaches if case.write_session else ()
            may = [n for n in taught if records[n].persistence_allowed is not False]
            ephemeral = [n for n in may if records[n].class_ == "ephemeral"]
            if not taught or may != ephemeral:
                why = "teaches in a `write_session` a record that may not persist"
        case "noninterference":
            if "superseded" not in lifecycles.values() or len(case.eligible) != 1:
                why = "needs a superseded record, its successor, and a sibling that is eligible"
    if why:
        yield Problem(rule="kind", place=case.case_id, message=f"a `{case.kind}` case {why}")
    follows = case.kind in ("positive", "outcome", "persistence", "supersession", "noninterference")
    if follows and deciding and set(case.expected.decision_accept) != deciding:
        yield Problem(
            rule="decision",
            place=case.case_id,
            message=f"accepts {', '.join(case.expected.decision_accept) or 'nothing'}, and its "
            f"eligible record says {', '.join(sorted(deciding))}",
        )


def _differing(family: Family, case: Case) -> set[str]:
    positive = next((other for other in family.cases if other.kind == "positive"), None)
    if positive is None:
        return set()
    return {
        field
        for field in ("principal", "project", "task_class")
        if getattr(case.session, field) != getattr(positive.session, field)
    }


def check_decisions(family: Family) -> Findings:
    """The options offer every decision, and abstaining."""
    options = set(family.decision_options)
    if NEEDS_RESOLUTION not in options:
        yield Problem(rule="decision", message=f"decision_options must offer `{NEEDS_RESOLUTION}`")
    for record in family.records:
        if record.expected_decision not in options:
            yield Problem(
                rule="decision",
                place=record.correction_id,
                message=f"expects {record.expected_decision}; decision_options lack it",
            )
