"""How well each list and each arm's ranking finds the files that real changes touched.

A task is a base commit, a query and the production files that the change touched. Recall@k is the
share of these files among the first k of a ranking, averaged over tasks; MRR the mean of 1 / rank
of the first one. Differences have paired bootstrap intervals (Efron & Tibshirani, 1993, §13.3).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from actors.languages.classifier import classifier
from actors.test_runs.git_trees import read_snapshot
from harnesses.retrieval import dense, facts, graph, hybrid
from harnesses.retrieval.fusion import fuse
from harnesses.retrieval.index import (
    CommitIndex,
    build_tables,
    chunks_to_embed,
    index_in_memory,
    key_of,
)
from harnesses.retrieval.snapshot import FileMode, Snapshot, snapshot, snapshot_file
from ledger.errors import Usage
from projections.analyses.named_stream import draw_index_rows
from schemas.base import GitOid
from schemas.repair.study import Repository

DEPTHS = (1, 5, 10, 20)
RESAMPLES = 2_000


class RetrievalTask(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list; other keys are ignored."""

    base: GitOid
    gold: Annotated[tuple[str, ...], Meta(min_length=1)]
    query: Annotated[str, Meta(min_length=1)]
    commit: str = ""
    base_tree: str = ""


class Embedder(Protocol):
    id: str

    def embed(self, texts: Sequence[str]) -> Sequence[npt.NDArray[np.float32]]: ...


class Score(NamedTuple):
    """Means over tasks; ``low`` and ``high``: interval of recall@10 minus that of ``bm25f``."""

    name: str
    recall: dict[int, float]
    mrr: float
    difference: float
    low: float
    high: float


def read_tasks(content: bytes) -> list[RetrievalTask]:
    """Raises Usage with the line that is not a task."""
    tasks = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            try:
                tasks.append(msgspec.json.decode(line, type=RetrievalTask))
            except msgspec.DecodeError as error:
                raise Usage(f"line {number} is not a task: {error}") from None
    if not tasks:
        raise Usage("the list has no task")
    return tasks


def read_tree(repository: Repository, directory: Path, commit: str) -> Snapshot:
    """The files of a commit with their classes."""
    entries = read_snapshot(directory, commit)
    names = [entry.path.decode("utf-8", "surrogateescape") for entry in entries]
    rules = classifier(repository, names)
    return snapshot(
        snapshot_file(
            name,
            msgspec.convert(entry.mode, FileMode),
            entry.content,
            rules.classify(name, entry.content),
        )
        for name, entry in zip(names, entries, strict=True)
    )


class Vectors:
    """Codes by key, embedded when they are first asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._codes: dict[str, bytes] = {}

    def of_query(self, text: str) -> bytes:
        return self._code(f"query {text}", text)

    def of_tree(self, tree: Snapshot) -> dict[int, bytes]:
        """Codes of the chunks of a tree by number."""
        described = [facts.blob_facts(file) for file in tree.files]
        by_key = {key_of(file): known for file, known in zip(tree.files, described, strict=True)}
        tables = build_tables(tree, described)
        found = {}
        for number, header, chunk in chunks_to_embed(tables, by_key.__getitem__):
            file = tree.files[tables.chunk_file[number]]
            lines = facts.indexed_lines(file.text or b"")[chunk.first - 1 : chunk.last]
            key = dense.vector_key(self._embedder.id, header, chunk.digest)
            found[number] = self._code(key, "\n".join([header, *lines]))
        return found

    def _code(self, key: str, text: str) -> bytes:
        if key not in self._codes:
            self._codes[key] = dense.quantise(self._embedder.embed([text])[0])
        return self._codes[key]


def open_index(tree: Snapshot, query: str, vectors: Vectors | None) -> CommitIndex:
    if vectors is None:
        return index_in_memory(tree)
    return index_in_memory(
        tree, vectors=vectors.of_tree(tree), queries={query.strip(): vectors.of_query(query)}
    )


def orders(index: CommitIndex, query: str) -> dict[str, list[int]]:
    """File numbers of every list, and of each arm's ranking."""
    lists = hybrid.rankings(index, query)
    found = {name: [hit.file for hit in ranking] for name, ranking in lists.items()}
    if index.embedded is None:
        del found["vectors"]
    found["H000"] = found["words"]
    both = {name: lists[name] for name in hybrid.WORDS_AND_VECTORS}
    fused = fuse(both, hybrid.WORDS_AND_VECTORS, hybrid.K)
    found["H003"] = [one.hit.file for one in hybrid.in_classes(index, fused)]
    found["H007"] = [one.hit.file for one in hybrid.hybrid(index, query)]
    return found


def one_hop(index: CommitIndex, order: Sequence[int]) -> set[int]:
    """The ten best files and their neighbours: what H011's graph reaches from them."""
    best = order[:10]
    return set(best).union(*(graph.neighbours(index.tables.edges, file) for file in best))


def evaluate(
    tasks: Sequence[RetrievalTask],
    open_task: Callable[[RetrievalTask], CommitIndex],
    progress: Callable[[int], None],
) -> tuple[list[Score], float]:
    """Scores of every ranking, and the share of files within one hop of H007's ten best."""
    rows: dict[str, list[dict[int, float]]] = {}
    ranks: dict[str, list[float]] = {}
    hops = []
    for done, task in enumerate(tasks, start=1):
        index = open_task(task)
        gold = [index.number_of[path] for path in task.gold if path in index.number_of]
        if not gold:
            raise Usage(f"no file of {', '.join(task.gold)} is in {task.base}")
        found = orders(index, task.query)
        for name, order in found.items():
            place = {file: rank for rank, file in enumerate(order, start=1)}
            at = [place.get(file, 0) for file in gold]
            rows.setdefault(name, []).append(
                {depth: sum(0 < rank <= depth for rank in at) / len(gold) for depth in DEPTHS}
            )
            first = min((rank for rank in at if rank), default=0)
            ranks.setdefault(name, []).append(1 / first if first else 0.0)
        reached = one_hop(index, found["H007"])
        hops.append(sum(file in reached for file in gold) / len(gold))
        progress(done)
    return list(_scores(rows, ranks)), sum(hops) / len(hops)


def _scores(
    rows: Mapping[str, list[dict[int, float]]], ranks: Mapping[str, list[float]]
) -> Iterator[Score]:
    reference = np.array([row[10] for row in rows["bm25f"]])
    for name, each in rows.items():
        differences = np.array([row[10] for row in each]) - reference
        low, high = _interval(differences)
        yield Score(
            name=name,
            recall={depth: sum(row[depth] for row in each) / len(each) for depth in DEPTHS},
            mrr=sum(ranks[name]) / len(ranks[name]),
            difference=float(differences.mean()),
            low=low,
            high=high,
        )


def _interval(differences: npt.NDArray[np.float64]) -> tuple[float, float]:
    """95 % percentile interval of the mean; the same tasks give the same resamples."""
    draws = np.concatenate(
        list(draw_index_rows("retrieval evaluate", RESAMPLES, [len(differences)]))
    )
    means = np.sort(differences[draws].mean(axis=1))
    return float(means[round(0.025 * (RESAMPLES - 1))]), float(
        means[round(0.975 * (RESAMPLES - 1))]
    )
