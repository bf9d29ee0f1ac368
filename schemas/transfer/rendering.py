"""The text of a record that a memory is given, and reading such a text again.

:func:`render` is the frozen rendering: the one text that is seeded into every system under test,
whatever it is. It says what the record says (meaning, scope, validity, what it replaces, decision
and action) and carries a nonce that stands nowhere else, so that a copy outside the memory's
channel shows. :func:`read_record` is for whoever gets such a text back, line breaks lost or not.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from schemas.transfer.correction import Correction, Scope, Session

NO_END = "without an end"
NOTHING = "nothing"
_LABELS = ("Meaning", "Holds for", "Valid", "Replaces", "Decision", "Action", "Mark")
_RECORD = re.compile(
    r"Correction (?P<id>[A-Za-z0-9][A-Za-z0-9._-]{0,63}) \((?P<class>[a-z_]+)\) "
    + " ".join(rf"{label}: (?P<{label.split()[0].lower()}>.*?)" for label in _LABELS[:-1])
    + r" Mark: (?P<mark>[0-9a-f]{16})"
)
_SCOPE = re.compile(r"principal (.+?); project (.+?); task classes (.+)")
_VALID = re.compile(r"from (\S+) (?:until (\S+)|without an end)")
_NOTE = re.compile(
    r"Note from principal (?P<principal>.+?); project (?P<project>.+?); "
    r"task class (?P<task_class>.+?); at (?P<at>\S+?Z): "
    r"(?P<said>.+?)(?= Note from principal | Correction \S+ \([a-z_]+\) Meaning: |$)"
)


def nonce(freeze: str, unit: str, trial: int, key: str) -> str:
    """16 hexadecimal digits, derived and not drawn: the same record in another cell has another.

    ``freeze`` is the digest of the freeze, ``key`` the id of a record.
    """
    return sha256(f"{freeze}\n{unit}\n{trial}\n{key}".encode()).hexdigest()[:16]


def render(record: Correction, mark: str) -> str:
    """The frozen rendering of ``record`` with ``mark`` (see :func:`nonce`) in its last line."""
    scope = record.scope
    end = f"until {record.expires_at}" if record.expires_at else NO_END
    return "\n".join(
        [
            f"Correction {record.correction_id} ({record.class_})",
            f"Meaning: {normalised(record.semantic_expectation)}",
            f"Holds for: principal {scope.principal}; project {scope.project}; "
            f"task classes {', '.join(scope.task_classes)}",
            f"Valid: from {record.valid_from} {end}",
            f"Replaces: {record.supersedes or NOTHING}",
            f"Decision: {normalised(record.expected_decision)}",
            f"Action: {normalised(record.expected_action)}",
            f"Mark: {mark}",
        ]
    )


def render_note(text: str, session: Session) -> str:
    """What was said in a session, as a memory may keep it: with who said it, where and when."""
    return (
        f"Note from principal {session.principal}; project {session.project}; "
        f"task class {session.task_class}; at {session.now}: {normalised(text)}"
    )


def normalised(text: str) -> str:
    """Every run of white space is one space, none at the ends."""
    return " ".join(text.split())


def is_intact(rendering: str, item: str) -> bool:
    """True where a store's item contains the whole rendering, line breaks aside."""
    return normalised(rendering) in normalised(item)


@dataclass(frozen=True)
class RecordText:
    """What a text says of a record. A note (``decision`` empty) was said and never approved."""

    record_id: str
    meaning: str
    scope: Scope
    valid_from: str
    expires_at: str | None
    replaces: str | None
    decision: str
    action: str

    def in_validity(self, now: str) -> bool:
        """True where ``valid_from`` ≤ now < ``expires_at``."""
        return self.valid_from <= now and (self.expires_at is None or now < self.expires_at)


def read_records(text: str) -> list[RecordText]:
    """Every whole record and note in ``text``, in order: a file may hold many."""
    flat = normalised(text)
    found = [(match.start(), _approved(match)) for match in _RECORD.finditer(flat)]
    found += [(match.start(), _said(match)) for match in _NOTE.finditer(flat)]
    return [record for _, record in sorted(found, key=lambda pair: pair[0]) if record is not None]


def read_record(text: str) -> RecordText | None:
    """The first record or note in ``text``; None where there is none that is whole."""
    return next(iter(read_records(text)), None)


def _approved(found: re.Match[str]) -> RecordText | None:
    scope, valid = _SCOPE.fullmatch(found["holds"]), _VALID.fullmatch(found["valid"])
    if scope is None or valid is None:
        return None
    return RecordText(
        record_id=found["id"],
        meaning=found["meaning"],
        scope=Scope(principal=scope[1], project=scope[2], task_classes=tuple(scope[3].split(", "))),
        valid_from=valid[1],
        expires_at=valid[2],
        replaces=None if found["replaces"] == NOTHING else found["replaces"],
        decision=found["decision"],
        action=found["action"],
    )


def _said(found: re.Match[str]) -> RecordText:
    return RecordText(
        record_id="",
        meaning=found["said"],
        scope=Scope(
            principal=found["principal"],
            project=found["project"],
            task_classes=(found["task_class"],),
        ),
        valid_from=found["at"],
        expires_at=None,
        replaces=None,
        decision="",
        action="",
    )
