"""Cutting a file into the passages that are indexed and embedded.

Functions, methods and types are the pieces, what lies between them too; small neighbours are joined
and long pieces split, so that every line is in exactly one chunk.
"""

from collections.abc import Sequence
from typing import NamedTuple

from harnesses.retrieval.syntax import Symbol

VERSION = 1
"""Part of every key of facts."""

JOIN_LINES = 25
"""Neighbours are joined up to so many lines together."""
SPLIT_LINES = 40
"""Longer pieces are split."""
LINE_WIDTH = 300
"""Characters of a line that are indexed and embedded."""


class Span(NamedTuple):
    """Lines from 1, inclusive. ``symbol``: the qualified name of the first definition in it."""

    first: int
    last: int
    symbol: str


def cut(lines: int, symbols: Sequence[Symbol]) -> list[Span]:
    """Chunks of a file of ``lines`` lines with these symbols (in the order of the file)."""
    joined: list[Span] = []
    for piece in _pieces(lines, symbols):
        before = joined[-1] if joined else None
        if before is not None and piece.last - before.first < JOIN_LINES:
            joined[-1] = Span(before.first, piece.last, before.symbol or piece.symbol)
        else:
            joined.append(piece)
    return [part for span in joined for part in _split(span)]


def _pieces(lines: int, symbols: Sequence[Symbol]) -> list[Span]:
    """Non-overlapping spans that cover the file: the outermost functions, also those of a type, and
    the gaps around them. A type without functions is one piece."""
    pieces: list[Span] = []
    covered = 0
    defined = [symbol for symbol in symbols if symbol.kind != "variable"]
    for index, symbol in enumerate(defined):
        if symbol.first <= covered:
            continue
        if symbol.kind == "type" and any(
            inner.kind != "type" and inner.first > symbol.first and inner.last <= symbol.last
            for inner in defined[index + 1 : index + 2]
        ):
            # Its head up to the first method is a gap with the type's name.
            if symbol.first > covered + 1:
                pieces.append(Span(covered + 1, symbol.first - 1, ""))
            head = defined[index + 1].first - 1
            if head >= symbol.first:
                pieces.append(Span(symbol.first, head, symbol.qualified))
                covered = head
            continue
        if symbol.first > covered + 1:
            pieces.append(Span(covered + 1, symbol.first - 1, ""))
        pieces.append(Span(symbol.first, symbol.last, symbol.qualified))
        covered = symbol.last
    if covered < lines:
        pieces.append(Span(covered + 1, lines, ""))
    return pieces


def _split(span: Span) -> list[Span]:
    """Even parts of at most :data:`SPLIT_LINES` lines."""
    length = span.last - span.first + 1
    parts = -(-length // SPLIT_LINES)
    bounds = [span.first + length * part // parts for part in range(parts + 1)]
    return [
        Span(begin, end - 1, span.symbol) for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
