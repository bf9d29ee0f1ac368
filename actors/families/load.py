"""A family from the bytes of its file: YAML in the form of ``schemas.transfer.family.Family``.

What an author may leave out is filled in by ``actors/families/defaults.py``; every key that the
form does not know is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from actors.families.defaults import with_defaults
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
    lines: Mapping[str, int]
    """Line of each case, record and tool of the file, by id."""


def load_family(content: bytes, name: str) -> Family:
    """The family in ``content``; messages begin with ``name``. Raises :class:`FamilyError`."""
    return load(content, name).family


def load(content: bytes, name: str) -> LoadedFamily:
    """The family and where its parts stand. Raises :class:`FamilyError`."""
    try:
        document = read_yaml(content, name)
        if not isinstance(document.value, dict):
            raise document.refuse("", "a family is a mapping of keys")
        if "format" not in document.value:
            raise document.refuse("", "`format` is missing: a family begins with `format: 1`")
        _refuse_unfilled(document)
        whole = Document(name, with_defaults(document.value), document.lines)
        family = whole.convert(Family)
    except BadFile as error:
        raise FamilyError(str(error)) from None
    places = [(f"cases[{index}]", case.case_id) for index, case in enumerate(family.cases)]
    places += [
        (f"records[{index}]", record.correction_id) for index, record in enumerate(family.records)
    ]
    places += [
        (f"fixture.tools[{index}]", tool.name) for index, tool in enumerate(family.fixture.tools)
    ]
    return LoadedFamily(family, {id_: document.lines[place] for place, id_ in places})


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
