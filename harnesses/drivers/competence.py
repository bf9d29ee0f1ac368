"""What the rule-based drivers can do: find what governs, decide, act, read back.

The drivers share this one competence and differ in what they believe, so that a suite's results
differ by exactly that. It reads a record's words (``schemas.transfer.rendering``), the prompt and
what tools return; it knows no family. Where words of an argument's name, of order or of the small
tables in ``tool_words`` do not give a value, it has none and asks somebody who can decide.
"""

import json
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from harnesses.drivers.contract import Claimed, Effect, Finish, Result, SessionInput, call
from harnesses.drivers.tool_words import (
    GOVERNED,
    NO_VALUE,
    all_parts,
    file_name,
    is_governed,
    is_reading,
    is_resolving,
    is_writing,
    number_of,
    parameters,
    parts,
    places,
    required,
    says_verb,
    subject_of,
    tokens,
    value_after,
    value_beside,
    verb_of,
)
from schemas.transfer.family import DECLARE_DECISION, NEEDS_RESOLUTION
from schemas.transfer.offered_tool import OfferedTool
from schemas.transfer.rendering import RecordText

AS_ADMITTED = "follows the admitted record that fits the prompt best; asks at a conflict"
BY_SOURCES = "follows governing sources alone"
BY_WORDS = "by words of names and their order"
READS_BACK = "reads back what it changed, and repeats what does not show"

WRITES = 3
"""How often a change is asked for until it shows."""
LOOKS = 3
"""How often the place is read after each: what was acknowledged may come late."""

DECISION_NAMES = frozenset(("status", "decision", "option", "answer", "verdict", "state"))
FREE_TEXT = frozenset(("text", "body", "content", "message", "comment", "question", "description"))
NEW_VALUES = frozenset(("value", "identifier", "amount", "to"))
NUMBER_NAMES = frozenset(("id", "number"))
"""Arguments that say which one is meant: 77 of ``invoice 77``."""
SOURCE_NAMES = ("source_ref", "source", "reference")


@dataclass
class Guidance:
    """What a driver goes by: a record's words, or what governing sources say."""

    decision: str = ""
    action: str = ""
    basis: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    """Distinguishing words of a decision that was found in a note."""


Steps = Generator[Effect, Result, Finish]


def options_of(given: SessionInput) -> tuple[str, ...]:
    """The options that may be declared, as the tool's schema names them."""
    for tool in given.tools:
        if tool.name == DECLARE_DECISION:
            return tuple(tool.parameters["properties"]["option"]["enum"])
    return ()


def most_fitting(prompt: str, records: Iterable[RecordText]) -> RecordText | None:
    """The record that shares most words with the prompt, the earliest of equals; None where none
    shares any. Words of grammar do not count."""
    asked = all_parts(prompt) - NO_VALUE
    best, most = None, 0
    for record in records:
        shared = len(asked & all_parts(f"{record.meaning} {record.action}"))
        if shared > most:
            best, most = record, shared
    return best


def follow(given: SessionInput, record: RecordText, *, verify: bool) -> Steps:
    """Do what a record says; ask where it names nothing that can be chosen here."""
    guidance = Guidance(
        decision=record.decision,
        action=record.action,
        basis=(record.record_id,) if record.record_id else (),
    )
    if not record.decision:
        guidance.action = record.meaning
        guidance.decision, guidance.words = _option_in_words(record.meaning, options_of(given))
    if guidance.decision not in options_of(given):
        return (yield from resolve(given, guidance.basis, "what is remembered names no option"))
    yield from _read_named_source(given, guidance)
    return (yield from _act(given, guidance, verify))


def follow_sources(given: SessionInput, *, verify: bool) -> Steps:
    """Do what governing sources say, with no record; ask where they say nothing."""
    guidance = Guidance()
    yield from _read_governed(given, guidance)
    guidance.decision = _option_in_facts(given, guidance)
    if not guidance.decision:
        return (yield from resolve(given, (), "no record and no governing source says which"))
    return (yield from _act(given, guidance, verify))


