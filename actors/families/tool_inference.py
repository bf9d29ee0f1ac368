"""What the tools of a half-formal family do, inferred from their names, the state and their use.

The notation gives a tool as ``name(argument, …)`` and a first state. What a tool does to the state
is inferred by the rules below; where none fits, the error names the key ``operations`` by which the
author says it. Rules and examples: ``docs/corrections-and-families.md``.

A name is ``subject_verb`` (``tree_write``) or ``verb_subject``; the verb gives the effect. A state
key fits a word where it is that word or its plural (``tree`` → ``trees``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.transfer.family import Effect, Operation, Tool

ParameterType = Literal["string", "integer", "number", "boolean", "list"]

LIST_VERBS = frozenset({"list"})
# fmt: off
READ_VERBS = LIST_VERBS | frozenset(
    {
        "read", "get", "show", "search", "find", "look", "view", "fetch", "query", "check",
        "count", "lookup", "inspect", "describe", "browse", "load", "select",
    }
)
REMOVE_VERBS = frozenset({"delete", "remove", "erase", "drop"})
WRITE_VERBS = REMOVE_VERBS | frozenset(
    {
        "add", "append", "apply", "approve", "archive", "assign", "book", "cancel",
        "change", "charge", "close", "commit", "complete", "copy", "create", "deploy",
        "disable", "draft", "edit", "enable", "enter", "file", "fill", "finish", "grant",
        "insert", "install", "invite", "issue", "label", "launch", "lock", "log", "mark",
        "merge", "move", "notify", "open", "order", "pay", "pin", "place", "post",
        "publish", "push", "put", "quote", "record", "refund", "register", "reject",
        "release", "rename", "reply", "reserve", "restart", "revoke", "run", "save",
        "schedule", "send", "set", "sign", "start", "stop", "store", "submit", "switch",
        "tag", "transfer", "trigger", "unlock", "update", "upgrade", "upload", "write",
    }
)
# fmt: on
MAX_ENTRIES_NAMED = 24
"""A description names the entries of a place up to so many."""
RESOLVE_VERBS = frozenset({"ask", "clarify", "consult", "escalate"})


class CannotInfer(ValueError):
    """No rule fits; the message says which key the author adds."""


@dataclass(frozen=True)
class Signature:
    """``name(a, b?, c:integer)``: ``?`` marks an argument that may be left out."""

    name: str
    parameters: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    types: Mapping[str, ParameterType] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """How the cases use the tools: what the inference may look at beside names and state."""

    surfaces_of: Mapping[str, tuple[str, ...]]
    """Write tool → surfaces of the cases that expect it."""
    values: Mapping[tuple[str, str], tuple[Any, ...]]
    """(tool, argument) → values that cases name for it."""
    expected: Sequence[tuple[str, frozenset[str]]]
    """(tool, arguments that are named) of every expected call."""
    changing: frozenset[str]
    """Tools that cases prohibit, or expect as the last call."""
    session_values: Mapping[str, frozenset[str]]
    """``principal``, ``project``, ``task_class`` → values over all sessions."""
    keys_of: Mapping[str, frozenset[str]]
    """Surface → keys in predicates like ``lane(812) == hold``: it has an entry for each."""
    counted: frozenset[str]
    """Surfaces whose entries predicates count."""
    predicate_values: Mapping[str, tuple[Any, ...]]
    """Last word of a predicate's path → values that it is compared with."""


@dataclass(frozen=True)
class Inferred:
    tool: Tool
    why: str
    """The rule that fitted, for the author; empty where the author said it."""


