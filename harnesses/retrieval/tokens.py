"""Words and tokens: what the ranked engines count.

A word is a run of what identifiers consist of: letters, digits, marks, underscores. Its tokens are
the word itself and its parts: ``getHTTPReply_2`` gives ``gethttpreply_2 get http reply 2``. Tokens
are keys (NFKC, case folded); what is shown to anybody is always the file's own text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import re2

VERSION = 1
"""Part of every key of facts; a change of any rule here is a new version."""

MAX_WORD = 64
"""Longer runs are data (base64, digests), not words."""
MAX_QUERY_TERMS = 32

_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_WORD = re2.compile(r"[\p{L}\p{M}\p{N}\p{Pc}]+")  # Python's \w has no combining marks

_STOP_WORDS = """
a about add added adds after all allow allowed allows already also an and any are as at be because
been before being between both but by can cannot change changed changes could currently do does
doing done each ensure for from get gets getting give given gives had has have having how if in
instead into is issue it its just like make makes may merge might more most must need needs new no
not now of on only or other our out over problem request see set should since so some such support
supported supports than that the their them then there these they this those to too under up update
updated updates use used user users uses using value values want was way we were what when where
which while who will with without would you your
build chore ci closes docs feat fix fixed fixes perf refactor related resolve resolves revert style
test tests
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Common English words and those of conventional commit messages. Left out of queries only."""


def words(text: str) -> Counter[str]:
    """How often each word stands in ``text``, as it is written."""
    counted = Counter(_runs(text))
    if max(map(len, counted), default=0) > MAX_WORD:
        counted = Counter({word: n for word, n in counted.items() if len(word) <= MAX_WORD})
    return counted


def _runs(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text)
    found: list[str] = _WORD.findall(text.encode("utf-8", "replace").decode())
    return found


def key(word: str) -> str:
    """The form in which words are compared. A dotted İ keeps its dot as a combining mark, a
    ligature becomes its letters."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())


def folded(word: str) -> str:
    """The form in which names are compared: ``mergeRequests`` is ``merge_requests``."""
    return key(word).replace("_", "")


@lru_cache(maxsize=200_000)
def tokens_of(word: str) -> tuple[str, ...]:
    """The word's key and, where it has more than one part, the keys of its parts."""
    whole = key(word)
    parts = tuple(key(part) for part in _parts(word))
    return (whole,) if parts in ((), (whole,)) else (whole, *parts)


def count_tokens(counted: Mapping[str, int]) -> dict[str, int]:
    """Tokens of counted words with their counts, in the order of first use."""
    counts: dict[str, int] = {}
    get = counts.get
    for word, times in counted.items():
        for token in tokens_of(word):
            counts[token] = get(token, 0) + times
    return counts


def query_words(text: str) -> list[str]:
    """Distinct words of a query in order of first use, without stop words and single characters.
    All of them where nothing else is left: a query of stop words alone still asks for them."""
    found = list(dict.fromkeys(_runs(text)))
    found = [word for word in found if len(word) <= MAX_WORD]
    telling = [word for word in found if len(word) > 1 and key(word) not in STOP_WORDS]
    return telling or found


def looks_like_code(word: str) -> bool:
    """``snake_case``, ``camelCase``, ``HTTPServer``, ``v2``: more than one part."""
    return len(tokens_of(word)) > 1


@lru_cache(maxsize=200_000)
def _parts(word: str) -> tuple[str, ...]:
    """Split at underscores, between letters and digits, and at the humps of camel case: before an
    upper-case letter that follows a lower-case one, and before the last of a run of upper-case
    letters that a lower-case one follows (``HTTPServer`` is ``HTTP`` and ``Server``)."""
    if word.isascii():
        return tuple(_ASCII_PART.findall(word))
    parts: list[str] = []
    begin = 0
    kinds = [_kind(char) for char in word]
    for index in range(1, len(word) + 1):
        if index < len(word) and not _is_boundary(kinds, index):
            continue
        part = word[begin:index].strip("_")
        if part:
            parts.append(part)
        begin = index
    return tuple(parts)


_ASCII_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _kind(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Lu", "Lt"):
        return "U"
    if category.startswith("N"):
        return "9"
    if category == "Pc":
        return "_"
    return "m" if category.startswith("M") else "l"


def _is_boundary(kinds: list[str], index: int) -> bool:
    before, here = kinds[index - 1], kinds[index]
    if here == "m":  # a combining mark belongs to its letter
        return False
    if before == "m":
        before = "l"
    if "_" in (before, here) or (before == "9") != (here == "9"):
        return True
    if before == "l" and here == "U":
        return True
    after = kinds[index + 1] if index + 1 < len(kinds) else ""
    return before == "U" and here == "U" and after == "l"
