"""The effective lifecycle of corrections: from records, recorded transitions, store and session.

Pure. A record's own ``lifecycle`` is what its author asserts; what holds is decided here, in this
order: `withdrawn` and `proposed` as recorded; `expired` where its validity has ended at the
session's clock; `superseded` where a live successor is in the store too; `disputed` where a dispute
is open or an unlinked contradiction is in the store; else `active`. Before ``valid_from`` a record
is active and does not apply. Source: the protocol's tables, "Record rules".
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from schemas.base import Value
from schemas.transfer.correction import Correction, EffectiveLifecycle, Session, Timestamp


class Standing(Value):
    """What is known about one record at a ledger position. The default is a family's record that
    the ledger does not know: its freeze approves it as its file asserts."""

    record: Correction
    state: Literal["proposed", "approved", "withdrawn"] = "approved"
    ended: Timestamp | None = None
    """First instant at which a recorded transition ended it; beside ``expires_at``."""
    superseded_by: tuple[str, ...] = ()
    """Records that a recorded transition, or a decided dispute, put in its place."""
    disputed_with: tuple[str, ...] = ()
    """Records of open disputes."""
    settled_with: tuple[str, ...] = ()
    """Records of decided disputes: with them there is no contradiction any more."""
    keep_residual_scope: bool = False
    """As its approval says: outside its scope what it replaces goes on."""
    condition: str = ""

    def end(self) -> str | None:
        """First instant at which it no longer holds; None: it has no end."""
        ends = [end for end in (self.record.expires_at, self.ended) if end is not None]
        return min(ends) if ends else None

    def holds_at(self, now: str) -> bool:
        """True where it is approved and ``valid_from`` ≤ now < its end."""
        end = self.end()
        return (
            self.state == "approved"
            and self.record.valid_from <= now
            and (end is None or now < end)
        )


Standings = Mapping[str, Standing]


def standings_of(
    records: Iterable[Correction],
    recorded: Standings | None = None,
    conditions: Mapping[str, str] | None = None,
) -> dict[str, Standing]:
    """The standing of a family's records beside all that are ``recorded`` in the ledger, by id.

    One that the ledger does not know is approved by the family's freeze, under the named condition
    where it has one.
    """
    named = conditions or {}
    standings = {
        record.correction_id: Standing(record=record, condition=named.get(record.correction_id, ""))
        for record in records
    }
    return {**standings, **(recorded or {})}


def effective_lifecycle(
    correction_id: str, standings: Standings, store: Collection[str], session: Session
) -> EffectiveLifecycle:
    """What a record is in a session that starts from a store of these records.

    ``standings`` holds every known record by id, also those outside the store; links between
    records lead through them.
    """
    standing = standings[correction_id]
    if standing.state != "approved":
        return standing.state
    end = standing.end()
    if end is not None and end <= session.now:
        return "expired"
    if is_superseded(correction_id, standings, store, session):
        return "superseded"
    if opponents(correction_id, standings, store, session):
        return "disputed"
    return "active"


def eligible(standings: Standings, store: Collection[str], session: Session) -> tuple[str, ...]:
    """The records of a store that apply in the session, sorted: active ones and both sides of a
    dispute, in scope and in validity."""
    return tuple(
        sorted(
            correction_id
            for correction_id in store
            if correction_id in standings
            and standings[correction_id].holds_at(session.now)
            and standings[correction_id].record.scope.covers(session)
            and effective_lifecycle(correction_id, standings, store, session)
            in ("active", "disputed")
        )
    )


def successors(correction_id: str, standings: Standings) -> tuple[str, ...]:
    """Records that replace this one, by their own word or by a recorded transition; sorted."""
    by_record = {
        other.record.correction_id
        for other in standings.values()
        if other.record.supersedes == correction_id and other.state == "approved"
    }
    return tuple(sorted(by_record | set(standings[correction_id].superseded_by)))


def is_superseded(
    correction_id: str, standings: Standings, store: Collection[str], session: Session
) -> bool:
    """True where a live record of the store stands in its place, directly or through a chain.

    A narrower successor retires its predecessor outside its own scope too, unless its approval
    keeps the residual scope.
    """
    seen: set[str] = set()
    waiting = [correction_id]
    while waiting:
        here = waiting.pop()
        seen.add(here)
        for name in successors(here, standings):
            successor = standings.get(name)
            if successor is None or name in seen:
                continue
            covers = successor.record.scope.covers(session)
            if not covers and successor.keep_residual_scope:
                continue
            if name in store and successor.holds_at(session.now):
                return True
            waiting.append(name)
    return False


def opponents(
    correction_id: str, standings: Standings, store: Collection[str], session: Session
) -> tuple[str, ...]:
    """Records that dispute this one, sorted: open disputes, other heads over the same predecessor,
    and unlinked contradictions among the live records of the store."""
    standing = standings[correction_id]
    found = {
        name
        for name in standing.disputed_with
        if name not in standings or standings[name].state != "withdrawn"
    }
    for name in store:
        other = standings.get(name)
        if (
            other is not None
            and name not in (correction_id, *standing.settled_with)
            and standing.holds_at(session.now)
            and other.holds_at(session.now)
            and not is_superseded(name, standings, store, session)
            and disagree(standing.record, other.record)
        ):
            found.add(name)
    return tuple(sorted(found))


def disagree(one: Correction, other: Correction) -> bool:
    """True where two records cannot both be followed: their scopes overlap, and they are two heads
    over one predecessor, or decide differently about the same thing."""
    if not one.scope.overlaps(other.scope):
        return False
    if one.correction_id in (other.supersedes,) or other.correction_id in (one.supersedes,):
        return False
    if one.supersedes is not None and one.supersedes == other.supersedes:
        return True
    return one.expected_decision != other.expected_decision and same_subject(one, other)


def same_subject(one: Correction, other: Correction) -> bool:
    """True unless the two decide about different things, like a plan and a region.

    What a record decides about is told from its ``expected_action``: the words beside the decision
    (``… with plan larch`` → plan). Where either has no such word, the two are taken to be about the
    same thing: a contradiction that is seen in vain is asked about, one that is missed is guessed.
    """
    ours, theirs = decided_about(one), decided_about(other)
    return not ours or not theirs or bool(ours & theirs)


_BESIDE = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_SMALL_WORDS = frozenset(
    "a an the to of in on at by for from with and or as is are be under into only its it".split()  # noqa: SIM905
)


def decided_about(record: Correction) -> frozenset[str]:
    """Words directly before and after the decision's words in the expected action."""
    values = set(_BESIDE.findall(record.expected_decision.casefold()))
    values |= {part for value in values for part in value.split("_")}
    words = [
        word.strip(".-")
        for word in _BESIDE.findall(record.expected_action.casefold())
        if word.strip(".-") not in _SMALL_WORDS
    ]
    beside: set[str] = set()
    for index, word in enumerate(words):
        if word in values:
            beside |= {*words[max(0, index - 1) : index], *words[index + 1 : index + 2]}
    return frozenset(beside - values)
