"""Which values of ``study.toml`` an amendment changes: every key with its value before and after.

Values are those in force, so a default that was not written down counts as its value. They are
printed as JSON, cleared of credentials in addresses, and long ones are cut.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from schemas.base import Value
from schemas.credentials import without_credentials
from schemas.study import Study

ABSENT = "absent"
SHOWN = 240
"""Characters of a value that are shown; of a longer one its digest tells it from another."""


class ChangedValue(Value):
    """A key, and its value before and after; ``absent`` where there is none."""

    key: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.key}: {self.then} \u2192 {self.now}"


def changed_values(before: Study, after: Study) -> list[ChangedValue]:
    """In the order of keys. What has an id is told by it, wherever it stands in its list:
    ``models[M002].context_length: 8192 → 16384``.
    """
    differences = _differences("", msgspec.to_builtins(before), msgspec.to_builtins(after))
    return [
        ChangedValue(key=without_credentials(key), then=_words(then), now=_words(now))
        for key, then, now in differences
    ]


def _differences(key: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if then == now:
        return
    if isinstance(then, dict) and isinstance(now, dict):
        for name in sorted(then.keys() | now.keys()):
            written = _key(name)
            inner = f"{key}.{written}" if key else written
            yield from _differences(inner, then.get(name), now.get(name))
        return
    named_then, named_now = _by_name(then), _by_name(now)
    if named_then is None or named_now is None:
        yield key, then, now
        return
    for name in sorted(named_then.keys() | named_now.keys()):
        yield from _differences(f"{key}[{name}]", named_then.get(name), named_now.get(name))
    orders = (
        [name for name in named_then if name in named_now],
        [name for name in named_now if name in named_then],
    )
    if orders[0] != orders[1]:
        yield f"order of {key}", *orders


def _by_name(items: Any) -> Mapping[str, Any] | None:
    """The members of a list of tables by id, or by the two ids of a system; None for all else."""
    if not isinstance(items, list | tuple) or not all(isinstance(item, dict) for item in items):
        return None
    names = [item.get("id") or f"{item.get('memory')}/{item.get('driver')}" for item in items]
    return dict(zip(names, items, strict=True)) if len(set(names)) == len(names) else None


def _key(name: str) -> str:
    """As TOML would have it: in quotes where it is more than a word."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _json(name)


def _words(value: Any) -> str:
    if value is None:
        return ABSENT
    text = without_credentials(_json(value))
    if len(text) <= SHOWN:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[:SHOWN]}\u2026 ({len(text):,} characters, SHA-256 {digest[:12]})"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
