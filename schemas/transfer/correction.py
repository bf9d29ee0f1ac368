"""A correction: one record of what somebody was told to do differently, and where it holds.

The fifteen fields of the Fresh-Session Correction-Transfer Protocol, section 1, in its order. The
``lifecycle`` in a record is what its author asserts; the effective one is projected from record,
clock, ledger position and store (``schemas/transfer/lifecycle.py``).

Times are ``YYYY-MM-DDTHH:MM:SSZ``, UTC and of fixed width, so that comparing the texts compares the
instants. Validity is half-open: ``valid_from`` ≤ now < ``expires_at``.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import END, Value
from schemas.identifiers import Identifier

CorrectionClass = Literal["factual_revision", "preference", "procedure", "boundary", "ephemeral"]
CLASS_MEANINGS: Mapping[CorrectionClass, str] = {
    "factual_revision": "what is the case, where something else was believed",
    "preference": "how somebody wants it, where both ways would do",
    "procedure": "how something is done: its steps, source or place",
    "boundary": "what is not touched, or by whom alone",
    "ephemeral": "what holds for a while: it has an end, or may not persist",
}
"""The protocol names the classes; results are counted for each. `ephemeral` alone has rules."""
Lifecycle = Literal["active", "superseded", "expired", "disputed"]
EffectiveLifecycle = Literal["active", "superseded", "expired", "disputed", "proposed", "withdrawn"]
"""Before ``valid_from`` a record is active but does not apply."""
Consequence = Literal["low", "medium", "high"]
Persistence = bool | Literal["conditional"]

Timestamp = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z{END}",
        description='an instant as "YYYY-MM-DDTHH:MM:SSZ", UTC',
    ),
]
Words = Annotated[str, Meta(min_length=1, max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

ANY = "*"
"""The wildcard of a scope: every principal, project or task class."""


class Session(Value):
    """Who asks for what, and when: what decides whether a correction applies."""

    principal: Annotated[Name, Meta(description="user or role, like `role:maintainer`")]
    project: Annotated[Name, Meta(description="project that the request is about")]
    task_class: Annotated[Name, Meta(description="kind of task, like `code_edit`")]
    now: Annotated[Timestamp, Meta(description="the case's clock")]


class Scope(Value):
    """Where a correction holds. ``*`` stands for all of a kind."""

    principal: Annotated[Name, Meta(description="user or role, like `role:maintainer`")]
    project: Annotated[Name, Meta(description="project")]
    task_classes: Annotated[tuple[Name, ...], Meta(min_length=1, description="kinds of task")]

    def covers(self, session: Session) -> bool:
        """True where the session's principal, project and task class all fall into the scope."""
        return (
            self.principal in (ANY, session.principal)
            and self.project in (ANY, session.project)
            and (ANY in self.task_classes or session.task_class in self.task_classes)
        )

    def overlaps(self, other: "Scope") -> bool:
        """True where some session falls into both scopes."""
        return (
            (ANY in (self.principal, other.principal) or self.principal == other.principal)
            and (ANY in (self.project, other.project) or self.project == other.project)
            and (
                ANY in self.task_classes
                or ANY in other.task_classes
                or bool(set(self.task_classes) & set(other.task_classes))
            )
        )


class Correction(Value):
    """One record, as its author wrote it."""

    correction_id: Identifier
    class_: Annotated[
        CorrectionClass,
        Meta(description="what kind of correction", extra={"meanings": CLASS_MEANINGS}),
    ] = msgspec.field(name="class")
    semantic_expectation: Annotated[Words, Meta(description="its meaning in plain language")]
    source_reference: Annotated[
        Name, Meta(description="controlled pointer to where it was said, never the text itself")
    ]
    persistence_allowed: Annotated[
        Persistence, Meta(description="whether a memory may keep it: true, false or conditional")
    ]
    scope: Annotated[Scope, Meta(description="whom, which project and which tasks it holds for")]
    valid_from: Annotated[Timestamp, Meta(description="first instant at which it holds")]
    expires_at: Annotated[Timestamp | None, Meta(description="first instant after it; null: none")]
    lifecycle: Annotated[Lifecycle, Meta(description="what its author asserts")]
    supersedes: Annotated[Identifier | None, Meta(description="the record that it replaces")]
    expected_decision: Annotated[Name, Meta(description="what should be selected")]
    expected_action: Annotated[Words, Meta(description="observable action, or none")]
    prohibited_actions: Annotated[
        tuple[Words, ...], Meta(min_length=1, description="what must not be done instead")
    ]
    authoritative_outcome_check: Annotated[
        Words, Meta(description="surface and predicate, in plain language")
    ]
    consequence: Annotated[Consequence, Meta(description="what is at stake")]

    def in_validity(self, now: str) -> bool:
        """True where ``valid_from`` ≤ now < ``expires_at``."""
        return self.valid_from <= now and (self.expires_at is None or now < self.expires_at)
