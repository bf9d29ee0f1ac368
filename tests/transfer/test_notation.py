"""The readable notation beyond the given families: other worlds convert, and can be played."""

import json
from typing import Any

import pytest

from actors.families.expectation_notation import (
    ArgumentText,
    CallText,
    Clause,
    NotationError,
    parse_action,
    parse_call,
    parse_predicate,
    parse_value,
)
from actors.families.ideal_calls import check_satisfiable, ideal_calls, ideal_decision, play
from actors.families.load import FamilyError, load_family
from schemas.transfer.family import Family

RECORD = {
    "correction_id": "CT-1",
    "class": "procedure",
    "semantic_expectation": "It is done like this.",
    "source_reference": "ref:log/1",
    "persistence_allowed": True,
    "scope": {"principal": "user:a", "project": "alder", "task_classes": ["work"]},
    "valid_from": "2026-01-01T00:00:00Z",
    "expires_at": None,
    "lifecycle": "active",
    "supersedes": None,
    "expected_decision": "yes",
    "expected_action": "do it",
    "prohibited_actions": ["do something else"],
    "authoritative_outcome_check": "surface: it is there",
    "consequence": "low",
}
SESSION = {
    "principal": "user:a",
    "project": "alder",
    "task_class": "work",
    "now": "2026-07-01T09:00:00Z",
}


def family(
    tools: list[str],
    state: dict[str, Any],
    action: str | None,
    surface: str,
    predicate: str,
    **more: Any,
) -> Family:
    fixture = {"tools": [*tools, "ask(question)"], "state": state, **more.pop("fixture", {})}
    case = {
        "case_id": "F-1",
        "kind": "positive",
        "store": ["CT-1"],
        "eligible": ["CT-1"],
        "session": SESSION,
        "prompt": "Do the work on the red one.",
        "expected": {
            "abstain": False,
            "action": action,
            "outcome": {"surface": surface, "predicate": predicate},
        },
        **more,
    }
    document = {
        "family_id": "F",
        "title": "t",
        "records": [RECORD],
        "decision_options": ["needs_resolution", "no", "yes"],
        "twin_decision": "no",
        "topic_terms": [],
        "fixture": fixture,
        "cases": [case],
    }
    return load_family(json.dumps(document).encode(), "f.yaml")


