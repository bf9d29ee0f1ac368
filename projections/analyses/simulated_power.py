"""How often would the mixed model find an effect, before any outcome exists?

Outcomes of a plan's cells are drawn from the model that the analysis fits: a success has log odds
a + d + s u, with u ~ N(0, 1) a task's own, d the effect of the new arm and 0 for every other one.
Each draw goes down the ladder of ``model_ladder``, so the share of draws on each rung is seen too:
with few tasks, separation is not rare. Uniforms are the upper 53 bits of a named stream.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log

import msgspec
import numpy as np

from projections.analyses.admissible_values import Rational, admit_level
from projections.analyses.mcnemar import exact_p_value
from projections.analyses.mean_model import BinaryCell, Floats
from projections.analyses.model_ladder import Rung, fit_ladder
from projections.analyses.named_stream import open_stream
from projections.analyses.paired_outcomes import pair_by_task, tabulate


class PlannedOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell of the plan whose outcome is drawn."""

    task: str
    repository: str
    model: str
    treatment: str


class AssumedEffect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is assumed to be true.

    new, baseline, model: the contrast. baseline_share: of successes of every other arm in a task
    with u = 0, in (0, 1). odds_ratio: of the new arm, given the task. task_sd: s, log odds.
    """

    new: str
    baseline: str
    model: str
    baseline_share: float
    odds_ratio: float
    task_sd: float


class SimulatedDraw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One draw: its rung, and whether the model's Wald test and the exact paired test reject."""

    rung: Rung
    model_rejects: bool
    paired_rejects: bool


class SimulatedPower(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``draws``: rejections by the model where it gives a p-value, rejections by the exact
    McNemar test, draws by rung. A share over n draws has a standard error of at most 1/(2 sqrt n).
    """

    assumed: AssumedEffect
    cells: int
    alpha: float
    draws: int
    model_rejects: int
    paired_rejects: int
    rungs: dict[str, int]
    stream: str


def simulate(
    cells: Sequence[PlannedOutcome],
    assumed: AssumedEffect,
    languages: Mapping[str, str],
    *,
    stream: str,
    alpha: Rational = "0.05",
) -> Iterator[SimulatedDraw]:
    """Draws without end; a caller takes as many as it wants and shows how far it is.

    languages: of each repository, the reference repository first.

    Raises ValueError for a share outside (0, 1), an odds ratio or deviation that is not positive,
    and a contrast that the cells do not have.
    """
    level = admit_level(alpha, "alpha")
    share = float(admit_level(assumed.baseline_share, "the baseline's share of successes"))
    if not (0 < assumed.odds_ratio < 1e6 and 0 <= assumed.task_sd <= 10):
        raise ValueError("the odds ratio must be positive, the deviation of tasks from 0 to 10")
    treatments = [assumed.baseline, *sorted({c.treatment for c in cells} - {assumed.baseline})]
    models = [assumed.model, *sorted({c.model for c in cells} - {assumed.model})]
    if assumed.new not in treatments or not any(
        (c.treatment, c.model) == (assumed.baseline, assumed.model) for c in cells
    ):
        raise ValueError(f"the plan has no {assumed.new} against {assumed.baseline} there")
    rows = sorted(cells, key=lambda c: (c.task, c.treatment, c.model))
    tasks = sorted({cell.task for cell in rows})
    stratum = {cell.task: cell.repository for cell in rows}
    positions = np.array([tasks.index(cell.task) for cell in rows])
    fixed = log(share / (1 - share)) + np.array(
        [log(assumed.odds_ratio) if cell.treatment == assumed.new else 0.0 for cell in rows]
    )
    generator = open_stream(stream)
    while True:
        uniforms = _uniforms(generator.random_raw(len(tasks) + len(rows)))
        intercepts = assumed.task_sd * _normal_quantile(uniforms[: len(tasks)])
        linear = fixed + intercepts[positions]
        successes = uniforms[len(tasks) :] < 1 / (1 + np.exp(-linear))
        drawn = [
            BinaryCell(**msgspec.structs.asdict(cell), success=bool(success))
            for cell, success in zip(rows, successes, strict=True)
        ]
        result = fit_ladder(
            drawn,
            treatments=treatments,
            models=models,
            repositories=tuple(languages),
            languages=languages,
            contrasts={"assumed": (assumed.new, assumed.baseline, assumed.model)},
        )
        new, baseline = (
            {
                cell.task: cell.success
                for cell in drawn
                if (cell.treatment, cell.model) == (arm, assumed.model)
            }
            for arm in (assumed.new, assumed.baseline)
        )
        table = tabulate(pair_by_task(new, baseline, stratum))
        yield SimulatedDraw(
            rung=result.rung,
            model_rejects=any(effect.p <= level for effect in result.contrasts),
            paired_rejects=exact_p_value(table.new_only, table.baseline_only) <= level,
        )


def summarise(
    draws: Sequence[SimulatedDraw],
    cells: int,
    assumed: AssumedEffect,
    alpha: Rational,
    stream: str,
) -> SimulatedPower:
    """Count what the draws came to."""
    rungs = Counter(draw.rung for draw in draws)
    return SimulatedPower(
        assumed=assumed,
        cells=cells,
        alpha=float(admit_level(alpha, "alpha")),
        draws=len(draws),
        model_rejects=sum(draw.model_rejects for draw in draws),
        paired_rejects=sum(draw.paired_rejects for draw in draws),
        rungs=dict(sorted(rungs.items())),
        stream=stream,
    )


def _uniforms(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Floats:
    """In (0, 1), from the upper 53 bits of each word."""
    uniforms: Floats = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return uniforms


def _normal_quantile(probabilities: Floats) -> Floats:
    from scipy.special import ndtri  # a second to import

    quantiles: Floats = ndtri(probabilities)
    return quantiles
