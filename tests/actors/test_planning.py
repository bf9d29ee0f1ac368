"""The order of the matrix and the balanced repeats, against the oracle of the design."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from actors.repair.planning import make_plan, repeat_cells, treatment_orders
from ledger.errors import Refused
from projections.plan_balance import PlanBalance, plan_balance
from schemas.base import ArtifactRef
from schemas.repair.study import Contrast, Order, RepairStudy
from schemas.repair.task import FailToPass, Overlay, Size, Task

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles" / "repeat_selection.public.json").read_text()
)
REFERENCE = ArtifactRef(digest="0" * 64, length=0, media_type="text/plain")
ARMS = ("H000", "H003", "H007", "H011", "H018", "A001", "A002")


def task(task_id: str) -> Task:
    return Task(
        id=task_id,
        repository=task_id.partition("-")[0],
        commit="1" * 40,
        base="2" * 40,
        base_tree="3" * 40,
        gold_tree="4" * 40,
        committed="2024-01-01T00:00:00Z",
        statement=REFERENCE,
        statement_words=9,
        redactions=0,
        production_paths=("a.py",),
        test_paths=("test_a.py",),
        changed_production_lines=1,
        gold=Overlay(),
        gold_patch=REFERENCE,
        hidden=Overlay(),
        hidden_patch=REFERENCE,
        protected_paths=REFERENCE,
        fail_to_pass=(FailToPass(id="test_a.py::test", how="assertion"),),
        pass_to_pass=REFERENCE,
        pass_to_pass_count=0,
        public_tests=REFERENCE,
        public_test_files=(),
        grading_test_files=("test_a.py",),
        environment="own",
        time_limit_ns=60_000_000_000,
        needs_gold_symbol=0,
        size=Size(bytes=1, source_files=1, source_lines=1, estimated_tokens=1),
    )


def study_two(repeats: int = 24) -> RepairStudy:
    return msgspec.convert(
        {
            "format": 1,
            "kind": "repair",
            "id": "study-2",
            "title": "t",
            "question": "q",
            "repositories": [
                {"id": r, "url": "x", "head": "0" * 40, "language": "python"}
                for r in ORACLE["repositories"]
            ],
            "models": [
                {
                    "id": m,
                    "key": m,
                    "variant": m,
                    "quantization": "4bit",
                    "format": "mlx",
                    "context_length": 65536,
                    "max_context_length": 65536,
                    "reasoning": "on",
                }
                for m in ORACLE["models"]
            ],
            "treatments": [
                {"id": arm, "role": "oracle" if arm == "H018" else "component"} for arm in ARMS
            ],
            "repeats": {"cells": repeats},
        },
        RepairStudy,
    )


TASKS = [task(f"{r}-{n:03d}") for r in ORACLE["repositories"] for n in range(1, 21)]


def test_the_matrix_of_study_two_has_888_cells() -> None:
    plan = make_plan(study_two(), TASKS)
    blocks = Counter(cell.block for cell in plan.cells)
    assert blocks == {"matrix": 840, "repeat": 48}
    assert len({str(cell.cell) for cell in plan.cells}) == 888
    assert [cell.position for cell in plan.cells] == list(range(888))


def test_each_treatment_stands_about_equally_often_in_each_position() -> None:
    plan = make_plan(study_two(), TASKS)
    positions: Counter[tuple[str, int]] = Counter()
    for start in range(0, 840, 7):
        for place, cell in enumerate(plan.cells[start : start + 7]):
            positions[cell.cell.arm, place] += 1
    assert set(positions.values()) <= {17, 18} and len(positions) == 49


def test_models_alternate_with_one_switch_a_task() -> None:
    plan = make_plan(study_two(), TASKS)
    first = [plan.cells[start].cell.agent for start in range(0, 840, 14)]
    assert first == ["M002", "M003"] * 30
    agents = [cell.cell.agent for cell in plan.cells[:840]]
    switches_in_task = [
        sum(a != b for a, b in zip(agents[s : s + 14], agents[s + 1 : s + 14], strict=False))
        for s in range(0, 840, 14)
    ]
    assert switches_in_task == [1] * 60


def test_repeats_have_the_margins_of_the_oracle() -> None:
    chosen = repeat_cells(study_two(), TASKS)
    required = ORACLE["required_margins"]
    repository = {task.id: task.repository for task in TASKS}
    strata = {(agent, repository[unit], arm) for unit, arm, agent in chosen}
    assert len(chosen) == required["cells"] == len(strata)
    assert len({unit for unit, _, _ in chosen}) == required["distinct_tasks"]
    assert set(Counter(agent for _, _, agent in chosen).values()) == {required["per_model"]}
    assert set(Counter(repository[u] for u, _, _ in chosen).values()) == {
        required["per_repository"]
    }
    assert set(Counter(arm for _, arm, _ in chosen).values()) == {required["per_treatment"]}
    assert strata == {tuple(stratum) for stratum in ORACLE["example_strata"]}


def test_repeats_come_last_and_by_model() -> None:
    plan = make_plan(study_two(), TASKS)
    agents = [cell.cell.agent for cell in plan.cells[840:]]
    assert agents == ["M002"] * 24 + ["M003"] * 24
    assert {cell.cell.repeat for cell in plan.cells[840:]} == {1, 2}


def test_the_order_of_the_frozen_tasks_does_not_matter_between_repositories() -> None:
    shuffled = [t for r in reversed(ORACLE["repositories"]) for t in TASKS if t.repository == r]
    assert make_plan(study_two(), shuffled) == make_plan(study_two(), TASKS)


def test_an_unbalanced_number_of_repeats_is_refused_with_the_right_number() -> None:
    with pytest.raises(Refused, match="24"):
        make_plan(study_two(repeats=10), TASKS)


def balance_of(design: str) -> PlanBalance:
    study = msgspec.structs.replace(
        study_two(repeats=0),
        order=Order(design=design),
        contrasts=tuple(
            Contrast(id=f"{arm}-{model}", new=arm, baseline="H000", model=model, claim="component")
            for arm in ARMS[1:]
            for model in ORACLE["models"]
        ),
    )
    tasks = [task(f"{r}-{n:03}") for r in ORACLE["repositories"] for n in range(1, 21)]
    repository_of = {each.id: each.repository for each in tasks}
    return plan_balance(make_plan(study, tasks).cells, repository_of, study.compared)


def test_the_cyclic_order_balances_positions_and_not_pairs() -> None:
    balance = balance_of("cyclic")
    assert {len({*margin.cells.values()}) for margin in balance.margins} == {1}
    assert {count for each in balance.positions for count in each.counts} == {17, 18}
    primary = next(pair for pair in balance.pair_orders if pair.contrast == "H007-M002")
    assert (primary.new_first, primary.tasks) == (17, 60)
    assert "H007-M002: H007 runs before H000 on 17 of 60 tasks with M002" in balance.uneven


def test_a_williams_design_balances_the_order_within_pairs_too() -> None:
    """Of 120 rows 8 x 14 are whole designs: only the last 8 can be uneven."""
    balance = balance_of("williams")
    assert {len({*margin.cells.values()}) for margin in balance.margins} == {1}
    for each in balance.positions:
        assert max(each.counts) - min(each.counts) <= 2
    for pair in balance.pair_orders:
        assert abs(2 * pair.new_first - pair.tasks) <= 4


@pytest.mark.parametrize("number", [2, 3, 4, 7])
def test_every_treatment_precedes_and_follows_every_other_equally_often(number: int) -> None:
    names = [f"T{n}" for n in range(number)]
    rows = treatment_orders("williams", names)
    assert len(rows) == number * (1 + number % 2)
    assert all(sorted(row) == names for row in rows)
    for place in range(number):
        assert len({*Counter(row[place] for row in rows).values()}) == 1
    next_to = Counter(pair for row in rows for pair in zip(row, row[1:], strict=False))
    before = Counter((a, b) for row in rows for i, a in enumerate(row) for b in row[i + 1 :])
    every = {(a, b) for a in names for b in names if a != b}
    assert next_to.keys() == before.keys() == every
    assert len({*next_to.values()}) == len({*before.values()}) == 1
