"""``study.toml`` from bytes to a checked study of its kind, with messages that name the key.

:func:`parse_study` raises :class:`StudyError`; its message says what is allowed at the key.
"""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from schemas.study import Study, check_study
from schemas.transfer.study import TransferStudy, check_transfer_study
from schemas.validation_messages import explain

AnyStudy = Study | TransferStudy
Form = type[Study] | type[TransferStudy]
KINDS: dict[str, Form] = {"repair": Study, "transfer": TransferStudy}
MAX_INTEGER = (1 << 63) - 1


class StudyError(ValueError):
    """``study.toml`` cannot be used. The message names the key and what is allowed."""


def parse_study(content: bytes, name: str = "study.toml") -> AnyStudy:
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
    if kind not in KINDS:
        allowed = " or ".join(json.dumps(known) for known in KINDS)
        got = f" (it is {kind!r:.80})" if "kind" in document else " is missing"
        raise StudyError(f"{name}: `kind`{got}; allowed: {allowed}")
    form = KINDS[kind]
    try:
        study: AnyStudy = msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise StudyError(f"{name}: {explain(error, document, form)}") from None
    for key, number in _integers(document):
        if abs(number) > MAX_INTEGER:
            raise StudyError(f"{name}: `{key}`: no number here is larger than {MAX_INTEGER}")

    def refuse(key: str, why: str) -> None:
        raise StudyError(f"{name}: `{key}`: {why}")

    if isinstance(study, Study):
        check_study(study, refuse)
    else:
        check_transfer_study(study, refuse)
    return study


def parse_repair_study(content: bytes, name: str = "study.toml") -> Study:
    """A study of kind ``repair``. Raises :class:`StudyError` for every other one too."""
    study = parse_study(content, name)
    if not isinstance(study, Study):
        raise StudyError(f'{name}: `kind` is "{study.kind}"; only "repair" can be used here')
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