WORLDS: dict[str, tuple[list[str], dict[str, Any], str, str, str, dict[str, Any]]] = {
    "settings by key": (
        ["setting_get(key)", "setting_set(key,value)"],
        {"settings": {"retries": 3, "region": "north"}},
        "tool setting_set(key=retries, value=5)",
        "settings",
        "retries == 5 and others unchanged",
        {"setting_set": ("set", "settings/{key}", "{value}")},
    ),
    "an outbox": (
        ["contact_list()", "mail_send(to,subject,body)"],
        {"contacts": {"ann": "a@x", "bob": "b@x"}, "outbox": []},
        "tool mail_send(to=ann, subject='Monday plan')",
        "outbox",
        "entries == 1 and to == ann and subject == 'Monday plan'",
        {
            "mail_send": ("append", "outbox", {n: f"{{{n}}}" for n in ("to", "subject", "body")}),
            "contact_list": ("keys", "contacts", None),
        },
    ),
    "bookings that are counted": (
        ["room_list()", "room_book(room,hour)"],
        {"rooms": {"blue": {"seats": 4}, "red": {"seats": 8}}},
        "tool room_book(room=blue, hour=9)",
        "bookings",
        "entries == 1 and room == blue and hour == 9",
        {},
    ),
    "a log that begins empty": (
        ["ticket_read(id)", "ticket_assign(ticket,person)"],
        {"tickets": {"7": {"open": True}}, "assignments": {}},
        "tool ticket_assign(ticket=7, person=ann)",
        "assignments",
        "person(7) == ann and entries == 1",
        {"ticket_assign": ("set", "assignments/{ticket}", {"person": "{person}"})},
    ),
    "a record of which one field changes": (
        ["profile_read()", "profile_update(colour)"],
        {"profile": {"colour": "green", "size": 4}},
        "tool profile_update(colour=blue)",
        "profile",
        "colour == blue and size unchanged",
        {"profile_update": ("merge", "profile", {"colour": "{colour}"})},
    ),
    "an entry that goes": (
        ["file_list()", "file_delete(name)"],
        {"files": {"a.txt": "x", "b.txt": "y"}},
        "tool file_delete(name=a.txt)",
        "files",
        "entries == 1 and b.txt unchanged",
        {"file_delete": ("remove", "files/{name}", None)},
    ),
    "which entry, by the prompt": (
        ["valve_read(valve)", "valve_set(valve,mode)"],
        {"valves": {"red": {"mode": "shut"}, "green": {"mode": "shut"}}},
        "tool valve_set(mode=open)",
        "valve",
        "red.mode == open and others unchanged",
        {"valve_set": ("merge", "valves/{valve}", {"mode": "{mode}"})},
    ),
    "a list that is extended": (
        ["list_read(project)", "list_save(project,items)"],
        {"lists": {"alder": ["a", "b"], "birch": []}},
        "tool list_save(items includes c)",
        "list",
        "c in items and a in items and birch unchanged",
        {"list_save": ("set", "lists/{project}", "{items}")},
    ),
    "calls in the journal": (
        ["source_read(source)", "note_write(text)"],
        {"wiki": "old page", "desk": "fresh page"},
        "tool source_read(source=desk) then note_write(text='fresh page')",
        "note",
        "text starts with fresh and journal has source_read(desk) before note_write "
        "and journal has no ask and journal has 1 note_write",
        {"source_read": ("get", "{source}", None)},
    ),
    "a verb of its own": (
        ["invoice_read(id)", "invoice_frobnicate(id,rate)"],
        {"invoices": {"i1": {"rate": 7}}},
        "tool invoice_frobnicate(id=i1, rate=19)",
        "invoices",
        "i1.rate == 19",
        {"invoice_frobnicate": ("merge", "invoices/{id}", {"rate": "{rate}"})},
    ),
    "the decision itself": (
        ["note_write(text)"],
        {},
        "tool note_write(text=done)",
        "note",
        "text == done and basis == [CT-1] and decision == yes",
        {},
    ),
    "verb first": (
        ["read_menu(project)", "write_menu(project,dish)"],
        {"menus": {"alder": {"dish": "soup", "price": 3}}},
        "tool write_menu(dish=stew)",
        "menu",
        "alder.dish == stew and others unchanged",
        {},
    ),
}


@pytest.mark.parametrize("name", WORLDS)
def test_another_world_converts_and_can_be_played(name: str) -> None:
    tools, state, action, surface, predicate, operations = WORLDS[name]
    made = family(tools, state, action, surface, predicate)
    assert list(map(str, check_satisfiable(made))) == []
    found = {
        tool.name: (tool.operation.do, tool.operation.path, tool.operation.value)
        for tool in made.fixture.tools
        if tool.name in operations
    }
    assert found == operations
    [case] = made.cases
    assert not play(made, case, (), None).outcome
    assert case.required == (
        "retention", "retrieval", "relevance", "decision", "action", "outcome"
    )  # fmt: skip
    assert case.expected.decision_accept == ("yes",)


def test_what_the_author_says_goes_before_what_is_inferred() -> None:
    said = {
        "operations": {
            "desk_frob": {
                "effect": "write",
                "do": "set",
                "path": "desk/{what}",
                "value": {"to": "{to}"},
            }
        },
        "surfaces": {"blotter": "desk/pad"},
    }
    made = family(
        ["desk_frob(what,to:integer,why?)"],
        {"desk": {}},
        "tool desk_frob(what=pad, to=3)",
        "blotter",
        "to == 3",
        fixture=said,
    )
    assert list(check_satisfiable(made)) == []
    tool = made.fixture.tools[0]
    assert tool.parameters == {"what": "string", "to": "integer", "why": "string"}
    assert tool.optional == ("why",)
    assert made.fixture.surfaces == {"blotter": "desk/pad"}


def test_no_action_prohibits_every_change() -> None:
    made = family(
        ["note_read()", "note_write(text)", "note_delete()"],
        {"note": {"text": "x"}},
        "no action",
        "state",
        "unchanged",
    )
    [case] = made.cases
    assert case.expected.action == ()
    assert [pattern.tool for pattern in case.prohibited] == ["note_write", "note_delete"]
    decision = ideal_decision(case, (), made)
    assert ideal_calls(made, case, ()) == []
    assert play(made, case, (), decision).outcome
    written = play(made, case, [("note_write", {"text": "y"})], decision)
    assert written.prohibited == ("note_write",) and not written.outcome


