"""Lexical rankings: BM25F over chunks, and whole-word keyword coverage over files.

tantivy proposes candidates; the order comes from counts in integer arithmetic, so it is the same on
every machine. BM25F as in Robertson & Zaragoza, "The Probabilistic Relevance Framework" (2009),
§3.6: a weighted sum of the fields' normalised counts is saturated once.
"""

import math
from collections.abc import Callable, Mapping

from tantivy import Occur, Query

from harnesses.retrieval.fusion import Hit
from harnesses.retrieval.index import CommitIndex
from harnesses.retrieval.snapshot import FILE_CLASSES
from harnesses.retrieval.tokens import MAX_QUERY_TERMS, query_words, tokens_of

CANDIDATE_CHUNKS = 400
CANDIDATE_FILES = 100
CHUNKS_OF_A_FILE = 3
"""A file's score is the sum of its best chunks'."""

FIELD_WEIGHTS = {"body": 1_000, "symbol": 2_000, "path": 1_000}
"""In thousandths."""
LENGTH_SHARE = {"body": 600, "symbol": 300, "path": 300}
"""b of each field, in thousandths."""
SATURATION = 1_200_000
"""k1, in millionths."""


def bm25f(index: CommitIndex, query: str) -> list[Hit]:
    """Files by their best chunks for the tokens of ``query``; production first."""
    terms = query_terms(index, query)
    scored = [(score(index, chunk, terms), chunk) for chunk in _candidate_chunks(index, terms)]
    by_file: dict[int, list[tuple[int, int]]] = {}
    for points, chunk in sorted(scored, key=lambda item: (-item[0], item[1])):
        by_file.setdefault(index.tables.chunk_file[chunk], []).append((points, chunk))
    totals = {
        file: sum(points for points, _ in best[:CHUNKS_OF_A_FILE]) for file, best in by_file.items()
    }
    return in_typed_order(index, totals, lambda file: chunk_hit(index, by_file[file][0][1]))


def best_chunks(index: CommitIndex, query: str, limit: int) -> list[int]:
    """Numbers of the best chunks, whatever their class."""
    terms = query_terms(index, query)
    scored = [(score(index, chunk, terms), chunk) for chunk in _candidate_chunks(index, terms)]
    return [chunk for _, chunk in sorted(scored, key=lambda item: (-item[0], item[1]))[:limit]]


def keyword(index: CommitIndex, query: str) -> list[Hit]:
    """Files by the summed rarity of the query's tokens that stand in them or in their paths,
    however often: what searching for every word of the query shows."""
    weights: dict[str, int] = {}
    for token in dict.fromkeys(token for word in query_words(query) for token in tokens_of(word)):
        files = index.searcher.doc_freq("file", token)
        if files:
            weights[token] = rarity(len(index.files), files)
    chosen = sorted(weights, key=lambda token: (-weights[token], token))[:MAX_QUERY_TERMS]
    if not chosen:
        return []
    clauses = [
        # A constant each: tantivy's own score would prefer short files.
        (
            Occur.Should,
            Query.const_score_query(
                Query.term_query(index.schema, "file", token), weights[token] / 1_000_000
            ),
        )
        for token in chosen
    ]
    totals: dict[int, int] = {}
    for file in _search(index, Query.boolean_query(clauses), CANDIDATE_FILES):
        fields = [index.path_counts(file), *(c.counts for c in index.facts_of(file).chunks)]
        totals[file] = sum(
            weights[token] for token in chosen if any(token in counts for counts in fields)
        )
    return in_typed_order(index, totals, Hit)


def query_terms(index: CommitIndex, query: str) -> dict[str, int]:
    """Tokens of the query that the index has, with their rarity; the rarest where they are many."""
    known: dict[str, int] = {}
    for word in query_words(query):
        for token in tokens_of(word):
            frequency = index.tables.frequencies.get(token, 0)
            if frequency:
                known[token] = rarity(len(index.tables.chunk_file), frequency)
    rarest = sorted(known, key=lambda token: (-known[token], token))[:MAX_QUERY_TERMS]
    return {token: known[token] for token in rarest}


def rarity(documents: int, frequency: int) -> int:
    """Inverse document frequency in millionths: ln(1 + (N − n + ½)/(n + ½))."""
    return round(1_000_000 * math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5)))


def score(index: CommitIndex, number: int, terms: Mapping[str, int]) -> int:
    """BM25F of one chunk, as an integer."""
    file, chunk = index.chunk(number)
    symbols = index.symbol_counts(file)[number - index.files[file].first_chunk]
    path = index.path_counts(file)
    tables = index.tables
    body_scale = _scale(index, "body", chunk.counts, tables.body_tokens)
    symbol_scale = _scale(index, "symbol", symbols, tables.symbol_tokens)
    path_scale = _scale(index, "path", path, tables.path_tokens)
    points = 0
    for token, weight in terms.items():
        frequency = 0  # in millionths
        if token in chunk.counts:
            frequency += chunk.counts[token] * body_scale
        if token in symbols:
            frequency += symbols[token] * symbol_scale
        if token in path:
            frequency += path[token] * path_scale
        if frequency:
            points += weight * frequency // (frequency + SATURATION)
    return points


def _scale(index: CommitIndex, field: str, counts: Mapping[str, int], total: int) -> int:
    """What one occurrence in a field counts, in millionths: its weight over its length norm."""
    share = LENGTH_SHARE[field]
    length = sum(counts.values())
    norm = 1_000 - share + share * length * len(index.tables.chunk_file) // max(total, 1)
    return FIELD_WEIGHTS[field] * 1_000_000 // max(norm, 1)


def chunk_hit(index: CommitIndex, number: int) -> Hit:
    file, chunk = index.chunk(number)
    return Hit(file, chunk.first, chunk.last, chunk.symbol)


def in_typed_order(
    index: CommitIndex, totals: Mapping[int, float], hit: Callable[[int], Hit]
) -> list[Hit]:
    """Files by class, then by score, then by path."""
    order = sorted(
        totals,
        key=lambda file: (
            FILE_CLASSES.index(index.files[file].file_class),
            -totals[file],
            file,
        ),
    )
    return [hit(file) for file in order]


def _candidate_chunks(index: CommitIndex, terms: Mapping[str, int]) -> list[int]:
    if not terms:
        return []
    clauses = [
        (
            Occur.Should,
            Query.boost_query(
                Query.term_query(index.schema, field, token), FIELD_WEIGHTS[field] / 1_000
            ),
        )
        for token in terms
        for field in FIELD_WEIGHTS
    ]
    return _search(index, Query.boolean_query(clauses), CANDIDATE_CHUNKS)


def _search(index: CommitIndex, query: Query, limit: int) -> list[int]:
    """Numbers of the documents that tantivy ranks highest; parsed text never reaches it."""
    found = index.searcher.search(query, limit, count=False).hits
    values = index.searcher.fast_field_values("number", [address for _, address in found])
    return [int(value or 0) for value in values]
