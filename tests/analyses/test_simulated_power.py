"""Power of the mixed model by simulation: what is drawn is what was assumed."""

from itertools import islice

import pytest

from projections.analyses.simulated_power import (
    AssumedEffect,
    PlannedOutcome,
    SimulatedPower,
    simulate,
    summarise,
)

CELLS = [
    PlannedOutcome(
        task=f"R{task % 2}-{task:02}", repository=f"R{task % 2}", model="M1", treatment=treatment
    )
    for task in range(40)
    for treatment in ("H000", "H007")
]
LANGUAGES = {"R0": "python", "R1": "python"}


def assumed(odds_ratio: float, share: float = 0.4) -> AssumedEffect:
    return AssumedEffect(
        new="H007",
        baseline="H000",
        model="M1",
        baseline_share=share,
        odds_ratio=odds_ratio,
        task_sd=1.0,
    )


def power_of(effect: AssumedEffect, draws: int = 60, stream: str = "power") -> SimulatedPower:
    found = list(islice(simulate(CELLS, effect, LANGUAGES, stream=stream), draws))
    return summarise(found, len(CELLS), effect, "0.05", stream)


def test_a_large_effect_is_found_and_none_is_not() -> None:
    large, none = power_of(assumed(12.0)), power_of(assumed(1.0))
    assert large.model_rejects > 50 and large.paired_rejects > 50
    assert none.model_rejects < 10 and none.paired_rejects < 8
    assert sum(large.rungs.values()) == large.draws == 60


def test_separation_is_seen_before_it_happens() -> None:
    rare = power_of(assumed(1.0, share=0.01), draws=20)
    assert rare.rungs["stratified_bootstrap"] > 10
    assert rare.model_rejects == 0


def test_the_same_stream_draws_the_same() -> None:
    assert power_of(assumed(3.0), 5) == power_of(assumed(3.0), 5)
    first = next(simulate(CELLS, assumed(3.0), LANGUAGES, stream="one"))
    shuffled = next(simulate(CELLS[::-1], assumed(3.0), LANGUAGES, stream="one"))
    assert first == shuffled


@pytest.mark.parametrize(("odds_ratio", "share"), [(0.0, 0.4), (3.0, 0.0), (3.0, 1.0)])
def test_what_cannot_be_drawn_is_refused(odds_ratio: float, share: float) -> None:
    with pytest.raises(ValueError, match="odds ratio|baseline's share"):
        next(simulate(CELLS, assumed(odds_ratio, share), LANGUAGES, stream="x"))
