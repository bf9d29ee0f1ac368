"""The two base types everything in this package is made of."""

from typing import Annotated, Any, ClassVar, dataclass_transform

import msgspec
from msgspec import Meta


class ValueMeta(msgspec.StructMeta):
    """Makes ``kw_only`` hold for subclasses too: msgspec inherits the other options, not this."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **options)


# Type checkers do not see what subclasses inherit from a msgspec struct.
@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=ValueMeta, frozen=True, forbid_unknown_fields=True, gc=False):
    """Plain immutable data; a field that the type does not name is an error, never ignored."""


class Event(Value):
    """The ``data`` of one record. Subclasses are facts, named in the past tense.

    ``TYPE`` is the literal tag in the envelope (``<subject>.<past-tense verb>.v<n>``). It is chosen
    by us and never derived from an import path, so moving a class cannot break an old ledger.
    """

    TYPE: ClassVar[str]
    STREAMS: ClassVar[tuple[str, ...]]
    """First parts of the names of the streams that it may stand in; a log refuses it elsewhere."""
    CARRIES_OUTCOME: ClassVar[bool] = False
    """True where the event shows whether a cell succeeded: the inspection gate guards it."""
    ONCE_FOR: ClassVar[tuple[str, ...] | None] = None
    """Fields of an event that ends something: no two of its type in one stream agree in them."""


END = r"$(?!\n)"
"""The end of a text in a pattern. Python's ``$`` alone also stands before a last newline, and what
is a name or a path here must not have one."""

Digest = Annotated[
    str,
    Meta(pattern=rf"^[0-9a-f]{{64}}{END}", description="SHA-256 in lower-case hexadecimal"),
]
GitOid = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9a-f]{{40}}{END}",
        description="a full git object id: 40 hexadecimal digits in lower case (SHA-1 format)",
    ),
]
Nanoseconds = Annotated[int, Meta(ge=0, description="duration in nanoseconds")]
Count = Annotated[int, Meta(ge=0)]
Position = Annotated[int, Meta(ge=0, description="position (seq) of a record in the log, from 0")]


class ArtifactRef(Value):
    """A content-addressed file beside the log: what a record names instead of carrying it."""

    digest: Annotated[Digest, Meta(description="SHA-256 of the plain bytes")]
    length: Annotated[int, Meta(ge=0, description="length of the plain bytes")]
    media_type: Annotated[str, Meta(description="RFC 6838 media type of the content")]
    erasable: Annotated[
        bool,
        Meta(
            description="the plain bytes begin with 32 random bytes, so that the content can be "
            "removed without leaving a guessable digest behind"
        ),
    ] = False
