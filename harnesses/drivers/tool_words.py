"""What a rule-based driver makes of a tool's name, description and parameters.

A small table of English verbs and a few rules of word order; the drivers know nothing else about
tools. A tool's name is ``subject_verb`` or ``verb_subject`` (``tree_write``, ``ask``). A word that
is in no table makes no difference. The tables are a limit of these drivers, and are printed as
their competence: see ``docs/glossary.md``, "rule-based driver".
"""

import re
from collections.abc import Sequence

from schemas.transfer.family import DECLARE_DECISION
from schemas.transfer.offered_tool import OfferedTool

READ_VERBS = frozenset(
    ("read", "get", "list", "show", "search", "find", "look", "view", "fetch", "query")
)
RESOLVE_VERBS = frozenset(("ask", "escalate"))
SYNONYMS = (
    frozenset(
        (
            "write", "save", "set", "put", "submit", "file", "fill", "record", "store", "enter",
            "draft", "add", "edit", "post", "report", "note", "send", "book",
        )
    ),
    frozenset(("move", "put", "shift", "transfer", "place")),
    frozenset(("change", "modify", "alter", "switch")),
    frozenset(("start", "launch", "trigger", "run")),
    frozenset(("delete", "remove", "drop", "erase")),
    frozenset(("send", "dispatch", "forward", "deliver", "ship")),
    frozenset(("publish", "release", "deploy")),
)  # fmt: skip
GOVERNED = frozenset(
    ("policy", "guide", "charter", "export", "default", "rule", "rules", "standard", "handbook")
)
"""Words for a source that governs where no record does."""
NO_VALUE = frozenset(
    (
        "a", "an", "the", "is", "are", "to", "of", "in", "on", "at", "by", "for", "with", "and",
        "or", "under", "between", "before", "after", "from", "into", "only", "right", "that",
        "this", "it", "its", "which", "be", "as", "without", "directly", "made", "any", "not",
    )
)  # fmt: skip
"""Words that are never the value of an argument."""


def tokens(text: str) -> list[str]:
    """Words as they stand, with inner ``-``, ``_``, ``.`` and ``/`` kept: ``limits.toml`` is one.
    Punctuation that ends a clause is a token of its own."""
    return re.findall(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?|[.,;:?!]", text)


def parts(word: str) -> list[str]:
    """Lower-case parts of a compound: ``draft_save`` → ``draft``, ``save``."""
    return [part for part in re.split(r"[^a-z0-9]+", word.lower()) if part]


def all_parts(text: str) -> set[str]:
    return {part for token in tokens(text) for part in parts(token)}


def verb_of(tool: OfferedTool) -> str:
    """The word of the name that says what is done: the last where it is a known verb, or first."""
    words = parts(tool.name)
    known = READ_VERBS | RESOLVE_VERBS | frozenset().union(*SYNONYMS)
    return words[-1] if words[-1] in known else words[0]


def is_reading(tool: OfferedTool) -> bool:
    return verb_of(tool) in READ_VERBS


def is_resolving(tool: OfferedTool) -> bool:
    return verb_of(tool) in RESOLVE_VERBS


def is_writing(tool: OfferedTool) -> bool:
    return not (is_reading(tool) or is_resolving(tool) or tool.name == DECLARE_DECISION)


def subject_of(tool: OfferedTool) -> set[str]:
    """The words of the name without its verb."""
    return set(parts(tool.name)) - {verb_of(tool)}


def says_verb(tool: OfferedTool, said: set[str]) -> bool:
    """True where a text with these words asks for what the tool's verb does."""
    verb = verb_of(tool)
    alike = {verb}.union(*(group for group in SYNONYMS if verb in group))
    return bool(alike & said)


def is_governed(tool: OfferedTool) -> bool:
    """A reading tool whose name or description names a governing source."""
    named = set(parts(tool.name)) | all_parts(tool.description)
    return is_reading(tool) and bool(named & GOVERNED)


def places(tool: OfferedTool) -> set[str]:
    """Roots of the places that a description names as paths: ``jobs/<job>`` → ``jobs``."""
    return {
        word.split("/")[0]
        for word in tool.description.rstrip(".").split()
        if "/" in word and not word.startswith("<")
    }


def parameters(tool: OfferedTool) -> dict[str, str]:
    """Name → JSON type of every argument."""
    return {name: form["type"] for name, form in tool.parameters["properties"].items()}


def required(tool: OfferedTool) -> tuple[str, ...]:
    return tuple(tool.parameters["required"])


def value_beside(name: str, text: str) -> str | None:
    """The value of an argument in a text by word order: ``plan larch`` or ``the staging tree``.

    The word after the argument's name, else the one before it; never a word of grammar. A name
    that stands twice is taken where it has a value.
    """
    found = tokens(text)
    for index, token in enumerate(found):
        if token.lower() not in (name, f"{name}s"):
            continue
        following = found[index + 1] if index + 1 < len(found) else ""
        if _is_value(following):
            return following
        before = found[index - 1] if index > 0 else ""
        if _is_value(before):
            return before
    return None


def value_after(word: str, text: str) -> str | None:
    """The word after ``word``: ``to 40`` → ``40``. The last time that it has one."""
    found = tokens(text)
    values = [
        found[index + 1]
        for index, token in enumerate(found[:-1])
        if token.lower() == word and _is_value(found[index + 1])
    ]
    return values[-1] if values else None


def number_of(subject: set[str], name: str, text: str) -> str | None:
    """Which one a text means: the word with a digit beside the argument's name or the thing's own
    (``invoice 77``); where neither is named, the only one that the text has."""
    for word in (name, *sorted(subject)):
        value = value_beside(word, text)
        if value is not None and _has_digit(value):
            return value
    numbers = [token for token in tokens(text) if _has_digit(token)]
    return numbers[0] if len(numbers) == 1 and subject.isdisjoint(all_parts(text)) else None


def _has_digit(token: str) -> bool:
    return any(character.isdigit() for character in token)


def _is_value(token: str) -> bool:
    return bool(token) and token[0].isalnum() and token.lower() not in NO_VALUE


def file_name(texts: Sequence[str]) -> str | None:
    """The first token that looks like a file: ``limits.toml``."""
    for text in texts:
        for token in tokens(text):
            if re.fullmatch(r"[\w/-]+\.[A-Za-z][A-Za-z0-9]{0,7}", token):
                return token
    return None