def resolve(given: SessionInput, basis: tuple[str, ...], why: str) -> Steps:
    """Declare that this needs a decision and ask for one, once; change nothing."""
    if NEEDS_RESOLUTION in options_of(given):
        yield from call(DECLARE_DECISION, {"option": NEEDS_RESOLUTION, "basis": list(basis)})
    claims = tuple(Claimed("recalled", record) for record in basis)
    named = f" ({', '.join(basis)})" if basis else ""
    for tool in given.tools:
        if is_resolving(tool):
            question = f"Which option holds for {given.session.project}? {why.capitalize()}{named}."
            yield from call(tool.name, dict.fromkeys(required(tool), question))
            return Finish(f"I asked: {why}{named}.", claims)
    return Finish(f"Somebody has to decide: {why}{named}.", claims)


# --- what governs ---------------------------------------------------------------------------------


def _read_governed(given: SessionInput, guidance: Guidance) -> Generator[Effect, Result, None]:
    """Every governing source that can be asked about this session, once each."""
    for tool in given.tools:
        if is_governed(tool) and "source" not in parameters(tool):
            arguments = _fill_all(given, tool, guidance, None)
            if arguments is None:
                continue
            shown = yield from call(tool.name, arguments)
            if shown.ok:
                _learn(guidance, subject_of(tool), shown.value)
    for tool in given.tools:
        if is_reading(tool) and "source" in parameters(tool):
            yield from _follow_pointer(given, tool, guidance)


def _follow_pointer(
    given: SessionInput, tool: OfferedTool, guidance: Guidance
) -> Generator[Effect, Result, None]:
    """A tool that reads several sources: ask the governing ones, then the one that they name."""
    for governed in sorted(GOVERNED):
        arguments = _fill_all(given, tool, guidance, None, source=governed)
        if arguments is None:
            return
        named = yield from call(tool.name, arguments)
        if named.ok and isinstance(named.value, str):
            shown = yield from call(tool.name, {**arguments, "source": named.value})
            if shown.ok:
                guidance.facts |= dict.fromkeys(SOURCE_NAMES, named.value)
                _learn(guidance, set(), shown.value)
            return


def _read_named_source(given: SessionInput, guidance: Guidance) -> Generator[Effect, Result, None]:
    """Where a record names a source, what stands there decides and not what the record expects."""
    source = next(
        (found for name in SOURCE_NAMES if (found := value_beside(name, guidance.action))), None
    )
    for tool in given.tools:
        if source and is_reading(tool) and "source" in parameters(tool):
            arguments = _fill_all(given, tool, guidance, None, source=source)
            if arguments is None:
                return
            shown = yield from call(tool.name, arguments)
            if shown.ok and shown.value in options_of(given):
                guidance.decision = shown.value
            return


def _learn(guidance: Guidance, subject: set[str], value: Any) -> None:
    if isinstance(value, dict):
        guidance.facts |= {key: item for key, item in value.items() if isinstance(item, str)}
        guidance.statements += [item for item in value.values() if isinstance(item, str)]
    elif isinstance(value, str):
        guidance.facts |= dict.fromkeys(sorted(subject), value)
        guidance.statements.append(value)


def _option_in_facts(given: SessionInput, guidance: Guidance) -> str:
    """The one option that the facts name, all of its words; else the one of the task's own class;
    else, where a list is written, the one that adds none."""
    options = [option for option in options_of(given) if option != NEEDS_RESOLUTION]
    said = set().union(*(all_parts(statement) for statement in guidance.statements))
    named = [option for option in options if set(parts(option)) <= said]
    longest = max((len(parts(option)) for option in named), default=0)
    named = [option for option in named if len(parts(option)) == longest]
    if len(named) == 1:
        return named[0]
    task = set(parts(given.session.task_class))
    own = [option for option in options if task & set(parts(option))]
    if not named and len(own) == 1:
        return own[0]
    lists = any("array" in parameters(tool).values() for tool in given.tools if is_writing(tool))
    nothing_added = [option for option in options if "none" in parts(option)]
    if not named and lists and len(nothing_added) == 1:
        return nothing_added[0]
    return ""


def _option_in_words(note: str, options: Iterable[str]) -> tuple[str, set[str]]:
    """(the one option of which all distinguishing words are said, these words)."""
    choices = [option for option in options if option != NEEDS_RESOLUTION]
    common = set.intersection(*(set(parts(option)) for option in choices)) if choices else set()
    said = all_parts(note)
    named = [
        (option, words)
        for option in choices
        if (words := set(parts(option)) - common) and words <= said
    ]
    return named[0] if len(named) == 1 else ("", set())