def parse_signature(text: str) -> Signature:
    """Raises :class:`CannotInfer` for what is no ``name(argument, …)``."""
    found = re.fullmatch(r"\s*([A-Za-z0-9][A-Za-z0-9_.-]{0,63})\(([^()]*)\)\s*", text)
    if not found:
        raise CannotInfer(f"{text!r:.80} is no tool: write `name(argument, …)`")
    names: list[str] = []
    optional: set[str] = set()
    types: dict[str, ParameterType] = {}
    for part in filter(None, (part.strip() for part in found[2].split(","))):
        parameter = re.fullmatch(
            r"([A-Za-z_][A-Za-z0-9_]{0,63})(\?)?(?:\s*:\s*(string|integer|number|boolean|list))?",
            part,
        )
        if not parameter:
            raise CannotInfer(
                f"{part!r:.60} in {text!r:.80} is no argument: write `name`, `name?` (may be left "
                "out) or `name:integer` (string, integer, number, boolean, list)"
            )
        names.append(parameter[1])
        if parameter[2]:
            optional.add(parameter[1])
        if parameter[3]:
            types[parameter[1]] = parameter[3]  # type: ignore[assignment]
    if len(set(names)) != len(names):
        raise CannotInfer(f"{text!r:.80}: an argument stands twice")
    return Signature(found[1], tuple(names), frozenset(optional), types)


