"""Predicates and call patterns as data: what holds over surfaces, journal and decision.

Pure. The scorer judges with it after the session, and tests of a fixture use the same functions.
A check that cannot be evaluated (a missing path, a value of another type) does not hold; nothing
here raises for what a system under test did. Protocol, "Fixtures" and stages 6 and 7.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from schemas.base import Count, Value
from schemas.look_alikes import as_it_looks
from schemas.transfer.family import ArgumentTest, CallPattern, Case, Check, Effect

JOURNAL = "journal"
DECISION = "decision"
ALWAYS_THERE = (JOURNAL, DECISION)
"""Surfaces of every fixture beside its own."""


class Call(Value):
    """One line of the call journal, as the fixture kept it."""

    number: Count
    tool: str
    effect: Effect | Literal["none"]
    """``none``: refused, there is no such tool."""
    arguments: Any
    """As sent: a dictionary unless the call was malformed."""
    ok: bool
    """False for a call that was refused with a typed error; it had no effect."""


class Decision(Value):
    """The declaration that counts."""

    option: str
    basis: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What checks look at: the states before and after, the journal, and the decision."""

    surfaces: Mapping[str, str]
    """Of the fixture: name → path in the state."""
    before: Any
    after: Any
    journal: Sequence[Call]
    decision: Decision | None = None


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
"""What :func:`look_up` finds where there is nothing; equal to no JSON value."""


def look_up(document: Any, path: str) -> Any:
    """What stands at ``path`` (keys joined by ``/``; a number picks out of a list), or MISSING."""
    found = document
    for key in path.split("/") if path else ():
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return MISSING
    return found


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values. ``true`` is not 1, as it is for Python; 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def passes(test: ArgumentTest, argument: Any) -> bool:
    """True where an argument is what the test says. ``includes`` and ``excludes`` look into a list
    or a text; an argument that was not sent passes ``excludes`` alone."""
    match test.op:
        case "any":
            return argument is not MISSING
        case "equals":
            return same(argument, test.value)
        case "in":
            return isinstance(test.value, (list, tuple)) and any(
                same(argument, value) for value in test.value
            )
        case "includes":
            return _contains(argument, test.value)
        case "excludes":
            return not _contains(argument, test.value)
        case "within":
            allowed = test.value if isinstance(test.value, (list, tuple)) else ()
            return isinstance(argument, (list, tuple)) and all(
                any(same(item, value) for value in allowed) for item in argument
            )


def _contains(argument: Any, value: Any) -> bool:
    if isinstance(argument, str):
        return isinstance(value, str) and value in argument
    return isinstance(argument, (list, tuple)) and any(same(item, value) for item in argument)


def matches(pattern: CallPattern, call: Call) -> bool:
    """True where tool and named arguments fit; ``times`` and ``before`` are not looked at."""
    if call.tool != pattern.tool:
        return False
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    return all(
        passes(test, arguments.get(name, MISSING)) for name, test in pattern.arguments.items()
    )


def prohibited_calls(patterns: Sequence[CallPattern], journal: Sequence[Call]) -> list[Call]:
    """Every call that one of the patterns prohibits, in order and once each. What the fixture
    refused had no effect and is no action.

    A text that is prohibited is prohibited in other letters too: `Release` and `release ` are
    `release`, whatever a fixture takes them for.
    """
    plain = [_plain(pattern) for pattern in patterns]

    def is_prohibited(call: Call) -> bool:
        seen = _plain(call)
        return any(matches(p, call) for p in patterns) or any(matches(p, seen) for p in plain)

    return [call for call in journal if call.ok and is_prohibited(call)]


