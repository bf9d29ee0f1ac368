"""Which logistic mean model do the cells of a matrix have? Its design matrix and its names.

    success ~ treatment * model + repository            clusters: tasks

in treatment (dummy) coding; the reference of each factor is its first declared level. Language is a
function of the repository, so it is no term of its own: it is estimated as a contrast of
repository effects.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RANK_TOLERANCE = 1e-10


class BinaryCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One observed cell: whether an arm resolved a task under a model."""

    task: str
    repository: str
    model: str
    treatment: str
    success: bool


class MeanModel(msgspec.Struct, frozen=True, kw_only=True):
    """Design of n cells with p terms, rows sorted by task, treatment and model.

    terms: names of the p columns, the intercept first.
    x: (n, p), zeros and ones. y: (n,), zeros and ones.
    starts: (tasks,), first row of every task.
    treatments, models, repositories: levels of the factors, the reference first.
    """

    terms: tuple[str, ...]
    x: Floats
    y: Floats
    starts: NDArray[np.intp]
    treatments: tuple[str, ...]
    models: tuple[str, ...]
    repositories: tuple[str, ...]

    @property
    def rank(self) -> int:
        """Numerical rank of ``x``, singular values relative to the largest."""
        values = np.linalg.svd(self.x, compute_uv=False)
        return int((values > RANK_TOLERANCE * values[0]).sum())

    @property
    def cluster(self) -> NDArray[np.intp]:
        """(n,), the number of the task of every row."""
        sizes = np.diff(np.append(self.starts, len(self.y)))
        return np.repeat(np.arange(len(self.starts)), sizes)

    def per_task(self, values: Floats) -> Floats:
        """Sums of ``values`` (n, ...) over the rows of each task: (tasks, ...)."""
        return np.add.reduceat(values, self.starts, axis=0)

    def without_interaction(self) -> "MeanModel":
        """The nested model in which treatments have the same effect under every model."""
        kept = [index for index, term in enumerate(self.terms) if ":" not in term]
        return msgspec.structs.replace(
            self, terms=tuple(self.terms[index] for index in kept), x=self.x[:, kept]
        )

    def treatment_effect(self, treatment: str, baseline: str, model: str) -> Floats:
        """(p,), the combination of terms that is the log odds ratio of two treatments under a
        model."""
        return self._cell(treatment, model) - self._cell(baseline, model)

    def repository_effect(self, weights: Sequence[tuple[str, float]]) -> Floats:
        """(p,), a combination of repository effects."""
        combination = np.zeros(len(self.terms))
        for repository, weight in weights:
            if repository != self.repositories[0]:
                combination[self.terms.index(f"repository {repository}")] += weight
        return combination

    def _cell(self, treatment: str, model: str) -> Floats:
        return np.array([_value(term, treatment, model, "") for term in self.terms])


def mean_model(
    cells: Iterable[BinaryCell],
    treatments: Sequence[str],
    models: Sequence[str],
    repositories: Sequence[str],
) -> MeanModel:
    """The design of ``cells``, in whatever order they come.

    treatments, models, repositories: every level, the reference first.

    Raises ValueError where there is no cell, where a level is not declared, and where a task has
    two cells of one treatment and model or lies in two repositories.
    """
    rows = sorted(cells, key=lambda cell: (cell.task, cell.treatment, cell.model))
    if not rows:
        raise ValueError("no cell was observed: there is nothing to model")
    for cell in rows:
        for level, declared in (
            (cell.treatment, treatments),
            (cell.model, models),
            (cell.repository, repositories),
        ):
            if level not in declared:
                raise ValueError(f"{level!r} is not a declared level ({', '.join(declared)})")
    for first, second in zip(rows, rows[1:], strict=False):
        if first.task == second.task:
            if (first.treatment, first.model) == (second.treatment, second.model):
                raise ValueError(f"task {first.task!r} has two cells of one treatment and model")
            if first.repository != second.repository:
                raise ValueError(f"task {first.task!r} lies in two repositories")
    terms = ["(Intercept)"]
    terms += [f"treatment {name}" for name in treatments[1:]]
    terms += [f"model {name}" for name in models[1:]]
    terms += [f"repository {name}" for name in repositories[1:]]
    terms += [f"treatment {t}:model {m}" for m in models[1:] for t in treatments[1:]]
    x = [[_value(t, c.treatment, c.model, c.repository) for t in terms] for c in rows]
    starts = [0, *(i for i in range(1, len(rows)) if rows[i].task != rows[i - 1].task)]
    return MeanModel(
        terms=tuple(terms),
        x=np.array(x),
        y=np.array([float(cell.success) for cell in rows]),
        starts=np.array(starts, dtype=np.intp),
        treatments=tuple(treatments),
        models=tuple(models),
        repositories=tuple(repositories),
    )


def _value(term: str, treatment: str, model: str, repository: str) -> float:
    present = {
        "(Intercept)",
        f"treatment {treatment}",
        f"model {model}",
        f"repository {repository}",
        f"treatment {treatment}:model {model}",
    }
    return float(term in present)
