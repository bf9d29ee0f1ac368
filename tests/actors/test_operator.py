"""What an operator may amend, on the small study whose cells have run."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import actors.repair.freezing
from actors.loop import Context, carry_out
from actors.repair.analysis import ANALYSIS
from actors.repair.freezing import ORDERS
from actors.repair.frozen_study import FrozenRepair
from actors.repair.scheduling import next_step
from actors.sandbox import SandboxReport
from actors.study.analysis import compute
from actors.study.components import Identity
from ledger.errors import PreflightMismatch, Refused, SafetyStop
from ledger.memory_log import MemoryLog
from projections.fold import fold
from projections.progress import Progress
from schemas.commands import AmendStudy, StartRun
from schemas.events.mining import SandboxProbed
from schemas.events.run import RunStarted
from schemas.events.study import AmendmentRecorded
from tests.projections.tiny_study import of_type
from tests.report.small_study import TOML, SmallStudy


@pytest.fixture
def study(tmp_path: Path) -> SmallStudy:
    study = SmallStudy(root=tmp_path, log=MemoryLog())
    study.write_complete()
    return study


def context_of(study: SmallStudy) -> Context:
    return Context(study.log, study.artifacts, study.directory, "test")


def amend(study: SmallStudy, toml: str) -> None:
    study.directory.toml.write_text(toml)
    carry_out(context_of(study), AmendStudy(reason="x", changes_claim=False), ORDERS)


def amendments(study: SmallStudy) -> int:
    return sum(1 for _ in of_type(study.facts(), AmendmentRecorded))


def without(toml: str, *blocks: str) -> str:
    """``toml`` without the tables that begin so."""
    for begin in blocks:
        start = toml.index(begin)
        end = toml.find("\n\n", start)
        toml = toml[:start] + ("" if end < 0 else toml[end + 2 :])
    return toml


REAL = "\n".join(
    line
    for line in TOML.replace('"stand_in"', '"lmstudio"').splitlines()
    if not line.startswith(("simulated", "rehearsal"))
)
NO_CONTRASTS = without(
    TOML,
    '[[contrasts]]\nid = "primary"',
    '[[contrasts]]\nid = "replication"',
    '[[contrasts]]\nid = "reversed"',
    '[[contrasts]]\nid = "gap"',
)
GONE = {
    "an arm": ('[[treatments]]\nid = "H018"', "treatments: H018"),
    "a model": ('[[models]]\nid = "M003"', "models: M003"),
    "a repository": ('[[repositories]]\nid = "R002"', "repositories: R002"),
}


def test_no_amendment_makes_a_real_study_of_a_rehearsal(study: SmallStudy) -> None:
    with pytest.raises(Refused, match="`simulated`.* was true and is false"):
        amend(study, REAL)
    assert amendments(study) == 0


def test_no_amendment_makes_a_rehearsal_of_a_real_study(tmp_path: Path) -> None:
    study = SmallStudy(root=tmp_path, log=MemoryLog(), toml=REAL)
    study.write_complete()
    with pytest.raises(Refused, match="`simulated`.* was false and is true"):
        amend(study, TOML)
    assert amendments(study) == 0


@pytest.mark.parametrize("name", GONE)
def test_what_planned_cells_need_stays_declared(study: SmallStudy, name: str) -> None:
    block, missing = GONE[name]
    with pytest.raises(Refused, match=missing):
        amend(study, without(NO_CONTRASTS, block))
    assert amendments(study) == 0


@pytest.mark.parametrize(
    ("was", "is_now", "why"),
    [
        (
            "context_length = 65536",
            "context_length = 4096",
            "model M002 changed in `context_length`",
        ),
        ('role = "oracle"', 'role = "system"', "H018 was of role oracle and is system"),
    ],
)
def test_what_cells_have_begun_with_stays_what_it_was(
    study: SmallStudy, was: str, is_now: str, why: str
) -> None:
    assert was in TOML
    with pytest.raises(Refused, match=why):
        amend(study, TOML.replace(was, is_now, 1))
    assert amendments(study) == 0


def test_until_then_it_may_be_corrected(tmp_path: Path) -> None:
    study = SmallStudy(root=tmp_path, log=MemoryLog())
    study.mine_all()
    study.freeze_all()
    amend(study, TOML.replace("context_length = 65536", "context_length = 4096", 1))
    assert amendments(study) == 1


def test_a_study_keeps_its_name(study: SmallStudy) -> None:
    name = tomllib.loads(TOML)["id"]
    with pytest.raises(Refused, match=f"`id` was {name} and is another"):
        amend(study, TOML.replace(f'id = "{name}"', 'id = "another"', 1))


@pytest.mark.parametrize("name", GONE)
def test_a_ledger_in_which_it_was_taken_away_is_refused_and_breaks_nothing(
    study: SmallStudy, name: str
) -> None:
    block, missing = GONE[name]
    study.amend_to(without(NO_CONTRASTS, block), "after_first_cell")
    with pytest.raises(Refused, match=missing):
        FrozenRepair(context_of(study))
    assert compute(context_of(study), ANALYSIS).flow[0].planned == len(study.cells)


def test_a_contrast_may_go_and_an_arm_may_come(study: SmallStudy) -> None:
    amend(study, NO_CONTRASTS + '\n[[treatments]]\nid = "H999"\nrole = "component"\n')
    assert amendments(study) == 1


def test_what_a_study_does_not_declare_is_named(study: SmallStudy) -> None:
    with pytest.raises(LookupError, match="model M999 is not declared"):
        study.study.model("M999")
    with pytest.raises(LookupError, match="repository R999 is not declared"):
        study.study.repository("R999")


OTHER = Identity(files={"harnesses/h000_exact_search.py": "0" * 64}, libraries={"msgspec": "0.1"})


def test_an_arm_whose_code_was_amended_runs_with_the_amended_code(tmp_path: Path) -> None:
    study = SmallStudy(root=tmp_path, log=MemoryLog(), changed={"arm H000": OTHER})
    study.write_complete()
    cells = {cell.arm: cell for cell in study.cells}
    before = FrozenRepair(context_of(study))
    with pytest.raises(Refused, match=r"not as frozen: arm H000: .*is new, .* and \d+ more"):
        before.require_as_frozen(cells["H000"])
    before.require_as_frozen(cells["H018"])
    began = study.facts()[-1].seq
    amend(study, TOML)
    after = FrozenRepair(context_of(study))
    after.require_as_frozen(cells["H000"])
    assert after.component("arm H000").digest != OTHER.digest
    assert after.as_of(began).component("arm H000").digest == OTHER.digest
    assert after.component("arm H018") == before.component("arm H018")
    recorded = [f.event for f in study.facts() if isinstance(f.event, AmendmentRecorded)][-1]
    assert [(c.name, c.before, c.reexecuted) for c in recorded.components] == [
        ("arm H000", OTHER.digest, ())
    ]
    found = recorded.components[0].differences
    assert "harnesses/h000_exact_search.py differs" in found
    assert f"msgspec 0.1 -> {version('msgspec')}" in found


@pytest.fixture
def _sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in which the tasks were validated, whatever this host has."""
    report = SandboxReport(kind="bubblewrap", rungs=(), remedy="")
    monkeypatch.setattr(actors.repair.freezing, "probe", lambda: report)


