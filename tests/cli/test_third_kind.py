"""The seam between the kinds of study: a third one, declared here alone, goes all the way.

Coins are thrown: each coin is a unit, its only arm and agent are the hand that throws it.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import pytest
from msgspec import Meta

from actors.loop import LEASE_SECONDS, Context, Done, Handlers, Work, carry_out, perform
from actors.sandbox import SandboxReport
from actors.study import freezing
from actors.study.analysis import Analysis, Recorded, Summary
from actors.study.components import KERNEL, Component
from actors.study.kind import FreezeSummary, StudyKind, Template
from actors.study.reexecution import Comparison
from actors.study_kinds import KINDS, orders_in
from ledger.artifacts import Artifacts
from ledger.cli.worker import handlers_of
from ledger.errors import Refused
from ledger.log import NewEvent
from ledger.stores import open_log
from ledger.study_directory import StudyDirectory
from projections.fold import Follower
from projections.progress import Progress
from projections.results import ComputedFrom
from schemas import commands
from schemas.base import Event, Value
from schemas.events.cell import CellStarted
from schemas.events.run import StudyCompleted
from schemas.events.study import PlanPrepared
from schemas.events.transfer import CaseFinished
from schemas.identifiers import STUDY_STREAM, CellId, parse_cell_id
from schemas.plan import Plan, PlannedCell
from schemas.study import Grading, Refuse, Study
from schemas.study_file import FORMS
from tests.cli.conftest import Run

TOML = """
format = 1
kind = "coins"
id = "three-coins"
title = "Three coins"
question = "Does a coin land?"
coins = ["penny", "nickel", "dime"]
"""
NOTHING = sha256(b"").hexdigest()


class CoinStudy(Study):
    """The whole of ``study.toml`` for `kind = "coins"`."""

    KIND: ClassVar[str] = "coins"
    OPEN_TO_AMENDMENTS: ClassVar[str] = "Coins that were not thrown yet."
    GRADED: ClassVar[bool] = False
    kind: Annotated[Literal["coins"], Meta(description="which study: coins")]
    coins: tuple[str, ...]
    grading: Grading = Grading(when="beside")

    @property
    def runs_foreign_code(self) -> bool:
        return False

    @property
    def max_attempts(self) -> int:
        return 1

    def model_of(self, agent: str) -> str:
        return ""

    def cell_components(self, cell: CellId) -> tuple[str, ...]:
        return ()

    def check(self, refuse: Refuse) -> None:
        if not self.coins:
            refuse("coins", "at least one")

    def undeclared(self, cells: Sequence[CellId]) -> list[str]:
        return [f"coins: {cell.unit}" for cell in cells if cell.unit not in self.coins]

    def not_amendable(self, before: Self, cells: Sequence[CellId], begun: bool) -> list[str]:
        return self.undeclared(cells)


class Landed(Value):
    """How many coins landed."""

    computed_from: ComputedFrom
    simulated: bool
    code_not_as_frozen: tuple[str, ...]
    landed: int


def plan_of(study: CoinStudy) -> Plan:
    cells = [CellId(unit=coin, arm="hand", agent="hand", repeat=0) for coin in study.coins]
    return Plan(
        cells=tuple(
            PlannedCell(position=i, cell=cell, block="matrix") for i, cell in enumerate(cells)
        )
    )


def components(study: Study) -> Sequence[Component]:
    return [Component("kernel", KERNEL)]


def freeze(work: Work) -> Done:
    content, study = work.context.directory.read_study_of(CoinStudy)
    freezing.refuse_if_frozen(work, " already")
    planned = freezing.prepared_plan(work, plan_of(study))
    frozen = freezing.study_frozen(
        work,
        content,
        study,
        components(study),
        tasks=NOTHING,
        plan=planned.plan.digest,
    )
    return Done([NewEvent(STUDY_STREAM, event) for event in (planned, frozen)])


def start_run(work: Work) -> Done:
    study, progress, waiting = freezing.require_as_frozen(work, CoinStudy, components)
    report = SandboxReport(kind="none", rungs=(), remedy="")
    return freezing.start_run(work, study, progress, waiting, report)


def next_step(progress: Progress, pending: Sequence[commands.Command]) -> Done:
    cell = progress.next_cell()
    if cell is not None:
        return Done(requests=[commands.AdvanceSession(cell=str(cell.cell))])
    done = StudyCompleted(cells=len(progress.cells), graded=progress.with_outcome())
    return Done(events=[NewEvent(STUDY_STREAM, done)])


def throw(work: Work) -> Done:
    cell = parse_cell_id(work.command.cell)
    started = CellStarted(
        cell=cell, attempt=0, unit=NOTHING, arm=NOTHING, agent=NOTHING, simulated=False
    )
    ended = CaseFinished(cell=cell, attempt=0, ended="completed")
    events: list[Event] = [started, ended]
    return Done([NewEvent(cell.stream, event) for event in events], [commands.ContinueStudy()])


def compute(context: Context, seq: int, leaf: str) -> Landed:
    progress = Progress(context.artifacts.get)
    Follower(context.log, progress).catch_up(seq + 1)
    if progress.frozen is None:
        raise Refused("nothing is frozen")
    return Landed(
        computed_from=ComputedFrom(study=progress.frozen.digest, head=seq, leaf=leaf),
        simulated=False,
        code_not_as_frozen=(),
        landed=progress.with_outcome(),
    )


def report(context: Context, recorded: Recorded[Landed], pages: bool) -> Mapping[str, bytes]:
    words = f"{recorded.results.landed} coins landed".encode()
    return {
        "report.html": words,
        "report.md": words,
        "coins.csv": words,
        "PROTOCOL_AMENDMENTS.md": b"",
    }


def workers(context: Context, roles: object, closing: ExitStack) -> Handlers:
    return {commands.AdvanceSession: throw}


COINS = StudyKind(
    form=CoinStudy,
    templates={"coins": Template()},
    first_command="ledger freeze",
    before_freeze=lambda context, study: f"`ledger freeze` {study.id}",
    orders=lambda: {commands.FreezeStudy: freeze, commands.StartRun: start_run},
    plan_balance=lambda progress, study: None,
    freeze_summary=lambda context, progress, frozen: FreezeSummary(
        counts={"coins": len(progress.cells)}, bound=(f"{len(progress.cells)} coins",)
    ),
    components=components,
    status=lambda progress: ("coins       of metal",),
    roles=("memory_session",),
    workers=workers,
    next_step=next_step,
    advance=lambda cell: commands.AdvanceSession(cell=cell),
    before_run=lambda context: (),
    briefs=lambda context: (),
    execute_again=lambda context, cell: Comparison(2),
    analysis=lambda: Analysis(
        results=Landed,
        compute=compute,
        events=lambda context, results: (),
        report=report,
        summary=lambda results: Summary(f"{results.landed} coins landed", "", []),
        as_if_run_by=lambda results, other: results,
    ),
    units_frozen=PlanPrepared,
    shown_of_a_cell=(CellStarted,),
)


@pytest.fixture(autouse=True)
def third_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMS, "coins", CoinStudy)
    monkeypatch.setitem(KINDS, "coins", COINS)  # type: ignore[arg-type]


def run_in_this_process(study: Path) -> None:
    """As ``ledger run`` does with processes, which would not know of this kind."""
    directory = StudyDirectory(study)
    log = open_log(directory.ledger, "append")
    context = Context(log, Artifacts(directory.artifacts), directory, "test")
    carry_out(context, commands.StartRun(), orders_in(context))
    roles: tuple[commands.Role, ...] = ("scheduler", "memory_session")
    with ExitStack() as closing:
        handlers = handlers_of(context, roles, "", "", closing)
        while (claim := log.claim(roles, LEASE_SECONDS)) is not None:
            perform(context, claim, handlers)
    log.close()


def test_a_kind_that_is_declared_goes_from_init_to_report(ledger: Run, tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.toml").write_text(TOML)
    where = ("--study", study)
    made = ledger("init", study)
    assert made.status == 0 and "&& ledger freeze" in made.out, made
    assert "next: `ledger freeze` three-coins" in ledger("status", *where).out
    frozen = ledger("freeze", *where)
    assert frozen.status == 0 and "3 coins, " in frozen.out, frozen
    assert "next        `ledger run`" in ledger("status", *where).out
    run_in_this_process(study)
    status = ledger("status", *where).out
    assert "state       complete" in status and "done        3 of 3 cells" in status, status
    assert "coins       of metal" in status
    hidden = ledger("show", "penny/hand/hand/0", *where)
    assert "(masked)" in hidden.out and "completed" not in hidden.out, hidden
    analysed = ledger("analyze", "--reason", "the last coin has landed", *where)
    assert analysed.status == 0 and "3 coins landed" in analysed.out, analysed
    assert ledger("analyze", "--check", *where).status == 0
    again = ledger("replay", "--execute", "penny/hand/hand/0", *where)
    assert again.status == 0 and "identical, 2 recorded events compared" in again.out, again
    assert ledger("report", *where).status == 0
    (page,) = study.glob("var/reports/*/report.md")
    assert page.read_text() == "3 coins landed"
    assert ledger("verify-chain", *where).status == 0
    audits = ledger("audit", "completeness", "inspections", "registration", *where)
    assert audits.status == 0, audits


def test_what_it_declares_is_checked_as_its_form_says(ledger: Run, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TOML.replace('["penny", "nickel", "dime"]', "[]"))
    ledger("init", tmp_path)
    refused = ledger("freeze", "--study", tmp_path)
    assert refused.status == 2 and "`coins`: at least one" in refused.err, refused


def test_an_order_of_another_kind_is_refused_by_its_name(ledger: Run, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TOML)
    ledger("init", tmp_path)
    refused = ledger("tasks", "mine", "--study", tmp_path)
    assert refused.status == 2 and 'for a study of kind "repair"' in refused.err, refused
