"""The index of one tree: what all ranked engines look things up in.

Built from a base tree alone (an index of a later commit would hold the fix) before any cell runs,
and only read afterwards. :func:`build_tables` and :func:`fill_candidates` make it from facts;
:class:`CommitIndex` is the reading side. Nothing here touches a disk: whoever opens an index hands
in the tables, a reader of facts and tantivy's index.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256

import msgspec
import tantivy

from harnesses.retrieval import chunks, dense, facts, graph, syntax, tokens
from harnesses.retrieval.facts import BlobFacts, facts_key
from harnesses.retrieval.snapshot import FileClass, Snapshot, SnapshotFile, path_bytes
from schemas.base import Value

VERSION = 1
"""Part of every manifest; a change of the tables or of how they are built is a new version."""

WRITER_BYTES = 50_000_000
EMBEDDED_CLASSES = ("production",)
"""Whose chunks have vectors. Production stands first in every result, and vectors are dear."""


class IndexedFile(Value, array_like=True):
    path: str
    file_class: FileClass
    facts: str
    """Key of its facts; empty for what is searched exactly only."""
    first_chunk: int
    """Number of its first chunk; they are numbered through."""
    chunks: int


class IndexTables(Value, array_like=True):
    """Everything of an index but facts, texts and vectors. Files stand in the order of their path
    bytes, so that a smaller number is an earlier path."""

    manifest: str
    """SHA-256 over engine versions and every file's path, class, mode and content."""
    files: tuple[IndexedFile, ...]
    chunk_file: tuple[int, ...]
    """Number of the file of each chunk."""
    frequencies: dict[str, int]
    """In how many chunks each token stands, path and symbols included."""
    body_tokens: int
    symbol_tokens: int
    path_tokens: int
    """Sums over all chunks."""
    names: dict[str, tuple[tuple[int, int], ...]]
    """Name → (file, position among its symbols) of every definition; -1: the file's own stem."""
    edges: graph.Edges


def manifest_digest(snapshot: Snapshot) -> str:
    """Identity of an index: everything that it is a function of."""
    versions = (
        f"index {VERSION} facts {facts.VERSION} chunks {chunks.VERSION} tokens {tokens.VERSION} "
        f"syntax {syntax.versions()} graph {graph.VERSION} template {dense.TEMPLATE_VERSION}\n"
    )
    digest = sha256(versions.encode())
    for file in snapshot.files:
        content = sha256(file.content).hexdigest()
        digest.update(f"{file.mode} {file.file_class} {content} ".encode())
        digest.update(path_bytes(file.path) + b"\0")
    return digest.hexdigest()


def key_of(file: SnapshotFile) -> str:
    """Key of a file's facts; empty where it has none."""
    if file.text is None or file.too_large or file.long_lines:
        return ""
    return facts_key(file.content, syntax.language_of(file.path))


def build_tables(snapshot: Snapshot, described: Sequence[BlobFacts]) -> IndexTables:
    """``described``: the facts of ``snapshot.files``, in their order."""
    files: list[IndexedFile] = []
    chunk_file: list[int] = []
    frequencies: dict[str, int] = {}
    names: dict[str, list[tuple[int, int]]] = {}
    body = symbol = path = 0
    for number, (file, known) in enumerate(zip(snapshot.files, described, strict=True)):
        files.append(
            IndexedFile(
                path=file.path,
                file_class=file.file_class,
                facts=key_of(file),
                first_chunk=len(chunk_file),
                chunks=len(known.chunks),
            )
        )
        path_counts = path_fields(file.path)
        symbol_counts = symbol_fields(known)
        for chunk, in_symbols in zip(known.chunks, symbol_counts, strict=True):
            chunk_file.append(number)
            body += sum(chunk.counts.values())
            symbol += sum(in_symbols.values())
            path += sum(path_counts.values())
            for token in {**chunk.counts, **in_symbols, **path_counts}:
                frequencies[token] = frequencies.get(token, 0) + 1
        if known.chunks:
            names.setdefault(stem_of(file.path), []).append((number, -1))
        for position, defined in enumerate(known.syntax.symbols):
            names.setdefault(defined.name, []).append((number, position))
    return IndexTables(
        manifest=manifest_digest(snapshot),
        files=tuple(files),
        chunk_file=tuple(chunk_file),
        frequencies=frequencies,
        body_tokens=body,
        symbol_tokens=symbol,
        path_tokens=path,
        names={name: tuple(places) for name, places in sorted(names.items())},
        edges=graph.edges(snapshot, described),
    )


def stem_of(path: str) -> str:
    """``src/gitlab/merge_requests.py`` → ``merge_requests``."""
    return path.rpartition("/")[2].partition(".")[0]


def path_fields(path: str) -> dict[str, int]:
    """Tokens of a path, its extension left out."""
    return tokens.count_tokens(tokens.words(path.rpartition(".")[0] or path))


def symbol_fields(known: BlobFacts) -> list[dict[str, int]]:
    """For each chunk the tokens of the definitions that begin in it."""
    found: list[dict[str, int]] = [{} for _ in known.chunks]
    at = 0
    for symbol in sorted(known.syntax.symbols, key=lambda one: one.first):
        while at < len(known.chunks) and known.chunks[at].last < symbol.first:
            at += 1
        if at < len(known.chunks):
            for token in tokens.tokens_of(symbol.name[: tokens.MAX_WORD]):
                found[at][token] = found[at].get(token, 0) + 1
    return found


# --- tantivy --------------------------------------------------------------------------------------


