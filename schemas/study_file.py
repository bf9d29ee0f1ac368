"""``study.toml`` from bytes to a checked study of its kind, with messages that name the key.

:func:`parse_study` raises :class:`StudyError`; its message says what is allowed at the key.
"""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from schemas.repair.study import RepairStudy
from schemas.study import Study, StudyError
from schemas.transfer.study import TransferStudy
from schemas.validation_messages import explain

FORMS: dict[str, type[Study]] = {"repair": RepairStudy, "transfer": TransferStudy}
MAX_INTEGER = (1 << 63) - 1


def parse_study(content: bytes, name: str = "study.toml") -> Study:
    """Read and check the bytes of a study file.

    Raises :class:`StudyError`; its message begins with ``name``, names the key and says what is
    allowed there.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{name}: not UTF-8 text (byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise StudyError(f"{name}: begins with a byte order mark; save it as UTF-8 without one")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise StudyError(f"{name}: not valid TOML: {error}") from None
    kind = document.get("kind")
    if kind not in FORMS:
        allowed = " or ".join(json.dumps(known) for known in FORMS)
        got = f" (it is {kind!r:.80})" if "kind" in document else " is missing"
        raise StudyError(f"{name}: `kind`{got}; allowed: {allowed}")
    form = FORMS[kind]
    try:
        study = msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise StudyError(f"{name}: {explain(error, document, form)}") from None
    for key, number in _integers(document):
        if abs(number) > MAX_INTEGER:
            raise StudyError(f"{name}: `{key}`: no number here is larger than {MAX_INTEGER}")

    def refuse(key: str, why: str) -> None:
        raise StudyError(f"{name}: `{key}`: {why}")

    study.check(refuse)
    return study


def _integers(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of a document with its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _integers(inner, f"{path}[{index}]")
    elif isinstance(value, int):
        yield path, value
