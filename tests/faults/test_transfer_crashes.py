"""kill -9 of whoever works on a transfer study, right before and right after each of its commits:
corrections on their way through their life, the sessions of a suite, its analysis, a remediation
from the failed run to the limitation that is left. As in ``test_actor_crashes.py``.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE
from schemas.commands import (
    AddCorrections,
    AdvanceSession,
    AmendStudy,
    AnalyseStudy,
    ApproveCorrection,
    ChangeRemediation,
    CloseRemediation,
    Command,
    DisputeCorrection,
    ExpireCorrection,
    FreezeStudy,
    InspectOutcomes,
    OpenRemediation,
    RerunRemediation,
    ResolveDispute,
    StartRun,
    StopRun,
    SupersedeCorrection,
    WithdrawCorrection,
    WriteReport,
)
from schemas.events.command import CommandRequested
from schemas.events.run import StudyCompleted
from schemas.events.transfer import RemediationClosed, TransferScored
from schemas.transfer.correction import Correction, Scope
from tests.end_to_end.rehearsal_study import ROOT, check_commands
from tests.end_to_end.transfer_study import BY_PROJECT, ONE_MEMORY, begin_transfer_study
from tests.faults.actor_crashes import Laboratory, Step, anchor
from tests.faults.fault_points import count

pytestmark = pytest.mark.slow
KIND = "kill -9 at a commit boundary of a transfer study"
EXAMPLES = ROOT / "actors" / "families" / "examples"
OVER_APPLIED = "F101-02-scope_negative.d0/retrieval/reader/0"
"""A retrieval without a look at scopes applies a correction where it does not hold."""


def correction(name: str, **fields: Any) -> Correction:
    start = Correction(
        correction_id=name,
        class_="boundary",
        semantic_expectation="Edits are made in the staging tree.",
        source_reference=f"ref:log/{name}",
        persistence_allowed=True,
        scope=Scope(principal="role:maintainer", project="halyard", task_classes=("code_edit",)),
        valid_from="2026-01-01T00:00:00Z",
        expires_at=None,
        lifecycle="active",
        supersedes=None,
        expected_decision=f"tree-{name}",
        expected_action=f"write under tree-{name} today",
        prohibited_actions=("start the release job",),
        authoritative_outcome_check="surface tree: it is there",
        consequence="low",
    )
    return msgspec.structs.replace(start, **fields)


def orders_on_corrections() -> list[Command]:
    """Every step that a record can take."""
    names = ("C-1", "C-2", "C-3", "C-4")
    return [
        AddCorrections(records=tuple(map(correction, names)), proposer="ada"),
        *(ApproveCorrection(correction_id=name, approver="grace") for name in names),
        DisputeCorrection(correction_id="C-1", against="C-2", reason="one tree or the other"),
        ResolveDispute(winner="C-1", losers=("C-2",), approver="grace", reason="the newer one"),
        SupersedeCorrection(correction_id="C-1", by="C-3", reason="the tree was renamed"),
        ExpireCorrection(correction_id="C-3", at="2027-01-01T00:00:00Z", reason="it moves"),
        WithdrawCorrection(correction_id="C-4", reason="a misunderstanding"),
    ]


def orders_of_a_remediation() -> list[Command]:
    return [
        InspectOutcomes(reason="as planned"),
        AnalyseStudy(),
        WriteReport(),
        OpenRemediation(remediation="R1", cell=OVER_APPLIED, layer="query"),
        AmendStudy(reason="the query by project is a new system", changes_claim=False),
        ChangeRemediation(remediation="R1", memory="by-project", driver="reader"),
        RerunRemediation(remediation="R1", sample=1),
        StartRun(),
    ]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    place = tmp_path_factory.mktemp("transfer-laboratory")
    # One family is swept; the remediation needs a case of another class as well.
    study = begin_transfer_study(place / "work", EXAMPLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(study.config))
        found = Laboratory(study, place / "copies")
        for command in (*orders_on_corrections(), FreezeStudy(), StartRun()):
            found.order(command)
        found.work()
        found.order(StopRun(reason="complete", detail=""))
        for command in orders_of_a_remediation():
            if isinstance(command, AmendStudy):
                (study.path / "study.toml").write_text(ONE_MEMORY + BY_PROJECT)
            found.order(command)
        found.work()
        found.order(StopRun(reason="complete", detail=""))
        found.order(CloseRemediation(remediation="R1", limitation="scope is still not minded"))
        found.order(anchor(found.directory, place / "note"))
        yield found


def swept(step: Step) -> bool:
    """Of the sessions, and of what the scheduler does before one, those of one family."""
    asked = [f.event.command for f in step.facts if isinstance(f.event, CommandRequested)]
    cells = [c.cell for c in (step.command, *asked) if isinstance(c, AdvanceSession)]
    return all(cell.startswith("F101") for cell in cells)


def test_the_study_is_a_whole_one(laboratory: Laboratory) -> None:
    facts = laboratory.facts()
    assert {step.role for step in laboratory.steps} == {"operator", "scheduler", "memory_session"}
    assert sum(isinstance(fact.event, StudyCompleted) for fact in facts) == 2
    assert sum(isinstance(fact.event, TransferScored) for fact in facts) == 1
    assert sum(isinstance(fact.event, RemediationClosed) for fact in facts) == 1
    sessions = [step for step in laboratory.steps if isinstance(step.command, AdvanceSession)]
    assert len(sessions) == 28
    # Begun and ended; a prohibited call is committed in between.
    assert {step.appends for step in sessions} == {2, 3}
    check_commands(facts)


def test_who_works_on_a_transfer_study_is_killed_at_every_commit(laboratory: Laboratory) -> None:
    count(KIND, laboratory.kill_at_every_append(filter(swept, laboratory.steps)))
