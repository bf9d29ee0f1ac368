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
from actors.families.own_form import Dumper
from schemas.transfer.correction import ANY, Correction
from schemas.transfer.family import NEEDS_RESOLUTION, CaseKind, Exercise

MAX_ID = 48
"""Ids of records and cases are made from the correction's, and are at most 64 long."""
ASK = "tool ask called once before any write"


class CannotScaffold(ValueError):
    """No family can be made from this record; the message says why."""


def scaffold(record: Correction, exercises: Sequence[Exercise] = ()) -> str:
    """YAML in the readable notation. Raises :class:`CannotScaffold`."""
    name = record.correction_id
    if len(name) > MAX_ID:
        raise CannotScaffold(f"the id {name} is longer than {MAX_ID}: cases are named after it")
    family = f"F-{name}"
    may_persist = record.persistence_allowed is not False
    main = record if may_persist else _companion(record)
    now = _now(main)
    plain = {
        "principal": _one(main.scope.principal, "user:somebody"),
        "project": _one(main.scope.project, "some-project"),
        "task_class": _one(main.scope.task_classes[0], "some_task"),
    }
    session = {**plain, "now": now}
    negative, other = _negative(main)
    records = [main, *_variants(main, now)]
    cases: list[dict[str, Any]] = []

    def add(kind: CaseKind, store: list[str], eligible: list[str], **more: Any) -> None:
        expected = more.pop("expected", {"abstain": False, "action": _fill_action(eligible)})
        if kind != "baseline" and "outcome" not in expected:
            expected["outcome"] = _fill_outcome(expected["abstain"])
        cases.append(
            {
                "case_id": f"{family}-{len(cases) + 1:02}-{kind}",
                "kind": kind,
                "store": store,
                "eligible": eligible,
                "session": more.pop("session", session),
                **more,
                "expected": expected,
            }
        )

    one, next_, contrary, past = (found.correction_id for found in records[:4])
    asking = {"abstain": True, "decision_accept": [NEEDS_RESOLUTION], "action": ASK}
    wrong = f"{FILL} a wrong call here, like tool NAME(argument=value); or take it out"
    add(
        "positive",
        [one],
        [one],
        prompt=f"{FILL} the task, without any word of its answer",
        prohibited=[wrong],
    )
    add(
        negative,
        [one],
        [],
        session={**session, other: f"{FILL} another {other.replace('_', ' ')}"},
        prompt=f"{FILL} the positive's words, for the other {other.replace('_', ' ')}",
        expected={
            "abstain": False,
            "decision_accept": [f"{FILL} what the other one's own source says"],
            "action": f"{FILL} tool NAME(argument=value), as that source says",
        },
    )
    add("supersession", [one, next_], [next_])
    add("conflict", [one, contrary], [one, contrary], expected=dict(asking))
    add("expiry", [past], [], expected=dict(asking))
    add(
        "outcome",
        [one],
        [one],
        note=f"{FILL} TOOL drops the first call, or: TOOL answers before "
        "it is done; the surface decides",
    )
    if "principal" in exercises and negative != "principal_negative":
        add("principal_negative", [one], [], **_another(session, "principal", main))
    if "task" in exercises and negative != "task_negative":
        add("task_negative", [one], [], **_another(session, "task_class", main))
    if "valid_from" in exercises:
        soon = _variant(
            main,
            "soon",
            "a record that holds only later",
            valid_from=_shift(now, 30),
            expires_at=_shift(now, 60),
        )
        records.append(soon)
        add("not_yet_valid", [soon.correction_id], [], expected=dict(asking))
    if "persistence" in exercises:
        turn = f"{FILL} the correction, as somebody says it in a conversation"
        add("persistence", [], [one], write_session={"turns": [turn], "teaches": [one]})
    if "noninterference" in exercises:
        sibling = _variant(main, "sibling", "a record about something else of the same project")
        records.append(sibling)
        add(
            "noninterference",
            [one, next_, sibling.correction_id],
            [sibling.correction_id],
            prompt=f"{FILL} the same task about the sibling's subject",
        )
    if not may_persist:
        records.append(record)
        turn = f"{FILL} the record, as somebody says it, and that it is not to be kept"
        add(
            "persistence_negative",
            [],
            [],
            write_session={"turns": [turn], "teaches": [name]},
            expected=dict(asking),
        )
    add("baseline", [], [], expected={"abstain": False})
    document: dict[str, Any] = {
        "family_id": family,
        "title": f"{FILL} what the family tests, in a few words",
        "clock": {"now": now},
        "records": [_plain(found) for found in records],
        "decision_options": [
            f"{FILL} every decision that records and cases name, and needs_resolution, sorted"
        ],
        "twin_decision": f"{FILL} an option that a record saying the opposite would expect",
        "topic_terms": [f"{FILL} words that the task cannot do without, at most twelve lines"],
        "fixture": {
            "tools": [
                f"{FILL} subject_read(argument), subject_write(argument), one a line",
                "ask(question)",
            ],
            "state": f"{FILL} the first state by key, with what governs the other one",
        },
        "cases": cases,
    }
    if main.persistence_allowed == "conditional":
        document["conditions"] = {
            found.correction_id: f"{FILL} the condition under which it may be kept"
            for found in records
            if found.persistence_allowed == "conditional"
        }
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text


