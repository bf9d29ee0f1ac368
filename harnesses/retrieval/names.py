"""Rankings by the names of definitions: exact, and near ones through rapidfuzz."""

from rapidfuzz import fuzz, process

from harnesses.retrieval.fusion import Hit
from harnesses.retrieval.index import CommitIndex
from harnesses.retrieval.lexical import in_typed_order
from harnesses.retrieval.tokens import folded, looks_like_code, query_words

MAX_DEFINITIONS = 20
"""A name with more definitions than this says nothing."""
FUZZY_CUTOFF = 75.0
FUZZY_NAMES = 8
"""Near names of one word, and words of a query that are looked up so."""
MIN_FUZZY = 5
"""Characters; shorter words are near too much."""


def symbols(index: CommitIndex, query: str) -> list[Hit]:
    """Files that define a name of the query (a file's own stem counts): exactly as written counts
    twice, and a name with many definitions gives each of them a part."""
    found: dict[str, float] = {}
    for word in query_words(query):
        for name in index.folded_names.get(folded(word), ()):
            found[name] = max(found.get(name, 0.0), 2.0 if name == word else 1.0)
    return _ranked(index, found)


def fuzzy(index: CommitIndex, query: str) -> list[Hit]:
    """Files that define a name near a word of the query that no definition has exactly."""
    found: dict[str, float] = {}
    unknown = [
        word
        for word in query_words(query)
        if len(word) >= MIN_FUZZY and folded(word) not in index.folded_names
    ]
    unknown.sort(key=lambda word: not looks_like_code(word))
    for word in unknown[:FUZZY_NAMES]:
        for name, similarity in near(index, word, FUZZY_NAMES):
            found[name] = max(found.get(name, 0.0), similarity / 100.0)
    return _ranked(index, found)


def near(index: CommitIndex, word: str, limit: int) -> list[tuple[str, float]]:
    """Names of definitions near ``word`` with their similarity (0 to 100), best first."""
    table = index.folded_names
    matches = process.extract(
        folded(word), table.keys(), scorer=fuzz.ratio, score_cutoff=FUZZY_CUTOFF, limit=None
    )
    flat = [(name, round(score, 6)) for text, score, _ in matches for name in table[text]]
    return sorted(flat, key=lambda item: (-item[1], item[0]))[:limit]


def _ranked(index: CommitIndex, found: dict[str, float]) -> list[Hit]:
    totals: dict[int, float] = {}
    places: dict[int, tuple[float, Hit]] = {}
    for name, weight in sorted(found.items()):
        definitions = index.tables.names[name]
        files = {file for file, _ in definitions}
        if len(files) > MAX_DEFINITIONS:
            continue
        share = weight / len(files)
        for file in files:
            totals[file] = totals.get(file, 0.0) + share
        for file, position in definitions:
            if file not in places or places[file][0] < share:
                symbol = index.definition(file, position)
                hit = (
                    Hit(file)
                    if symbol is None
                    else Hit(file, symbol.first, symbol.last, symbol.qualified)
                )
                places[file] = (share, hit)
    rounded = {file: round(total, 12) for file, total in totals.items()}
    return in_typed_order(index, rounded, lambda file: places[file][1])
