"""What makes a unit, a memory and a driver of a transfer study the ones they are.

A digest over their declaration and the frozen files of code that act for them, so that the freeze,
the session that starts a cell and an audit years later come to the same value from the records.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from schemas.events.study import FrozenFile
from schemas.transfer.family import Family, PlannedCase
from schemas.transfer.study import Driver, Memory, TransferStudy

MEMORY_FILES = ("harnesses/memory/", "actors/memory_systems/", "schemas/transfer/rendering.py")
DRIVER_FILES = ("harnesses/drivers/", "schemas/transfer/rendering.py")
SESSION_FILES = (
    "actors/transfer/sessions.py",
    "actors/transfer/case_run.py",
    "actors/fixture/",
    "harnesses/contract.py",
    "schemas/transfer/distractors.py",
    "schemas/encoded_copies.py",
    "schemas/transfer/offered_tool.py",
    "schemas/transfer/family_checks.py",
)
SCORER_FILES = (
    "projections/transfer/",
    "schemas/encoded_copies.py",
    "schemas/transfer/family_checks.py",
    "schemas/transfer/lifecycle.py",
)


def memory_digest(memory: Memory, code: Iterable[FrozenFile]) -> str:
    """SHA-256 over the memory's declaration and the code of memories and sessions."""
    return _digest(memory, code, (*MEMORY_FILES, *SESSION_FILES))


def driver_digest(study: TransferStudy, driver: Driver, code: Iterable[FrozenFile]) -> str:
    """SHA-256 over the driver's declaration, its model's, and the code of drivers and sessions."""
    model = study.model(driver.model) if driver.model else None
    return _digest((driver, model), code, (*DRIVER_FILES, *SESSION_FILES))


def unit_digest(family: Family, unit: PlannedCase) -> str:
    """SHA-256 of what a run of the unit rests on: case, records, fixture, distractors."""
    case = family.case(unit.case_id)
    content = [unit, case, family.records, family.fixture, family.decision_options]
    return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def scorer_digest(code: Iterable[FrozenFile]) -> str:
    """SHA-256 over the code that turns events into verdicts and counts."""
    return _digest(None, code, SCORER_FILES)


def _digest(declared: object, code: Iterable[FrozenFile], prefixes: tuple[str, ...]) -> str:
    files = sorted((f.name, f.digest) for f in code if f.name.startswith(prefixes))
    return sha256(msgspec.json.encode([declared, files], order="sorted")).hexdigest()
