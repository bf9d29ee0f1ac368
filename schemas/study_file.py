"""``study.toml`` from bytes to a checked study of its kind, with messages that name the key.

:func:`parse_study` raises :class:`StudyError`; its message says what is allowed at the key.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from schemas.study import Study, check_study
from schemas.transfer_study import TransferStudy, check_transfer_study

AnyStudy = Study | TransferStudy
Form = type[Study] | type[TransferStudy]
KINDS: dict[str, Form] = {"repair": Study, "transfer": TransferStudy}
MAX_INTEGER = (1 << 63) - 1


class StudyError(ValueError):
    """``study.toml`` cannot be used. The message names the key and what is allowed."""


def parse_study(content: bytes, name: str = "study.toml") -> AnyStudy:
    """Read and check the bytes of a study file.

    Raises :class:`StudyError`; its message begins with ``name``, names the key and says what is
    allowed there.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{name}: not UTF-8 text (byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise StudyError(f"{name}: begins with a byte order mark; save it as UTF-8 without one")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise StudyError(f"{name}: not valid TOML: {error}") from None
    kind = document.get("kind")
    if kind not in KINDS:
        allowed = " or ".join(json.dumps(known) for known in KINDS)
        got = f" (it is {kind!r:.80})" if "kind" in document else " is missing"
        raise StudyError(f"{name}: `kind`{got}; allowed: {allowed}")
    form = KINDS[kind]
    try:
        study: AnyStudy = msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise StudyError(f"{name}: {_explain(error, document, form)}") from None
    for key, number in _integers(document):
        if abs(number) > MAX_INTEGER:
            raise StudyError(f"{name}: `{key}`: no number here is larger than {MAX_INTEGER}")

    def refuse(key: str, why: str) -> None:
        raise StudyError(f"{name}: `{key}`: {why}")

    if isinstance(study, Study):
        check_study(study, refuse)
    else:
        check_transfer_study(study, refuse)
    return study


def parse_repair_study(content: bytes, name: str = "study.toml") -> Study:
    """A study of kind ``repair``. Raises :class:`StudyError` for every other one too."""
    study = parse_study(content, name)
    if not isinstance(study, Study):
        raise StudyError(f'{name}: `kind` is "{study.kind}"; only "repair" can be used here')
    return study


def _explain(error: msgspec.ValidationError, document: dict[str, Any], form: Form) -> str:
    """Turn msgspec's message into one that names the key as it is written in TOML."""
    text = str(error)
    message, _, path = text.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    unknown = re.match(r"Object contains unknown field `(.*)`$", message)
    if unknown:
        key = unknown.group(1)
        allowed = _fields_at(form, path)
        close = difflib.get_close_matches(key, allowed, n=1)
        hint = f" (did you mean `{close[0]}`?)" if close else ""
        where = f"`{path}.{key}`" if path else f"`{key}`"
        return f"unknown key {where}{hint}; allowed here: {', '.join(allowed)}"
    missing = re.match(r"Object missing required field `(.*)`$", message)
    if missing:
        where = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return f"`{where}` is missing"
    got = f" (it is {_value_at(document, path)!r:.80})" if path else ""
    annotation = _annotation_at(form, path)
    if message.startswith("Invalid enum value"):
        allowed = [json.dumps(value) for value in _literals_in(annotation)]
        return f"`{path}`: allowed: {', '.join(allowed)}{got}"
    rule = _rule_in(annotation)
    if rule and message.startswith("Expected `str`"):
        return f"`{path}`: allowed: {rule}{got}"
    return f"`{path or 'the file'}`: {message[0].lower()}{message[1:]}{got}"


def _integers(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of a document with its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _integers(inner, f"{path}[{index}]")
    elif isinstance(value, int):
        yield path, value


def _value_at(document: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+", path):
        try:
            document = document[int(part)] if isinstance(document, list) else document[part]
        except (KeyError, ValueError, IndexError, TypeError):
            return None
    return document


def _annotation_at(form: Form, path: str) -> Any:
    """The annotation of the field at ``path`` (``models[0].generation``); ``form`` for ""."""
    annotation: Any = form
    for part in re.sub(r"\[[^\]]*\]", "", path).split("."):
        structs = _structs_in(annotation)
        if not part or not structs:
            break
        annotation = get_type_hints(structs[0], include_extras=True).get(part)
    return annotation


def _fields_at(form: Form, path: str) -> list[str]:
    """Names that the struct at ``path`` allows, in declared order."""
    structs = _structs_in(_annotation_at(form, path))
    return [field.encode_name for field in msgspec.structs.fields(structs[0])] if structs else []


def _literals_in(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [found for part in get_args(annotation) for found in _literals_in(part)]


def _rule_in(annotation: Any) -> str:
    """The words that stand beside a pattern: nobody should have to read it."""
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Meta) and part.pattern and part.description:
            return part.description
    return next(filter(None, map(_rule_in, get_args(annotation))), "")


def _structs_in(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [found for part in get_args(annotation) for found in _structs_in(part)]
