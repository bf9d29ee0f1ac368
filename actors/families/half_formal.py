"""The readable notation of families, converted to the product's own form.

An author writes tools as ``name(argument, …)``, expectations as short sentences, and leaves out
what can be told from the rest: what the tools do (``tool_inference.py``), where the surfaces lie,
types of arguments, how the fixture acknowledges in an outcome case. Every such decision is returned
as a sentence; what cannot be told is an error that names the key by which the author says it.
Grammar of the sentences: ``expectation_notation.py``; rules: ``docs/corrections-and-families.md``.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from actors.families.completeness import ABSENT_KINDS, KIND_OF
from actors.families.expectation_notation import (
    ArgumentText,
    CallText,
    Clause,
    NotationError,
    is_no_action,
    parse_action,
    parse_call,
    parse_predicate,
)
from actors.families.tool_inference import (
    CannotInfer,
    Inferred,
    Signature,
    Usage,
    infer_tools,
    parse_signature,
    plurals,
)
from actors.families.yaml_file import Document
from schemas.base import Value
from schemas.identifiers import Identifier
from schemas.transfer.correction import (
    Correction,
    EffectiveLifecycle,
    Name,
    Session,
    Timestamp,
    Words,
)
from schemas.transfer.family import (
    NEEDS_RESOLUTION,
    NEGATIVES,
    REQUIRED_STAGES,
    STAGES,
    Acknowledgement,
    ArgumentTest,
    CallPattern,
    Case,
    CaseKind,
    Check,
    Effect,
    Exercise,
    Expected,
    Family,
    Fixture,
    Operation,
    Provenance,
    Stage,
    Tool,
    Waiver,
    WriteSession,
)
from schemas.transfer.family_checks import ALWAYS_THERE, DECISION, look_up

WHOLE_STATE = "state"
PLACELESS = frozenset({WHOLE_STATE, *ALWAYS_THERE})
"""Surfaces that need no place: the whole state, the journal, the decision."""


# --- the file ------------------------------------------------------------------------------------


class SuiteNote(Value):
    id: str = ""
    version: str = ""


class ClockNote(Value):
    now: Timestamp
    interval: str = ""


class SaidOperation(Value):
    """``fixture.operations``: what a tool does, where its name does not say it."""

    effect: Effect | None = None
    do: Literal["get", "keys", "set", "merge", "append", "remove", "nothing"]
    path: str = ""
    value: Any = None


class HalfFormalFixture(Value):
    tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    state: dict[str, Any]
    reset: str = ""
    clock: str = ""
    operations: dict[str, SaidOperation] = {}
    surfaces: dict[str, str] = {}


class HalfFormalOutcome(Value):
    surface: Name
    predicate: Words


class HalfFormalExpected(Value):
    abstain: bool | Literal["either"]
    decision_accept: tuple[Name, ...] | None = None
    """Left out: what the eligible record expects, and in a conflict to abstain."""
    action: Words | None = None
    outcome: HalfFormalOutcome | None = None


class HalfFormalCase(Value):
    case_id: Identifier
    kind: CaseKind
    store: tuple[Identifier, ...]
    eligible: tuple[Identifier, ...]
    session: Session
    prompt: Words | None = None
    """Left out: the positive's."""
    expected: HalfFormalExpected
    prohibited: tuple[Words, ...] = ()
    stages: dict[Stage, Literal["required", "not_required"]] | None = None
    """Left out, as `polarity`: those of its kind."""
    polarity: (
        dict[Literal["retention", "relevance"], Literal["absent", "present", "excluded"]] | None
    ) = None
    write_session: WriteSession | None = None
    acknowledgements: dict[str, Acknowledgement] = {}
    effective_lifecycle: dict[str, EffectiveLifecycle] = {}
    note: str = ""


class HalfFormalFamily(Value):
    family_id: Identifier
    suite: SuiteNote = SuiteNote()
    title: Words
    provenance: Provenance = Provenance()
    clock: ClockNote | None = None
    exercises: tuple[Exercise, ...] | None = None
    records: Annotated[tuple[Correction, ...], Meta(min_length=1)]
    decision_options: Annotated[tuple[Name, ...], Meta(min_length=2)]
    twin_decision: Name
    topic_terms: Annotated[tuple[Name, ...], Meta(max_length=12)]
    slots: dict[str, tuple[Name, ...]] | None = None
    fixture: HalfFormalFixture
    cases: Annotated[tuple[HalfFormalCase, ...], Meta(min_length=1)]
    conditions: dict[Identifier, Words] = {}
    waivers: tuple[Waiver, ...] = ()


