"""Every stage passes, fails and is unobserved, each of them by what a system did in a session."""

from dataclasses import replace
from typing import Any

import pytest

from actors.memory_systems.contract import Delivery, Snapshot, SystemFailure
from actors.memory_systems.registry import open_memory
from actors.memory_systems.store import StoreMemory
from actors.transfer.sessions import MemorySessions
from projections.transfer.scores import RunScore
from schemas.events.transfer import Capabilities
from schemas.transfer.correction import Session
from schemas.transfer.family import STAGES
from tests.transfer_scores.test_given_families import ScoredLaboratory


class Opaque(StoreMemory):
    """Our store behind an interface that shows nothing of itself, as a hosted memory is."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(clock="settable", write_path=True)

    def snapshot(self) -> Snapshot:
        return Snapshot("", "none", None)

    def recall(self, query: str, session: Session) -> Delivery:
        return replace(super().recall(query, session), grade="none")


class Loses(StoreMemory):
    """Keeps only the first hundred characters of what it is given."""

    def seed(self, texts: Any) -> dict[str, tuple[str, ...]]:
        return super().seed({key: text[:100] for key, text in texts.items()})


class DiesAtOnce(StoreMemory):
    """Crashes before a session can begin."""

    def snapshot(self) -> Snapshot:
        raise SystemFailure("crashed", "gone")


RUNS: tuple[tuple[str, Any], ...] = (
    ("F101-03-supersession.d0/full/reader/0", open_memory),
    ("F101-03-supersession.d0/everything/reader/0", open_memory),
    ("F101-02-scope_negative.d0/everything/reader/0", open_memory),
    ("F101-06-outcome.d0/full/early_acknowledger/0", open_memory),
    ("F101-01-positive.d0/none/reader/0", open_memory),
    ("F106-01-positive.d0/retrieval/reader/0", DiesAtOnce),
    ("F102-03-supersession.d0/retrieval/liar/0", Opaque),
    ("F103-01-positive.d0/retrieval/reader/0", Loses),
    ("F101-01-positive.d50/everything/over_applier/0", open_memory),
)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunScore]:
    laboratory = ScoredLaboratory(tmp_path_factory.mktemp("verdicts"))
    for cell, opener in RUNS:
        laboratory.lab.sessions = MemorySessions(laboratory.in_hand, opener=opener)
        laboratory.lab.run(cell)
    return {run.cell: run for run in laboratory.run([]).scores()}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_passes_fails_and_is_unobserved(scored: dict[str, RunScore], stage: Any) -> None:
    verdicts = {run.stages[stage].verdict for run in scored.values()}
    assert verdicts >= {"pass", "fail", "unobserved"}


def test_what_is_lost_in_the_store_fails_where_it_was_lost(scored: dict[str, RunScore]) -> None:
    run = scored["F103-01-positive.d0/retrieval/reader/0"]
    assert run.earliest == "retention"


def test_what_shows_nothing_is_not_blamed_for_what_it_does_not_show(
    scored: dict[str, RunScore],
) -> None:
    run = scored["F102-03-supersession.d0/retrieval/liar/0"]
    hidden = ("retention", "retrieval", "relevance", "resolution", "decision")
    assert {stage: run.stages[stage].verdict for stage in hidden} == dict.fromkeys(
        hidden, "unobserved"
    )
    assert run.earliest == "action"
    assert run.uncertain == hidden


def test_whoever_recalls_an_unrelated_record_has_not_made_it_up(
    scored: dict[str, RunScore],
) -> None:
    run = scored["F101-01-positive.d50/everything/over_applier/0"]
    recalled = [claim for claim in run.claims if claim.kind == "recalled"]
    assert recalled
    assert all(claim.about.startswith("U-") for claim in recalled)
    assert [claim.verdict for claim in recalled] == ["supported"] * len(recalled)
    assert run.stages["relevance"].verdict == "fail"
