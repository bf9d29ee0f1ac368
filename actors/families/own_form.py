"""A family as YAML in the product's own form: what a suite freezes, written for people to read.

What is as the type's default is left out, texts stand unfolded, and loading the text gives the same
family again.
"""

from typing import Any

import msgspec
import yaml

from schemas.transfer.family import Family


class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """No anchors: what stands twice is written twice. Lists are indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def to_yaml(family: Family) -> str:
    """The family as YAML; ``load_family`` reads it back."""
    text: str = yaml.dump(
        _without_defaults(family),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
    return text


def _without_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _without_defaults(getattr(value, field.name))
            for field in msgspec.structs.fields(type(value))
            if field.default is msgspec.NODEFAULT or getattr(value, field.name) != field.default
            if field.default_factory is msgspec.NODEFAULT
            or getattr(value, field.name) != field.default_factory()
        }
    if isinstance(value, (list, tuple)):
        return [_without_defaults(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    return value