# --- conversion ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadCase:
    """A case with its sentences read."""

    key: str
    case: HalfFormalCase
    alternatives: tuple[tuple[CallText, ...], ...]
    prohibited: tuple[CallText, ...]
    clauses: tuple[Clause, ...]

    def calls(self) -> Iterator[CallText]:
        """Expected, prohibited, and those that the predicate names."""
        for alternative in self.alternatives:
            yield from alternative
        yield from self.prohibited
        for clause in self.clauses:
            if clause.kind == "journal_order":
                yield from clause.value
            elif clause.kind == "journal_count":
                yield clause.value[0]


def convert(document: Document) -> tuple[Family, tuple[str, ...]]:
    """The family in the product's form, and what was inferred, one sentence each.

    Raises :class:`~actors.families.yaml_file.BadFile`.
    """
    source = _with_prompts(document, document.convert(HalfFormalFamily))
    cases = [_read_case(document, index, case) for index, case in enumerate(source.cases)]
    state = source.fixture.state
    for key in _keys(state):
        if "/" in key or "{" in key or not key:
            raise document.refuse(
                "fixture.state", f"the key {key!r:.60} is empty or holds `/` or `{{`: name it else"
            )
    signatures = _signatures(document, source)
    for read in cases:
        _check_calls(document, read, signatures)
    inferred = _tools(document, source, cases, signatures)
    tools = {item.tool.name: item.tool for item in inferred}
    said = [f"{item.tool.name}: {_in_words(item)}" for item in inferred if item.why]
    surfaces = _surfaces(document, source, cases, tools)
    said += [
        f"surface {name}: `{path or 'the whole state'}`"
        for name, path in surfaces.items()
        if name not in source.fixture.surfaces and name not in PLACELESS
    ]
    places = Places(state, tools, surfaces, _writers(cases, tools))
    converted = []
    for read in cases:
        converted_case, why = _case(document, source, read, places)
        converted.append(converted_case)
        said += why
    slots = source.slots
    if slots is None:
        slots = _slots(source)
        said += [f"slot {name}: {', '.join(words)}" for name, words in slots.items()]
    exercises = source.exercises
    if exercises is None:
        kinds = {case.kind for case in source.cases}
        exercises = tuple(what for what, kind in KIND_OF.items() if kind in kinds)
        if exercises:
            said.append(f"exercises: {', '.join(exercises)}, since it has such cases")
    family = Family(
        format=1,
        family_id=source.family_id,
        title=source.title,
        provenance=source.provenance,
        exercises=exercises,
        records=source.records,
        decision_options=source.decision_options,
        twin_decision=source.twin_decision,
        topic_terms=source.topic_terms,
        slots=slots,
        fixture=Fixture(state=state, tools=tuple(tools.values()), surfaces=surfaces),
        cases=tuple(converted),
        conditions=source.conditions,
        waivers=source.waivers,
    )
    return family, tuple(said)


def _with_prompts(document: Document, source: HalfFormalFamily) -> HalfFormalFamily:
    """The family with the positive's prompt in every case that has none."""
    positive = next((case for case in source.cases if case.kind == "positive"), None)
    cases: list[HalfFormalCase] = []
    for index, case in enumerate(source.cases):
        if case.prompt is None:
            if positive is None or positive.prompt is None:
                raise document.refuse(
                    f"cases[{index}].prompt", "is missing, and there is no positive to take it from"
                )
            case = msgspec.structs.replace(case, prompt=positive.prompt)
        cases.append(case)
    return msgspec.structs.replace(source, cases=tuple(cases))


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)


def _read_case(document: Document, index: int, case: HalfFormalCase) -> ReadCase:
    key = f"cases[{index}]"
    at = f"{key}.expected.action"
    try:
        action = parse_action(case.expected.action) if case.expected.action else ()
        at = f"{key}.prohibited"
        prohibited = tuple(map(parse_call, case.prohibited))
        at = f"{key}.expected.outcome.predicate"
        outcome = case.expected.outcome
        clauses = parse_predicate(outcome.predicate) if outcome is not None else ()
    except NotationError as error:
        raise document.refuse(at, str(error)) from None
    return ReadCase(key, case, action, prohibited, clauses)


def _signatures(document: Document, source: HalfFormalFamily) -> dict[str, Signature]:
    signatures: dict[str, Signature] = {}
    for index, text in enumerate(source.fixture.tools):
        key = f"fixture.tools[{index}]"
        try:
            signature = parse_signature(text)
        except CannotInfer as error:
            raise document.refuse(key, str(error)) from None
        if signature.name in signatures:
            raise document.refuse(key, f"the tool {signature.name} stands twice")
        signatures[signature.name] = signature
    for name in source.fixture.operations:
        if name not in signatures:
            known = ", ".join(signatures)
            raise document.refuse(
                f"fixture.operations.{name}", f"there is no such tool; there are {known}"
            )
    return signatures


