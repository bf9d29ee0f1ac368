"""Rankings of files, and their fusion by reciprocal ranks (Cormack, Clarke & Büttcher, SIGIR 2009).

Everything is ordered by class first (production before tests, documentation …), then by score, ties
by path bytes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Hit(NamedTuple):
    """A file of a ranking and its best place: lines from 1, inclusive; 0: the file as a whole."""

    file: int
    """Its number in the index."""
    first: int = 0
    last: int = 0
    symbol: str = ""


Ranking = Sequence[Hit]
"""Best first; a file stands in it once."""


class Fused(NamedTuple):
    hit: Hit
    votes: tuple[str, ...]
    """Names of the lists that have the file, in the order of the lists."""


def fuse(lists: Mapping[str, Ranking], weights: Mapping[str, float], k: int) -> list[Fused]:
    """Files by the sum of ``weight / (k + rank)`` over the lists that have them, rank from 1.

    The place is that of the list that contributes most. Scores are rounded to 12 decimals before
    they are compared, so the order of additions decides nothing; equal ones stay in the order of
    the files' numbers, which is that of their paths.
    """
    scores: dict[int, float] = {}
    best: dict[int, tuple[float, Hit]] = {}
    votes: dict[int, list[str]] = {}
    for name, ranking in lists.items():
        for rank, hit in enumerate(ranking, start=1):
            share = weights[name] / (k + rank)
            scores[hit.file] = scores.get(hit.file, 0.0) + share
            votes.setdefault(hit.file, []).append(name)
            before = best.get(hit.file)
            placed = (share if hit.first else 0.0, hit)
            if before is None or placed[0] > before[0]:
                best[hit.file] = placed
    order = sorted(scores, key=lambda file: (-round(scores[file], 12), file))
    return [Fused(best[file][1], tuple(votes[file])) for file in order]
