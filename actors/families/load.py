"""A family from the bytes of its file: the product's own form, or the readable notation.

A file with the key ``format`` is in the product's own form (``schemas.transfer.Family``), and every
key that the form does not know is an error. One without it is in the half-formal notation, which
``actors/families/half_formal.py`` converts.
"""

from dataclasses import dataclass

from actors.families.half_formal import convert
from actors.families.yaml_file import BadFile, read_yaml
from schemas.transfer import Family


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
        if "format" in document.value:
            return LoadedFamily(document.convert(Family), ())
        family, inferred = convert(document)
    except BadFile as error:
        raise FamilyError(str(error)) from None
    return LoadedFamily(family, inferred)