def _plain(value: Any) -> Any:
    """Every text of a call or a pattern as it looks: without case, marks and spaces around it."""
    if isinstance(value, Call):
        return msgspec.structs.replace(value, arguments=_plain(value.arguments))
    if isinstance(value, CallPattern):
        plain = {
            name: msgspec.structs.replace(test, value=_plain(test.value))
            for name, test in value.arguments.items()
        }
        return msgspec.structs.replace(value, arguments=plain)
    if isinstance(value, str):
        return as_it_looks(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def declared_texts(cases: Iterable[Case]) -> dict[tuple[str, str], set[str]]:
    """Texts that the cases name, by tool and argument: in expected and in prohibited calls."""
    texts: dict[tuple[str, str], set[str]] = {}
    for case in cases:
        for pattern in (*case.prohibited, *(p for calls in case.expected.action for p in calls)):
            for name, test in pattern.arguments.items():
                values = test.value if isinstance(test.value, (list, tuple)) else [test.value]
                named = {value for value in values if isinstance(value, str)}
                texts.setdefault((pattern.tool, name), set()).update(named)
    return texts


def first_write(journal: Sequence[Call]) -> int | None:
    """Number of the first state-changing call; None where there was none."""
    return next((call.number for call in journal if call.ok and call.effect == "write"), None)


def in_order(patterns: Sequence[CallPattern], journal: Sequence[Call]) -> list[Call] | None:
    """The calls that satisfy ``patterns`` one after the other, or None.

    Each pattern takes the first fitting call after the one before it. ``times`` counts over the
    whole journal: exactly so many. ``before = "write"``: no fitting call may follow a write.
    """
    write = first_write(journal)
    found: list[Call] = []
    after = -1
    for pattern in patterns:
        fitting = [call for call in journal if call.ok and matches(pattern, call)]
        if pattern.times is not None and len(fitting) != pattern.times:
            return None
        if (
            pattern.before == "write"
            and write is not None
            and any(call.number > write for call in fitting)
        ):
            return None
        following = [call for call in fitting if call.number > after]
        if not following:
            return None
        found.append(following[0])
        after = following[0].number
    return found


def expected_calls(
    alternatives: Sequence[Sequence[CallPattern]], journal: Sequence[Call]
) -> list[Call] | None:
    """The calls of the first alternative that was done, or None. Nothing expected: no calls."""
    if not alternatives:
        return []
    for patterns in alternatives:
        found = in_order(patterns, journal)
        if found is not None:
            return found
    return None


def holds(check: Check, observed: Observed) -> tuple[bool, str]:
    """(whether one line of a predicate holds, one sentence that says what was found)."""
    why_never = malformed(check, observed.surfaces)
    if why_never:
        return False, why_never
    if check.surface == JOURNAL:
        return _journal_holds(check, observed.journal)
    if check.surface == DECISION:
        decision = observed.decision
        before: Any = {}
        after: Any = (
            {} if decision is None else {"option": decision.option, "basis": list(decision.basis)}
        )
    else:
        root = observed.surfaces[check.surface]
        before, after = look_up(observed.before, root), look_up(observed.after, root)
    found = look_up(after, check.path)
    where = "/".join(filter(None, (check.surface, check.path)))
    match check.op:
        case "equals":
            result, wanted = same(found, check.value), f"{_shown(check.value)}"
        case "not_equals":
            result, wanted = not same(found, check.value), f"anything but {_shown(check.value)}"
        case "in":
            result = any(same(found, value) for value in check.value)
            wanted = f"one of {_shown(check.value)}"
        case "starts_with":
            result, wanted = _starts_with(found, check.value), f"a start {_shown(check.value)}"
        case "count":
            length = 0 if found is MISSING else _length(found)
            result, wanted = same(length, check.value), f"{_shown(check.value)} entries"
        case "includes" | "excludes":
            contained = [_has(found, value) for value in check.value]
            result = all(contained) if check.op == "includes" else not any(contained)
            wanted = f"{'all' if check.op == 'includes' else 'none'} of {_shown(check.value)}"
        case "between":
            part = _between(found, check.value["after"], check.value["before"])
            result = part is not None and same(part, check.value["equals"])
            wanted = "{equals} between {after} and {before}".format(
                **{key: _shown(value) for key, value in check.value.items()}
            )
        case "unchanged":
            first, excepted = look_up(before, check.path), check.value or ()
            result = same(_without(found, excepted), _without(first, excepted))
            wanted = f"no change but in {', '.join(excepted)}" if excepted else "no change"
        case "journal_order":
            raise AssertionError("refused above: it is of the journal")
    return result, f"{where} is {_shown(found)}; wanted: {wanted}"


def _has(found: Any, value: Any) -> bool:
    """An element of a list, or a part of a text whatever its case."""
    if isinstance(found, str):
        return isinstance(value, str) and value.casefold() in found.casefold()
    return _contains(found, value)


def _between(found: Any, after: Any, before: Any) -> list[Any] | None:
    """Elements after the first ``after`` and before the next ``before``: none where a mark is
    missing. None for what is no list."""
    if not isinstance(found, list):
        return None
    start = next((i for i, item in enumerate(found) if same(item, after)), len(found))
    rest = found[start + 1 :]
    end = next((i for i, item in enumerate(rest) if same(item, before)), 0)
    return rest[:end]


def _without(document: Any, paths: Sequence[str]) -> Any:
    """``document`` with what stands at ``paths`` taken out of its mappings."""
    if not isinstance(document, Mapping):
        return document
    below: dict[str, list[str]] = {}
    for path in paths:
        key, _, rest = path.partition("/")
        below.setdefault(key, []).append(rest)
    return {
        key: _without(value, below.get(key, ()))
        for key, value in document.items()
        if "" not in below.get(key, ())
    }


def all_hold(
    checks: Sequence[Check], observed: Observed
) -> tuple[bool, tuple[tuple[bool, str], ...]]:
    """(whether every line of a predicate holds, each line's result and sentence)."""
    results = tuple(holds(check, observed) for check in checks)
    return all(result for result, _ in results), results


class _CountOfCalls(Value):
    tool: str
    is_: int = msgspec.field(name="is")
    arguments: dict[str, ArgumentTest] = {}


def _journal_holds(check: Check, journal: Sequence[Call]) -> tuple[bool, str]:
    try:
        if check.op == "count":
            wanted = msgspec.convert(check.value, _CountOfCalls)
            pattern = CallPattern(tool=wanted.tool, arguments=wanted.arguments)
            calls = sum(call.ok and matches(pattern, call) for call in journal)
            return calls == wanted.is_, f"{calls} calls of {wanted.tool}; wanted: {wanted.is_}"
        if check.op == "journal_order":
            patterns = msgspec.convert(check.value, tuple[CallPattern, ...])
            found = in_order(patterns, journal)
            names = ", then ".join(pattern.tool for pattern in patterns)
            return (
                found is not None,
                f"calls {names}: {'seen' if found is not None else 'not seen'}",
            )
    except msgspec.ValidationError as error:
        return False, f"the check on the journal cannot be read: {error}"
    return False, f"`{check.op}` is not for the surface `journal`"


def _starts_with(found: Any, start: Any) -> bool:
    if isinstance(found, str) and isinstance(start, str):
        return found.startswith(start)
    if isinstance(found, list) and isinstance(start, (list, tuple)):
        return same(found[: len(start)], start)
    return False


def _length(found: Any) -> int:
    return len(found) if isinstance(found, (str, list, dict)) else -1


def _shown(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= 200 else text[:199] + "…"


def malformed(check: Check, surfaces: Mapping[str, str]) -> str:
    """Why a check could never hold, in words for its author; empty for a sound one."""
    if check.surface not in (*ALWAYS_THERE, *surfaces):
        known = ", ".join(sorted((*ALWAYS_THERE, *surfaces)))
        return f"there is no surface {check.surface!r}; there are: {known}"
    if (check.op == "journal_order") != (check.surface == JOURNAL) and check.op != "count":
        return f"`{check.op}` does not go with the surface `{check.surface}`"
    if check.surface == JOURNAL:
        form: Any = _CountOfCalls if check.op == "count" else tuple[CallPattern, ...]
        try:
            msgspec.convert(check.value, form)
        except msgspec.ValidationError as error:
            return f"`{check.op}` of the journal: {error}"
    elif check.op == "in" and not isinstance(check.value, (list, tuple)):
        return "`in` takes a list of accepted values"
    elif check.op == "count" and (not isinstance(check.value, int) or check.value < 0):
        return "`count` takes a number from 0"
    elif check.op in ("includes", "excludes") and not isinstance(check.value, (list, tuple)):
        return f"`{check.op}` takes a list of values"
    elif check.op == "between" and not (
        isinstance(check.value, Mapping)
        and check.value.keys() == {"after", "before", "equals"}
        and isinstance(check.value["equals"], (list, tuple))
    ):
        return "`between` takes {after, before, equals}, and `equals` is a list"
    elif check.op == "unchanged" and not (
        check.value is None
        or isinstance(check.value, (list, tuple))
        and all(isinstance(path, str) and path for path in check.value)
    ):
        return "`unchanged` takes nothing, or a list of paths below that may differ"
    return ""
