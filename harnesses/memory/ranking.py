"""Lexical ranking of texts: BM25 with k1 = 1.2 and b = 0.75 over words without stop words.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
inverse document frequency ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is never negative. Equal
scores keep the store's order.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from harnesses.memory.contract import StoredItem

K1, B = 1.2, 0.75
STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "if", "in",
        "is", "it", "its", "of", "on", "or", "that", "the", "this", "to", "was", "were", "which",
        "will", "with", "you", "your",
    )
)  # fmt: skip


def words(text: str) -> list[str]:
    """Lower-case words and numbers without stop words, split at everything else."""
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP_WORDS]


def ranked(items: Sequence[StoredItem], query: str) -> list[StoredItem]:
    """Items that share a word with the query, best first; all in their order without a query."""
    asked = sorted(set(words(query)))
    if not asked:
        return list(items)
    counts = [Counter(words(item.text)) for item in items]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    weights = {}
    for word in asked:
        found = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(items) - found + 0.5) / (found + 0.5))
    scored = []
    for index, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        score = sum(
            weights[word]
            * count[word]
            * (K1 + 1)
            / (count[word] + K1 * (1 - B + B * length / mean))
            for word in asked
            if count[word]
        )
        if score > 0:
            scored.append((-round(score, 9), index))
    return [items[index] for _, index in sorted(scored)]
