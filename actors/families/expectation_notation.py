"""The two small languages of the half-formal notation: expected calls, and predicates.

Calls (``action``, ``prohibited``)::

    tool NAME(ARGUMENT, …); tool NAME(…) or tool NAME called once before any write
    no action

    ARGUMENT   *  |  name=VALUE  |  name in [VALUE, …]  |  name includes VALUE
               |  name excludes VALUE  |  name includes nothing extra  |  VALUE (by position)
    after it   called once  |  called N times  |  before any write  |  with the KEY default

Predicates (clauses joined by ``and``)::

    PATH == VALUE | PATH != VALUE | PATH starts with VALUE | PATH in [VALUE, …] | VALUE in PATH
    VALUE not in PATH | PATH between VALUE and VALUE == [VALUE, …] | entries == N
    PATH includes VALUE | PATH excludes VALUE | count(PATH) == N
    PATH unchanged | unchanged | others unchanged | basis is current | WORD_terms == 0
    journal has CALL before CALL | journal has no CALL | journal has N CALL

A VALUE is a number, ``true``, ``false``, ``null``, a list in brackets, a text in quotes, or a bare
word. Parsing knows nothing of fixtures; ``half_formal.py`` gives paths their meaning.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

_VALUE = r"\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[^\s\[\]()]+"
_PATH = r"[^\s()\[\]=!]+(?:\([^()]*\))?"
_CALL = r"[A-Za-z0-9_.-]+(?:\([^()]*\))?"


class NotationError(ValueError):
    """A text of the notation cannot be read; the message says what can."""


@dataclass(frozen=True)
class ArgumentText:
    """One argument of a call. ``name`` is empty for one given by position."""

    name: str
    op: Literal["equals", "in", "includes", "excludes", "nothing_extra"]
    value: Any = None


@dataclass(frozen=True)
class CallText:
    tool: str
    arguments: tuple[ArgumentText, ...] = ()
    times: int | None = None
    before_write: bool = False
    default_of: str = ""
    """State key whose entry for the session gives the arguments (``with the guide default``)."""


@dataclass(frozen=True)
class Clause:
    """One clause of a predicate."""

    kind: Literal[
        "equals",
        "not_equals",
        "starts_with",
        "in",
        "includes",
        "excludes",
        "between",
        "count",
        "unchanged",
        "others_unchanged",
        "basis_is_current",
        "no_foreign_terms",
        "journal_order",
        "journal_count",
    ]
    path: str = ""
    value: Any = None


def parse_value(text: str) -> Any:
    """A number, a boolean, null, a list or a text."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [parse_value(part) for part in text[1:-1].split(",") if part.strip()]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,15}\.[0-9]{1,15}", text):
        return float(text)
    return text


# --- calls ---------------------------------------------------------------------------------------


def parse_action(text: str) -> tuple[tuple[CallText, ...], ...]:
    """Alternatives, each of calls in their order; none for ``no action``. Raises
    :class:`NotationError`."""
    if is_no_action(text):
        return ()
    return tuple(
        tuple(
            parse_call(call)
            for part in _split(alternative, ";")
            for call in re.split(r"\s{1,9}(?:and\s{1,9})?then\s{1,9}", part)
        )
        for alternative in re.split(r"\s{1,9}or\s{1,9}(?=tool\s|[\w.-]{1,80}\()", text.strip())
    )


def is_no_action(text: str) -> bool:
    """True for ``no action``: nothing is to be changed."""
    return text.strip().casefold() in ("no action", "no-action", "none")


def parse_call(text: str) -> CallText:
    """``tool NAME(…)`` with what may follow it. Raises :class:`NotationError`."""
    found = re.fullmatch(
        r"\s*(tool\s+)?([A-Za-z0-9_.-]+)\s*(\(.*?\))?(?:\s+(.*?))?\s*", text, re.DOTALL
    )
    if not found or not (found[1] or found[3]):
        raise NotationError(
            f"{text.strip()!r:.120} is no call: write `tool NAME(argument=value, …)`, several "
            "joined by `;`, alternatives by `or`"
        )
    name, inside, rest = found[2], found[3], found[4] or ""
    times: int | None = None
    default_of = ""
    before_write = False
    while rest:
        tail = re.match(
            r"(?P<once>called once)|called (?P<times>[1-9][0-9]?) times|called at least once"
            r"|(?P<before>before any write)|with the (?P<default>[A-Za-z0-9_-]+) default",
            rest,
        )
        if not tail:
            raise NotationError(
                f"{rest!r:.80} after `tool {name}` is not known; known: `called once`, `called "
                "at least once`, `called N times`, `before any write`, `with the KEY default`"
            )
        times = 1 if tail["once"] else int(tail["times"]) if tail["times"] else times
        before_write = before_write or bool(tail["before"])
        default_of = tail["default"] or default_of
        rest = rest[tail.end() :].strip()
    arguments = _arguments(inside[1:-1]) if inside else ()
    return CallText(name, arguments, times, before_write, default_of)


def _arguments(text: str) -> tuple[ArgumentText, ...]:
    if text.strip() in ("", "*"):
        return ()
    return tuple(_argument(part) for part in _split(text, ","))


