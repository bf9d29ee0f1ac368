"""What a correction must keep to beyond its types: the record rules of the protocol's tables.

Pure. The same rules guard ``ledger corrections add`` and the review of a family.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from schemas.transfer.correction import Correction

_POINTER = re.compile(r"[^\s:/#]+[:/#]\S+")


def instant_problem(timestamp: str) -> str:
    """Why a text of the right shape is no instant (31 February); empty for an instant."""
    try:
        datetime.fromisoformat(timestamp)
    except ValueError:
        return f"{timestamp} is no instant of the calendar"
    return ""


def record_problems(
    record: Correction, known: Mapping[str, Correction]
) -> Iterator[tuple[str, str]]:
    """(field, what is wrong and what to do) for every rule that ``record`` breaks by itself or
    against ``known``, the other records by id."""
    times = [("valid_from", record.valid_from), ("expires_at", record.expires_at)]
    for field, time in times:
        if time is not None and instant_problem(time):
            yield field, instant_problem(time)
    if record.expires_at is not None and record.expires_at <= record.valid_from:
        yield (
            "expires_at",
            f"{record.expires_at} is not after valid_from {record.valid_from}: the record would "
            "never hold; validity is half-open, valid_from ≤ now < expires_at",
        )
    if not _POINTER.fullmatch(record.source_reference):
        yield (
            "source_reference",
            "must be a pointer like `ref:review-log/CT-1`, without spaces: never the text that it "
            "points to",
        )
    endless = record.expires_at is None and record.persistence_allowed is not False
    if record.class_ == "ephemeral" and endless:
        yield (
            "expires_at",
            "an ephemeral record has an expires_at, or `persistence_allowed: false`",
        )
    if record.lifecycle == "expired" and record.expires_at is None:
        yield "lifecycle", "asserts `expired`, but there is no expires_at"
    actions = [_normal(action) for action in record.prohibited_actions]
    if _normal(record.expected_action) in actions:
        yield "prohibited_actions", "the expected action is prohibited: take it out of one of them"
    if len(set(actions)) != len(actions):
        yield "prohibited_actions", "duplicate action"
    yield from _supersession_problems(record, known)


def _normal(action: str) -> str:
    return " ".join(action.casefold().split()).rstrip(".")


def _supersession_problems(
    record: Correction, known: Mapping[str, Correction]
) -> Iterator[tuple[str, str]]:
    if record.supersedes is None:
        return
    if record.supersedes == record.correction_id:
        yield "supersedes", "a record cannot replace itself"
        return
    predecessor = known.get(record.supersedes)
    if predecessor is None:
        yield (
            "supersedes",
            f"{record.supersedes} does not exist: name a record that does, or null",
        )
        return
    if not record.scope.overlaps(predecessor.scope):
        yield (
            "supersedes",
            f"the scopes of {record.correction_id} and {record.supersedes} have no session in "
            "common, so the one cannot replace the other",
        )
    chain = [record.correction_id]
    step: Correction | None = predecessor
    while step is not None:
        if step.correction_id == record.correction_id:
            yield "supersedes", f"a cycle: {' → '.join([*chain, record.correction_id])}"
            return
        if step.correction_id in chain:
            return  # a cycle of others, named at them
        chain.append(step.correction_id)
        step = known.get(step.supersedes) if step.supersedes is not None else None