def _check_calls(document: Document, read: ReadCase, signatures: Mapping[str, Signature]) -> None:
    for call in read.calls():
        signature = signatures.get(call.tool)
        if signature is None:
            raise document.refuse(
                read.key, f"there is no tool {call.tool!r}; there are {', '.join(signatures)}"
            )
        for position, argument in enumerate(call.arguments):
            if argument.name and argument.name not in signature.parameters:
                raise document.refuse(
                    read.key,
                    f"{call.tool} has no argument {argument.name!r}; it has "
                    f"{', '.join(signature.parameters) or 'none'}",
                )
            if not argument.name and position >= len(signature.parameters):
                raise document.refuse(read.key, f"{call.tool} has not so many arguments")


def _tools(
    document: Document,
    source: HalfFormalFamily,
    cases: Sequence[ReadCase],
    signatures: Mapping[str, Signature],
) -> tuple[Inferred, ...]:
    said = {
        name: (spec.effect, Operation(do=spec.do, path=spec.path, value=spec.value))
        for name, spec in source.fixture.operations.items()
    }
    usage = _usage(cases, signatures)
    try:
        return infer_tools(
            tuple(signatures.values()), source.fixture.state, usage, said, source.fixture.surfaces
        )
    except CannotInfer as error:
        raise document.refuse("fixture.tools", str(error)) from None


def _usage(cases: Sequence[ReadCase], signatures: Mapping[str, Signature]) -> Usage:
    surfaces: dict[str, list[str]] = {}
    values: dict[tuple[str, str], list[Any]] = {}
    expected: list[tuple[str, frozenset[str]]] = []
    compared: dict[str, list[Any]] = {}
    keys: dict[str, set[str]] = {}
    counted: set[str] = set()
    changing: set[str] = set()
    for read in cases:
        outcome = read.case.expected.outcome
        changing |= {call.tool for call in read.prohibited}
        changing |= {alternative[-1].tool for alternative in read.alternatives}
        for call in read.calls():
            for argument in _named(call, signatures[call.tool]):
                seen = values.setdefault((call.tool, argument.name), [])
                if argument.op in ("includes", "excludes", "nothing_extra"):
                    named = argument.value
                    seen.append(list(named) if isinstance(named, (list, tuple)) else [named])
                elif argument.op == "in":
                    seen += argument.value
                else:
                    seen.append(argument.value)
        for call in (call for alternative in read.alternatives for call in alternative):
            if not call.default_of:
                expected.append((call.tool, frozenset(a.name for a in call.arguments)))
            if outcome is not None and outcome.surface not in PLACELESS:
                of_tool = surfaces.setdefault(call.tool, [])
                if outcome.surface not in of_tool:
                    of_tool.append(outcome.surface)
        for clause in read.clauses:
            key = re.fullmatch(r"[^()]+\(([^()]*)\)", clause.path)
            if outcome is not None and key:
                keys.setdefault(outcome.surface, set()).add(key[1].strip())
            if outcome is not None and clause.kind == "count" and not clause.path:
                counted.add(outcome.surface)
            if clause.kind in ("equals", "not_equals"):
                last = re.split(r"[./]", re.sub(r"\(.*\)", "", clause.path))[-1]
                compared.setdefault(last, []).append(clause.value)
    sessions = [read.case.session for read in cases]
    return Usage(
        surfaces_of={tool: tuple(names) for tool, names in surfaces.items()},
        values={place: tuple(seen) for place, seen in values.items()},
        expected=expected,
        session_values={
            "project": frozenset(session.project for session in sessions),
            "principal": frozenset(session.principal for session in sessions),
            "task_class": frozenset(session.task_class for session in sessions),
        },
        changing=frozenset(changing),
        keys_of={surface: frozenset(found) for surface, found in keys.items()},
        counted=frozenset(counted),
        predicate_values={word: tuple(seen) for word, seen in compared.items()},
    )


def _named(call: CallText, signature: Signature | Tool) -> Iterator[ArgumentText]:
    """The arguments of a call, those by position with their names."""
    names = tuple(signature.parameters)
    for position, argument in enumerate(call.arguments):
        yield (
            argument
            if argument.name
            else ArgumentText(names[position], argument.op, argument.value)
        )


