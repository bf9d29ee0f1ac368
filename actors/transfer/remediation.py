"""The remediation loop of a transfer study: open, change, rerun, close or abandon (protocol,
section 7).

A failure is assigned to the earliest evidenced failing stage of one run. One layer of the system is
changed, and the changed system is a new identity that an amendment declares. The failing case, its
controls and a bounded sample of other classes run again with unchanged prompts, fixtures and
predicates; only then can the remediation be closed, with the limitation that is left. A fluent
postmortem is no remediation receipt.
"""

from collections.abc import Mapping
from hashlib import sha256

from actors.loop import Context, Done, Handlers, Work
from actors.memory_systems.contract import CaseFolders, Opening
from actors.memory_systems.registry import open_memory
from actors.transfer.case_run import driver_manifest
from actors.untrusted_trees import remove_tree
from ledger.errors import Refused
from ledger.log import NewEvent
from projections.fold import Follower
from projections.transfer.evidence import RunEvidence
from projections.transfer.remediation_receipts import layers_of, missing_to_close
from projections.transfer.remediations import Remediation, Remediations
from projections.transfer.scores import RunScore, TransferScores, root_record
from schemas.commands import (
    AbandonRemediation,
    ChangeRemediation,
    CloseRemediation,
    OpenRemediation,
    RerunRemediation,
)
from schemas.events.study import AmendmentRecorded, OutcomesInspected
from schemas.events.transfer import (
    RemediationAbandoned,
    RemediationChanged,
    RemediationClosed,
    RemediationOpened,
    RemediationRerun,
)
from schemas.identifiers import STUDY_STREAM
from schemas.secret_shapes import secret_kinds
from schemas.transfer.family import LAYERS, NEGATIVES, Case, Family, FrozenSuite, PlannedCase
from schemas.transfer.study import TransferStudy

CONTROLS = (*NEGATIVES, "supersession", "expiry")
OWN_KINDS = ("store", "folder")
"""Memories whose manifest can be read without starting somebody's program."""


def remediation_stream(remediation: str) -> str:
    return f"remediation/{remediation}"


class _State:
    """The folds that every step decides from."""

    def __init__(self, context: Context) -> None:
        self.scores = TransferScores(context.artifacts.get)
        self.remediations = Remediations()
        Follower(context.log, self.scores, self.remediations).catch_up()
        if self.scores.suite is None or self.scores.study is None:
            raise Refused("no suite is frozen here: a remediation needs runs that failed")
        self.suite: FrozenSuite = self.scores.suite
        self.study: TransferStudy = self.scores.study

    def remediation(self, name: str) -> Remediation:
        remediation = self.remediations.remediations.get(name)
        if remediation is None:
            known = ", ".join(self.remediations.remediations) or "none"
            raise Refused(f"there is no remediation {name!r}; there are: {known}")
        if remediation.ended_at >= 0:
            raise Refused(
                f"remediation {name} is {remediation.status} (record {remediation.ended_at}): open "
                "another one"
            )
        return remediation

    def run(self, cell: str) -> tuple[RunScore, RunEvidence]:
        score = self.scores.runs.get(cell)
        if score is None:
            raise Refused(f"{cell} is not a run that has ended: `ledger query` lists transfer_runs")
        return score, self.scores.evidence[cell]

    def unit(self, name: str) -> tuple[PlannedCase, Family, Case]:
        unit = next(unit for unit in self.suite.units if unit.unit == name)
        family = next(f for f in self.suite.families if f.family_id == unit.family_id)
        return unit, family, family.case(unit.case_id)


def open_remediation(work: Work) -> Done:
    """Assign one failed run to a layer. Refused for a run that did not fail at any stage, and, as
    the answer shows its outcome, for one that ended after outcomes were last inspected."""
    command: OpenRemediation = work.command
    looks = [f.seq for f in work.facts(STUDY_STREAM) if isinstance(f.event, OutcomesInspected)]
    if not looks:
        raise Refused(
            "a remediation shows outcomes, and no inspection is recorded: `ledger analyze --reason "
            '"…"` records one first'
        )
    state = _State(work.context)
    if command.remediation in state.remediations.remediations:
        raise Refused(f"there is a remediation {command.remediation} already: choose another name")
    score, evidence = state.run(command.cell)
    if score.finished > looks[-1]:
        raise Refused(
            f"{command.cell} ended (record {score.finished}) after outcomes were last inspected "
            f"(record {looks[-1]}), and a remediation shows its outcome: `ledger analyze --reason "
            '"…"` records an inspection first'
        )
    if score.earliest is None:
        why = {
            "unverified": "stages of it were not observed, which is no failure: make the system "
            "show them, and run it under a new identity",
            "void": "it is void by a fault that is not the system's, and runs again",
        }.get(score.result, "no stage of it failed")
        raise Refused(f"{command.cell} cannot be remedied: {why}")
    manifest = _together(
        command.manifest, layers_of(work.artifacts.get, evidence), f"the run {command.cell}"
    )
    if command.layer != "unknown":
        _require_layers(manifest, f"{score.memory} + {score.driver}")
    event = RemediationOpened(
        remediation=command.remediation,
        cell=command.cell,
        stage=score.earliest,
        layer=command.layer,
        manifest=manifest,
    )
    return Done([NewEvent(remediation_stream(command.remediation), event)])


