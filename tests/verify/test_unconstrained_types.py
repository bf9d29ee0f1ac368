"""Types without patterns read and write exactly what the real ones do."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.unconstrained_types import unconstrained
from schemas.base import ArtifactRef
from schemas.events import EVENT_TYPES
from schemas.events.cell import TurnStarted

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "events").glob("*.json"))


def data_of(path: Path) -> tuple[type[msgspec.Struct], bytes]:
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))["record"]
    return EVENT_TYPES[record["type"]], msgspec.json.encode(record["data"])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_event_reads_the_same(path: Path) -> None:
    kind, data = data_of(path)
    event = msgspec.json.decode(data, type=unconstrained(kind))
    assert isinstance(event, kind)
    assert msgspec.json.encode(event) == data
    assert msgspec.to_builtins(event) == msgspec.to_builtins(msgspec.json.decode(data, type=kind))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_shape_is_still_checked(path: Path) -> None:
    kind, data = data_of(path)
    fields = json.loads(data)
    for changed in ({**fields, "surplus": 1}, {name: {"no": "such"} for name in fields} or [1]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(changed), type=unconstrained(kind))


def test_patterns_and_bounds_are_not() -> None:
    ref = {"digest": "../../etc/passwd", "length": -1, "media_type": "x"}
    data = json.dumps({"turn": -1, "attempt": 0, "request": ref, "instance": "i"})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data, type=TurnStarted)
    event = msgspec.json.decode(data, type=unconstrained(TurnStarted))
    assert isinstance(event.request, ArtifactRef)
    assert event.request.digest == "../../etc/passwd"