def _in_words(item: Inferred) -> str:
    operation = item.tool.operation
    what = {
        "get": "reads",
        "keys": "lists the keys of",
        "set": "sets",
        "merge": "changes fields of",
        "append": "adds to",
        "remove": "removes",
        "nothing": "changes nothing",
    }[operation.do]
    place = f" `{operation.path or 'everything'}`" if operation.do != "nothing" else ""
    optional = f", without {', '.join(item.tool.optional)} too" if item.tool.optional else ""
    return f"{what}{place} ({item.why}){optional}"


# --- surfaces and paths --------------------------------------------------------------------------


def _writers(cases: Sequence[ReadCase], tools: Mapping[str, Tool]) -> dict[str, tuple[Tool, ...]]:
    """Surface → tools that write and are expected by a case that reads it."""
    writers: dict[str, dict[str, Tool]] = {}
    for read in cases:
        outcome = read.case.expected.outcome
        if outcome is None or outcome.surface in PLACELESS:
            continue
        for alternative in read.alternatives:
            for call in alternative:
                if tools[call.tool].effect == "write":
                    writers.setdefault(outcome.surface, {})[call.tool] = tools[call.tool]
    return {surface: tuple(found.values()) for surface, found in writers.items()}


def _surfaces(
    document: Document,
    source: HalfFormalFamily,
    cases: Sequence[ReadCase],
    tools: Mapping[str, Tool],
) -> dict[str, str]:
    """Name → path of every surface that a case reads."""
    surfaces = dict(source.fixture.surfaces)
    writers = _writers(cases, tools)
    by_place: list[str] = []
    """Names that are no key of the state: the only sign of them is where they lie."""
    for read in cases:
        outcome = read.case.expected.outcome
        if outcome is None or outcome.surface in surfaces or outcome.surface in ALWAYS_THERE:
            continue
        name = outcome.surface
        state = source.fixture.state
        key = next((key for key in plurals(name) if key in state), None)
        key = key or next((key for key in state if name in plurals(key)), None)
        places = {_place_of(tool, name, read) for tool in writers.get(name, ())}
        if name == WHOLE_STATE:
            surfaces[name] = ""
        elif key is not None:
            surfaces[name] = key
            if name != key:
                by_place.append(name)
        elif len(places) == 1:
            surfaces[name] = places.pop()
            by_place.append(name)
        else:
            raise document.refuse(
                f"{read.key}.expected.outcome.surface",
                f"where {name!r} lies cannot be told ({len(places)} places are written by what "
                f"the cases expect); there are {_known(surfaces, state)}; if it is another one, "
                f"say it under `fixture.surfaces`: {{{name}: PATH}}",
            )
    _refuse_misspelt(document, cases, surfaces, by_place, source.fixture.state)
    return surfaces


def _refuse_misspelt(
    document: Document,
    cases: Sequence[ReadCase],
    surfaces: Mapping[str, str],
    by_place: Sequence[str],
    state: Mapping[str, Any],
) -> None:
    """Refuse a second name for one place: it is a slip, and nothing else would show it.

    Of two names that are both known by their place alone, the one that fewer cases say is meant.
    """
    said = [read.case.expected.outcome for read in cases]
    uses = Counter(outcome.surface for outcome in said if outcome is not None)

    def rank(name: str) -> tuple[int, int]:
        return uses[name], -by_place.index(name)

    for name in sorted(by_place, key=rank):
        path = surfaces[name]
        for other, there in surfaces.items():
            if other == name or (other in by_place and rank(other) < rank(name)):
                continue
            above = not path or f"{there}/".startswith(f"{path}/")
            alike = bool(get_close_matches(name, [other], cutoff=0.8))
            if not (path and path == there) and not (above and alike):
                continue
            read = next(
                read
                for read, outcome in zip(cases, said, strict=True)
                if outcome is not None and outcome.surface == name
            )
            others = {each: there for each, there in surfaces.items() if each != name}
            raise document.refuse(
                f"{read.key}.expected.outcome.surface",
                f"there is no surface {name!r} of its own: it lies where {other!r} lies; there are "
                f"{_known(others, state)}",
            )


def _known(surfaces: Mapping[str, str], state: Mapping[str, Any]) -> str:
    """The names that a case may read, for an author who has misspelt one."""
    return ", ".join(sorted({*surfaces, *state, *ALWAYS_THERE, WHOLE_STATE}))


def _place_of(tool: Tool, surface: str, read: ReadCase) -> str:
    """The path that a tool writes, up to the first argument that varies."""
    parts: list[str] = []
    for part in tool.operation.path.split("/"):
        if part.startswith("{"):
            given = [
                argument.value
                for alternative in read.alternatives
                for call in alternative
                if call.tool == tool.name
                for argument in _named(call, tool)
                if argument.name == part[1:-1] and argument.op == "equals"
            ]
            if surface not in given:
                break
            part = surface
        parts.append(part)
    return "/".join(parts)


