"""Exact, substring and regular-expression search over the text of a snapshot, line by line.

Regular expressions are RE2's (linear time whatever the pattern; Cox, "Regular Expression Matching
in the Wild", 2010), so a pattern from a model cannot hang a cell. Work is limited in bytes, matches
and states, never in seconds: the same search gives the same result on every machine.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import re2

from harnesses.retrieval.snapshot import FILE_CLASSES, SnapshotFile, path_bytes

Mode = Literal["exact", "substring", "regex"]

MAX_QUERY_BYTES = 1_000
MAX_SCANNED_BYTES = 200_000_000
MAX_MATCHES = 20_000
MAX_CANDIDATES = 300_000
"""Places looked at in exact mode that turn out to stand inside a longer word."""
MAX_STATES = 5_000
"""Size of the compiled pattern; RE2's slow path costs states times bytes."""


class QueryError(ValueError):
    """The query cannot be searched for. The message says why and what can be done instead."""


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """One matching line. ``start`` is the offset in bytes of its first match within ``text``."""

    number: int
    text: bytes
    start: int


@dataclass(frozen=True, slots=True)
class FileMatches:
    file: SnapshotFile
    count: int
    """Matching lines (a line counts once)."""
    first: tuple[MatchedLine, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """``files`` stand by class (production first), then most matches first, then by path."""

    files: tuple[FileMatches, ...]
    searched_files: int
    searched_bytes: int
    not_text: int
    """Binary files and links: never searched."""
    stopped: int
    """Files left unsearched because a work limit was reached; they come last in class and path."""
    at_limit: bool
    """As many matches were counted as are counted at most; there may be more."""


_MatchingLines = Callable[[bytes], Iterator[int]]
"""text → offset of the first match in each matching line, ascending."""


class _Exhausted(Exception):
    """A work limit was reached inside one file."""


def find(files: Iterable[SnapshotFile], query: str, mode: Mode, lines_per_file: int) -> Found:
    """Search ``files``. Raises :class:`QueryError`.

    ``exact``: case-sensitive, as whole words (Unicode identifier characters). ``substring``: case-
    insensitive. ``regex``: RE2 syntax, case-sensitive; ``^`` and ``$`` are the ends of a line and
    nothing matches across lines.
    """
    matching_lines = _compile(query, mode)
    in_order = sorted(
        files, key=lambda file: (FILE_CLASSES.index(file.file_class), path_bytes(file.path))
    )
    texts = [file for file in in_order if file.text is not None]
    found: list[FileMatches] = []
    matches = scanned = searched = 0
    for file in texts:
        text = file.text or b""
        if matches >= MAX_MATCHES or scanned + len(text) > MAX_SCANNED_BYTES:
            break
        try:
            count, first = _describe(text, matching_lines, lines_per_file, MAX_MATCHES - matches)
        except _Exhausted:
            break
        searched += 1
        scanned += len(text)
        matches += count
        if count:
            found.append(FileMatches(file, count, first))
    found.sort(
        key=lambda hit: (
            FILE_CLASSES.index(hit.file.file_class),
            -hit.count,
            path_bytes(hit.file.path),
        )
    )
    return Found(
        files=tuple(found),
        searched_files=searched,
        searched_bytes=scanned,
        not_text=len(in_order) - len(texts),
        stopped=len(texts) - searched,
        at_limit=matches >= MAX_MATCHES,
    )


def _describe(
    text: bytes, matching_lines: _MatchingLines, keep: int, limit: int
) -> tuple[int, tuple[MatchedLine, ...]]:
    """Count the matching lines (at most ``limit``) and describe the first ``keep``."""
    count = 0
    kept: list[MatchedLine] = []
    number, counted_to = 1, 0
    for start in matching_lines(text):
        count += 1
        if len(kept) < keep:
            begin = text.rfind(b"\n", 0, start) + 1
            end = text.find(b"\n", start)
            number += text.count(b"\n", counted_to, begin)
            counted_to = begin
            line = text[begin:] if end < 0 else text[begin:end]
            kept.append(MatchedLine(number, line, start - begin))
        if count == limit:
            break
    return count, tuple(kept)


def _compile(query: str, mode: Mode) -> _MatchingLines:
    if not query.strip():
        raise QueryError("the query is empty; give a word, a text or a pattern")
    try:
        needle = query.encode("utf-8")
    except UnicodeEncodeError:
        raise QueryError("the query is not valid Unicode text") from None
    if len(needle) > MAX_QUERY_BYTES:
        raise QueryError(
            f"the query has {len(needle)} bytes, the limit is {MAX_QUERY_BYTES}; "
            "search for one line or name of it"
        )
    if b"\0" in needle:
        raise QueryError("the query holds a NUL character; files with NUL are not searched")
    if b"\n" in needle or b"\r" in needle:
        raise QueryError("the query has more than one line; search for one line of it")
    if mode == "exact":
        return _whole_words(query.strip())
    if mode == "substring":
        return _substring(needle)
    return _regular_expression(needle)


def _whole_words(words: str) -> _MatchingLines:
    needle = words.encode("utf-8")
    check_before = _is_word_character(words[0])
    check_after = _is_word_character(words[-1])
    candidates = 0

    def matching_lines(text: bytes) -> Iterator[int]:
        nonlocal candidates
        start = text.find(needle)
        while start >= 0:
            if (check_before and _word_ends_at(text, start)) or (
                check_after and _word_starts_at(text, start + len(needle))
            ):
                candidates += 1
                if candidates > MAX_CANDIDATES:
                    raise _Exhausted
                start = text.find(needle, start + 1)
                continue
            yield start
            end_of_line = text.find(b"\n", start)
            start = text.find(needle, end_of_line) if end_of_line >= 0 else -1

    return matching_lines


def _substring(needle: bytes) -> _MatchingLines:
    folded = needle.lower()
    unicode_lines = _re2_lines(needle, literal=True)

    def matching_lines(text: bytes) -> Iterator[int]:
        if not (text.isascii() and needle.isascii()):
            yield from unicode_lines(text)
            return
        text = text.lower()
        start = text.find(folded)
        while start >= 0:
            yield start
            end_of_line = text.find(b"\n", start)
            start = text.find(folded, end_of_line) if end_of_line >= 0 else -1

    return matching_lines


def _is_word_character(char: str) -> bool:
    """Could it continue an identifier (UAX 31 XID_Continue, which has digits and `_`)?"""
    return ("a" + char).isidentifier()


_ASCII_WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


def _word_ends_at(text: bytes, end: int) -> bool:
    if end == 0:
        return False
    if text[end - 1] < 0x80:
        return text[end - 1] in _ASCII_WORD
    # The last character of at most four bytes; bytes that are not UTF-8 are not word characters.
    tail = text[max(0, end - 4) : end].decode("utf-8", "replace")
    return _is_word_character(tail[-1])


def _word_starts_at(text: bytes, start: int) -> bool:
    if start == len(text):
        return False
    if text[start] < 0x80:
        return text[start] in _ASCII_WORD
    return _is_word_character(text[start : start + 4].decode("utf-8", "replace")[0])


def _regular_expression(pattern: bytes) -> _MatchingLines:
    _re2_compile(pattern, literal=False)  # alone first: an error names the pattern as it was given
    # The tail takes the rest of the line with it: one match a line, and half the time.
    return _re2_lines(b"(?m)(?:" + pattern + b")[^\n]*", literal=False)


def _re2_lines(pattern: bytes, *, literal: bool) -> _MatchingLines:
    compiled = _re2_compile(pattern, literal=literal)

    def matching_lines(text: bytes) -> Iterator[int]:
        end_of_line = -1
        for match in compiled.finditer(text):
            start, end = match.span()
            # At the end of the text, after the last line end, there is no line.
            if start > end_of_line and start < len(text):
                yield start
                end_of_line = text.find(b"\n", end)
                if end_of_line < 0:
                    return

    return matching_lines


def _re2_compile(pattern: bytes, *, literal: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = True
    options.literal = literal
    options.case_sensitive = not literal
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise QueryError(_explain(error, pattern)) from None
    if compiled.programsize > MAX_STATES:
        raise QueryError(_TOO_LARGE)
    return compiled


_TOO_LARGE = "the pattern compiles to too many states; use smaller repetition counts and classes"
_NOT_IN_RE2 = (
    ("(?=", "look-ahead (?=…)"),
    ("(?!", "negative look-ahead (?!…)"),
    ("(?<=", "look-behind (?<=…)"),
    ("(?<!", "negative look-behind (?<!…)"),
    ("(?P=", "the back-reference (?P=…)"),
    ("(?>", "the atomic group (?>…)"),
    ("(?(", "the conditional (?(…)"),
    ("(?#", "the comment (?#…)"),
    ("(?R", "the recursion (?R)"),
)


def _explain(error: Exception, pattern: bytes) -> str:
    """Name the construct that RE2 refuses, and offer the literal mode."""
    said = error.args[0] if error.args else b""
    said = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    what, _, construct = said.partition(": ")
    if what.startswith("pattern too large"):
        return _TOO_LARGE
    instead = 'write it without, or search for the text itself with mode="substring"'
    if what == "invalid escape sequence" and construct[1:2].isdigit():
        return f"the back-reference {construct} is not supported (RE2); {instead}"
    if what == "invalid escape sequence" and construct[1:2] in ("k", "g"):
        return f"the back-reference {construct}… is not supported (RE2); {instead}"
    if what == "invalid perl operator":
        text = pattern.decode("utf-8", "replace")
        for spelling, name in _NOT_IN_RE2:
            if spelling.startswith(construct) and spelling in text:
                return f"{name} is not supported (RE2); {instead}"
    return (
        f"not a valid RE2 pattern ({what}: {json.dumps(construct[:80])}); "
        'correct it, or search for the text itself with mode="substring"'
    )
