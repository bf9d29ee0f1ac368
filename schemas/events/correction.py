"""The life of a correction: proposed → approved → superseded | expired | disputed → resolved |
withdrawn. Stream ``correction/<id>``; a dispute stands in the streams of both records."""

from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.base import Event
from schemas.identifiers import Identifier
from schemas.transfer.correction import Correction, Name, Timestamp, Words


class CorrectionProposed(Event):
    """A record was written down. It is not eligible before somebody approves it."""

    TYPE: ClassVar[str] = "correction.proposed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    record: Annotated[Correction, Meta(description="the record as written")]
    proposer: Annotated[Name, Meta(description="who wrote it")]


class CorrectionApproved(Event):
    """A record may be used. High consequence needs an approver other than the proposer; a record
    with `persistence_allowed: conditional` needs a named condition."""

    TYPE: ClassVar[str] = "correction.approved.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    correction_id: Identifier
    approver: Annotated[Name, Meta(description="who approved it")]
    condition: Annotated[str, Meta(description="under which it may be kept; empty: none")] = ""
    keep_residual_scope: Annotated[
        bool,
        Meta(
            description="outside this narrower successor's scope the predecessor stays active; "
            "otherwise it is retired there too"
        ),
    ] = False


class CorrectionSuperseded(Event):
    """An approved record was replaced by another one."""

    TYPE: ClassVar[str] = "correction.superseded.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    correction_id: Identifier
    by: Annotated[Identifier, Meta(description="the record that replaces it")]
    reason: Annotated[Words, Meta(description="why")]
    approver: Annotated[
        str, Meta(description="who did it; another than the proposer where consequence is high")
    ] = ""


class CorrectionExpired(Event):
    """The validity of an approved record was ended."""

    TYPE: ClassVar[str] = "correction.expired.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    correction_id: Identifier
    at: Annotated[Timestamp, Meta(description="first instant at which it no longer holds")]
    reason: Annotated[Words, Meta(description="why")]
    approver: Annotated[
        str, Meta(description="who did it; another than the proposer where consequence is high")
    ] = ""


class CorrectionDisputed(Event):
    """Two records contradict each other and nobody has decided."""

    TYPE: ClassVar[str] = "correction.disputed.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    correction_id: Identifier
    against: Annotated[Identifier, Meta(description="the other record")]
    reason: Annotated[Words, Meta(description="what contradicts")]


class DisputeResolved(Event):
    """A dispute was decided: the winner stays active, the losers become superseded."""

    TYPE: ClassVar[str] = "dispute.resolved.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    winner: Annotated[Identifier, Meta(description="record that stays active")]
    losers: Annotated[
        tuple[Identifier, ...], Meta(min_length=1, description="records that become superseded")
    ]
    approver: Annotated[Name, Meta(description="who decided")]
    reason: Annotated[Words, Meta(description="why")]


class CorrectionWithdrawn(Event):
    """A record was taken back. It is never eligible again."""

    TYPE: ClassVar[str] = "correction.withdrawn.v1"
    STREAMS: ClassVar[tuple[str, ...]] = ("correction",)
    correction_id: Identifier
    reason: Annotated[Words, Meta(description="why")]
    approver: Annotated[
        str, Meta(description="who did it; another than the proposer where consequence is high")
    ] = ""
