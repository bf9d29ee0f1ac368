"""The policies of our own store by name, and the rule of what may be written to it."""

import re
from collections.abc import Mapping, Sequence

from harnesses.memory import full
from harnesses.memory.contract import Policy, Recalled, StoredItem
from harnesses.memory.ranking import ranked
from schemas.transfer.correction import Session


def none(items: Sequence[StoredItem], query: str, session: Session, results: int) -> Recalled:
    """Delivers nothing: what a system does without a memory."""
    return Recalled()


def everything(items: Sequence[StoredItem], query: str, session: Session, results: int) -> Recalled:
    """Delivers the whole store in its order, whatever is asked; ``results`` does not limit it."""
    return Recalled(tuple(items), tuple(item.id for item in items))


def retrieval(items: Sequence[StoredItem], query: str, session: Session, results: int) -> Recalled:
    """Delivers the items that are most like the query, and minds nothing else."""
    found = tuple(ranked(items, query)[:results])
    return Recalled(found, tuple(item.id for item in found))


POLICIES: Mapping[str, Policy] = {
    "none": none,
    "everything": everything,
    "retrieval": retrieval,
    "full": full.recall,
}

_NOT_TO_KEEP = re.compile(
    r"\b(?:do not|don't|never|not to be|must not be|not) (?:keep|kept|store|stored|save|saved|"
    r"remember|remembered|write|written|record|recorded|persist|persisted)\b"
    r"|\bjust (?:for )?(?:this once|now|today)\b"
    r"|\b(?:only for|for) (?:this|the current) (?:session|conversation|run)\b"
    r"|\bforget (?:it|this|that)\b",
    re.IGNORECASE,
)


def may_be_kept(text: str) -> bool:
    """False for what somebody says is not to be kept, or holds for this session only."""
    return _NOT_TO_KEEP.search(text) is None
