"""The ranked lists of a query and what is made of them: five lists, one fused order.

    words      whole query coverage over files          (``lexical.keyword``)
    bm25f      BM25F over chunks                        (``lexical.bm25f``)
    names      definitions of names in the query        (``names.symbols``)
    near       definitions of near names                (``names.fuzzy``)
    vectors    dense vectors of chunks                  (:func:`by_vector`)

Weights and k were chosen on commits before 2023-01-01 (``docs/retrieval.md``); nothing here may be
fitted to a change that could be a task.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from harnesses.retrieval import lexical, names
from harnesses.retrieval.fusion import Fused, Hit, Ranking, fuse
from harnesses.retrieval.index import CommitIndex
from harnesses.retrieval.snapshot import FILE_CLASSES
from harnesses.retrieval.tokens import looks_like_code, query_words

K = 10
PROSE = {"words": 0.25, "bm25f": 1.0, "names": 0.05, "near": 0.1, "vectors": 0.5}
IDENTIFIER = {"words": 0.5, "bm25f": 1.0, "names": 2.0, "near": 1.0, "vectors": 0.5}
"""Where the query is one identifier."""
WORDS_AND_VECTORS = {"words": 1.0, "vectors": 1.0}

FEEDBACK_CHUNKS = 5
"""The chunks whose mean stands for a text that has no vector."""


class QueryVector(NamedTuple):
    """A code to compare with, and in words where it comes from."""

    code: bytes
    said: str


def rankings(index: CommitIndex, query: str) -> dict[str, Ranking]:
    """Every list of ``query``, each with production first; ``vectors`` is empty without vectors."""
    engines: Mapping[str, Callable[[CommitIndex, str], Ranking]] = {
        "words": lexical.keyword,
        "bm25f": lexical.bm25f,
        "names": names.symbols,
        "near": names.fuzzy,
    }
    lists = {name: engine(index, query) for name, engine in engines.items()}
    vector = query_vector(index, query)
    lists["vectors"] = [] if vector is None else by_vector(index, vector.code)
    return lists


def hybrid(index: CommitIndex, query: str) -> list[Fused]:
    """The fused order of all five lists."""
    words = query_words(query)
    weights = IDENTIFIER if len(words) == 1 and looks_like_code(words[0]) else PROSE
    return in_classes(index, fuse(rankings(index, query), weights, K))


def words_and_vectors(index: CommitIndex, query: str) -> list[Fused]:
    """The fused order of what H003 has: words, and vectors."""
    vector = query_vector(index, query)
    lists = {
        "words": lexical.keyword(index, query),
        "vectors": [] if vector is None else by_vector(index, vector.code),
    }
    return in_classes(index, fuse(lists, WORDS_AND_VECTORS, K))


def in_classes(index: CommitIndex, fused: Sequence[Fused]) -> list[Fused]:
    """Production first, then tests and so on; the order within a class stays."""
    return sorted(fused, key=lambda one: FILE_CLASSES.index(index.files[one.hit.file].file_class))


# --- vectors --------------------------------------------------------------------------------------


def query_vector(index: CommitIndex, query: str) -> QueryVector | None:
    """The vector of a free text without asking a model (interpretations 9): its own where it was
    embedded beforehand, else the mean of the best lexical chunks. None without vectors."""
    if index.embedded is None:
        return None
    frozen = index.queries.get(query.strip())
    if frozen is not None:
        return QueryVector(frozen, "the vector of this text")
    rows = {number: row for row, number in enumerate(index.embedded[0])}
    best = lexical.best_chunks(index, query, lexical.CANDIDATE_CHUNKS)
    chosen = [number for number in best if number in rows][:FEEDBACK_CHUNKS]
    if not chosen:
        return None
    places = ", ".join(_place(index, number) for number in chosen)
    code = index.embedded[1].mean([rows[number] for number in chosen])
    return QueryVector(code, f"the mean vector of {places}")


def place_vector(index: CommitIndex, path: str, line: int) -> QueryVector | None:
    """The stored vector of the chunk that holds a line; None where it has none."""
    number = index.number_of.get(path)
    if number is None:
        return None
    file = index.files[number]
    for offset, chunk in enumerate(index.facts_of(number).chunks):
        if chunk.first <= line <= chunk.last:
            code = index.vector(file.first_chunk + offset)
            said = f"lines {chunk.first}-{chunk.last}"
            return None if code is None else QueryVector(code, said)
    return None


def by_vector(index: CommitIndex, code: bytes) -> list[Hit]:
    """Files by their most similar chunk."""
    if index.embedded is None:
        return []
    numbers, vectors = index.embedded
    best: dict[int, tuple[float, int]] = {}
    for number, similarity in zip(numbers, vectors.similarities(code).tolist(), strict=True):
        file = index.tables.chunk_file[number]
        if file not in best or similarity > best[file][0]:
            best[file] = (similarity, number)
    return lexical.in_typed_order(
        index,
        {file: similarity for file, (similarity, _) in best.items()},
        lambda file: lexical.chunk_hit(index, best[file][1]),
    )


def _place(index: CommitIndex, number: int) -> str:
    hit = lexical.chunk_hit(index, number)
    return f"{index.files[hit.file].path}:{hit.first}"