def words_of(name: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[_.-]", name)))


def effect_of(name: str) -> Effect:
    """The effect that a tool's verb says. Raises :class:`CannotInfer`."""
    words = words_of(name)
    for word in (words[-1], words[0]):
        if word in RESOLVE_VERBS:
            return "resolve"
        if word in READ_VERBS:
            return "read"
        if word in WRITE_VERBS:
            return "write"
    raise CannotInfer(
        f"the tool {name} has no known verb: name it like subject_read, subject_write or ask, or "
        f"say what it does under `fixture.operations`: {{{name}: {{effect: write, do: set, path: "
        '…, value: "{argument}"}}'
    )


def subject_of(name: str) -> str:
    """The words of a tool's name without its verb, joined by ``_``. Without a known verb the last
    word is taken for one."""
    words = words_of(name)
    verbs = READ_VERBS | WRITE_VERBS | RESOLVE_VERBS
    if words[-1] in verbs:
        return "_".join(words[:-1])
    if words[0] in verbs:
        return "_".join(words[1:])
    return "_".join(words[:-1]) if len(words) > 1 else words[0]


def plurals(word: str) -> tuple[str, ...]:
    """Names under which the state may keep what ``word`` is one of."""
    ies = (word[:-1] + "ies",) if word.endswith("y") else ()
    return (word, word + "s", word + "es", *ies)


def state_key(word: str, state: Mapping[str, Any]) -> str | None:
    """The key of the state that ``word`` names."""
    return next((key for key in plurals(word) if word and key in state), None)


# --- reading -------------------------------------------------------------------------------------


def infer_read(tool: Signature, state: Mapping[str, Any], usage: Usage) -> tuple[Operation, str]:
    """What a reading tool returns. Raises :class:`CannotInfer`."""
    subject = subject_of(tool.name)
    listing = words_of(tool.name)[-1] in LIST_VERBS or words_of(tool.name)[0] in LIST_VERBS
    key = state_key(subject, state)
    if key is not None:
        path, value, _ = _descend(state[key], key, tool.parameters)
        return _reading(path, value, listing), f"its subject is the state's {key}"
    for parameter in tool.parameters:
        named = usage.values.get((tool.name, parameter), ())
        if named and all(isinstance(value, str) and value in state for value in named):
            rest = [other for other in tool.parameters if other != parameter]
            entry = next((state[v] for v in named if isinstance(state[v], Mapping)), None)
            path, value, _ = _descend(entry, f"{{{parameter}}}", rest)
            return _reading(path, value, listing), f"its {parameter} names a key of the state"
    for parameter in tool.parameters:
        key = state_key(parameter, state)
        if key is not None and isinstance(state[key], Mapping):
            path, value, _ = _descend(state[key], key, tool.parameters)
            return _reading(path, value, listing), f"its {parameter} names an entry of {key}"
    suffixed = [key for key in state if subject and key.endswith(f"_{subject}")]
    if len(suffixed) == 1:
        path, value, _ = _descend(state[suffixed[0]], suffixed[0], tool.parameters)
        return _reading(path, value, listing), f"{suffixed[0]} is the state's only {subject}"
    raise CannotInfer(
        f"what {tool.name} reads cannot be told: no key of the state ({', '.join(state)}) is "
        f"named after {subject or 'it'} or its arguments; say it under `fixture.operations`: "
        f'{{{tool.name}: {{do: get, path: "KEY/{{argument}}"}}}}'
    )


def _reading(path: str, value: Any, listing: bool) -> Operation:
    return Operation(do="keys" if listing and isinstance(value, Mapping) else "get", path=path)


def _descend(value: Any, path: str, parameters: Sequence[str]) -> tuple[str, Any, list[str]]:
    """One level of the state for each argument as long as it is a mapping: (path, what an entry
    there looks like, arguments that are left)."""
    left = list(parameters)
    while left and isinstance(value, Mapping) and value:
        path += f"/{{{left.pop(0)}}}"
        entries = list(value.values())
        value = next((entry for entry in entries if isinstance(entry, Mapping)), entries[0])
    return path, value, left


# --- writing -------------------------------------------------------------------------------------


def infer_write(
    tool: Signature,
    state: Mapping[str, Any],
    usage: Usage,
    reads: Mapping[str, Operation],
    surfaces: Mapping[str, str],
) -> tuple[Operation, str]:
    """What a writing tool does. ``surfaces`` are those that the author placed. Raises
    :class:`CannotInfer`."""
    subject = subject_of(tool.name)
    names = tool.parameters
    if set(words_of(tool.name)) & REMOVE_VERBS:
        return _removal(tool, subject, state, usage)
    expected_on = usage.surfaces_of.get(tool.name, ())
    container = _container_with_field(subject, names, state, reads)
    found_key = state_key(subject, state)
    of_surface = state_key(expected_on[0], state) if len(expected_on) == 1 else None
    if of_surface is not None and of_surface not in (found_key, container and container[0]):
        return _write_for(tool, expected_on[0], of_surface, state, usage)
    if container is not None:
        key, selector = container
        if set(names) == {selector, subject}:
            path = f"{key}/{{{selector}}}/{subject}"
            why = f"{subject} is a field of the entries of {key}"
            return Operation(do="set", path=path, value=f"{{{subject}}}"), why
    # An argument that a predicate compares is part of what is written, and selects no entry.
    fields = {name for name in names if name in usage.predicate_values}
    if found_key is not None and (
        of_surface == found_key or not any(state_key(name, state) == found_key for name in fields)
    ):
        return _write_at(found_key, state[found_key], names), f"its subject is {found_key}"
    for name in names:
        key_of_argument = state_key(name, state)
        if key_of_argument and isinstance(state[key_of_argument], Mapping) and name not in fields:
            others = [other for other in names if other != name]
            path = f"{key_of_argument}/{{{name}}}"
            entry = next(iter(state[key_of_argument].values()), None)
            why = f"its {name} names an entry of {key_of_argument}"
            return _record_at(path, entry, others), why
    for surface in expected_on:
        for name in names:
            if surface in usage.values.get((tool.name, name), ()):
                others = [other for other in names if other != name]
                path = f"{tool.name}/{{{name}}}"
                return _record_at(path, None, others), f"its {name} names the surface {surface}"
    if len(expected_on) == 1:
        place = surfaces.get(expected_on[0], expected_on[0])
        return _write_for(tool, expected_on[0], place, state, usage)
    if not expected_on and not any(name == tool.name for name, _ in usage.expected):
        record = {name: f"{{{name}}}" for name in names}
        return Operation(do="append", path=subject or tool.name, value=record), (
            "no case expects it: it leaves an entry in a list"
        )
    raise CannotInfer(
        f"what {tool.name} writes cannot be told: no key of the state ({', '.join(state)}) is "
        f"named after {subject or 'it'} or its arguments, and the cases that expect it read "
        f"{', '.join(expected_on) or 'no surface of it'}; say it under `fixture.operations`: "
        f'{{{tool.name}: {{do: set, path: "KEY/{{argument}}", value: "{{argument}}"}}}}'
    )


def _write_for(
    tool: Signature, surface: str, place: str, state: Mapping[str, Any], usage: Usage
) -> tuple[Operation, str]:
    """What is written where the cases read ``surface``: an entry for each key that a predicate
    names, an entry of a list that is counted, else the record as a whole."""
    names, why = tool.parameters, f"cases read it as {surface}"
    keys = usage.keys_of.get(surface, frozenset())
    for name in names:
        if keys & set(map(str, usage.values.get((tool.name, name), ()))):
            record = {other: f"{{{other}}}" for other in names if other != name}
            operation = Operation(do="set", path=f"{place}/{{{name}}}", value=record)
            return operation, f"{why}, with an entry for each {name}"
    if isinstance(state.get(place), list) or (place not in state and surface in usage.counted):
        record = {name: f"{{{name}}}" for name in names}
        return Operation(do="append", path=place, value=record), f"{why}, entry by entry"
    return _record_at(place, state.get(place), names), why


def _removal(
    tool: Signature, subject: str, state: Mapping[str, Any], usage: Usage
) -> tuple[Operation, str]:
    key = state_key(subject, state)
    if key is None:
        key = next((k for k in (state_key(name, state) for name in tool.parameters) if k), None)
    if key is not None and isinstance(state[key], Mapping) and tool.parameters:
        path, _, left = _descend(state[key], key, tool.parameters)
        if not left:
            return Operation(do="remove", path=path), f"it removes an entry of {key}"
    if not any(name == tool.name for name, _ in usage.expected):
        record = {name: f"{{{name}}}" for name in tool.parameters}
        return Operation(do="append", path=subject or tool.name, value=record), (
            "no case expects it: it leaves an entry in a list"
        )
    raise CannotInfer(
        f"what {tool.name} removes cannot be told; say it under `fixture.operations`: "
        f'{{{tool.name}: {{do: remove, path: "KEY/{{argument}}"}}}}'
    )


def _container_with_field(
    subject: str, names: Sequence[str], state: Mapping[str, Any], reads: Mapping[str, Operation]
) -> tuple[str, str] | None:
    """(state key, selecting argument) of the mapping whose entries have a field ``subject``, where
    the tool takes it as an argument."""
    if subject not in names:
        return None
    fitting = [
        key
        for key, entries in state.items()
        if isinstance(entries, Mapping)
        and any(isinstance(entry, Mapping) and subject in entry for entry in entries.values())
    ]
    selectors = [name for name in names if name != subject]
    for name in selectors:
        key = state_key(name, state)
        if key in fitting:
            return key, name
    for name in selectors:
        read = [operation.path for operation in reads.values()]
        by_read = [key for key in fitting if f"{key}/{{{name}}}" in read]
        if len(by_read) == 1:
            return by_read[0], name
    if len(fitting) == 1 and len(selectors) == 1:
        return fitting[0], selectors[0]
    return None


def _write_at(key: str, value: Any, names: Sequence[str]) -> Operation:
    """Bind arguments to levels of the state; what is left is written there."""
    if isinstance(value, list):
        return Operation(do="append", path=key, value=_record(names))
    path, left, here = key, list(names), value
    while isinstance(here, Mapping) and len(left) > 1 and not all(name in here for name in left):
        path += f"/{{{left.pop(0)}}}"
        here = next((entry for entry in here.values() if isinstance(entry, Mapping)), None)
    return _record_at(path, here, left)


def _record_at(path: str, here: Any, names: Sequence[str]) -> Operation:
    """One argument stands for the whole value unless a record with such a field is there."""
    if isinstance(here, Mapping) and all(name in here for name in names):
        return Operation(do="merge", path=path, value={name: f"{{{name}}}" for name in names})
    if len(names) == 1 and "{" in path:
        return Operation(do="set", path=path, value=f"{{{names[0]}}}")
    return Operation(do="set", path=path, value={name: f"{{{name}}}" for name in names})


def _record(names: Sequence[str]) -> Any:
    return f"{{{names[0]}}}" if len(names) == 1 else {name: f"{{{name}}}" for name in names}


# --- the whole set of tools ----------------------------------------------------------------------


def infer_tools(
    signatures: Sequence[Signature],
    state: Mapping[str, Any],
    usage: Usage,
    said: Mapping[str, tuple[Effect | None, Operation]],
    surfaces: Mapping[str, str],
) -> tuple[Inferred, ...]:
    """Every tool, with one more reading tool for each state key that none of them reaches.

    ``said`` and ``surfaces`` are what the author wrote under ``operations`` and ``surfaces``.
    Raises :class:`CannotInfer`.
    """
    effects = {tool.name: _effect(tool.name, said, usage) for tool in signatures}
    operations: dict[str, tuple[Operation, str]] = {
        name: (operation, "") for name, (_, operation) in said.items()
    }
    for tool in signatures:
        if effects[tool.name] == "read" and tool.name not in operations:
            operations[tool.name] = infer_read(tool, state, usage)
    reads = {name: operations[name][0] for name in effects if effects[name] == "read"}
    for tool in signatures:
        if tool.name not in operations:
            if effects[tool.name] == "write":
                operations[tool.name] = infer_write(tool, state, usage, reads, surfaces)
            else:
                operations[tool.name] = (Operation(do="nothing"), "it asks, and changes nothing")
    tools = [
        Inferred(
            _tool(tool, effects[tool.name], operations[tool.name][0], state, usage),
            operations[tool.name][1],
        )
        for tool in signatures
    ]
    return (*tools, *_readers_of_the_rest(state, reads.values(), usage, set(effects)))


def _effect(name: str, said: Mapping[str, tuple[Effect | None, Operation]], usage: Usage) -> Effect:
    """As the author says, else as the verb says. A tool with a verb of its own writes where cases
    expect it last or prohibit it: nobody prohibits reading."""
    if name in said:
        effect, operation = said[name]
        if effect is not None:
            return effect
        if operation.do != "nothing":
            return "read" if operation.do in ("get", "keys") else "write"
    try:
        return effect_of(name)
    except CannotInfer:
        if name in usage.changing:
            return "write"
        raise


def _readers_of_the_rest(
    state: Mapping[str, Any], reads: Iterable[Operation], usage: Usage, taken: set[str]
) -> Iterator[Inferred]:
    """A governed source that no tool shows could never be followed."""
    heads = {operation.path.split("/")[0] for operation in reads}
    if any(head.startswith("{") or not head for head in heads):
        return
    for key, value in state.items():
        name = f"{key}_read"
        if key in heads or name in taken:
            continue
        parameter = next(
            (
                field_name
                for field_name, values in usage.session_values.items()
                if isinstance(value, Mapping) and values & value.keys()
            ),
            None,
        )
        path = f"{key}/{{{parameter}}}" if parameter else key
        signature = Signature(name, (parameter,) if parameter else ())
        operation = Operation(do="get", path=path)
        yield Inferred(_tool(signature, "read", operation, state, usage), "no other tool shows it")


def _tool(
    tool: Signature, effect: Effect, operation: Operation, state: Mapping[str, Any], usage: Usage
) -> Tool:
    types = {name: _type(tool, name, operation, state, usage) for name in tool.parameters}
    return Tool(
        name=tool.name,
        effect=effect,
        description=_description(operation, effect, state)
        + "".join(
            _elements(tool.name, name, operation, state, usage)
            for name, kind in types.items()
            if kind == "list"
        ),
        parameters=types,
        optional=tuple(
            name
            for name in tool.parameters
            if name in tool.optional or _sometimes_left_out(tool.name, name, operation, usage)
        ),
        operation=operation,
    )


def _sometimes_left_out(tool: str, name: str, operation: Operation, usage: Usage) -> bool:
    """An argument that some expected calls name and others do not, where it is a field of a record:
    it may be left out. One that no call names is free, and needed."""
    calls = [named for called, named in usage.expected if called == tool]
    is_field = isinstance(operation.value, Mapping) and f"{{{name}}}" not in operation.path
    return (
        is_field
        and any(name in named for named in calls)
        and not all(name in named for named in calls)
    )


def _description(operation: Operation, effect: Effect, state: Mapping[str, Any]) -> str:
    """Neutral words: what it touches, and what the first argument may name, which nobody could
    guess."""
    entries = ""
    selector = re.search(r"\{(\w+)\}", operation.path)
    if selector:
        keys = keys_at(state, operation.path[: selector.end()])
        if 0 < len(keys) <= MAX_ENTRIES_NAMED:
            entries = f" <{selector[1]}>: {', '.join(keys)}."
    return _what_it_does(operation, effect) + entries


def _elements(
    tool: str, name: str, operation: Operation, state: Mapping[str, Any], usage: Usage
) -> str:
    """The names that a list may hold, sorted: those of the state and those that cases name. Nobody
    could guess them, and an order would say something."""
    seen: set[str] = set()
    for value in (*usage.values.get((tool, name), ()), *values_at(state, operation.path)):
        items = value if isinstance(value, (list, tuple)) else (value,)
        seen |= {item for item in items if isinstance(item, str)}
    known = f" <{name}>: {', '.join(sorted(seen))}."
    return known if 0 < len(seen) <= MAX_ENTRIES_NAMED else ""


def _what_it_does(operation: Operation, effect: Effect) -> str:
    place = operation.path.replace("{", "<").replace("}", ">")
    match operation.do:
        case "get":
            return f"Returns {place or 'everything'}."
        case "keys":
            return f"Lists the keys of {place or 'everything'}."
        case "append":
            return f"Adds an entry to {place}."
        case "merge":
            return f"Changes fields of {place}."
        case "set":
            return f"Sets {place}."
        case "remove":
            return f"Removes {place}."
        case "nothing" if effect == "resolve":
            return "Asks somebody who can decide. Changes nothing."
        case _:
            return "Changes nothing."


def _type(
    tool: Signature, name: str, operation: Operation, state: Mapping[str, Any], usage: Usage
) -> ParameterType:
    """From what the author wrote, else from values: named ones, compared ones, those of the state.
    What selects an entry is a text, since keys are texts."""
    if name in tool.types:
        return tool.types[name]
    if f"{{{name}}}" in operation.path:
        return "string"
    seen = list(usage.values.get((tool.name, name), ()))
    seen += usage.predicate_values.get(name, ())
    template = operation.value
    if template == f"{{{name}}}":
        seen += values_at(state, operation.path)
        if operation.path.split("/")[-1].startswith("{"):  # compared by the name of the entry
            seen += [
                value
                for key in keys_at(state, operation.path)
                for value in usage.predicate_values.get(key, ())
            ]
    elif isinstance(template, Mapping):
        seen += values_at(state, f"{operation.path}/{name}")
    kinds = {_kind(value) for value in seen if value is not None}
    if len(kinds) == 1:
        return kinds.pop()
    return "number" if kinds == {"integer", "number"} else "string"


def _kind(value: Any) -> ParameterType:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "list" if isinstance(value, (list, tuple)) else "string"


def keys_at(state: Any, path: str) -> list[str]:
    """Keys beside the last part of ``path``, where a part in braces stands for any."""
    parents = values_at(state, path.rpartition("/")[0]) if "/" in path else [state]
    return sorted({key for parent in parents if isinstance(parent, Mapping) for key in parent})


def values_at(state: Any, path: str) -> list[Any]:
    """Everything at ``path``, where a part in braces stands for any key."""
    found = [state]
    for part in path.split("/") if path else ():
        below: list[Any] = []
        for value in found:
            if isinstance(value, Mapping):
                below += (
                    value.values()
                    if part.startswith("{")
                    else [value[key] for key in (part,) if key in value]
                )
        found = below
    return found
