"""The scorer over real sessions: the eight families that ship, run as a worker runs them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from actors.families.load import load_family
from actors.memory_systems.registry import open_memory
from ledger.log import Batch, NewEvent, decode
from projections.fold import fold
from projections.transfer.counts import behaviours, family_results
from projections.transfer.scores import TransferScores
from schemas.base import Event
from schemas.events.transfer import FamiliesFrozen
from tests.transfer.conftest import MEMORIES, RULE_BASED, InHand, Laboratory

EXAMPLES = Path(__file__).parents[2] / "actors" / "families" / "examples"

HEAD = """format = 1
kind = "transfer"
id = "ct-test"
title = "t"
question = "q"
[suite]
version = "1"
families = ["f.yaml"]
declared_basis = "captured"
"""


class ScoredLaboratory:
    """A laboratory whose log has the freeze, so that its runs are scored."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(EXAMPLES.glob("*.yaml"))
        families = [load_family(path.read_bytes(), path.name) for path in paths]
        self.in_hand = InHand(families, declared_basis="captured")
        self.lab = Laboratory(folder / "lab", self.in_hand, opener=open_memory)
        memories = (
            f'[[memories]]\nid = "{m.id}"\nkind = "{m.kind}"\npolicy = "{m.policy}"\n'
            for m in MEMORIES
        )
        drivers = (f'[[drivers]]\nid = "{kind}"\nkind = "{kind}"\n' for kind in RULE_BASED)
        systems = (
            f'[[systems]]\nmemory = "{m.id}"\ndriver = "{kind}"\n'
            for m in MEMORIES
            for kind in RULE_BASED
        )
        put = self.lab.context.artifacts.put
        suite = put(msgspec.json.encode(self.in_hand.suite), "application/json")
        study = put("".join([HEAD, *memories, *drivers, *systems]).encode(), "application/toml")
        self.append(FamiliesFrozen(suite=suite, version="1", families=8, cases=62, position=-1))
        self.append(msgspec.structs.replace(self.in_hand.event, study=study))

    def append(self, event: Event) -> None:
        batch = Batch(events=[NewEvent("study", event)], actor="test", run="test")
        self.lab.context.log.append(batch)

    def run(self, cells: Sequence[str]) -> TransferScores:
        for cell in cells:
            self.lab.run(cell)
        context = self.lab.context
        return fold(TransferScores(context.artifacts.get), map(decode, context.log.read()))


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> ScoredLaboratory:
    return ScoredLaboratory(tmp_path_factory.mktemp("scored"))


@pytest.fixture(scope="module")
def full_reader(laboratory: ScoredLaboratory) -> TransferScores:
    """Every given case with the full policy and the reader, and positives with a null memory."""
    cases = [case for family in laboratory.in_hand.suite.families for case in family.cases]
    cells = [f"{case.case_id}.d0/full/reader/0" for case in cases]
    cells += [f"{case.case_id}.d0/none/reader/0" for case in cases if case.kind == "positive"]
    return laboratory.run(cells)


def test_the_full_policy_with_the_reader_is_verified_everywhere(
    full_reader: TransferScores,
) -> None:
    runs = [run for run in full_reader.scores() if run.memory == "full"]
    assert len(runs) == 62
    assert [(run.cell, run.notes) for run in runs if run.result != "verified"] == []
    assert [run.cell for run in runs if run.behavioural == "failure"] == []
    assert {found.n for found in behaviours(runs)} == {0}


def test_every_family_discriminates(full_reader: TransferScores) -> None:
    assert full_reader.suite is not None
    found = [
        (family.family, family.result, family.paired.only_with)
        for family in family_results(full_reader.scores(), [], full_reader.suite)
        if family.memory == "full"
    ]
    assert found == [(f"F10{number}", "verified", 1) for number in range(1, 9)]


def test_a_null_memory_hits_no_positive(full_reader: TransferScores) -> None:
    runs = [run for run in full_reader.scores() if run.memory == "none"]
    assert {run.earliest for run in runs} == {"retrieval"}
    assert {(run.hit_decision, run.hit_outcome) for run in runs} <= {(False, False), (False, True)}


@pytest.mark.parametrize(
    ("cell", "earliest", "behaviour"),
    [
        ("F101-01-positive.d0/full/ignorer/0", "decision", "has the record"),
        ("F101-02-scope_negative.d0/everything/reader/0", "relevance", "over-applies"),
        ("F101-03-supersession.d0/everything/reader/0", "resolution", "serves the superseded"),
        ("F101-04-conflict.d0/everything/reader/0", "resolution", "guesses in conflict"),
        ("F104-03-expiry.d0/everything/reader/0", "resolution", "reuses the lapsed"),
        ("F101-06-outcome.d0/full/early_acknowledger/0", "outcome", "says that it is done"),
        ("F101-01-positive.d0/full/liar/0", "retrieval", "lies about its memory"),
        ("F105-02-persistence.d0/full/liar/0", "retention", "forgets"),
        ("F107-07-persistence_negative.d0/folder/reader/0", "retention", "keeps what may not"),
    ],
)
def test_who_does_what_wrong(
    laboratory: ScoredLaboratory, cell: str, earliest: str, behaviour: str
) -> None:
    run = laboratory.run([cell]).runs[cell]
    assert run.result == "failed"
    assert run.earliest == earliest
    found = {each.name: each.n for each in behaviours([run])}
    assert sum(n for name, n in found.items() if name.startswith(behaviour)) > 0, found
