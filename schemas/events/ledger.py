"""The ledger about itself."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import Event, Position


class LedgerCreated(Event):
    """Record 0. Its UUID makes the chain of every ledger different from the first hash on."""

    TYPE: ClassVar[str] = "ledger.created.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("ledger",)
    format: Annotated[int, Meta(ge=1, description="version of the record format")]
    hash: Annotated[Literal["sha-256"], Meta(description="hash of leaves, nodes and artifacts")]
    uuid: Annotated[str, Meta(description="identity of this ledger, part of its origin")]
    name: Annotated[str, Meta(description="name of the study directory when it was made")]


class CheckpointAnchored(Event):
    """A signed checkpoint was put where the owner of the key cannot quietly change it."""

    TYPE: ClassVar[str] = "checkpoint.anchored.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("ledger",)
    size: Annotated[Position, Meta(description="number of records under the checkpoint")]
    note: Annotated[str, Meta(description="the signed note (C2SP) that was anchored")]
    kind: Annotated[
        Literal["git", "time", "copy"],
        Meta(description="pushed commit, RFC 3161 token, or a copy on another path or host"),
    ]
    where: Annotated[str, Meta(description="remote, authority or path")]
    receipt: Annotated[str, Meta(description="what came back: commit id, token, digest")]
