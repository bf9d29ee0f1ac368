"""A suite from its family files to what a transfer study freezes: families, units, plan.

Pure functions of the study and the files; what is refused here is refused before anything is bound.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from actors.families.load import FamilyError, load_family
from actors.memory_systems.process import file_digest, program_files, words_that_reach
from ledger.errors import Refused
from ledger.study_directory import StudyDirectory
from projections.transfer.frozen_programs import Programs
from schemas.identifiers import CellId, check_identifier
from schemas.plan import Plan, PlannedCell
from schemas.transfer.family import Family, FrozenSuite, PlannedCase
from schemas.transfer.lifecycle import Standing, effective_lifecycle, standings_of
from schemas.transfer.study import Driver, Memory, System, TransferStudy

CORRECTIONS = "corrections"
"""Folder in which people keep the files of their records."""
NOTHING = sha256(b"").hexdigest()
"""An empty file is a copy of every other one, and says nothing."""


def read_families(directory: StudyDirectory, study: TransferStudy) -> tuple[Family, ...]:
    """The families that the study names, in its order.

    Raises Refused with every file that cannot be used, and where two families share an id.
    """
    families: list[Family] = []
    problems: list[str] = []
    for path in study.suite.families:
        try:
            families.append(load_family(directory.document(path), path))
        except FamilyError as error:
            problems.append(str(error))
    if problems:
        raise Refused("\n".join(problems))
    seen: dict[str, str] = {}
    for path, family in zip(study.suite.families, families, strict=True):
        names = [family.family_id, *(case.case_id for case in family.cases)]
        names += [record.correction_id for record in family.records]
        for name in names:
            if seen.setdefault(name, path) != path:
                raise Refused(f"{path}: duplicate id {name}, also in {seen[name]}")
    return tuple(families)


def present_programs(directory: StudyDirectory, study: TransferStudy) -> Programs:
    """What the commands of the study's memories bring at this moment."""
    commands = {memory.id: memory.command for memory in study.memories if memory.command}
    return program_files(commands, directory.root)


def check_commands(directory: StudyDirectory, study: TransferStudy) -> None:
    """Raises Refused with every word of a command that would show a system the expected answers, or
    that lies in what the ledger keeps for itself, and with every copy of a family beside one."""
    names = [*study.suite.families, directory.toml.name, directory.var.name, CORRECTIONS]
    kept = [directory.root / name for name in names]
    problems = [
        f"`memories[{index}].command`: {word!r} puts {os.path.relpath(place, directory.root)} "
        "within the program's reach"
        for index, memory in enumerate(study.memories)
        for word, place in words_that_reach(memory.command, directory.root, kept)
    ]
    answers = {}
    for name in study.suite.families:
        with suppress(OSError):
            answers[file_digest(directory.root / name)] = name
    answers.pop(NOTHING, None)
    brought = present_programs(directory, study)
    problems += [
        f"`memories[{index}].command`: {file} is {answers[digest]}, within the program's reach"
        for index, memory in enumerate(study.memories)
        for file, digest in brought.get(memory.id, {}).items()
        if digest in answers
    ]
    if problems:
        raise Refused(
            f"{directory.toml}: {'; '.join(problems)}. The sandbox shows a file that a command "
            "names together with its folder: move the agent into a folder of its own, such as "
            "agent/, without families, corrections, study.toml and var/, and name none of these"
        )


def freeze_suite(
    study: TransferStudy,
    families: Sequence[Family],
    recorded: Mapping[str, Standing] | None = None,
) -> FrozenSuite:
    """Families with what their records are in each session, and units: every case among each
    declared number of distractors. ``recorded``: what the ledger knows of corrections, by id."""
    families = [_with_lifecycles(family, recorded) for family in families]
    units = tuple(
        PlannedCase(
            unit=check_identifier(f"{case.case_id}.d{distractors}", "the unit"),
            family_id=family.family_id,
            case_id=case.case_id,
            distractors=distractors,
        )
        for family in families
        for case in family.cases
        for distractors in study.suite.distractors
    )
    return FrozenSuite(
        suite_id=study.id, version=study.suite.version, families=tuple(families), units=units
    )


def _with_lifecycles(family: Family, recorded: Mapping[str, Standing] | None) -> Family:
    """The family with the computed lifecycle of every record of a case's store: what is scored
    rests on this and never on what an author asserts (the review compares the two)."""
    standings = standings_of(family.records, recorded, family.conditions)
    cases = tuple(
        msgspec.structs.replace(
            case,
            effective_lifecycle={
                name: effective_lifecycle(name, standings, case.store, case.session)
                for name in case.store
            },
        )
        for case in family.cases
    )
    return msgspec.structs.replace(family, cases=cases)


def plan_suite(study: TransferStudy, suite: FrozenSuite) -> Plan:
    """Unit by unit, all systems and trials of a unit in the declared order.

    Cells are independent (every one has its own copy of the store), so their order carries no
    effect; systems of one unit stand together so that a stopped run has whole rows.
    """
    cells = [
        CellId(unit=unit.unit, arm=system.memory, agent=system.driver, repeat=trial)
        for unit in suite.units
        for system in study.systems
        for trial in range(trials_of(study, system))
    ]
    return Plan(
        cells=tuple(
            PlannedCell(position=position, cell=cell, block="matrix")
            for position, cell in enumerate(cells)
        )
    )


def trials_of(study: TransferStudy, system: System) -> int:
    """Trials of a system: one where memory and driver declare themselves deterministic."""
    memory, driver = study.memory(system.memory), study.driver(system.driver)
    return 1 if is_deterministic(memory, driver) else study.suite.trials


def is_deterministic(memory: Memory, driver: Driver) -> bool:
    """Our store, folder and rule-based drivers are; others where their study says so."""
    memory_is = memory.deterministic or memory.kind in ("store", "folder")
    return memory_is and driver.kind != "chat"


def extend_plan(old: Plan, new: Plan) -> Plan:
    """``old``, and at its end the cells of ``new`` that it lacks: what was planned stays so."""
    known = {planned.cell for planned in old.cells}
    added = [planned.cell for planned in new.cells if planned.cell not in known]
    return Plan(
        cells=old.cells
        + tuple(
            PlannedCell(position=len(old.cells) + index, cell=cell, block="added")
            for index, cell in enumerate(added)
        )
    )
