"""What makes a unit, a memory and a driver of a transfer study the ones they are.

A digest over their declaration and the component that acts for them, so that the freeze, the
session that starts a cell and an audit years later come to the same value from the records.
"""

from hashlib import sha256

import msgspec

from schemas.events.study import FrozenComponent
from schemas.transfer.family import Family, PlannedCase
from schemas.transfer.study import Driver, Memory, TransferStudy


def memory_digest(memory: Memory, component: FrozenComponent | None) -> str:
    """SHA-256 over the memory's declaration and the digest of its component."""
    return _digest(memory, component)


def driver_digest(study: TransferStudy, driver: Driver, component: FrozenComponent | None) -> str:
    """SHA-256 over the driver's declaration, its model's, and the digest of its component; None:
    it is somebody else's program."""
    model = study.model(driver.model) if driver.model else None
    return _digest((driver, model), component)


def unit_digest(family: Family, unit: PlannedCase) -> str:
    """SHA-256 of what a run of the unit rests on: case, records, fixture, distractors."""
    case = family.case(unit.case_id)
    content = [unit, case, family.records, family.fixture, family.decision_options]
    return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def _digest(declared: object, component: FrozenComponent | None) -> str:
    if component is not None and component.files is None:
        return component.digest  # an earlier version's, which had the declaration in it
    code = None if component is None else component.digest
    return sha256(msgspec.json.encode([declared, code], order="sorted")).hexdigest()
