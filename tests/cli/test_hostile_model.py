"""Whatever a model says: the cell goes on, nothing outside of its tree is read or written, and what
it may not do is refused and recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.model_turns import RecordedAnswer, RecordedCall
from actors.repair.cell_engine import AnsweredTurn, CellEngine, Ended, NeedModel
from actors.test_runs.patches import make_patch
from harnesses import registry
from harnesses.contract import CellInput
from harnesses.prompts import read_prompts
from harnesses.retrieval.snapshot import FileClass, snapshot, snapshot_file
from harnesses.workspace import Workspace
from schemas.events.cell import ProtocolViolated, ToolCalled
from schemas.repair.overlay import Changes, WrittenFile, decode_changes
from schemas.repair.study import Budgets
from tests.actors.test_cell_engine import Store, model
from tests.mining.conftest import BASE, History

TEN_MEGABYTES = 10_000_000

HOSTILE_PATHS = {
    "parent": "../x.py",
    "parent inside": "shop/../../x.py",
    "absolute": "/etc/passwd",
    "drive": "C:\\x.py",
    "link": "shop/out",
    "through a link": "etc/passwd",
    "git directory": ".git/config",
    "git directory in disguise": "shop/.GIT /hooks/x.py",
    "ten megabytes": "a" * TEN_MEGABYTES,
    "deep": "a/" * 4000 + "b.py",
    "right-to-left": "shop/\u202eyp.x",
    "a test": "tests/test_total.py",
}
"""Each is refused by every tool that would write, and shows nothing outside of the tree."""

READS = ("read_file", "list_files")


@pytest.fixture
def cell() -> CellEngine:
    """An arm that asks for its first turn, over a tree with links that lead outside."""
    entries: list[tuple[str, str, bytes, FileClass]] = [
        (
            "shop/total.py",
            "100644",
            b"def total(items):\n    return sum(items) + 1\n",
            "production",
        ),
        ("shop/out", "120000", b"../../../etc/passwd", "production"),
        ("etc", "120000", b"/etc", "production"),
        ("tests/test_total.py", "100644", b"def test(): pass\n", "test"),
    ]
    harness = registry.find_harness("H000")
    budgets = Budgets(turns=100, tool_calls=100)
    cell_input = CellInput(
        statement="Totals are one too high",
        workspace=Workspace(
            snapshot(snapshot_file(*entry) for entry in entries),
            protected_paths=frozenset({"tests/test_total.py"}),
            classify=lambda path, content: "production",
        ),
        prompts=read_prompts(harness),
        turns=budgets.turns,
        tool_calls=budgets.tool_calls,
        test_runs=budgets.test_runs,
        context_length=1 << 30,
    )
    engine = CellEngine(harness, cell_input, budgets, model(1 << 30), 0, Store())
    assert isinstance(engine.start(), NeedModel)
    return engine


def says(cell: CellEngine, tool: str, arguments: str) -> list[Any]:
    """What one answer with one call makes the engine record. The cell goes on afterwards."""
    before = len(cell.events)
    call = RecordedCall(id="1", name=tool, arguments=arguments)
    answer = RecordedAnswer(content="", reasoning="", calls=(call,), finish_reason="tool_calls")
    need = cell.resume(AnsweredTurn(answer))
    assert isinstance(need, NeedModel), need
    return cell.events[before:]


@pytest.mark.parametrize("name", HOSTILE_PATHS)
def test_a_path_in_a_tool_argument(cell: CellEngine, name: str) -> None:
    path = HOSTILE_PATHS[name]
    for tool, more in (
        ("create_file", {"content": "x = 1\n"}),
        ("edit_file", {"old": "pass", "new": "fail"}),
        ("read_file", {}),
        ("list_files", {}),
    ):
        if tool in READS and name == "a test":
            continue  # tests may be looked at
        events = says(cell, tool, json.dumps({"path": path, **more}))
        for called in (event for event in events if isinstance(event, ToolCalled)):
            assert not called.ok and called.edited == () and called.opened == ()
            shown = cell.keep.contents[called.result.digest]  # type: ignore[attr-defined]
            assert len(shown) < 2_000 and b"root:" not in shown
    assert cell.cell_input.workspace.changes() == ()


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "[]",
        "null",
        '"path"',
        '{"path": "shop/total.py"',
        '{"path": "a\\u0000b"}',
        '{"path": "\\ud800"}',
        '{"path": 1}',
        '{"path": NaN}',
        '{"path": ' + "9" * 5000 + "}",
        '{"path": "shop/total.py", "evil": true}',
        "[" * 200_000,
        '{"path":' * 100_000,
        '{"path": "' + "\\u0041" * 1_000_000 + '"}',
        " " * TEN_MEGABYTES,
        "\0" * 1000,
    ],
    ids=lambda text: repr(text[:24]),
)
def test_arguments_that_are_none(cell: CellEngine, arguments: str) -> None:
    events = says(cell, "read_file", arguments)
    refused = [event for event in events if isinstance(event, ProtocolViolated)]
    failed = [event for event in events if isinstance(event, ToolCalled) and not event.ok]
    assert len(refused) + len(failed) >= 1
    assert not any(isinstance(event, ToolCalled) and event.ok for event in events)


@pytest.mark.parametrize(
    "content", ["x" * TEN_MEGABYTES, "a\0b", "\ud800"], ids=["10 MB", "NUL", "?"]
)
def test_content_that_no_file_may_have(cell: CellEngine, content: str) -> None:
    events = says(cell, "create_file", json.dumps({"path": "shop/new.py", "content": content}))
    assert not any(isinstance(event, ToolCalled) and event.ok for event in events)
    assert cell.cell_input.workspace.changes() == ()


@pytest.mark.parametrize("query", ["(a+)+$", "(", "(?=x)", "a{1000000}", "\\", "", "x" * 1_000_000])
def test_a_hostile_expression_ends_in_an_answer(cell: CellEngine, query: str) -> None:
    events = says(cell, "search", json.dumps({"query": query, "mode": "regex"}))
    assert any(isinstance(event, ToolCalled | ProtocolViolated) for event in events)


def test_a_hostile_cell_still_ends_with_what_it_did_right(cell: CellEngine) -> None:
    for path in HOSTILE_PATHS.values():
        says(cell, "create_file", json.dumps({"path": path, "content": "x"}))
    fix = {"path": "shop/total.py", "old": "sum(items) + 1", "new": "sum(items)"}
    says(cell, "edit_file", json.dumps(fix))
    submit = RecordedCall(id="1", name="submit", arguments="{}")
    answer = RecordedAnswer(content="", reasoning="", calls=(submit,), finish_reason="tool_calls")
    assert cell.resume(AnsweredTurn(answer)) == Ended("submitted", "", submitted=True)
    assert [file.path for file in decode_changes(cell.overlay()).write] == ["shop/total.py"]


@pytest.mark.parametrize(
    "path",
    ["../x.py", "/x.py", "pkg/../../x.py", "a\0b.py", ".git/hooks/x.py", "link/x.py", "pkg/big.py"],
)
def test_a_patch_that_leaves_the_tree(tmp_path: Path, path: str) -> None:
    """Made by hand: no tool lets an agent write such an overlay."""
    history = History(tmp_path / "store.git")
    history.commit(BASE)
    head = history.commit({"link": ("120000", b"/tmp")})
    tree = history.git.text("rev-parse", f"{head}^{{tree}}")
    content = b"#" * (TEN_MEGABYTES if path == "pkg/big.py" else 10)
    patch = make_patch(
        history.path,
        tree,
        Changes(write=(WrittenFile(path=path, mode="100644", content=content),), delete=()),
        classify=lambda path, content: "production",
        protected_paths=frozenset(),
        max_bytes=1_000_000,
    )
    assert patch.violations != ()
