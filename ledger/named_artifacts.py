"""Which artifacts a record names: in its own fields, and inside artifacts that name others.

A task lists its files as further artifacts. Whoever checks, copies or collects artifacts must
follow those too, so the one list of fields whose content names more stands here
(``CONTENT_THAT_NAMES``). The fields are found from the types: a new event needs nothing here. In a
record whose type this program does not know they are found by their shape: it must lose nothing of
what a later version has recorded.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from schemas.base import ArtifactRef, Event
from schemas.events.mining import CandidateValidated
from schemas.events.study import TasksFrozen
from schemas.repair.task import Task

CONTENT_THAT_NAMES: dict[tuple[type, str], Any] = {
    (TasksFrozen, "tasks"): tuple[Task, ...],
    (CandidateValidated, "task"): Task,
}
"""Fields whose artifact is JSON of a type that names artifacts itself."""


def named_artifacts(event: Event) -> list[tuple[ArtifactRef, Any]]:
    """Every artifact in the fields of an event, with the type of its content where that names
    more artifacts (else None), in field order."""
    return [
        (ref, content_type)
        for name, content_type, _ in fields_with_artifacts(type(event))
        for ref in artifacts_in(getattr(event, name))
    ]


def artifacts_in_content(content: bytes, content_type: Any) -> list[ArtifactRef]:
    """The artifacts that an artifact names. Raises ValueError when it is not of that type."""
    return list(artifacts_in(msgspec.json.decode(content, type=content_type)))


def artifacts_by_shape(data: bytes) -> list[ArtifactRef]:
    """Everything in the JSON of an unknown type that has the fields of an artifact's name, whatever
    they hold. Raises ValueError or RecursionError for what cannot be decoded."""
    found = []
    waiting = [msgspec.json.decode(data)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
            if {"digest", "length", "media_type"} <= value.keys():
                length = value["length"]
                found.append(
                    ArtifactRef(
                        digest=str(value["digest"]),
                        length=length if type(length) is int else -1,
                        media_type=str(value["media_type"]),
                        erasable=value.get("erasable") is True,
                    )
                )
        elif isinstance(value, list):
            waiting += value
    return found


def artifacts_in(value: Any) -> Iterator[ArtifactRef]:
    """Every artifact in a value of a field: itself, or inside structs, tuples and dictionaries."""
    if isinstance(value, ArtifactRef):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name, _, _ in fields_with_artifacts(type(value)):
            yield from artifacts_in(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from artifacts_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from artifacts_in(item)


@cache
def fields_with_artifacts(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type of the content that names more, is it an ``ArtifactRef`` itself) of every field
    from which one can be reached."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return tuple(
        (
            field.name,
            _content_type(kind, field.name),
            isinstance(field.type, inspect.StructType) and issubclass(field.type.cls, ArtifactRef),
        )
        for field in described.fields
        if _reaches(field.type)
    )


def _content_type(kind: type, field: str) -> Any:
    # Also for a subclass: verification decodes into types without patterns.
    return next(
        (
            content
            for (owner, name), content in CONTENT_THAT_NAMES.items()
            if issubclass(kind, owner) and name == field
        ),
        None,
    )


def _reaches(described: inspect.Type) -> bool:
    if isinstance(described, inspect.Metadata):
        return _reaches(described.type)
    if isinstance(described, inspect.StructType):
        if issubclass(described.cls, ArtifactRef):
            return True
        return any(_reaches(field.type) for field in described.fields)
    if isinstance(described, inspect.UnionType):
        return any(map(_reaches, described.types))
    if isinstance(described, inspect.TupleType):
        return any(map(_reaches, described.item_types))
    if isinstance(described, inspect.VarTupleType | inspect.ListType | inspect.SetType):
        return _reaches(described.item_type)
    if isinstance(described, inspect.DictType):
        return _reaches(described.value_type)
    return False
