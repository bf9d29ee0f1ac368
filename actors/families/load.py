"""A family from the bytes of its file: the product's own form, or the readable notation.

A file with the key ``format`` is in the product's own form (``schemas.transfer.family.Family``),
and every key that the form does not know is an error. One without it is in the half-formal
notation, which
``actors/families/half_formal.py`` converts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.families.half_formal import convert
from actors.families.yaml_file import BadFile, Document, read_yaml
from schemas.counted import counted, first_few
from schemas.transfer.family import Family

FILL = "FILL:"
"""Marks a place of a scaffold that its author fills in; what follows says with what."""


class FamilyError(BadFile):
    """A family file cannot be used. The message names file, line, key and what is allowed."""


@dataclass(frozen=True)
class LoadedFamily:
    family: Family
    inferred: tuple[str, ...]
    """What the conversion decided that the author did not write, one sentence each; none for the
    product's own form."""


def load_family(content: bytes, name: str) -> Family:
    """The family in ``content``; messages begin with ``name``. Raises :class:`FamilyError`."""
    return load(content, name).family


def load(content: bytes, name: str) -> LoadedFamily:
    """The family and what was inferred to make it. Raises :class:`FamilyError`."""
    try:
        document = read_yaml(content, name)
        if not isinstance(document.value, dict):
            raise document.refuse("", "a family is a mapping of keys")
        _refuse_unfilled(document)
        if "format" in document.value:
            return LoadedFamily(document.convert(Family), ())
        family, inferred = convert(document)
    except BadFile as error:
        raise FamilyError(str(error)) from None
    return LoadedFamily(family, inferred)


def unfilled(document: Document) -> list[tuple[int, str, str]]:
    """(line, key, what to write) of every place of a scaffold that is not filled in yet."""
    return [
        (document.lines.get(key, 1), key, text[text.index(FILL) + len(FILL) :].strip())
        for key, text in _texts(document.value, "")
        if FILL in text
    ]


def _refuse_unfilled(document: Document) -> None:
    places = unfilled(document)
    if places:
        shown = first_few([f"line {line} `{key}`" for line, key, _ in places], 20, "; ")
        raise BadFile(
            f"{document.name}: {counted(len(places), 'place')} to fill in ({FILL} …): {shown}"
        )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            yield below, key
            yield from _texts(inner, below)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")