# --- acting ---------------------------------------------------------------------------------------


def _act(given: SessionInput, guidance: Guidance, verify: bool) -> Steps:
    """Look at the place, declare, change it, and read it back until it shows."""
    tool = _tool_for(given, guidance)
    claims = [Claimed("recalled", record) for record in guidance.basis]
    if tool is None:
        return (yield from resolve(given, guidance.basis, "no tool fits"))
    reader = _reader_of(given, tool)
    current = None
    if reader is not None:
        looking = _look_arguments(reader, tool, _fill(given, tool, guidance, None))
        if looking is not None:
            shown = yield from call(reader.name, looking)
            current = shown.value if shown.ok else None
    arguments = _fill_all(given, tool, guidance, current)
    if arguments is None:
        return (yield from resolve(given, guidance.basis, "not everything that it takes is known"))
    yield from call(DECLARE_DECISION, {"option": guidance.decision, "basis": list(guidance.basis)})
    looking = _look_arguments(reader, tool, arguments) if reader is not None else None
    for _ in range(WRITES):
        written = yield from call(tool.name, arguments)
        if not written.ok:
            return Finish(f"I chose {guidance.decision}; it was refused.", tuple(claims))
        if not verify or reader is None or looking is None:
            claims.append(Claimed("done", tool.name))
            return Finish(f"Done: {guidance.decision}.", tuple(claims))
        for _ in range(LOOKS):
            shown = yield from call(reader.name, looking)
            if shown.ok and _shows(shown.value, arguments, looking):
                claims += [Claimed("done", tool.name), Claimed("checked", reader.name)]
                return Finish(f"Done and read back: {guidance.decision}.", tuple(claims))
    return Finish(f"I chose {guidance.decision}; it does not show.", tuple(claims))


def _tool_for(given: SessionInput, guidance: Guidance) -> OfferedTool | None:
    """The changing tool whose verb and subject are said, and that can be filled best."""
    said = all_parts(" ".join([guidance.action, *guidance.statements]))
    if not guidance.action:
        said |= all_parts(given.turns[0]) | set(parts(given.session.task_class))
    best, most = None, (0, 0)
    for tool in given.tools:
        if is_writing(tool):
            score = 2 * says_verb(tool, said) + len(subject_of(tool) & said)
            rank = (score, len(_fill(given, tool, guidance, None)))
            if rank > most:
                best, most = tool, rank
    return best


def _reader_of(given: SessionInput, tool: OfferedTool) -> OfferedTool | None:
    """The reading tool that shows what ``tool`` changes: the same place, else the same subject."""
    readers = [other for other in given.tools if is_reading(other)]
    for alike in (
        [other for other in readers if places(other) & places(tool)],
        [other for other in readers if subject_of(other) & subject_of(tool)],
    ):
        fitting = [other for other in alike if verb_of(other) != "list"]
        if fitting:
            return max(fitting, key=lambda other: len(set(required(other)) & set(required(tool))))
    return None


def _look_arguments(
    reader: OfferedTool, tool: OfferedTool, arguments: dict[str, Any]
) -> dict[str, Any] | None:
    """The reader's arguments, out of the change's: by name, or ``id`` for the changed thing."""
    found = {name: arguments[name] for name in required(reader) if name in arguments}
    missing = [name for name in required(reader) if name not in found]
    things = [name for name in required(tool) if name in arguments and name not in found]
    if missing == ["id"] and things:
        roots = " ".join(places(tool))
        found["id"] = next(
            (arguments[name] for name in things if roots.startswith(name)), arguments[things[0]]
        )
        missing = []
    return None if missing else found


def _shows(value: Any, arguments: dict[str, Any], looking: dict[str, Any]) -> bool:
    """True where everything that was written stands in what was read."""
    seen = list(_values(value))
    written = [item for item in arguments.values() if item not in looking.values()]
    return all(item in seen for item in written)


def _values(value: Any) -> Iterable[Any]:
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item)


# --- arguments ------------------------------------------------------------------------------------


