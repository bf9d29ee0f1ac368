"""YAML as plain data: what a file of strangers may hold, and on which line each key stands.

Scalars are read by the core schema of YAML 1.2 (section 10.3.2), not by the surprising one of 1.1:
``no`` is a text, ``12:30`` is a text, ``0123`` is a text, and a key is always the text as written.
Anchors, aliases, tags, merge keys, several documents, duplicate keys, NaN and infinity are refused;
so are files that are too large or too deep, before anything is built from them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import yaml

from schemas.secret_shapes import secret_kinds
from schemas.validation_messages import explain, failed_key

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_INTEGER = (1 << 63) - 1

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# The parser of libyaml where it was built in; both give the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

S = TypeVar("S", bound=msgspec.Struct)


class BadFile(ValueError):
    """A file cannot be used. The message names file, line, key and what is allowed."""


@dataclass(frozen=True)
class Document:
    """What a file holds, and the line (from 1) of each key, by paths like ``cases[2].prompt``."""

    name: str
    value: Any
    lines: Mapping[str, int]

    def place(self, key: str) -> str:
        """``name:line`` of a key; of the nearest known one above it where it is missing."""
        while key and key not in self.lines:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return f"{self.name}:{self.lines.get(key, 1)}"

    def refuse(self, key: str, why: str) -> BadFile:
        """The error to raise for ``key``."""
        return BadFile(f"{self.place(key)}: {f'`{key}`: ' if key else ''}{why}")

    def convert(self, form: type[S]) -> S:
        """The document as ``form``. Raises :class:`BadFile` naming the key and what is allowed; a
        value that looks like a secret is not repeated."""
        try:
            return msgspec.convert(self.value, form)
        except msgspec.ValidationError as error:
            message = explain(error, self.value, form)
            if secret_kinds(message):
                message = re.sub(r" \(it is .*\)$", "", message, flags=re.DOTALL)
            raise BadFile(f"{self.place(failed_key(error))}: {message}") from None


def read_yaml(content: bytes, name: str) -> Document:
    """Read one YAML document. Raises :class:`BadFile`."""
    if len(content) > MAX_BYTES:
        raise BadFile(f"{name}: {len(content)} bytes; at most {MAX_BYTES} are read")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(f"{name}: not UTF-8 text (byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise BadFile(f"{name}: begins with a byte order mark; save it as UTF-8 without one")
    builder = _Builder(name)
    try:
        value = builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadFile(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise BadFile(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    return Document(name, value, builder.lines)


class _Builder:
    """Builds values from parser events, so that nothing forbidden is ever constructed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}

    def build(self, events: Iterator[Any]) -> Any:
        value: Any = None
        documents = 0
        for event in events:
            if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent)):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "a second document; one file holds one")
            elif not isinstance(event, yaml.DocumentEndEvent):
                value = self._value(event, events, "", 0)
        if not documents:
            raise BadFile(f"{self.name}: the file is empty")
        return value

    def _value(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Any:
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._refuse(event, "anchors and aliases (`&` and `*`) are not allowed: write it")
        if getattr(event, "tag", None):
            raise self._refuse(event, f"tags are not allowed ({event.tag!r:.60}): write plain data")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth == MAX_DEPTH:
            raise self._refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            for inner in events:
                if isinstance(inner, yaml.SequenceEndEvent):
                    break
                items.append(self._value(inner, events, f"{path}[{len(items)}]", depth + 1))
            return items
        mapping: dict[str, Any] = {}
        for key_event in events:
            if isinstance(key_event, yaml.MappingEndEvent):
                break
            key = self._key(key_event)
            if key in mapping:
                raise self._refuse(key_event, f"`{key}` stands twice in one mapping")
            below = f"{path}.{key}" if path else key
            self.lines[below] = key_event.start_mark.line + 1
            mapping[key] = self._value(next(events), events, below, depth + 1)
        return mapping

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            raise self._refuse(event, "a key must be plain text")
        if event.value == "<<" and not event.style:
            raise self._refuse(event, "merge keys (`<<`) are not allowed: write the keys")
        return self._encodable(event, event.value)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.style:  # quoted, or a block: always text
            return self._encodable(event, text)
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text):
            number = int(text) if len(text) <= 20 else MAX_INTEGER + 1
            if abs(number) > MAX_INTEGER:
                raise self._refuse(event, f"no number here is larger than {MAX_INTEGER}")
            return number
        if _NOT_FINITE.fullmatch(text) or _FLOAT.fullmatch(text):
            value = float(text) if _FLOAT.fullmatch(text) else math.nan
            if not math.isfinite(value):
                raise self._refuse(event, f"{text[:40]} is no finite number")
            return value
        return self._encodable(event, text)

    def _encodable(self, event: Any, text: str) -> str:
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise self._refuse(event, "half of a surrogate pair is no text")
        return text

    def _refuse(self, event: Any, why: str) -> BadFile:
        return BadFile(f"{self.name}:{event.start_mark.line + 1}: {why}")