def change_remediation(work: Work) -> Done:
    """Record the change. Refused unless exactly the named layer differs, and unless an amendment
    after the opening planned cells for the changed system."""
    command: ChangeRemediation = work.command
    state = _State(work.context)
    remediation = state.remediation(command.remediation)
    if remediation.changed is not None:
        raise Refused(
            f"remediation {command.remediation} has its change (record {remediation.changed_at}): "
            "one remediation changes one layer, once. Open another one for another change"
        )
    before_score, _ = state.run(remediation.opened.cell)
    new = f"{command.memory} + {command.driver}"
    if before_score.system == (command.memory, command.driver):
        raise Refused(
            f"{new} is the system that failed: a changed system is a new identity. Declare it in "
            "study.toml under an id of its own, then `ledger amend`"
        )
    amended = any(
        isinstance(fact.event, AmendmentRecorded) and fact.seq > remediation.opened_at
        for fact in work.facts(STUDY_STREAM)
    )
    planned = any(_is_of(cell, before_score.unit, command) for cell in state.scores.planned)
    if not amended or not planned:
        raise Refused(
            f"no amendment after record {remediation.opened_at} plans {before_score.unit} for "
            f"{new}: declare the changed memory or driver and their system in study.toml, then "
            '`ledger amend --reason "…"`'
        )
    attributed = remediation.opened.layer != "unknown"
    before = remediation.opened.manifest
    after = _together(
        command.manifest, manifest_of(work, state.study, command.memory, command.driver), new
    )
    if attributed:
        _require_layers(after, new)
        differing = [layer for layer in LAYERS if before[layer] != after[layer]]
        if differing != [remediation.opened.layer]:
            found = ", ".join(differing) or "none"
            raise Refused(
                f"exactly {remediation.opened.layer} must differ between {before_score.memory} + "
                f"{before_score.driver} and {new}; these layers do: {found}. Change one layer at a "
                "time; where the layers cannot be seen, open the remediation with --layer unknown"
            )
    event = RemediationChanged(
        remediation=command.remediation,
        layer=remediation.opened.layer,
        before=before,
        after=after,
        attributed=attributed,
        new_memory=command.memory,
        new_driver=command.driver,
    )
    return Done([NewEvent(remediation_stream(command.remediation), event)])


def rerun_remediation(work: Work) -> Done:
    """Fix the runs: the failing case, its family's negative, supersession and expiry controls, and
    a seeded sample of cases from the other classes; every planned trial of each."""
    command: RerunRemediation = work.command
    state = _State(work.context)
    remediation = state.remediation(command.remediation)
    if remediation.changed is None:
        raise Refused(
            f"remediation {command.remediation} has no change yet: `ledger transfer remediation "
            "change`"
        )
    if remediation.rerun is not None:
        raise Refused(
            f"the runs of remediation {command.remediation} are fixed (record "
            f"{remediation.rerun_at}): `ledger run` makes them"
        )
    score, _ = state.run(remediation.opened.cell)
    units, stream = rerun_units(state.suite, score, command.remediation, command.sample)
    changed = remediation.changed
    cells = []
    missing = []
    for unit in units:
        of_unit = [cell for cell in state.scores.planned if _is_of(cell, unit, changed)]
        cells += of_unit
        if not of_unit:
            missing.append(unit)
    if missing:
        raise Refused(
            f"{changed.new_memory} + {changed.new_driver} has no planned runs of "
            f"{', '.join(missing)}: add the system to study.toml and `ledger amend`"
        )
    event = RemediationRerun(
        remediation=command.remediation, cells=tuple(cells), sample_seed=stream
    )
    return Done([NewEvent(remediation_stream(command.remediation), event)])


def close_remediation(work: Work) -> Done:
    """End a remediation. Refused with everything that is missing."""
    command: CloseRemediation = work.command
    state = _State(work.context)
    remediation = state.remediation(command.remediation)
    missing = list(missing_to_close(work.artifacts.get, state.scores, remediation))
    _refuse_secrets(command.limitation, "limitation")
    if not command.limitation.strip():
        missing.append("what is left unresolved, in words")
    if missing:
        raise Refused(
            f"remediation {command.remediation} cannot be closed yet; missing: {'; '.join(missing)}"
        )
    event = RemediationClosed(
        remediation=command.remediation,
        suite_version=state.suite.version,
        limitation=command.limitation.strip(),
    )
    return Done([NewEvent(remediation_stream(command.remediation), event)])


