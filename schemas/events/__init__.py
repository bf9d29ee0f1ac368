"""Every event that can be recorded: one file a subject.

Adding an event: write the struct in its subject's file with its type, its streams and whether it
carries an outcome; then `make golden` for its golden record and `ledger docs` for the catalogue.
"""

from types import ModuleType

from schemas.base import Event
from schemas.events import (
    cell,
    command,
    correction,
    grading,
    ledger,
    mining,
    run,
    server,
    study,
    transfer,
)

SUBJECTS = (ledger, command, mining, study, run, server, cell, grading, correction, transfer)


def _declared_in(subject: ModuleType) -> list[type[Event]]:
    return [
        value
        for value in vars(subject).values()
        if isinstance(value, type)
        and issubclass(value, Event)
        and value.__module__ == subject.__name__
    ]


EVENT_TYPES: dict[str, type[Event]] = {
    event.TYPE: event for subject in SUBJECTS for event in _declared_in(subject)
}
ALL_EVENTS: tuple[type[Event], ...] = tuple(EVENT_TYPES.values())