@dataclass(frozen=True)
class Places:
    """Where in the state a predicate's words point to."""

    state: Mapping[str, Any]
    tools: Mapping[str, Tool]
    surfaces: Mapping[str, str]
    writers: Mapping[str, tuple[Tool, ...]]

    def path(self, read: ReadCase, surface: str, text: str) -> str:
        """The path below ``surface`` of what a predicate calls ``text``. Raises CannotInfer."""
        root = self.surfaces[surface]
        function = re.fullmatch(r"([^()]+)\(([^()]*)\)", text)
        keys = [function[2].strip(), function[1]] if function else None
        if keys is None:
            keys = _split_path(text, look_up(self.state, root))
        here = look_up(self.state, root)
        if isinstance(here, Mapping) and keys[0] in here:
            return "/".join(keys)
        if keys[0].isdigit() and isinstance(here, list):
            return "/".join(keys)
        for tool in self.writers.get(surface, ()):
            found = self._written(read, tool, root, keys)
            if found is not None:
                return found
        written: dict[str, None] = {}
        for tool in self.writers.get(surface, ()):
            value = tool.operation.value
            if isinstance(value, Mapping):
                written |= dict.fromkeys(value)
            elif whole := re.fullmatch(r"\{(\w+)\}", str(value)):
                written[whole[1]] = None
        words = f"{text!r:.60} is nothing of the surface {surface!r}: no expected tool writes it"
        if written:
            words += (
                f" (they write {', '.join(written)}); write `{next(iter(written))} == \u2026`, or"
            )
        else:
            words += "; write"
        raise CannotInfer(
            f"{words} the path of what is there before the session begins, keys joined by `/`"
        )

    def _written(self, read: ReadCase, tool: Tool, root: str, keys: Sequence[str]) -> str | None:
        """The path of the argument ``keys[0]`` where ``tool`` writes it, below ``root``."""
        operation = tool.operation
        if operation.do == "append" and operation.path == root:
            first = look_up(self.state, root)
            is_field = isinstance(operation.value, Mapping) and keys[0] in operation.value
            entry = str(len(first)) if isinstance(first, list) else "0"
            return "/".join([entry, *keys]) if is_field else None
        if operation.do not in ("set", "merge"):
            return None
        if isinstance(operation.value, Mapping) and len(keys) > 1 and keys[1] in operation.value:
            selector = operation.path.removeprefix(f"{root}/")
            return "/".join(keys) if re.fullmatch(r"\{\w+\}", selector) else None
        parts = operation.path.split("/")
        in_root = len(root.split("/")) if root else 0
        is_whole = operation.value == f"{{{keys[0]}}}"
        is_field = isinstance(operation.value, Mapping) and keys[0] in operation.value
        if not (is_whole or is_field) or len(parts) < in_root:
            return None
        bound = root.split("/") if root else []
        for part in parts[in_root:]:
            bound.append(self.binding(read, tool, part[1:-1], bound) if part[0] == "{" else part)
        below = bound[in_root:]
        return "/".join([*below, *(keys if is_field else keys[1:])])

    def binding(self, read: ReadCase, tool: Tool, name: str, above: Sequence[str]) -> str:
        """Which entry the case is about: as its expected call says, else the one that its session
        or its prompt names. Raises CannotInfer."""
        given = {
            str(argument.value)
            for alternative in read.alternatives
            for call in alternative
            if call.tool == tool.name
            for argument in _named(call, tool)
            if argument.name == name and argument.op == "equals"
        }
        if len(given) == 1:
            return next(iter(given))
        entries = look_up(self.state, "/".join(above))
        keys: list[str] = list(entries) if isinstance(entries, Mapping) else []
        if read.case.session.project in keys:
            return read.case.session.project
        words = set(re.findall(r"[\w.-]*\w", (read.case.prompt or "").casefold()))
        named: list[str] = [key for key in keys if key.casefold() in words]
        if len(named) == 1:
            return named[0]
        raise CannotInfer(
            f"which {name} of {tool.name} is meant cannot be told ({', '.join(keys) or 'none'}): "
            f"name it in `action` ({name}=…)"
            + (", or write the whole path in the predicate" if keys else "")
        )


def _split_path(text: str, here: Any) -> list[str]:
    """Keys of a dotted or slashed path. Where the state has a key with dots (``limits.toml``), the
    longest one that fits is taken."""
    keys: list[str] = []
    rest = text
    while rest:
        fitting = [
            key
            for key in (here if isinstance(here, Mapping) else ())
            if rest == key or rest.startswith((f"{key}.", f"{key}/"))
        ]
        key = max(fitting, key=len) if fitting else re.split(r"[./]", rest)[0]
        keys.append(key)
        here = here.get(key) if isinstance(here, Mapping) else None
        rest = rest[len(key) + 1 :]
    return keys


