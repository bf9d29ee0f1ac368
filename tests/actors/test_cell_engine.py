"""Budgets, violations and ends of a cell: the one place that enforces them."""

import json
from collections.abc import Sequence
from hashlib import sha256

import pytest

from actors.model_turns import ModelRequest, RecordedAnswer, RecordedCall
from actors.repair.cell_engine import (
    AnsweredTurn,
    CellEngine,
    Ended,
    FailedTurn,
    Need,
    NeedModel,
    NeedTests,
    PublicReport,
    estimate_tokens,
)
from harnesses import registry
from harnesses.contract import CellInput
from harnesses.prompts import read_prompts
from harnesses.retrieval.snapshot import FileClass, snapshot, snapshot_file
from harnesses.workspace import Workspace
from schemas.base import ArtifactRef
from schemas.events.cell import BudgetCharged, ProtocolViolated, ToolCalled
from schemas.repair.overlay import decode_changes
from schemas.repair.study import Budgets
from schemas.study import Generation, Model

SOURCE = b"def total(items):\n    return sum(items) + 1\n"
BUDGETS = Budgets(turns=4, tool_calls=3, test_runs=1)


class Store:
    """Keeps contents by digest, as the cell actor's artifacts do."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def __call__(self, content: bytes, media_type: str) -> ArtifactRef:
        digest = sha256(content).hexdigest()
        self.contents[digest] = content
        return ArtifactRef(digest=digest, length=len(content), media_type=media_type)


def model(context_length: int = 65_536, max_completion_tokens: int = 8192) -> Model:
    return Model(
        id="M002",
        key="k",
        variant="k",
        quantization="4bit",
        format="mlx",
        context_length=context_length,
        max_context_length=context_length,
        reasoning="on",
        generation=Generation(max_completion_tokens=max_completion_tokens),
    )


def engine(
    arm: str = "H000", budgets: Budgets = BUDGETS, repeat: int = 0, context_length: int = 65_536
) -> CellEngine:
    files: list[tuple[str, bytes, FileClass]] = [
        ("shop/total.py", SOURCE, "production"),
        ("tests/test_total.py", b"def test(): pass\n", "test"),
    ]
    base = snapshot(snapshot_file(p, "100644", content, kind) for p, content, kind in files)
    harness = registry.find_harness(arm)
    cell_input = CellInput(
        statement="Totals are one too high",
        workspace=Workspace(
            base,
            protected_paths=frozenset({"tests/test_total.py"}),
            classify=lambda path, content: "production",
        ),
        prompts=read_prompts(harness),
        turns=budgets.turns,
        tool_calls=budgets.tool_calls,
        test_runs=budgets.test_runs,
        context_length=context_length,
        oracle_files=("shop/total.py",) if harness.needs_oracle_files else (),
    )
    return CellEngine(harness, cell_input, budgets, model(context_length), repeat, Store())


def answer(*calls: tuple[str, dict[str, object] | str], finish: str = "tool_calls") -> AnsweredTurn:
    return AnsweredTurn(
        RecordedAnswer(
            content="",
            reasoning="thinking",
            calls=tuple(
                RecordedCall(
                    id=f"c{n}",
                    name=name,
                    arguments=a if isinstance(a, str) else json.dumps(a),
                )
                for n, (name, a) in enumerate(calls)
            ),
            finish_reason=finish,
        )
    )


def charges(cell: CellEngine) -> list[tuple[str, int]]:
    return [(e.kind, e.used) for e in cell.events if isinstance(e, BudgetCharged)]


def drive(cell: CellEngine, results: Sequence[AnsweredTurn | PublicReport]) -> Need:
    need = cell.start()
    for result in results:
        need = cell.resume(result)
    return need


EDIT = ("edit_file", {"path": "shop/total.py", "old": "sum(items) + 1", "new": "sum(items)"})


def test_a_repair_is_read_edited_tested_and_submitted() -> None:
    cell = engine()
    need = drive(cell, [answer(("read_file", {"path": "shop/total.py"})), answer(EDIT)])
    assert need == NeedModel(2, cell.requests[2])
    need = cell.resume(answer(("run_tests", {})))
    assert isinstance(need, NeedTests) and need.number == 0
    candidate = decode_changes(cell.keep.contents[need.candidate.digest])  # type: ignore[attr-defined]
    assert [file.content for file in candidate.write] == [SOURCE.replace(b" + 1", b"")]
    assert isinstance(cell.resume(PublicReport("public tests: 1 of 1 passed", True)), NeedModel)
    assert cell.resume(answer(("submit", {}))) == Ended("submitted", "", submitted=True)
    assert (cell.turns, cell.tool_calls, cell.test_runs) == (4, 3, 1)
    assert charges(cell) == [
        ("turn", 1),
        ("tool_call", 1),
        ("turn", 2),
        ("tool_call", 2),
        ("turn", 3),
        ("tool_call", 3),
        ("test_run", 1),
        ("turn", 4),
    ]


def test_a_turn_is_charged_before_its_answer_is_there() -> None:
    cell = engine()
    cell.start()
    assert charges(cell) == [("turn", 1)]


def test_used_up_turns_end_the_cell_unsubmitted() -> None:
    cell = engine()
    need = drive(cell, [answer(("list_files", {}))] * 4)
    assert isinstance(need, Ended)
    assert (need.ended, need.submitted) == ("budget_exhausted", False)
    assert cell.turns == 4


def test_used_up_tool_calls_refuse_the_call_and_cost_nothing_more() -> None:
    cell = engine()
    read = ("read_file", {"path": "shop/total.py"})
    drive(cell, [answer(read, read, read, EDIT)])
    assert cell.tool_calls == 3
    assert json.loads(cell.overlay()) == {"write": [], "delete": []}
    assert sum(isinstance(event, ToolCalled) for event in cell.events) == 3


def test_used_up_test_runs_do_not_run_tests() -> None:
    cell = engine(budgets=Budgets(turns=4, tool_calls=3, test_runs=0))
    need = drive(cell, [answer(("run_tests", {}))])
    assert isinstance(need, NeedModel)
    assert (cell.tool_calls, cell.test_runs) == (0, 0)


def test_a_call_that_its_schema_refuses_spends_the_turn_only() -> None:
    cell = engine()
    need = drive(cell, [answer(("read_file", {"file": "x"}), ("delete_everything", {}))])
    assert isinstance(need, NeedModel)
    assert charges(cell) == [("turn", 1), ("turn", 2)]
    kinds = [event.kind for event in cell.events if isinstance(event, ProtocolViolated)]
    assert kinds == ["invalid_arguments", "unknown_tool"]


def test_an_attempt_on_a_protected_path_is_recorded_and_has_no_effect() -> None:
    cell = engine()
    attempt = {"path": "tests/test_total.py", "old": "pass", "new": "assert True"}
    drive(cell, [answer(("edit_file", attempt))])
    kinds = [event.kind for event in cell.events if isinstance(event, ProtocolViolated)]
    assert kinds == ["policy:protected_path"]
    assert json.loads(cell.overlay())["write"] == []


def test_a_cut_answer_is_never_carried_out() -> None:
    cell = engine()
    drive(cell, [answer(EDIT, finish="length")])
    assert json.loads(cell.overlay())["write"] == []
    assert cell.tool_calls == 0


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        ("timeout", "timeout"),
        ("overflow", "context_overflow"),
        ("broken_stream", "model_stop"),
        ("server_error", "model_stop"),
        ("transport", "infrastructure"),
    ],
)
def test_only_a_transport_failure_without_a_token_is_infrastructure(kind: str, ended: str) -> None:
    cell = engine()
    cell.start()
    need = cell.resume(FailedTurn(kind, "why"))
    assert isinstance(need, Ended) and need.ended == ended and not need.submitted


def test_the_room_for_the_answer_follows_interpretation_4() -> None:
    cell = engine(context_length=8_000)
    need = cell.start()
    assert isinstance(need, NeedModel)
    content = cell.keep.contents[need.request.digest]  # type: ignore[attr-defined]
    request = json.loads(content)
    prompt = estimate_tokens([request["messages"], request["tools"]])
    assert request["max_tokens"] == 8_000 - prompt - 64 < 8192
    assert ModelRequest.__struct_fields__ == (*request, "answer_schema"), "unset, so not sent"


def test_a_prompt_that_leaves_no_room_is_an_overflow_before_anything_is_sent() -> None:
    cell = engine(context_length=2_000)
    need = cell.start()
    assert isinstance(need, Ended) and need.ended == "context_overflow"
    assert cell.requests == [] and cell.turns == 0


def test_a_repeat_asks_with_its_own_seed() -> None:
    seeds = []
    for repeat in (0, 1, 2):
        cell = engine(repeat=repeat)
        need = cell.start()
        assert isinstance(need, NeedModel)
        seeds.append(json.loads(cell.keep.contents[need.request.digest])["seed"])  # type: ignore[attr-defined]
    assert seeds == [0, 1, 2]


def test_the_same_results_give_the_same_events_and_requests() -> None:
    results = [answer(("search", {"query": "total", "mode": "exact"})), answer(EDIT)]
    one, two = engine(), engine()
    drive(one, results)
    drive(two, results)
    assert one.events == two.events and one.requests == two.requests
    assert one.overlay() == two.overlay()


def test_the_oracle_arm_is_told_file_names_and_the_other_arm_is_not() -> None:
    said = {}
    for arm in ("H000", "H018"):
        cell = engine(arm)
        need = cell.start()
        assert isinstance(need, NeedModel)
        said[arm] = cell.keep.contents[need.request.digest]  # type: ignore[attr-defined]
    assert b"shop/total.py" in said["H018"] and b"shop/total.py" not in said["H000"]
    assert b"sum(items)" not in said["H018"]
