"""A family to fill in, made from one correction: every case kind that the record needs.

What follows from the record is written; what only its author knows stands as ``FILL: …`` with words
that say what belongs there. A file with such a place is no family yet: loading names the places.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import yaml

from actors.families.load import FILL
from schemas.transfer.correction import ANY, Correction
from schemas.transfer.family import CaseKind, Exercise

MAX_ID = 48
"""Ids of records and cases are made from the correction's, and are at most 64 long."""


class CannotScaffold(ValueError):
    """No family can be made from this record; the message says why."""


class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """No anchors: what stands twice is written twice. Lists are indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def scaffold(record: Correction, exercises: Sequence[Exercise] = ()) -> str:
    """The YAML of a family with places to fill in. Raises :class:`CannotScaffold`."""
    name = record.correction_id
    if len(name) > MAX_ID:
        raise CannotScaffold(f"the id {name} is longer than {MAX_ID}: cases are named after it")
    may_persist = record.persistence_allowed is not False
    main = record if may_persist else _companion(record)
    one, now = main.correction_id, _now(main)
    negative, other = _negative(main)
    variants = _variants(one, main, now)
    next_, contrary, past = (found["correction_id"] for found in variants)
    cases: list[dict[str, Any]] = [
        {
            "kind": "positive",
            "prompt": f"{FILL} the task, without any word of its answer",
            "expected": _expected(one),
            "prohibited": [_call("a wrong call here; or take it out")],
        },
        _another(negative, other, "the positive's words, for"),
        {"kind": "supersession", "store": [one, next_], "expected": _expected(next_)},
        {"kind": "conflict", "store": [one, contrary]},
        {"kind": "expiry", "store": [past]},
        {
            "kind": "outcome",
            "acknowledgements": {
                f"{FILL} a writing tool": {"kind": f"{FILL} false or late", "calls": 1}
            },
        },
    ]
    records = [msgspec.to_builtins(main), *variants]
    if "principal" in exercises and negative != "principal_negative":
        cases.append(_another("principal_negative", "principal", "the task, as asked by"))
    if "task" in exercises and negative != "task_negative":
        cases.append(_another("task_negative", "task_class", "a task of"))
    if "valid_from" in exercises:
        soon = _variant(one, "soon", "a record that holds only later")
        records.append({**soon, "valid_from": _shift(now, 30), "expires_at": _shift(now, 60)})
        cases.append({"kind": "not_yet_valid", "store": [soon["correction_id"]]})
    if "persistence" in exercises:
        turn = f"{FILL} the correction, as somebody says it in a conversation"
        cases.append({"kind": "persistence", "write_session": {"turns": [turn]}})
    if "noninterference" in exercises:
        sibling = _variant(one, "sibling", "a record about something else of the same project")
        records.append(sibling)
        cases.append(
            {
                "kind": "noninterference",
                "store": [one, next_, sibling["correction_id"]],
                "eligible": [sibling["correction_id"]],
                "prompt": f"{FILL} the same task about the sibling's subject",
                "expected": _expected(sibling["correction_id"]),
            }
        )
    if not may_persist:
        records.append(msgspec.to_builtins(record))
        turn = f"{FILL} the record, as somebody says it, and that it is not to be kept"
        teaching = {"turns": [turn], "teaches": [name]}
        cases.append({"kind": "persistence_negative", "write_session": teaching})
    cases.append({"kind": "baseline"})
    document: dict[str, Any] = {
        "format": 1,
        "family_id": f"F-{name}",
        "title": f"{FILL} what the family tests, in a few words",
        "records": records,
        "twin_decision": f"{FILL} what a record saying the opposite would decide",
        "topic_terms": [f"{FILL} words that the task cannot do without, at most twelve"],
        "session": {
            "principal": _one(main.scope.principal, "user:somebody"),
            "project": _one(main.scope.project, "some-project"),
            "task_class": _one(main.scope.task_classes[0], "some_task"),
            "now": now,
        },
        "fixture": {
            "state": {f"{FILL} a key": f"{FILL} the first state, with what governs the other one"},
            "tools": [
                _tool("read", "get", f"{FILL} path of what it returns, like notes/{{note}}"),
                _tool(
                    "write",
                    "set",
                    f"{FILL} path of what it sets, like notes/{{note}}",
                    value=f"{FILL} what it sets, like {{text}}",
                ),
                {
                    "name": "ask",
                    "effect": "resolve",
                    "description": "Asks somebody who can decide. Changes nothing.",
                    "parameters": {"question": "string"},
                    "operation": {"do": "nothing"},
                },
            ],
            "surfaces": {f"{FILL} what is read afterwards": f"{FILL} its path in the state"},
        },
        "cases": cases,
    }
    if main.persistence_allowed == "conditional":
        document["conditions"] = {
            found["correction_id"]: f"{FILL} the condition under which it may be kept"
            for found in records
        }
    text: str = yaml.dump(
        document,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
        default_flow_style=None,
    )
    return text


def _tool(effect: str, do: str, path: str, **value: str) -> dict[str, Any]:
    return {
        "name": f"{FILL} name of a tool",
        "effect": effect,
        "description": f"{FILL} what it does, as an agent reads it",
        "parameters": {f"{FILL} an argument": "string"},
        "operation": {"do": do, "path": path, **value},
    }


def _call(what: str) -> dict[str, Any]:
    return {"tool": f"{FILL} {what}", "arguments": {f"{FILL} argument": f"{FILL} its value"}}


def _expected(who: str) -> dict[str, Any]:
    surface = f"{FILL} a surface"
    return {
        "action": [_call(f"the tool to call, as {who} says")],
        "outcome": [
            {"surface": surface, "path": f"{FILL} path below", "value": f"{FILL} its value"},
            {"surface": surface, "op": "unchanged", "value": [f"{FILL} that path"]},
        ],
    }


def _one(name: str, instead: str) -> str:
    return instead if name == ANY else name


def _negative(record: Correction) -> tuple[CaseKind, str]:
    """The kind that shows that the record stays in its scope, and the field in which it differs."""
    if record.scope.project != ANY:
        return "scope_negative", "project"
    if record.scope.principal != ANY:
        return "principal_negative", "principal"
    if ANY not in record.scope.task_classes:
        return "task_negative", "task_class"
    raise CannotScaffold(
        f"{record.correction_id} holds for everybody, everywhere and for every task: nothing could "
        "show that it stays in its scope; give it a narrower one"
    )


def _another(kind: CaseKind, field: str, prompt: str) -> dict[str, Any]:
    what = field.replace("_", " ")
    return {
        "kind": kind,
        "session": {field: f"{FILL} another {what}"},
        "prompt": f"{FILL} {prompt} another {what}",
        "expected": {
            "decision_accept": [f"{FILL} what holds for the other {what}, by its own source"],
            **_expected("that source"),
        },
    }


def _companion(record: Correction) -> Correction:
    """The lasting record beside one that may not persist: what may not persist is never seeded, so
    the positive needs another one."""
    return msgspec.structs.replace(
        record,
        **_variant(record.correction_id, "lasting", "a lasting record beside it"),
        supersedes=None,
        lifecycle="active",
        prohibited_actions=(f"{FILL} what must not be done instead",),
        persistence_allowed=True,
        class_="procedure" if record.class_ == "ephemeral" else record.class_,
    )


def _variants(one: str, main: Correction, now: str) -> list[dict[str, Any]]:
    """Its successor, one that contradicts it, and one that has ended."""
    return [
        {**_variant(one, "next", "a later record that replaces the first"), "supersedes": one},
        _variant(one, "contrary", "a record that contradicts the first about the same thing"),
        {
            **_variant(one, "past", "an earlier record of the same kind that has ended"),
            "valid_from": _shift(main.valid_from, -60),
            "expires_at": main.valid_from,
            "lifecycle": "expired",
        },
    ]


def _variant(one: str, suffix: str, what: str) -> dict[str, Any]:
    """What differs from the first record; all else is as there."""
    name = f"{one.removesuffix('-lasting')}-{suffix}"
    return {
        "correction_id": name,
        "semantic_expectation": f"{FILL} {what}",
        "source_reference": f"ref:scaffold/{name}",
        "expected_decision": f"{FILL} its decision",
        "expected_action": f"{FILL} its action, worded like the first record's",
    }


def _now(record: Correction) -> str:
    """A day after it begins to hold, or its first instant where it ends before."""
    later = _shift(record.valid_from, 1)
    return later if record.in_validity(later) else record.valid_from


def _shift(instant: str, days: int) -> str:
    moved = datetime.fromisoformat(instant) + timedelta(days=days)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")
