"""Every arm under arbitrary answers: no budget is exceeded, nothing closed changes, and the cell
ends in a class; driven again with the same answers it comes to the same events."""

import json
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.model_turns import RecordedAnswer, RecordedCall
from actors.repair.cell_engine import (
    AnsweredTurn,
    CellEngine,
    Ended,
    NeedModel,
    PublicReport,
)
from harnesses import registry
from harnesses.contract import CellInput
from harnesses.prompts import read_prompts
from harnesses.retrieval.index import CommitIndex, index_in_memory
from harnesses.retrieval.snapshot import Snapshot, snapshot, snapshot_file
from harnesses.workspace import Workspace
from schemas.base import ArtifactRef
from schemas.events.cell import BudgetCharged
from schemas.repair.study import Budgets
from schemas.study import Model

PATHS = [
    "shop/price.py",
    "tests/test_price.py",
    "../out.py",
    ".git/config",
    "shop/new.py",
    "setup.py",
]
STATEMENT = "Discounts are wrong by one: see shop/price.py."

_path = st.sampled_from(PATHS)
_text = st.one_of(
    st.sampled_from(["    return price", "return price - percent", "price", "", "\0", "x = (1"]),
    st.text(max_size=20),
)
_value = st.one_of(_path, _text, st.integers(-2, 500), st.booleans(), st.none())
_names = sorted(
    {tool.name for harness in registry.HARNESSES.values() for tool in harness.tools} | {"nonsense"}
)
_keys = st.sampled_from(
    ["path", "query", "old", "new", "content", "name", "line", "mode", "start_line", "end_line",
     "replacement_text", "filename", "search_term", "dir", "file", "file_name", "line_number"]
)  # fmt: skip
_call = st.one_of(
    st.tuples(st.sampled_from(_names), st.dictionaries(_keys, _value, max_size=4)),
    st.tuples(st.just("submit"), st.just({})),
    st.tuples(
        st.just("edit_file"),
        st.fixed_dictionaries({"path": _path, "old": _text, "new": _text}),
    ),
    st.tuples(st.just("open"), st.fixed_dictionaries({"path": _path})),
    st.tuples(
        st.just("edit"),
        st.fixed_dictionaries(
            {
                "start_line": st.integers(1, 3),
                "end_line": st.integers(1, 3),
                "replacement_text": _text,
            }
        ),
    ),
    st.tuples(st.just("create_file"), st.fixed_dictionaries({"path": _path, "content": _text})),
    st.tuples(st.just("delete_file"), st.fixed_dictionaries({"path": _path})),
)
_content = st.one_of(
    st.sampled_from(
        [
            "shop/price.py",
            "shop/price.py\nfunction: discount\nline: 2",
            "### shop/price.py\n<<<<<<< SEARCH\n    return price\n=======\n    return 1\n"
            ">>>>>>> REPLACE",
            "### tests/test_price.py\n<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE",
        ]
    ),
    st.text(max_size=40),
)
_answers = st.lists(
    st.tuples(_content, st.lists(_call, max_size=3), st.sampled_from(["stop", "length"])),
    max_size=6,
)


@lru_cache
def base() -> Snapshot:
    return snapshot(
        [
            snapshot_file(
                "shop/price.py",
                "100644",
                b"def discount(price, percent):\n    return price\n",
                "production",
            ),
            snapshot_file("tests/test_price.py", "100644", b"def test(): pass\n", "test"),
            snapshot_file("setup.py", "100644", b"setup()\n", "dependency"),
        ]
    )


@lru_cache
def base_index() -> CommitIndex:
    return index_in_memory(base())


def run_cell(arm: str, answers) -> tuple[CellEngine, Ended, list[str]]:
    harness = registry.find_harness(arm)
    budgets = Budgets(turns=5, tool_calls=6, test_runs=1, stage_calls=6).of(arm)
    kept: list[str] = []

    def keep(content: bytes, media_type: str) -> ArtifactRef:
        kept.append(content.decode())
        return ArtifactRef(digest="0" * 64, length=len(content), media_type=media_type)

    workspace = Workspace(
        base(),
        protected_paths=frozenset({"tests/test_price.py"}),
        classify=lambda path, content: "production" if path.startswith("shop/") else "config",
        index=base_index() if harness.needs_index else None,
    )
    cell = CellInput(
        statement=STATEMENT,
        workspace=workspace,
        prompts=read_prompts(harness),
        turns=budgets.turns,
        tool_calls=budgets.tool_calls,
        test_runs=budgets.test_runs,
        context_length=65_536,
        oracle_files=("shop/price.py",) if harness.needs_oracle_files else (),
    )
    model = Model(
        id="M", key="k", variant="k", quantization="q", format="mlx", context_length=65_536,
        max_context_length=65_536, reasoning="on",
    )  # fmt: skip
    engine = CellEngine(harness, cell, budgets, model, 0, keep)
    replies = iter(answers)
    need = engine.start()
    while not isinstance(need, Ended):
        if isinstance(need, NeedModel):
            content, calls, finish = next(replies, ("", [], "stop"))
            recorded = tuple(
                RecordedCall(id=f"c{n}", name=name, arguments=json.dumps(arguments))
                for n, (name, arguments) in enumerate(calls)
            )
            need = engine.resume(
                AnsweredTurn(
                    RecordedAnswer(
                        content=content, reasoning="", calls=recorded, finish_reason=finish
                    )
                )
            )
        else:
            need = engine.resume(PublicReport("1 passed", True))
    return engine, need, kept


@pytest.mark.parametrize("arm", registry.HARNESSES)
@settings(max_examples=25, deadline=None)
@given(answers=_answers)
def test_no_answers_exceed_a_budget_leave_the_policy_or_end_without_a_class(arm, answers):
    engine, ended, kept = run_cell(arm, answers)
    budgets = engine.budgets
    assert ended.ended in ("submitted", "budget_exhausted", "model_stop", "context_overflow")
    assert engine.turns <= budgets.turns
    assert engine.tool_calls <= budgets.tool_calls
    assert engine.test_runs <= budgets.test_runs
    charged = [event for event in engine.events if isinstance(event, BudgetCharged)]
    assert all(event.used <= event.limit for event in charged)
    workspace = engine.cell_input.workspace
    touched = {file.path for file in workspace.changes()} | set(workspace.deletions())
    assert all(path.startswith("shop/") for path in touched)

    again, ended_again, kept_again = run_cell(arm, answers)
    assert (again.events, ended_again, kept_again) == (engine.events, ended, kept)


def test_the_oracle_shows_names_and_neither_code_nor_lines():
    """H018's first prompt differs from H000's by the name of the gold file, and by nothing else."""
    prompts = {}
    for arm in ("H000", "H018"):
        _, _, kept = run_cell(arm, [])
        prompts[arm] = json.loads(kept[0])["messages"]
    assert prompts["H018"][0] == prompts["H000"][0]
    plain, told = prompts["H000"][1]["content"], prompts["H018"][1]["content"]
    added = told.removeprefix(plain.rstrip("\n"))
    assert added.strip().split("\n") == [
        "The reference solution changes these production files:",
        "",
        "- shop/price.py",
    ]
    assert not any(character.isdigit() for character in added)