# --- cases ---------------------------------------------------------------------------------------


def _case(
    document: Document, source: HalfFormalFamily, read: ReadCase, places: Places
) -> tuple[Case, list[str]]:
    case = read.case
    at = f"{read.key}.expected.action"
    try:
        action = tuple(
            tuple(_pattern(call, read, places) for call in alternative)
            for alternative in read.alternatives
        )
        at = f"{read.key}.prohibited"
        prohibited = tuple(_pattern(call, read, places) for call in read.prohibited)
        if case.expected.action is not None and is_no_action(case.expected.action):
            writing = [tool for tool in places.tools.values() if tool.effect == "write"]
            prohibited = tuple(CallPattern(tool=tool.name) for tool in writing)
        at = f"{read.key}.expected.outcome.predicate"
        outcome = _checks(source, read, places)
    except CannotInfer as error:
        raise document.refuse(at, str(error)) from None
    acknowledgements, said = _acknowledgements(document, read, places)
    return Case(
        case_id=case.case_id,
        kind=case.kind,
        store=case.store,
        eligible=case.eligible,
        session=case.session,
        prompt=case.prompt or "",
        expected=Expected(
            abstain=case.expected.abstain,
            decision_accept=_accepted(source, case),
            action=action,
            outcome=outcome,
        ),
        prohibited=prohibited,
        required=_required(case),
        absent=case.kind in ABSENT_KINDS
        if case.polarity is None
        else case.polarity.get("retention") == "absent",
        excluded=case.kind in NEGATIVES
        if case.polarity is None
        else case.polarity.get("relevance") == "excluded",
        write_session=case.write_session,
        acknowledgements=acknowledgements,
        effective_lifecycle=case.effective_lifecycle,
        note=case.note,
    ), said


def _accepted(source: HalfFormalFamily, case: HalfFormalCase) -> tuple[str, ...]:
    if case.expected.decision_accept is not None:
        return case.expected.decision_accept
    if case.kind == "conflict":
        return (NEEDS_RESOLUTION,)
    decisions = {record.correction_id: record.expected_decision for record in source.records}
    return tuple(sorted({decisions[name] for name in case.eligible if name in decisions}))


def _required(case: HalfFormalCase) -> tuple[Stage, ...]:
    if case.stages is None:
        return tuple(stage for stage in STAGES if stage in REQUIRED_STAGES[case.kind])
    return tuple(stage for stage in STAGES if case.stages.get(stage) == "required")


def _pattern(call: CallText, read: ReadCase, places: Places) -> CallPattern:
    tool = places.tools[call.tool]
    tests: dict[str, ArgumentTest] = {}
    if call.default_of:
        tests = _default_arguments(call, read, places)
    for argument in _named(call, tool):
        kind = tool.parameters[argument.name]
        match argument.op:
            case "nothing_extra":
                tests[argument.name] = ArgumentTest(
                    op="within", value=_first_list(tool, read, places)
                )
            case "in":
                values = [_typed(value, kind) for value in argument.value]
                tests[argument.name] = ArgumentTest(op="in", value=values)
            case "equals":
                value = _typed(argument.value, kind)
                tests[argument.name] = ArgumentTest(op="equals", value=value)
            case op:
                tests[argument.name] = ArgumentTest(op=op, value=argument.value)
    before: Literal["write"] | None = "write" if call.before_write else None
    return CallPattern(tool=call.tool, arguments=tests, times=call.times, before=before)