def begin(study: SmallStudy) -> None:
    carry_out(context_of(study), StartRun(allow_unsafe_sandbox=True), ORDERS)


def frozen_with(tmp_path: Path, changed: Mapping[str, Identity]) -> SmallStudy:
    study = SmallStudy(root=tmp_path, log=MemoryLog(), changed=changed)
    study.create()
    study.mine_all()
    study.freeze_all()
    return study


@pytest.mark.usefixtures("_sandbox")
def test_a_changed_arm_stops_its_own_cells_alone_and_by_name(tmp_path: Path) -> None:
    study = frozen_with(tmp_path, {"arm H000": OTHER})
    begin(study)
    progress = fold(Progress(study.artifacts.get), study.facts())
    started = [f.event for f in study.facts() if isinstance(f.event, RunStarted)][-1]
    assert started.waiting == ("arm H000",)
    assert started.program is not None, "all else is recorded as evidence"
    assert progress.waiting_cells() == {"arm H000": sum(c.arm == "H000" for c in study.cells)}
    while (cell := progress.next_cell()) is not None:
        assert cell.cell.arm == "H018"
        cell.status = "graded"
    for task in {cell.unit for cell in study.cells}:
        progress.gold[task, 0] = True
    with pytest.raises(SafetyStop, match=r"cells? waiting for arm H000, which is not as frozen"):
        next_step(progress, [])


def test_a_run_of_nothing_but_waiting_cells_is_refused(tmp_path: Path) -> None:
    study = frozen_with(tmp_path, {"arm H000": OTHER, "arm H018": OTHER})
    with pytest.raises(Refused, match=r"not as frozen: arm H000: .*; arm H018: "):
        begin(study)


@pytest.mark.parametrize("name", ["kernel", "grader", "language python", "server stand_in"])
def test_what_every_cell_needs_stops_the_run(tmp_path: Path, name: str) -> None:
    study = frozen_with(tmp_path, {name: OTHER})
    with pytest.raises(Refused, match=f"not as frozen: {name}: "):
        begin(study)


@pytest.mark.usefixtures("_sandbox")
@pytest.mark.parametrize("name", ["miner", "analysis"])
def test_what_no_cell_needs_stops_nothing(tmp_path: Path, name: str) -> None:
    study = frozen_with(tmp_path, {name: OTHER})
    begin(study)
    assert fold(Progress(study.artifacts.get), study.facts()).waiting_cells() == {}


def test_tests_run_in_the_kind_of_sandbox_that_validated_the_tasks(
    study: SmallStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's answer to the probe; no host can be asked to gain or lose a rung."""
    asked: list[Any] = []

    def host(*kinds: str) -> None:
        def probe(_scratch: object = None, wanted: Sequence[str] = kinds) -> SandboxReport:
            asked.append(wanted)
            kind: Any = next((kind for kind in kinds if kind in wanted), "none")
            return SandboxReport(kind=kind, rungs=(), remedy="")

        asked.clear()
        monkeypatch.setattr(actors.repair.freezing, "probe", probe)

    def start() -> str:
        carry_out(context_of(study), StartRun(allow_unsafe_sandbox=True), ORDERS)
        probed = [f.event for f in study.facts() if isinstance(f.event, SandboxProbed)]
        return probed[-1].kind

    host("bubblewrap")
    assert start() == "bubblewrap"
    host("namespaces", "bubblewrap")
    assert start() == "bubblewrap", "not in the first that is offered"
    for other in ((), ("landlock",)):
        host(*other)
        with pytest.raises(PreflightMismatch, match="validated in the sandbox bubblewrap"):
            start()
        assert asked[-1] == ["bubblewrap"]
