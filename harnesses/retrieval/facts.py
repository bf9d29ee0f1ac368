"""Facts about one blob: everything that indexing needs of it, computed once for all commits.

A key names content and language, never a path, so a renamed file costs nothing and adjacent commits
share what they have in common.
"""

from hashlib import sha256

from harnesses.retrieval import chunks, tokens
from harnesses.retrieval.snapshot import SnapshotFile, count_lines
from harnesses.retrieval.syntax import LanguageName, Syntax, analyse, language_of, versions
from schemas.base import Value

VERSION = 1


class Chunk(Value, array_like=True):
    """Lines ``first`` to ``last`` of a file, from 1 and inclusive."""

    first: int
    last: int
    symbol: str
    digest: str
    """SHA-256 of its indexed text: what a vector is shared by."""
    counts: dict[str, int]
    """Tokens of the text (``tokens.count_tokens``)."""


class BlobFacts(Value, array_like=True):
    """``chunks`` is empty for what is searched exactly only: binary, too large, too long lines."""

    syntax: Syntax
    chunks: tuple[Chunk, ...]


EMPTY = BlobFacts(syntax=Syntax(), chunks=())


def facts_key(content: bytes, language: LanguageName | None) -> str:
    """The key of a blob's facts: SHA-256 over every version that they depend on, the language, and
    the SHA-256 of the content."""
    named = (
        f"facts {VERSION} chunks {chunks.VERSION} tokens {tokens.VERSION} syntax {versions()}"
        f"\n{language or 'text'}\n{sha256(content).hexdigest()}\n"
    )
    return sha256(named.encode()).hexdigest()


def blob_facts(file: SnapshotFile) -> BlobFacts:
    """Facts of a file's content; of its path only the language matters."""
    if file.text is None or file.too_large or file.long_lines:
        return EMPTY
    language = language_of(file.path)
    syntax = Syntax() if language is None else analyse(file.text, language)
    lines = indexed_lines(file.text)
    described: list[Chunk] = []
    for span in chunks.cut(count_lines(file.text), syntax.symbols):
        text = "\n".join(lines[span.first - 1 : span.last])
        described.append(
            Chunk(
                first=span.first,
                last=span.last,
                symbol=span.symbol,
                digest=sha256(text.encode()).hexdigest(),
                counts=tokens.count_tokens(tokens.words(text)),
            )
        )
    return BlobFacts(syntax=syntax, chunks=tuple(described))


def indexed_lines(text: bytes) -> list[str]:
    """Lines as they are indexed and embedded: bytes that are not UTF-8 replaced, cut in width."""
    lines = text.decode("utf-8", "replace").split("\n")
    return [line[: chunks.LINE_WIDTH] for line in lines]
