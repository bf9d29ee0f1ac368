"""Families and transfer studies are read strictly, bounds inside optional values included."""

import msgspec
import pytest

from schemas.transfer.family import Acknowledgement, CallPattern, Family
from schemas.transfer.study import Threshold, TransferStudy


def test_every_type_has_a_decoder() -> None:
    for kind in (Family, TransferStudy):
        assert msgspec.json.schema(kind)["$defs"]
        with pytest.raises(msgspec.ValidationError, match="missing required"):
            msgspec.json.decode(b"{}", type=kind)


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        (Acknowledgement, b'{"calls": 0}', ">= 1"),
        (CallPattern, b'{"tool": "ask", "times": 0}', ">= 1"),
        (Threshold, b'{"id": "a", "count": "retrieval_recall", "at_least": 1.5}', "<= 1"),
        (Threshold, b'{"id": "a", "count": "retrieval_recall", "at_most": -1}', ">= 0"),
    ],
)
def test_a_bound_holds_inside_an_optional_value(kind: type, content: bytes, says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.json.decode(content, type=kind)
    assert msgspec.json.decode(
        content.replace(b"0}", b"1}").replace(b"1.5", b"1").replace(b"-1", b"1"), type=kind
    )
