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
from schemas.events.earlier import EARLIER_FORMS

SUBJECTS = (ledger, command, mining, study, run, server, cell, grading, correction, transfer)


def _declared_in(subject: ModuleType) -> list[type[Event]]:
    return [
        value
        for value in vars(subject).values()
        if isinstance(value, type)
        and issubclass(value, Event)
        and value.__module__ == subject.__name__
    ]


ALL_EVENTS: tuple[type[Event], ...] = tuple(
    event for subject in SUBJECTS for event in _declared_in(subject)
)
EVENT_TYPES: dict[str, type[Event]] = {event.TYPE: event for event in ALL_EVENTS} | {
    tag: earlier.form for tag, earlier in EARLIER_FORMS.items()
}
"""By tag how a record of it is read, of earlier forms too."""


def tags_of(event: type[Event]) -> tuple[str, ...]:
    """The tags under which records of this type stand in a log: today's and earlier ones."""
    earlier = (tag for tag, form in EARLIER_FORMS.items() if form.today is event)
    return (event.TYPE, *earlier)
