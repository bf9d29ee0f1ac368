"""Event types without the patterns and bounds of their fields, for reading many records fast.

msgspec checks a pattern by calling Python's ``re``: the digests of an event take three quarters of
the time to decode it. Verification asks for the shape of the data and for its canonical form, and
checks a digest where it uses one; the constraints hold when an event is written and are checked
again when it is replayed.
"""

import types
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

Kind = TypeVar("Kind", bound=msgspec.Struct)


@cache
def unconstrained(kind: type[Kind]) -> type[Kind]:
    """A subclass with the same fields, defaults and encoding, whose decoder checks only types."""
    hints = get_type_hints(kind, include_extras=True)
    namespace: dict[str, Any] = {"__annotations__": {}, "__module__": kind.__module__}
    for field in msgspec.structs.fields(kind):
        namespace["__annotations__"][field.name] = _strip(hints[field.name])
        if field.default is not msgspec.NODEFAULT:
            namespace[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            namespace[field.name] = msgspec.field(default_factory=field.default_factory)
    # Events hold no cycles: without gc a million of them cost no collections.
    return types.new_class(
        kind.__name__, (kind,), {"frozen": True, "gc": False}, lambda body: body.update(namespace)
    )


def _strip(annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _strip(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return unconstrained(annotation)
    if origin is Literal or not arguments:
        return annotation
    stripped = [item if item is Ellipsis else _strip(item) for item in arguments]
    if origin is types.UnionType:
        return reduce(or_, stripped)
    return origin[tuple(stripped)]