def _typed(value: Any, kind: str) -> Any:
    """A number that stands for a text, since the argument is one."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if kind == "string" and is_number else value


def _default_arguments(call: CallText, read: ReadCase, places: Places) -> dict[str, ArgumentTest]:
    """``with the guide default``: what the guide says of the session's project, as far as the tool
    has such arguments."""
    key = next((key for key in plurals(call.default_of) if key in places.state), None)
    if key is None:
        raise CannotInfer(
            f"`with the {call.default_of} default`: the state has no key {call.default_of!r}; it "
            f"has {', '.join(places.state)}"
        )
    entry = places.state[key]
    if isinstance(entry, Mapping):
        entry = entry.get(read.case.session.project, entry)
    fields = entry if isinstance(entry, Mapping) else {}
    parameters = places.tools[call.tool].parameters
    return {
        name: ArgumentTest(op="equals", value=value)
        for name, value in fields.items()
        if name in parameters
    }


def _first_list(tool: Tool, read: ReadCase, places: Places) -> list[Any]:
    """What stands at first where the tool will write, which `nothing extra` is measured by."""
    bound: list[str] = []
    for part in tool.operation.path.split("/"):
        bound.append(places.binding(read, tool, part[1:-1], bound) if part[0] == "{" else part)
    value = look_up(places.state, "/".join(bound))
    if not isinstance(value, list):
        raise CannotInfer(
            f"`includes nothing extra`: at first there is no list at {'/'.join(bound)}, where "
            f"{tool.name} writes"
        )
    return value


def _checks(source: HalfFormalFamily, read: ReadCase, places: Places) -> tuple[Check, ...]:
    outcome = read.case.expected.outcome
    if outcome is None:
        return ()
    surface = outcome.surface
    checks: list[Check] = []
    named: list[str] = []
    for clause in read.clauses:
        match clause.kind:
            case "others_unchanged":
                continue
            case "basis_is_current":
                checks += _basis_is_current(source, read)
                continue
            case "journal_order":
                patterns = [_pattern(call, read, places) for call in clause.value]
                value = msgspec.to_builtins([_without_defaults(p) for p in patterns])
                checks.append(Check(surface="journal", path="", op="journal_order", value=value))
                continue
            case "journal_count":
                call, number = clause.value
                value = msgspec.to_builtins(
                    {**_without_defaults(_pattern(call, read, places)), "is": number}
                )
                checks.append(Check(surface="journal", path="", op="count", value=value))
                continue
            case "no_foreign_terms":
                path, value = _foreign_terms(clause, read, places)
                checks.append(Check(surface=surface, path=path, op="excludes", value=value))
                continue
            case "unchanged":
                path = _unchanged_path(clause, read, places, surface)
                checks.append(Check(surface=surface, path=path, op="unchanged"))
                continue
        if clause.path in ("basis", "option", "decision") and clause.kind != "count":
            of_decision = "basis" if clause.path == "basis" else "option"
            checks.append(
                Check(surface=DECISION, path=of_decision, op=clause.kind, value=clause.value)
            )
            continue
        path = places.path(read, surface, clause.path) if clause.path else ""
        named.append(path)
        value = _compared(clause, path, read, places, surface)
        checks.append(Check(surface=surface, path=path, op=clause.kind, value=value))
    if any(clause.kind == "others_unchanged" for clause in read.clauses):
        checks.append(Check(surface=surface, path="", op="unchanged", value=sorted(set(named))))
    return tuple(checks)


def _without_defaults(pattern: CallPattern) -> dict[str, Any]:
    plain: dict[str, Any] = {"tool": pattern.tool}
    if pattern.arguments:
        plain["arguments"] = pattern.arguments
    return plain


def _unchanged_path(clause: Clause, read: ReadCase, places: Places, surface: str) -> str:
    """What does not change need not be written by any tool."""
    if not clause.path:
        return ""
    try:
        return places.path(read, surface, clause.path)
    except CannotInfer:
        return "/".join(_split_path(clause.path, None))


def _compared(clause: Clause, path: str, read: ReadCase, places: Places, surface: str) -> Any:
    """The value of a clause, as a text where the tool that writes it takes a text."""
    if clause.kind not in ("equals", "not_equals"):
        return clause.value
    last = path.split("/")[-1]
    for tool in places.writers.get(surface, ()):
        template = tool.operation.value
        if isinstance(template, Mapping) and last in template and last in tool.parameters:
            return _typed(clause.value, tool.parameters[last])
        whole = re.fullmatch(r"\{(\w+)\}", template) if isinstance(template, str) else None
        if whole and whole[1] in tool.parameters:
            return _typed(clause.value, tool.parameters[whole[1]])
    return clause.value


def _basis_is_current(source: HalfFormalFamily, read: ReadCase) -> list[Check]:
    """The decision names every record that applies, and none of the family that does not."""
    eligible = list(read.case.eligible)
    others = [r.correction_id for r in source.records if r.correction_id not in eligible]
    checks = [Check(surface="decision", path="basis", op="excludes", value=others)]
    if eligible:
        checks.insert(0, Check(surface="decision", path="basis", op="includes", value=eligible))
    return checks


def _foreign_terms(clause: Clause, read: ReadCase, places: Places) -> tuple[str, list[Any]]:
    """``foreign_terms == 0``: nothing of the lists under the state's ``…_terms`` that belong to
    other projects than the session's, in the free text that the tool writes."""
    keys = [key for key in places.state if key.endswith("_terms") and key != clause.path]
    lists = places.state[keys[0]] if len(keys) == 1 else None
    if not isinstance(lists, Mapping):
        raise CannotInfer(
            f"`{clause.path} == 0` needs one key of the state that ends in `_terms`, with a list "
            f"of terms for each project; found: {', '.join(keys) or 'none'}"
        )
    project = read.case.session.project
    terms = [term for name, found in sorted(lists.items()) if name != project for term in found]
    outcome = read.case.expected.outcome
    assert outcome is not None
    named = {a.name for r in read.alternatives for call in r for a in call.arguments}
    free = [
        name
        for tool in places.writers.get(outcome.surface, ())
        if isinstance(tool.operation.value, Mapping)
        for name in tool.operation.value
        if name not in named and tool.parameters.get(name) == "string"
    ]
    if len(free) != 1:
        raise CannotInfer(
            f"`{clause.path} == 0`: which text is searched cannot be told "
            f"({', '.join(free) or 'no argument is free'}); write `VALUE not in FIELD` instead"
        )
    return free[0], terms