def _plain(record: Correction) -> Any:
    return msgspec.json.decode(msgspec.json.encode(record))


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


def _another(session: dict[str, str], field: str, record: Correction) -> dict[str, Any]:
    what = field.replace("_", " ")
    return {
        "session": {**session, field: f"{FILL} another {what}"},
        "prompt": f"{FILL} the task, as the other {what} has it",
        "expected": {
            "abstain": False,
            "decision_accept": [f"{FILL} what holds for the other {what}"],
            "action": f"{FILL} tool NAME(argument=value), as that says",
        },
    }


def _companion(record: Correction) -> Correction:
    """The lasting record beside one that may not persist: what may not persist is never seeded, so
    the positive needs another one."""
    return _variant(
        record,
        "lasting",
        "a lasting record beside it, which may be kept",
        persistence_allowed=True,
        class_="procedure" if record.class_ == "ephemeral" else record.class_,
    )


def _variants(main: Correction, now: str) -> list[Correction]:
    return [
        _variant(
            main, "next", "a later record that replaces the first", supersedes=main.correction_id
        ),
        _variant(main, "contrary", "a record that contradicts the first about the same thing"),
        _variant(
            main,
            "past",
            "an earlier record of the same kind that has ended",
            valid_from=_shift(main.valid_from, -60),
            expires_at=main.valid_from,
            lifecycle="expired",
        ),
    ]


def _variant(main: Correction, suffix: str, what: str, **fields: Any) -> Correction:
    name = f"{main.correction_id.removesuffix('-lasting')}-{suffix}"
    start = {
        "correction_id": name,
        "semantic_expectation": f"{FILL} {what}",
        "source_reference": f"ref:scaffold/{name}",
        "supersedes": None,
        "lifecycle": "active",
        "expected_decision": f"{FILL} its decision",
        "expected_action": f"{FILL} its action, worded like the first record's",
        "prohibited_actions": (f"{FILL} what must not be done instead",),
    }
    return msgspec.structs.replace(main, **{**start, **fields})


def _fill_action(eligible: Sequence[str]) -> str:
    return f"{FILL} tool NAME(argument=value), as {' and '.join(eligible)} says"


def _fill_outcome(abstain: bool) -> dict[str, str]:
    if abstain:
        return {"surface": "state", "predicate": "unchanged"}
    return {
        "surface": f"{FILL} name of what is read afterwards",
        "predicate": f"{FILL} path == value and others unchanged",
    }


def _now(record: Correction) -> str:
    """A day after it begins to hold, or its first instant where it ends before."""
    later = _shift(record.valid_from, 1)
    return later if record.in_validity(later) else record.valid_from


def _shift(instant: str, days: int) -> str:
    moved = datetime.fromisoformat(instant) + timedelta(days=days)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")
