"""What an audit is and what it answers."""

from typing import ClassVar, Literal, Protocol

from projections.fold import FoldState
from schemas.base import Value

Severity = Literal["violation", "note"]
MAX_FINDINGS = 10_000


class Finding(Value):
    """Something that a reader should know. Only a violation makes an audit fail."""

    severity: Severity
    seq: int | None
    """Record where it shows; None where it shows in what is missing."""
    text: str


class Verdict(Value):
    """The answer of one audit. ``checked`` counts what was looked at, by name."""

    audit: str
    status: Literal["ok", "violated", "not_applicable"]
    checked: dict[str, int]
    findings: tuple[Finding, ...]


class Audit(FoldState, Protocol):
    """A fold that answers one question.

    ``findings`` grows while facts are applied; ``verdict`` may be asked for at the end, once.
    """

    NAME: ClassVar[str]
    QUESTION: ClassVar[str]

    def verdict(self) -> Verdict: ...


class Findings:
    """The findings of one audit, in the order in which they were made; at most MAX_FINDINGS."""

    def __init__(self, audit: str) -> None:
        self._audit = audit
        self._found: list[Finding] = []
        self._violated = False
        self._unlisted = 0

    def violation(self, seq: int | None, text: str) -> None:
        self._violated = True
        self._add(Finding(severity="violation", seq=seq, text=text))

    def note(self, seq: int | None, text: str) -> None:
        self._add(Finding(severity="note", seq=seq, text=text))

    def _add(self, finding: Finding) -> None:
        if len(self._found) < MAX_FINDINGS:
            self._found.append(finding)
        else:
            self._unlisted += 1

    def verdict(self, applicable: bool = True, **checked: int) -> Verdict:
        """Violated where there is a violation; else ok, or not applicable."""
        found = list(self._found)
        if self._unlisted:
            text = f"{self._unlisted} more findings are not listed"
            found.append(Finding(severity="note", seq=None, text=text))
        return Verdict(
            audit=self._audit,
            status="violated" if self._violated else "ok" if applicable else "not_applicable",
            checked=checked,
            findings=tuple(found),
        )
