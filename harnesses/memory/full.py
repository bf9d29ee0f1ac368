"""The policy that minds scope, validity, supersession and conflict before it delivers anything.

Read out of each text, in this order:

1. *scope*: principal, project and task class must cover the session. What does not is not
   delivered at all, so nothing leaks to another user or project;
2. *supersession*: a record that a live one in the store replaces is retired, step by step through
   a chain;
3. *validity*: a lapsed record, or one that does not hold yet, is not delivered; a notice names it;
4. *subject*: of records in scope, one that shares :data:`MARGIN` words fewer with the query than
   the best one is about something else;
5. *conflict*: what is left and names different decisions is delivered with a notice; the policy
   does not choose.

A note that somebody made in a session counts where no record is left: a record was approved.
"""

from collections.abc import Sequence

from harnesses.memory.contract import Notice, NoticeKind, Recalled, StoredItem
from harnesses.memory.ranking import ranked, words
from schemas.transfer.correction import Session
from schemas.transfer.rendering import RecordText, read_record

MARGIN = 2


def recall(items: Sequence[StoredItem], query: str, session: Session, results: int) -> Recalled:
    """Only what applies in the session, best first, with notices of conflict and lapse."""
    known = [(item, record) for item in items if (record := read_record(item.text)) is not None]
    in_scope = [(item, record) for item, record in known if record.scope.covers(session)]
    retired = _retired([record for _, record in known], session.now)
    heads = [pair for pair in in_scope if pair[1].record_id not in retired]
    asked = _on_the_subject(heads, query)
    live = [pair for pair in asked if pair[1].in_validity(session.now)]
    approved = [pair for pair in live if pair[1].decision] or live
    if not approved:
        return Recalled(notices=_lapses(asked, session.now))
    best = ranked([item for item, _ in approved], query)
    order = best + [item for item, _ in approved if item not in best]
    delivered = tuple(order[:results])
    ids = tuple(item.id for item in delivered)
    records = [record for item, record in approved if item.id in ids]
    decisions = {record.decision for record in records}
    conflict = (
        (Notice("conflict", tuple(record.record_id for record in records)),)
        if len(decisions) > 1
        else ()
    )
    return Recalled(delivered, ids, conflict)


def _retired(records: Sequence[RecordText], now: str) -> set[str]:
    """Ids that a live record replaces, itself or through others that may have lapsed meanwhile."""
    replaced_by = {record.record_id: record.replaces for record in records if record.replaces}
    retired: set[str] = set()
    for record in records:
        if record.in_validity(now):
            earlier = record.replaces
            while earlier is not None and earlier not in retired:
                retired.add(earlier)
                earlier = replaced_by.get(earlier)
    return retired


def _on_the_subject(
    pairs: Sequence[tuple[StoredItem, RecordText]], query: str
) -> list[tuple[StoredItem, RecordText]]:
    asked = set(words(query))
    shared = [len(asked & subject_words(record)) for _, record in pairs]
    best = max(shared, default=0)
    return [pair for pair, count in zip(pairs, shared, strict=True) if count > best - MARGIN]


def subject_words(record: RecordText) -> set[str]:
    """Words that say what a record is about: those of meaning and action, not of the decision."""
    return set(words(f"{record.meaning} {record.action}")) - set(words(record.decision))


def _lapses(pairs: Sequence[tuple[StoredItem, RecordText]], now: str) -> tuple[Notice, ...]:
    found: list[Notice] = []
    kinds: tuple[NoticeKind, ...] = ("lapsed", "not_yet_valid")
    for kind in kinds:
        early = kind == "not_yet_valid"
        named = tuple(record.record_id for _, record in pairs if (now < record.valid_from) is early)
        if named:
            found.append(Notice(kind, named))
    return tuple(found)