def abandon_remediation(work: Work) -> Done:
    """Give a remediation up, at whatever step it is."""
    command: AbandonRemediation = work.command
    _State(work.context).remediation(command.remediation)
    _refuse_secrets(command.reason, "reason")
    if not command.reason.strip():
        raise Refused("say why with --reason TEXT: everyone who reads the report sees it")
    event = RemediationAbandoned(remediation=command.remediation, reason=command.reason.strip())
    return Done([NewEvent(remediation_stream(command.remediation), event)])


HANDLERS: Handlers = {
    OpenRemediation: open_remediation,
    ChangeRemediation: change_remediation,
    RerunRemediation: rerun_remediation,
    CloseRemediation: close_remediation,
    AbandonRemediation: abandon_remediation,
}


def rerun_units(
    suite: FrozenSuite, score: RunScore, remediation: str, sample: int
) -> tuple[list[str], str]:
    """(units to run again, named stream of the sample), all among as many distractors.

    The sample is drawn from families of other classes: ranked by SHA-256(stream | unit).
    """
    families = {family.family_id: family for family in suite.families}
    units = [unit for unit in suite.units if unit.distractors == score.distractors]
    own = [unit for unit in units if unit.family_id == score.family]
    failing = [unit.unit for unit in own if unit.case_id == score.case]
    controls = [
        unit.unit
        for unit in own
        if families[unit.family_id].case(unit.case_id).kind in CONTROLS and unit.unit not in failing
    ]
    others = [
        unit.unit
        for unit in units
        if root_record(families[unit.family_id]).class_ != score.class_
        and families[unit.family_id].case(unit.case_id).kind != "baseline"
    ]
    if len(others) < sample:
        raise Refused(
            f"the suite has {len(others)} cases of other classes among {score.distractors} "
            f"distractors: --sample must be at most that"
        )
    stream = f"{suite.suite_id}/{suite.version}/remediation/{remediation}/{sample}"
    ranked = sorted(others, key=lambda unit: sha256(f"{stream}|{unit}".encode()).digest())
    return [*failing, *controls, *ranked[:sample]], stream


def manifest_of(work: Work, study: TransferStudy, memory_id: str, driver_id: str) -> dict[str, str]:
    """Digests by layer of a declared system; none of somebody else's, which its runs show."""
    memory, driver = study.memory(memory_id), study.driver(driver_id)
    if memory.kind not in OWN_KINDS or driver.kind == "own":
        return {}
    folders = CaseFolders(work.scratch / "manifest")
    if folders.root.exists():
        remove_tree(folders.root)
    folders.create()
    system = open_memory(memory, Opening(folders, float(study.suite.session_s)))
    try:
        layers = {**system.manifest().layers, **driver_manifest(study, driver).layers}
    finally:
        system.close()
        remove_tree(folders.root)
    return {name: layers[name] for name in LAYERS if name in layers}


def _together(given: Mapping[str, str], shown: Mapping[str, str], what: str) -> dict[str, str]:
    """What is shown, and what is given where nothing is. Raises Refused for a contradiction."""
    contradicted = [
        layer
        for layer in LAYERS
        if layer in shown and given.get(layer, shown[layer]) != shown[layer]
    ]
    if contradicted:
        raise Refused(
            f"--manifest says otherwise about {', '.join(contradicted)} than {what}, which shows "
            "them: leave out of the file what is shown"
        )
    together = {**given, **shown}
    return {layer: together[layer] for layer in LAYERS if layer in together}


def _refuse_secrets(text: str, what: str) -> None:
    kinds = secret_kinds(text)
    if kinds:
        raise Refused(
            f"the {what} looks like it holds {', '.join(kinds)}: what is recorded stays, so point "
            "to it instead"
        )


def _require_layers(manifest: Mapping[str, str], system: str) -> None:
    missing = [layer for layer in LAYERS if layer not in manifest]
    if missing:
        raise Refused(
            f"{system} does not show the layers {', '.join(missing)}: give all eight with "
            "--manifest FILE, or open the remediation with --layer unknown (it is recorded as "
            "unattributed)"
        )


def _is_of(cell: str, unit: str, system: ChangeRemediation | RemediationChanged) -> bool:
    if isinstance(system, RemediationChanged):
        memory, driver = system.new_memory, system.new_driver
    else:
        memory, driver = system.memory, system.driver
    return cell.split("/")[:3] == [unit, memory, driver]
