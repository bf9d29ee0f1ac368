"""From family files to what a transfer study freezes: units, cells, and what an amendment adds."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors import families
from actors.families.load import load_family
from actors.transfer.scheduling import next_step
from actors.transfer.suite import (
    check_commands,
    extend_plan,
    freeze_suite,
    plan_suite,
    read_families,
    trials_of,
)
from ledger.errors import Refused
from ledger.study_directory import StudyDirectory
from projections.progress import CellProgress, Progress
from projections.transfer.system_identity import unit_digest
from schemas.commands import AdvanceSession
from schemas.study_file import StudyError, parse_study
from schemas.transfer.family import Family
from schemas.transfer.lifecycle import Standing
from schemas.transfer.study import Driver, Memory, System, TransferStudy

EXAMPLES = sorted((Path(families.__file__).parent / "examples").glob("F*.yaml"))
GIVEN = Path(__file__).parents[2] / "actors" / "families" / "examples"
TEXT = """
format = 1
kind = "transfer"
id = "suite"
title = "A suite"
question = "Does it transfer?"
suite = { version = "1", families = [FAMILIES], trials = 3, distractors = [0, 50] }
memories = [
  { id = "full", kind = "store" },
  { id = "agent", kind = "command", command = ["agent"] },
]
drivers = [{ id = "reader", kind = "reader" }, { id = "own", kind = "own" }]
systems = [{ memory = "full", driver = "reader" }, { memory = "agent", driver = "own" }]
"""


def study_of(*families: str) -> TransferStudy:
    listed = ", ".join(f'"{family}"' for family in families)
    study = parse_study(TEXT.replace("FAMILIES", listed).encode())
    assert isinstance(study, TransferStudy)
    return study


STUDY = study_of("F101.yaml", "F106.yaml")
FAMILIES = [load_family((GIVEN / name).read_bytes(), name) for name in STUDY.suite.families]
SUITE = freeze_suite(STUDY, FAMILIES)


def test_every_case_is_a_unit_for_each_number_of_distractors() -> None:
    cases = [case.case_id for family in FAMILIES for case in family.cases]
    assert [unit.unit for unit in SUITE.units] == [f"{c}.d{n}" for c in cases for n in (0, 50)]


def asserting_nothing(family: Family) -> Family:
    """As ``ledger transfer new`` writes it: no case states what its records are."""
    cases = tuple(msgspec.structs.replace(case, effective_lifecycle={}) for case in family.cases)
    return msgspec.structs.replace(family, cases=cases)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_freeze_computes_what_the_records_of_a_store_are(path: Path) -> None:
    family = load_family(path.read_bytes(), path.name)
    [frozen] = freeze_suite(STUDY, [asserting_nothing(family)]).families
    assert {case.kind for case in frozen.cases} >= {"supersession", "expiry"}
    assert frozen == family, "the examples state it as a check"


def test_the_freeze_knows_what_was_recorded_in_the_ledger() -> None:
    family = asserting_nothing(FAMILIES[0])
    [positive] = [case for case in family.cases if case.kind == "positive"]
    [name] = positive.store
    ended = Standing(record=family.record(name), ended=positive.session.now)
    [frozen] = freeze_suite(STUDY, [family], {name: ended}).families
    assert frozen.case(positive.case_id).effective_lifecycle == {name: "expired"}


def test_a_deterministic_system_is_run_once_and_any_other_k_times() -> None:
    assert [trials_of(STUDY, system) for system in STUDY.systems] == [1, 3]
    cells = [planned.cell for planned in plan_suite(STUDY, SUITE).cells]
    assert len(cells) == len(SUITE.units) * 4
    assert [str(cell) for cell in cells[:4]] == [
        "F101-01-positive.d0/full/reader/0",
        "F101-01-positive.d0/agent/own/0",
        "F101-01-positive.d0/agent/own/1",
        "F101-01-positive.d0/agent/own/2",
    ]


def test_an_amendment_adds_the_cells_of_a_new_system_at_the_end() -> None:
    old = plan_suite(STUDY, SUITE)
    more = msgspec.structs.replace(
        STUDY,
        memories=(*STUDY.memories, Memory(id="plain", kind="store", policy="retrieval")),
        systems=(*STUDY.systems, System(memory="plain", driver="reader")),
    )
    extended = extend_plan(old, plan_suite(more, SUITE))
    assert extended.cells[: len(old.cells)] == old.cells
    added = extended.cells[len(old.cells) :]
    assert {(p.cell.arm, p.block) for p in added} == {("plain", "added")}
    assert len(added) == len(SUITE.units)
    assert [p.position for p in extended.cells] == list(range(len(extended.cells)))


def test_a_unit_is_bound_by_everything_its_runs_rest_on() -> None:
    family, unit = FAMILIES[0], SUITE.units[0]
    digest = unit_digest(family, unit)
    assert digest == unit_digest(family, unit)
    assert digest != unit_digest(family, SUITE.units[1])
    surfaces = {**family.fixture.surfaces, "another": "trees"}
    fixture = msgspec.structs.replace(family.fixture, surfaces=surfaces)
    assert digest != unit_digest(msgspec.structs.replace(family, fixture=fixture), unit)


def test_files_that_cannot_be_used_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "F101.yaml").write_text("format: 1\n")
    (tmp_path / "F106.yaml").write_text("- a list\n")
    with pytest.raises(Refused) as refused:
        read_families(StudyDirectory(tmp_path), STUDY)
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [
        "F101.yaml",
        "F106.yaml",
    ]


def test_two_files_with_one_family_are_refused(tmp_path: Path) -> None:
    for name in STUDY.suite.families:
        (tmp_path / name).write_bytes((GIVEN / "F101.yaml").read_bytes())
    with pytest.raises(Refused, match=r"F106.yaml: duplicate id F101, also in F101.yaml"):
        read_families(StudyDirectory(tmp_path), STUDY)


@pytest.mark.parametrize(
    ("words", "reached"),
    [
        ("python3 agent/a.py --now -c word agent", ""),
        ("python3 agent/linked", "families/F101.yaml"),
        ("python3 alone.py", ""),
        ("./agent/run", ""),
        ("node agent/node_modules/x/index.js", ""),
        ("python3 agent/a.py F106.yaml", "F106.yaml"),
        ("python3 families/a.py", "families/F101.yaml"),
        ("python3 agent/a.py families", "families/F101.yaml"),
        ("python3 agent/a.py ../study/families/F101.yaml", "families/F101.yaml"),
        ("python3 agent/a.py study.toml", "study.toml"),
        ("python3 var/a.py", "var"),
        ("python3 corrections/CT-1.yaml", "corrections"),
        ("python3 answers/a.py", "families/F101.yaml"),
        ("./bin/python", "families/F101.yaml"),
    ],
)
def test_no_command_reaches_the_answers(tmp_path: Path, words: str, reached: str) -> None:
    root = tmp_path / "study"
    files = "families/a.py families/F101.yaml F106.yaml agent/a.py agent/run alone.py var/a.py"
    more = "study.toml corrections/CT-1.yaml agent/node_modules/x/index.js pyvenv.cfg bin/python"
    for name in f"{files} {more}".split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "answers").symlink_to("families")
    (root / "agent" / "linked").symlink_to("../families/F101.yaml")
    study = study_of("families/F101.yaml", "F106.yaml")
    (own,) = [memory for memory in study.memories if memory.command]
    memory = msgspec.structs.replace(own, command=tuple(words.split()))
    study = msgspec.structs.replace(study, memories=(study.memories[0], memory))
    if not reached:
        check_commands(StudyDirectory(root), study)
        return
    with pytest.raises(Refused, match="move the agent into a folder of its own") as refused:
        check_commands(StudyDirectory(root), study)
    assert f"`memories[1].command`: {words.split()[-1]!r} puts {reached} " in str(refused.value)


@pytest.mark.parametrize("copy", [os.link, shutil.copyfile])
def test_no_copy_of_a_family_lies_beside_a_command(
    tmp_path: Path, copy: Callable[[Path, Path], object]
) -> None:
    """A second name of the file leads nowhere that a path could tell."""
    for name in ("families/F101.yaml", "agent/a.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    study = study_of("families/F101.yaml")
    (own,) = [memory for memory in study.memories if memory.command]
    memory = msgspec.structs.replace(own, command=("python3", "agent/a.py"))
    study = msgspec.structs.replace(study, memories=(study.memories[0], memory))
    check_commands(StudyDirectory(tmp_path), study)
    copy(tmp_path / "families/F101.yaml", tmp_path / "agent/hints")
    with pytest.raises(Refused, match=r"memories\[1\].*agent/hints is families/F101.yaml, within"):
        check_commands(StudyDirectory(tmp_path), study)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('kind = "transfer"', 'kind = "transfers"', '`kind`.*allowed: "repair" or "transfer"'),
        ('version = "1"', 'version = "1", trails = 2', "did you mean `trials`"),
        ('driver = "own" }]', 'driver = "reader" }]', "brings its driver"),
        ('command = ["agent"]', "command = []", "names its program"),
        ('{ id = "own", kind = "own" }', '{ id = "own", kind = "chat" }', "drivers.1..model"),
        ("[FAMILIES]", '["../F.yaml"]', "inside the study's folder"),
        ('memory = "full"', 'memory = "fool"', "not declared in memories"),
        ("distractors = [0, 50]", "distractors = [0, 0]", "duplicate"),
    ],
)
def test_a_study_file_that_cannot_be_used_names_the_key(
    before: str, after: str, message: str
) -> None:
    assert before in TEXT
    text = TEXT.replace(before, after).replace("FAMILIES", '"F101.yaml"')
    with pytest.raises(StudyError, match=message):
        parse_study(text.encode())


def test_a_driver_is_found_by_its_id() -> None:
    assert STUDY.driver("own") == Driver(id="own", kind="own")
    with pytest.raises(LookupError, match="memory nobody is not declared"):
        STUDY.memory("nobody")


def test_a_command_of_a_cell_that_is_planned_no_more_holds_nothing_up() -> None:
    plan = plan_suite(STUDY, SUITE)
    progress = Progress(lambda ref: b"", study=STUDY)
    progress.cells = {str(planned.cell): CellProgress(planned) for planned in plan.cells}
    first = AdvanceSession(cell=str(plan.cells[0].cell))
    assert list(next_step(progress, [first]).requests) == []
    gone = AdvanceSession(cell=first.cell.replace("/full/", "/gone/"))
    assert list(next_step(progress, [gone]).requests) == [first]