def _argument(text: str) -> ArgumentText:
    name = r"([A-Za-z0-9_-]+)"
    found = re.fullmatch(rf"{name} includes nothing extra", text)
    if found:
        return ArgumentText(found[1], "nothing_extra")
    found = re.fullmatch(rf"{name} (includes|excludes) (.+)", text)
    if found:
        op: Literal["includes", "excludes"] = "includes" if found[2] == "includes" else "excludes"
        return ArgumentText(found[1], op, parse_value(found[3]))
    found = re.fullmatch(rf"{name} in (\[.*\])", text)
    if found:
        return ArgumentText(found[1], "in", parse_value(found[2]))
    found = re.fullmatch(rf"{name}\s*=\s*([^=].*)", text)
    if found:
        return ArgumentText(found[1], "equals", parse_value(found[2]))
    if re.fullmatch(_VALUE, text):
        return ArgumentText("", "equals", parse_value(text))
    raise NotationError(
        f"{text!r:.80} is no argument: write `name=value`, `name in [a, b]`, `name includes a`, "
        "`name excludes a`, `name includes nothing extra`, or `*` for any"
    )


def _split(text: str, separator: str) -> list[str]:
    """Parts at ``separator`` outside brackets and quotes, stripped; empty ones are left out."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


# --- predicates ----------------------------------------------------------------------------------

_CLAUSES = [
    (kind, re.compile(pattern + r"(?=\s+and\s|\s*$)"))
    for kind, pattern in (
        ("others_unchanged", r"others unchanged"),
        ("unchanged", r"unchanged"),
        ("basis_is_current", r"basis is current"),
        ("journal_count", rf"journal has (?P<number>no|[0-9]+) (?P<calls>{_CALL})"),
        ("journal", rf"journal has (?P<calls>{_CALL}(?: before {_CALL})*)"),
        (
            "between",
            rf"(?P<path>{_PATH}) between (?P<after>{_VALUE}) and (?P<before>{_VALUE}) "
            r"== (?P<value>\[[^\]]*\])",
        ),
        ("path_unchanged", rf"(?P<path>{_PATH}) unchanged"),
        ("excludes", rf"(?P<value>{_VALUE}) not in (?P<path>{_PATH})"),
        ("in", rf"(?P<path>{_PATH}) in (?P<value>\[[^\]]*\])"),
        ("includes", rf"(?P<value>{_VALUE}) in (?P<path>{_PATH})"),
        ("includes", rf"(?P<path>{_PATH}) (?:includes|contains) (?P<value>{_VALUE})"),
        ("excludes", rf"(?P<path>{_PATH}) excludes (?P<value>{_VALUE})"),
        ("starts_with", rf"(?P<path>{_PATH}) starts with (?P<value>{_VALUE})"),
        ("equals", rf"(?P<path>{_PATH}) == (?P<value>{_VALUE})"),
        ("not_equals", rf"(?P<path>{_PATH}) != (?P<value>{_VALUE})"),
    )
]


def parse_predicate(text: str) -> tuple[Clause, ...]:
    """The clauses of a predicate. Raises :class:`NotationError`."""
    clauses: list[Clause] = []
    rest = text.strip()
    while rest:
        for kind, pattern in _CLAUSES:
            found = pattern.match(rest)
            if found:
                clauses.append(_clause(kind, found.groupdict()))
                rest = re.sub(r"^\s+and\s+", "", rest[found.end() :]).strip()
                break
        else:
            raise NotationError(
                f"{rest!r:.120} is no clause of a predicate: clauses are joined by `and`, like "
                "`path == value`, `path != value`, `value not in path`, `path starts with value`, "
                "`path between a and b == [c]`, `entries == 1`, `others unchanged`, `unchanged`, "
                "`basis is current`, `journal has call(a) before call`; a value with spaces stands "
                "in quotes"
            )
    if not clauses:
        raise NotationError("a predicate has at least one clause")
    return tuple(clauses)


def _clause(kind: str, parts: dict[str, str | None]) -> Clause:
    path = parts.get("path") or ""
    value = parse_value(parts["value"] or "") if "value" in parts else None
    match kind:
        case "journal":
            calls = (parts["calls"] or "").split(" before ")
            return Clause("journal_order", value=tuple(parse_call(f"tool {c}") for c in calls))
        case "journal_count":
            number = 0 if parts["number"] == "no" else int(parts["number"] or "0")
            return Clause("journal_count", value=(parse_call(f"tool {parts['calls']}"), number))
        case "between":
            after, before = parse_value(parts["after"] or ""), parse_value(parts["before"] or "")
            return Clause("between", path, {"after": after, "before": before, "equals": value})
        case "path_unchanged":
            return Clause("unchanged", path)
        case "includes" | "excludes":
            return Clause("includes" if kind == "includes" else "excludes", path, [value])
        case "equals" if path == "entries" or path.endswith(("/entries", ".entries")):
            return Clause("count", path[:-7].rstrip("/."), value)
        case "equals" if path.startswith("count("):
            return Clause("count", path[6:-1].strip(), value)
        case "equals" if path.endswith("_terms") and value == 0:
            return Clause("no_foreign_terms", path)
        case "in":
            return Clause("in", path, value)
        case "starts_with":
            return Clause("starts_with", path, value)
        case "equals":
            return Clause("equals", path, value)
        case "not_equals":
            return Clause("not_equals", path, value)
        case "others_unchanged":
            return Clause("others_unchanged")
        case "basis_is_current":
            return Clause("basis_is_current")
        case _:
            return Clause("unchanged")
