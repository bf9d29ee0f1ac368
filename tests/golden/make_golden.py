"""Writes one encoded record and its leaf for every event type and every command (`make golden`).

A golden file says what a record of that type looks like, byte for byte. From version 1.0.0 on it
binds for ever: a type whose bytes change needs a new tag, not a new file. Every field has a value,
the optional ones too, so that the file shows all of them; the values are made from the field's type
and mean nothing.

Usage: python tests/golden/make_golden.py
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from ledger.chain import leaf_hash
from ledger.codec import encode_data, encode_record
from schemas.base import Event
from schemas.commands import ALL_COMMANDS
from schemas.envelope import Envelope
from schemas.events import EVENT_TYPES
from schemas.events.command import CommandRequested

DIRECTORY = Path(__file__).parent


def main() -> None:
    for path, content in golden_files():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def golden_files() -> Iterator[tuple[Path, bytes]]:
    """Every file and what it holds: a JSON object of the leaf and the record, each on its line."""
    for event_class in EVENT_TYPES.values():
        yield DIRECTORY / "events" / f"{event_class.TYPE}.json", render(example_of(event_class))
    for command_class in ALL_COMMANDS:
        event = CommandRequested(role=command_class.ROLE, command=example_of(command_class))
        tag = command_class.__struct_config__.tag
        yield DIRECTORY / "commands" / f"{tag}.json", render(event)


def render(event: Event) -> bytes:
    envelope = Envelope(
        seq=4711,
        prev=digest_of("prev"),
        id="01980f3e-7c00-7000-8000-000000000001",
        type=event.TYPE,
        stream="example",
        version=12,
        at="2026-07-18T09:30:00.000000Z",
        actor="example",
        cause="01980f3e-7c00-7000-8000-000000000000",
        index=0,
        run="01980f3e-7c00-7000-8000-000000000002",
        data=msgspec.Raw(encode_data(event)),
    )
    record = encode_record(envelope)
    return b'{"leaf":"%s",\n"record":%s}\n' % (leaf_hash(record).hex().encode(), record)


def example_of(cls: type[Any]) -> Any:
    """An instance with a value in every field, the same on every machine."""
    return _example(inspect.type_info(cls), cls.__name__)


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _example(field: inspect.Type, name: str) -> Any:
    match field:
        case inspect.Metadata(type=inner):
            return _example(inner, name)
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{part.name: _example(part.type, part.name) for part in fields})
        case inspect.UnionType(types=types):
            return _example(next(t for t in types if not isinstance(t, inspect.NoneType)), name)
        case inspect.VarTupleType(item_type=item):
            return (_example(item, name), _example(item, name))
        case inspect.DictType(value_type=value):
            return {"one": _example(value, name), "two": _example(value, name)}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StrType(pattern=str() as pattern) if "{64}" in pattern:
            return digest_of(name)
        case inspect.StrType(pattern=str() as pattern) if "{40}" in pattern:
            return digest_of(name)[:40]
        case inspect.StrType(pattern=str() as pattern) if "T[0-9]" in pattern:
            return "2026-07-18T09:30:00Z"
        case inspect.StrType(pattern=str()):
            return "R001-003"
        case inspect.StrType():
            return f"the {name}"
        case inspect.IntType(ge=lower):
            return (lower or 0) + 7
        case inspect.BoolType():
            return True
    raise TypeError(f"{name}: make_golden.py knows no example of {field}; teach it")


if __name__ == "__main__":
    main()