def _fill_all(
    given: SessionInput, tool: OfferedTool, guidance: Guidance, current: Any, **known: Any
) -> dict[str, Any] | None:
    """Every needed argument, or None. The decision stands for the last one without a value, where
    it stands for no other one and nobody has to say which thing is meant."""
    filled = {**_fill(given, tool, guidance, current), **known}
    missing = [name for name in required(tool) if name not in filled]
    if (
        is_writing(tool)
        and len(missing) == 1
        and missing[0] not in NUMBER_NAMES
        and parameters(tool)[missing[0]] == "string"
        and guidance.decision not in filled.values()
    ):
        return {**filled, missing[0]: guidance.decision}
    return None if missing else filled


def _fill(
    given: SessionInput, tool: OfferedTool, guidance: Guidance, current: Any
) -> dict[str, Any]:
    """The arguments that have a value."""
    needed = required(tool)
    found: dict[str, Any] = {}
    for name, kind in parameters(tool).items():
        if kind == "array":
            found[name] = _list(name, tool, guidance, current)
            continue
        value = _said(given, name, tool, guidance)
        if value is None and name in needed:
            value = _from_prompt(given, name, tool, guidance, current)
        typed = _typed(value, kind)
        if typed is not None:
            found[name] = typed
    return found


def _said(given: SessionInput, name: str, tool: OfferedTool, guidance: Guidance) -> Any:
    """What session, record and sources say of an argument, in this order."""
    session = given.session
    of_session = {
        "project": session.project,
        "principal": session.principal,
        "task_class": session.task_class,
    }
    if name in of_session:
        return of_session[name]
    if name in parts(session.project):
        return session.project
    for text in (guidance.action, *guidance.statements):
        value = value_beside(name, text)
        if value is not None:
            return value
    if name in guidance.facts:
        return guidance.facts[name]
    if name in DECISION_NAMES:
        return guidance.decision or None
    if name == "kind":
        known = {*parameters(tool), *options_of(given)}
        compounds = [word for word in tokens(guidance.action) if "_" in word and word not in known]
        return compounds[0] if compounds else None
    return None


def _from_prompt(
    given: SessionInput, name: str, tool: OfferedTool, guidance: Guidance, current: Any
) -> Any:
    prompt = given.turns[0]
    if name in FREE_TEXT:
        return prompt
    if name in ("file", "path"):
        return file_name([guidance.action, prompt])
    if name in NUMBER_NAMES:
        return number_of(subject_of(tool), name, prompt)
    if name in NEW_VALUES:
        return value_after("to", prompt)
    if name == "key":
        said = all_parts(prompt)
        keys = sorted(current) if isinstance(current, dict) else []
        return next((key for key in keys if set(parts(key)) <= said), None)
    if name == "kind":
        thing = re.search(r"(?:fill in|file|submit|write) (?:the|a) (\w+) (\w+)", prompt, re.I)
        return "_".join(thing.groups()).lower() if thing else None
    return value_beside(name, prompt)


def _list(name: str, tool: OfferedTool, guidance: Guidance, current: Any) -> list[Any]:
    """The list as it stands, with what the record adds, where the record says."""
    items = list(current) if isinstance(current, list) else []
    added = value_beside(name.removesuffix("s"), guidance.action) if guidance.action else None
    if guidance.words:
        # A note says it in its own words: of the names that the tool knows, the one that fits.
        known = [word for word in tokens(tool.description) if "_" in word]
        fitting = [word for word in known if guidance.words & set(parts(word))]
        added = fitting[0] if len(set(fitting)) == 1 else None
    if not added or added in items:
        return items
    place = re.search(r"between (?:the )?\S+ (?:\S+ )?and (?:the )?(\S+)", guidance.action)
    place = place or re.search(r"before (?:the )?(\S+)", guidance.action)
    before = place[1].rstrip(".,;") if place else None
    at = items.index(before) if before in items else len(items)
    return [*items[:at], added, *items[at:]]


def _typed(value: Any, kind: str) -> Any:
    """The value in the argument's type; None where it is none."""
    if kind == "string":
        return value if isinstance(value, str) else None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, bool):
        return value if kind == "boolean" else None
    fits = isinstance(value, int) or (kind == "number" and isinstance(value, float))
    return value if fits and kind != "boolean" else None
