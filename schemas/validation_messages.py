"""What msgspec refuses, in words that name the key as its author wrote it and what is allowed.

Used for every file that people write: ``study.toml``, corrections, families.
"""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from schemas.credentials import without_credentials

Form = type[msgspec.Struct]


def explain(error: msgspec.ValidationError, document: Any, form: Form) -> str:
    """Turn msgspec's message about ``document`` as ``form`` into one that names the key."""
    text = str(error)
    message, path = text.partition(" - at `$")[0], failed_key(error)
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
        choices = _choices(_annotation_at(form, where))
        return f"`{where}` is missing" + (f"; allowed: {choices}" if choices else "")
    value = without_credentials(_as_written(value_at(document, path)))
    got = f" (it is {value:.80})" if path else ""
    annotation = _annotation_at(form, path)
    if message.startswith("Invalid enum value"):
        return f"`{path}`: allowed: {_choices(annotation)}{got}"
    rule = _rule_in(annotation)
    if rule and message.startswith("Expected `str`"):
        return f"`{path}`: allowed: {rule}{got}"
    return f"`{path or 'the file'}`: {message[0].lower()}{message[1:]}{got}"


def _as_written(value: Any) -> str:
    """What stands in the file, in the words of YAML and TOML: never Python's None or True."""
    return repr(value) if isinstance(value, str) else json.dumps(value, default=str)


def _choices(annotation: Any) -> str:
    """What a field of a few values takes, with what each means where that is declared; "" for every
    other field."""
    meanings = _meanings_in(annotation)
    literals = _literals_in(annotation)
    allowed = ["true", "false"] if literals and _takes_bool(annotation) else []
    for value in literals:
        meaning = f" ({meanings[value]})" if value in meanings else ""
        allowed.append(f"{json.dumps(value)}{meaning}")
    return ", ".join(allowed)


def _meanings_in(annotation: Any) -> Mapping[Any, str]:
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Meta) and part.extra and "meanings" in part.extra:
            meanings: Mapping[Any, str] = part.extra["meanings"]
            return meanings
    return {}


def _takes_bool(annotation: Any) -> bool:
    return annotation is bool or any(map(_takes_bool, get_args(annotation)))


def failed_key(error: msgspec.ValidationError) -> str:
    """The key that the message is about, like ``models[0].generation``; empty for the whole."""
    return str(error).partition(" - at `$")[2].rstrip("`").lstrip(".")


def value_at(document: Any, path: str) -> Any:
    """What stands at the key ``path`` of a document; None where there is nothing."""
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
        names = {field.encode_name: field.name for field in msgspec.structs.fields(structs[0])}
        annotation = get_type_hints(structs[0], include_extras=True).get(names.get(part, ""))
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