# --- outcome cases -------------------------------------------------------------------------------

_COUNTS = {"first": 1, "one": 1, "two": 2, "three": 3}
_FALSE = re.compile(
    r"\b(drop|lose|lost|discard|swallow|ignore|never (?:store|save|land|arrive)|silently|"
    r"does nothing|not (?:stored|saved|written))",
    re.IGNORECASE,
)
_LATE = re.compile(
    r"\b(before|late|later|queue|delay|eventual|async|accepted|pending|in flight|submitted)",
    re.IGNORECASE,
)


def _acknowledgements(
    document: Document, read: ReadCase, places: Places
) -> tuple[dict[str, Acknowledgement], list[str]]:
    """How the fixture answers in an outcome case: as the case says, else as its note says, else
    late. A false answer must end at some call, or no system could satisfy the predicate."""
    case = read.case
    for name in case.acknowledgements:
        if name not in places.tools:
            raise document.refuse(f"{read.key}.acknowledgements.{name}", "there is no such tool")
    if case.kind != "outcome" or case.acknowledgements:
        return dict(case.acknowledgements), []
    expected = [call.tool for alternative in read.alternatives for call in alternative]
    writing = [name for name in expected if places.tools[name].effect == "write"]
    named = [name for name in words_in(case.note) if name in places.tools]
    tool = next((name for name in named if places.tools[name].effect == "write"), None)
    tool = tool or (writing[-1] if writing else None)
    if tool is None:
        raise document.refuse(
            f"{read.key}.expected.action",
            "an outcome case expects a call that writes; or say under `acknowledgements` which "
            "tool answers falsely or late",
        )
    if _FALSE.search(case.note):
        found = re.search(r"\b(first|one|two|three)\b", case.note, re.IGNORECASE)
        calls = _COUNTS[found[1].casefold()] if found else 1
        acknowledgement = Acknowledgement(kind="false", calls=calls)
        often = "its first call answers" if calls == 1 else f"its first {calls} calls answer"
        why = f"{often} done and does nothing, from its note"
    elif _LATE.search(case.note):
        acknowledgement = Acknowledgement(kind="late")
        why = "it answers done, and it is done one call later, from its note"
    else:
        acknowledgement = Acknowledgement(kind="late")
        why = "it answers done, and it is done one call later (its note does not say)"
    return {tool: acknowledgement}, [f"{case.case_id}: {tool}: {why}"]


def words_in(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9_]+", text)


# --- slots ---------------------------------------------------------------------------------------


def _slots(source: HalfFormalFamily) -> dict[str, tuple[str, ...]]:
    """Words in which a negative's prompt differs from the positive's, where both are topic terms or
    name the sessions' projects."""
    positive = next((case for case in source.cases if case.kind == "positive"), None)
    if positive is None:
        return {}
    free = {term.casefold() for term in source.topic_terms}
    free |= {case.session.project.casefold() for case in source.cases}
    slots: list[set[str]] = []
    for case in source.cases:
        if case.kind not in ("scope_negative", "principal_negative"):
            continue
        ours, theirs = words_in(positive.prompt or ""), words_in(case.prompt or "")
        if len(ours) != len(theirs):
            continue
        for one, other in zip(ours, theirs, strict=True):
            if one != other and {one.casefold(), other.casefold()} <= free:
                pair = {one.casefold(), other.casefold()}
                joined = next((slot for slot in slots if slot & pair), None)
                if joined is None:
                    slots.append(pair)
                else:
                    joined |= pair
    return {
        "subject" if number == 0 else f"subject-{number + 1}": tuple(sorted(words))
        for number, words in enumerate(slots)
    }