WRITE = (["note_write(text)"], {"note": {}}, "tool note_write(text=a)", "note", "text == a")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a tool that is no call": ({"tools": ["note write"]}, "write `name\\(argument"),
    "an argument that is none": ({"tools": ["note_write(a b)"]}, "`name:integer`"),
    "an argument twice": ({"tools": ["note_write(a,a)"]}, "stands twice"),
    "a tool twice": ({"tools": ["note_write(text)"] * 2}, "note_write stands twice"),
    "a key that is a path": ({"state": {"a/b": 1}}, "holds `/`"),
    "an unknown surface": ({"surface": "moon", "action": "no action"}, "`fixture.surfaces`"),
    "too many arguments": ({"action": "tool note_write(a, b)"}, "not so many arguments"),
    "no list to measure by": (
        {"tools": ["note_write(text)"], "action": "tool note_write(text includes nothing extra)"},
        "at first there is no list",
    ),
    "no such default": ({"action": "tool note_write with the moon default"}, "no key 'moon'"),
    "foreign terms of nothing": ({"predicate": "foreign_terms == 0"}, "ends in `_terms`"),
    "an outcome without a write": (
        {"kind": "outcome", "action": "tool ask called once", "surface": "state",
         "predicate": "unchanged"},
        "an outcome case expects a call that writes",
    ),
    "an acknowledgement of no tool": (
        {"acknowledgements": {"moon": {"kind": "late"}}}, "there is no such tool"
    ),
    "an operation of no tool": (
        {"fixture": {"operations": {"moon": {"do": "nothing"}}}}, "there is no such tool"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_or_inferred_is_said(what: str) -> None:
    changes, message = REFUSED[what]
    tools, state, action, surface, predicate = WRITE
    given: dict[str, Any] = {
        "tools": tools,
        "state": state,
        "action": action,
        "surface": surface,
        "predicate": predicate,
        **changes,
    }
    with pytest.raises(FamilyError, match=message):
        family(**given)


def test_calls_are_read() -> None:
    assert parse_call("tool a(*)") == CallText("a")
    assert parse_call("a(x=1, y in [b, c], z includes d, 'e f')").arguments == (
        ArgumentText("x", "equals", 1),
        ArgumentText("y", "in", ["b", "c"]),
        ArgumentText("z", "includes", "d"),
        ArgumentText("", "equals", "e f"),
    )
    asked = parse_call("tool ask called once before any write")
    assert (asked.times, asked.before_write) == (1, True)
    assert parse_call("tool a called 3 times").times == 3
    assert parse_call("tool a called at least once") == CallText("a")
    alternatives = parse_action("tool a(x=1); b(y=2) or c(*)")
    assert [[call.tool for call in calls] for calls in alternatives] == [["a", "b"], ["c"]]
    for text in ("write it", "tool a maybe", "tool a(x ~ 1)", "tool", ""):
        with pytest.raises(NotationError):
            parse_call(text)


def test_predicates_are_read() -> None:
    assert parse_predicate("steps between a and b == [c] and x not in steps") == (
        Clause("between", "steps", {"after": "a", "before": "b", "equals": ["c"]}),
        Clause("excludes", "steps", ["x"]),
    )
    assert parse_predicate("a.b/c == 'x and y' and entries == 2 and d unchanged") == (
        Clause("equals", "a.b/c", "x and y"),
        Clause("count", "", 2),
        Clause("unchanged", "d"),
    )
    assert parse_predicate("a in [1, 2] and text contains b") == (
        Clause("in", "a", [1, 2]),
        Clause("includes", "text", ["b"]),
    )
    assert parse_predicate("count(a.b) == 2") == (Clause("count", "a.b", 2),)
    for text in ("", "a >= 3", "a == x y", "a == b or c == d", "and"):
        with pytest.raises(NotationError):
            parse_predicate(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40", 40), ("-1", -1), ("2.5", 2.5), ("true", True), ("null", None), ("[]", []),
        ("[a, 1]", ["a", 1]), ("'40'", "40"), ("007", "007"), ("limits.toml", "limits.toml"),
    ],
)  # fmt: skip
def test_values_are_read(text: str, value: Any) -> None:
    assert parse_value(text) == value
