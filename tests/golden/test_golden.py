"""What is in a ledger stays readable: one golden record a type, and the rules for every type."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from ledger.codec import (
    decode_as_recorded,
    decode_envelope,
    decode_event,
    encode_data,
    encode_record,
)
from schemas.base import Event
from schemas.events import ALL_EVENTS, EVENT_TYPES
from schemas.events.earlier import EARLIER_FORMS
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded, StudyFrozen
from tests.golden.make_golden import DIRECTORY, golden_files

GOLDEN = dict(golden_files())


def test_every_type_has_a_golden_record_and_nothing_else_has() -> None:
    stored = {path for folder in ("events", "commands") for path in DIRECTORY.glob(f"{folder}/*")}
    assert stored == set(GOLDEN), "run `make golden`, and never for a type that was released"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_record_reads_and_encodes_to_the_same_bytes(path: Path) -> None:
    class Golden(msgspec.Struct, forbid_unknown_fields=True):
        leaf: str
        record: msgspec.Raw

    golden = msgspec.json.decode(path.read_bytes(), type=Golden)
    record = bytes(golden.record)
    assert golden.leaf == sha256(b"\x00" + record).hexdigest()
    envelope = decode_envelope(record)
    event = decode_as_recorded(envelope)
    assert encode_data(event) == bytes(envelope.data)
    assert encode_record(envelope) == record
    assert path.read_bytes() == GOLDEN[path], "a changed meaning is a new tag and an upcaster"


def read_golden(tag: str) -> Event:
    class Golden(msgspec.Struct):
        record: msgspec.Raw

    content = (DIRECTORY / "events" / f"{tag}.json").read_bytes()
    return decode_event(decode_envelope(bytes(msgspec.json.decode(content, type=Golden).record)))


def test_a_record_of_an_earlier_form_is_read_in_todays() -> None:
    frozen = read_golden("study.frozen.v1")
    assert isinstance(frozen, StudyFrozen)
    names = [component.name for component in frozen.components]
    assert names[0] == "program" and all(name.startswith("arm ") for name in names[1:])
    assert all(component.files is None for component in frozen.components)
    amended = read_golden("amendment.recorded.v1")
    assert isinstance(amended, AmendmentRecorded)
    assert not any(file.name.startswith("code/") for file in amended.changed)
    run = read_golden("run.started.v1")
    assert isinstance(run, RunStarted) and run.program is None and run.waiting == ()


def test_code_in_an_amendment_of_an_earlier_form_is_of_the_whole_program() -> None:
    earlier = EARLIER_FORMS["amendment.recorded.v1"]
    old = msgspec.convert(
        {
            "reason": "r",
            "changes_claim": False,
            "finding": "after_first_cell",
            "inspections": [],
            "changed": [
                {"name": "code/ledger/log.py", "digest": "1" * 64},
                {"name": "documents/a.md", "digest": "2" * 64},
            ],
            "removed": ["libraries"],
            "study": {"digest": "3" * 64, "length": 1, "media_type": "application/toml"},
        },
        earlier.form,
    )
    amended = earlier.upcast(old)
    assert isinstance(amended, AmendmentRecorded)
    assert [file.name for file in amended.changed] == ["documents/a.md"]
    assert amended.removed == ()
    (change,) = amended.components
    assert change.name == "program"
    assert change.differences == ("ledger/log.py differs", "libraries is gone")


def test_the_envelope_is_laid_out_as_documented() -> None:
    record = (DIRECTORY / "events" / "command.completed.v1.json").read_bytes()
    assert record.splitlines()[1] == (
        b'"record":{"seq":4711,'
        b'"prev":"84fd9bac333ad79154348296204fa7f8c537a96e08983e5f73b3f5aca8e8edf7",'
        b'"id":"01980f3e-7c00-7000-8000-000000000001","type":"command.completed.v1",'
        b'"stream":"example","version":12,"at":"2026-07-18T09:30:00.000000Z","actor":"example",'
        b'"cause":"01980f3e-7c00-7000-8000-000000000000","index":0,'
        b'"run":"01980f3e-7c00-7000-8000-000000000002","data":{"command":"the command"}}}'
    )


@pytest.mark.parametrize("event", ALL_EVENTS, ids=lambda event: event.TYPE)
def test_a_tag_is_subject_verb_version(event: type[Event]) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+\.v[1-9][0-9]*", event.TYPE)


def test_tags_are_unique() -> None:
    assert len(EVENT_TYPES) == len(ALL_EVENTS) + len(EARLIER_FORMS) == len({*EVENT_TYPES})


def test_every_event_class_is_listed() -> None:
    def subclasses(cls: type[Event]) -> Iterator[type[Event]]:
        for subclass in cls.__subclasses__():
            yield subclass
            yield from subclasses(subclass)

    # By tag: verification makes itself copies of the classes that check no patterns.
    written = {cls.TYPE for cls in subclasses(Event) if cls.__module__.startswith("schemas.")}
    assert written == set(EVENT_TYPES)


def nested(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """The structs that values of this type can hold, itself included."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from nested(inner)
        case inspect.StructType(fields=fields):
            yield kind
            for field in fields:
                yield from nested(field.type)
        case inspect.UnionType(types=types):
            for member in types:
                yield from nested(member)
        case inspect.VarTupleType(item_type=item):
            yield from nested(item)
        case inspect.DictType(value_type=value):
            yield from nested(value)


ALL_STRUCTS = {
    struct.cls: struct for event in ALL_EVENTS for struct in nested(inspect.type_info(event))
}


@pytest.mark.parametrize("cls", ALL_STRUCTS, ids=lambda cls: cls.__name__)
def test_every_type_and_field_is_described(cls: type) -> None:
    assert (cls.__dict__.get("__doc__") or "").strip(), f"{cls.__name__} has no docstring"
    for field in ALL_STRUCTS[cls].fields:
        described = isinstance(field.type, inspect.Metadata) and (
            field.type.extra_json_schema or {}
        ).get("description")
        assert described, f"{cls.__name__}.{field.name} has no description"


@pytest.mark.parametrize("cls", ALL_STRUCTS, ids=lambda cls: cls.__name__)
def test_no_field_is_a_float(cls: type) -> None:
    def has_float(kind: inspect.Type) -> bool:
        match kind:
            case inspect.FloatType() | inspect.AnyType():
                return True
            case inspect.Metadata(type=inner):
                return has_float(inner)
            case inspect.UnionType(types=types):
                return any(has_float(member) for member in types)
            case inspect.VarTupleType(item_type=item):
                return has_float(item)
            case inspect.DictType(value_type=value):
                return has_float(value)
        return False

    floats = [field.name for field in ALL_STRUCTS[cls].fields if has_float(field.type)]
    assert not floats, "an integer in a named unit (`duration_ns`) reads the same everywhere"