def candidate_schema() -> tantivy.Schema:
    """Chunks have ``body``, ``symbol`` and ``path``; files have ``file``. ``number`` is that of the
    chunk or file. Every token is written once: how often it occurs is looked up in a candidate's
    facts. All is tokenised before tantivy sees it."""
    builder = tantivy.SchemaBuilder()
    for field in ("body", "symbol", "path", "file"):
        builder.add_text_field(
            field, stored=False, tokenizer_name="whitespace", index_option="basic"
        )
    builder.add_integer_field("number", fast=True)
    return builder.build()


def fill_candidates(
    index: tantivy.Index, snapshot: Snapshot, described: Iterable[BlobFacts]
) -> None:
    """Write every chunk and file in order: one thread, one commit, one segment."""
    writer = index.writer(heap_size=WRITER_BYTES, num_threads=1)
    number = 0
    for file_number, (file, known) in enumerate(zip(snapshot.files, described, strict=True)):
        path_text = " ".join(path_fields(file.path))
        for chunk, symbols in zip(known.chunks, symbol_fields(known), strict=True):
            writer.add_document(
                tantivy.Document(
                    body=" ".join(chunk.counts),
                    symbol=" ".join(symbols),
                    path=path_text,
                    number=number,
                )
            )
            number += 1
        if known.chunks:
            everything = path_fields(file.path).keys() | set().union(
                *(chunk.counts for chunk in known.chunks)
            )
            writer.add_document(
                tantivy.Document(file=" ".join(sorted(everything)), number=file_number)
            )
    writer.commit()
    writer.wait_merging_threads()
    index.reload()


# --- reading --------------------------------------------------------------------------------------


class CommitIndex:
    """An opened index. ``read_facts(key)`` gives the facts of a file; ``vectors`` maps a chunk's
    number to its code, ``queries`` a frozen query's text to its code."""

    def __init__(
        self,
        snapshot: Snapshot,
        tables: IndexTables,
        read_facts: Callable[[str], BlobFacts],
        candidates: tantivy.Index,
        *,
        vectors: Mapping[int, bytes] | None = None,
        queries: Mapping[str, bytes] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.tables = tables
        self.files = tables.files
        self.searcher = candidates.searcher()
        self.schema = candidates.schema
        self.queries = dict(queries or {})
        self._vectors = dict(vectors or {})
        self._read_facts = read_facts
        self._facts: dict[str, BlobFacts] = {"": facts.EMPTY}
        self._fields: dict[int, list[dict[str, int]]] = {}
        self._paths: dict[int, dict[str, int]] = {}

    def facts_of(self, file: int) -> BlobFacts:
        key = self.files[file].facts
        if key not in self._facts:
            self._facts[key] = self._read_facts(key)
        return self._facts[key]

    def chunk(self, number: int) -> tuple[int, facts.Chunk]:
        """The file of a chunk, and the chunk."""
        file = self.tables.chunk_file[number]
        return file, self.facts_of(file).chunks[number - self.files[file].first_chunk]

    def symbol_counts(self, file: int) -> list[dict[str, int]]:
        if file not in self._fields:
            self._fields[file] = symbol_fields(self.facts_of(file))
        return self._fields[file]

    def path_counts(self, file: int) -> dict[str, int]:
        if file not in self._paths:
            self._paths[file] = path_fields(self.files[file].path)
        return self._paths[file]

    def definition(self, file: int, position: int) -> syntax.Symbol | None:
        """A symbol of ``tables.names``; None for a file's own stem."""
        return None if position < 0 else self.facts_of(file).syntax.symbols[position]

    @cached_property
    def folded_names(self) -> dict[str, list[str]]:
        """Names of definitions by :func:`tokens.folded`."""
        names: dict[str, list[str]] = {}
        for name in self.tables.names:
            names.setdefault(tokens.folded(name), []).append(name)
        return names

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each file by path."""
        return {file.path: number for number, file in enumerate(self.files)}

    @cached_property
    def embedded(self) -> tuple[tuple[int, ...], dense.VectorIndex] | None:
        """Numbers of the chunks that have a vector, and the vectors; None without any."""
        if not self._vectors:
            return None
        numbers = tuple(sorted(self._vectors))
        dimension = len(self._vectors[numbers[0]])
        matrix = dense.codes((self._vectors[number] for number in numbers), dimension)
        return numbers, dense.VectorIndex(matrix)

    def vector(self, chunk: int) -> bytes | None:
        return self._vectors.get(chunk)


def index_in_memory(
    snapshot: Snapshot,
    *,
    vectors: Mapping[int, bytes] | None = None,
    queries: Mapping[str, bytes] | None = None,
) -> CommitIndex:
    """Build and open an index of a tree without storing anything."""
    described = [facts.blob_facts(file) for file in snapshot.files]
    candidates = tantivy.Index(candidate_schema())
    fill_candidates(candidates, snapshot, described)
    by_key = {key_of(file): known for file, known in zip(snapshot.files, described, strict=True)}
    tables = build_tables(snapshot, described)
    return CommitIndex(
        snapshot, tables, by_key.__getitem__, candidates, vectors=vectors, queries=queries
    )


def chunks_to_embed(
    tables: IndexTables, read_facts: Callable[[str], BlobFacts]
) -> Iterable[tuple[int, str, facts.Chunk]]:
    """(number, header, chunk) of every chunk that has a vector."""
    for file in tables.files:
        if file.file_class in EMBEDDED_CLASSES and file.chunks:
            for offset, chunk in enumerate(read_facts(file.facts).chunks):
                yield (
                    file.first_chunk + offset,
                    dense.chunk_header(file.path, chunk.symbol),
                    chunk,
                )


def encode_tables(tables: IndexTables) -> bytes:
    return msgspec.msgpack.encode(tables, order="deterministic")


def decode_tables(content: bytes) -> IndexTables:
    """Raises msgspec.ValidationError or DecodeError for other bytes."""
    return msgspec.msgpack.decode(content, type=IndexTables)
