"""A001: stages, the parsing of answers, and SEARCH/REPLACE blocks with the originals' defects."""

import pytest

from harnesses.a001_agentless_style import TOOLS, named_files, named_places, run
from harnesses.contract import (
    Answer,
    AskModel,
    CallTool,
    CellInput,
    RunPublicTests,
    Submit,
    ToolResult,
)
from harnesses.prompts import read_prompts
from harnesses.registry import HARNESSES
from harnesses.tools import dispatch
from harnesses.tools.edit_blocks import Block, parse_blocks
from harnesses.tools.outlines import intervals

FILES = {
    "src/cart.py": "import os\n\n\nclass Cart:\n    def total(self):\n        return 1\n\n"
    "    def count(self):\n        return 2\n",
    "src/other.py": "x = 1\n",
    "tests/test_cart.py": "def test(): pass\n",
}
ANSWERS = [
    "1. `src/cart.py`\n- tests/test_cart.py\n- src/missing.py\nsrc/other.py",
    "src/cart.py\nfunction: Cart.total\nclass: Nothing\n",
    "### src/cart.py\n```python\n<<<<<<< SEARCH\n        return 1\n=======\n"
    "        return 3\n>>>>>>> REPLACE\n```\n",
]


def drive(workspace, answers):
    """(effects, whether it submitted)"""
    cell = CellInput(
        statement="The total is wrong.",
        workspace=workspace,
        prompts=read_prompts(HARNESSES["A001"]),
        turns=3,
        tool_calls=48,
        test_runs=1,
        context_length=65_536,
    )
    effects, program, replies, result = [], run(cell), iter(answers), None
    while True:
        try:
            effect = program.send(result)
        except StopIteration:
            return effects, False
        effects.append(effect)
        if isinstance(effect, AskModel):
            reply = next(replies)
            result = reply if isinstance(reply, Answer) else Answer(content=reply)
        elif isinstance(effect, CallTool):
            result = dispatch(workspace, TOOLS, effect.name, effect.arguments, effect.room)
        elif isinstance(effect, RunPublicTests):
            result = ToolResult(ok=True, text="1 passed")
        else:
            assert isinstance(effect, Submit)
            return effects, True


def apply(workspace, path, *bodies, shown=((1, 1_000),)):
    arguments = {"path": path, "blocks": [body.split("\n") for body in bodies], "intervals": shown}
    return dispatch(workspace, TOOLS, "replace_blocks", arguments)


def test_three_answers_one_validation_run_and_the_submission(make_workspace):
    workspace = make_workspace(FILES)
    effects, submitted = drive(workspace, ANSWERS)
    assert submitted
    asked = [effect.messages[1].content for effect in effects if isinstance(effect, AskModel)]
    assert len(asked) == 3
    assert "cart.py" in asked[0] and "test_cart.py" not in asked[0]
    assert "5-6:     def total(self):" in asked[1] and "return 1" not in asked[1]
    assert "     6\t        return 1" in asked[2]
    assert sum(isinstance(effect, RunPublicTests) for effect in effects) == 1
    assert workspace.get("src/cart.py").content.count(b"return 3") == 1


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("answer", ["", "src/nowhere.py", Answer(content="src/cart.py", cut=True)])
def test_a_stage_that_names_nothing_ends_without_a_submission(make_workspace, stage, answer):
    effects, submitted = drive(make_workspace(FILES), [*ANSWERS[:stage], answer])
    assert not submitted
    assert sum(isinstance(effect, AskModel) for effect in effects) == stage + 1


def test_an_answer_without_a_block_is_submitted_unchanged(make_workspace):
    workspace = make_workspace(FILES)
    _, submitted = drive(workspace, [*ANSWERS[:2], "I would rather not."])
    assert submitted
    assert workspace.changes() == ()


def test_files_are_production_files_in_their_order_and_at_most_five(make_workspace):
    names = [f"src/m{n}.py" for n in range(7)]
    workspace = make_workspace(dict.fromkeys(names, "x = 1\n") | FILES)
    said = "\n".join(["tests/test_cart.py", "../etc/passwd", names[3], names[3], *names])
    assert named_files(workspace, said) == [names[3], names[0], names[1], names[2], names[4]]


def test_places_stand_below_their_file():
    said = "line: 3\n### `a.py`\nfunction: f\n- method: C.m\nline: 12\n\nb.py:\nclass: D\nnoise"
    assert named_places(["a.py", "b.py"], said) == {"a.py": ("f", "C.m", "12"), "b.py": ("D",)}


def test_windows_are_joined_where_they_meet(make_workspace):
    text = "".join(f"x{n} = {n}\n" for n in range(1, 101))
    file = make_workspace({"src/a.py": text}).file("src/a.py")
    assert intervals(file, ("15", "30", "90", "500", "nothing")) == ((5, 40), (80, 100))


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_are_read_inside_and_outside_of_fences():
    said = (
        "Text\n### a.py\n```go\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n```\n"
        "## `b.py`\n<<<<<<< SEARCH\r\n=======\r\nall\r\n>>>>>>> REPLACE\n"
    )
    assert parse_blocks(said) == [
        Block("a.py", ("old", "=======", "new")),
        Block("b.py", ("=======", "all")),
    ]


def test_a_block_that_is_cut_off_is_none():
    assert parse_blocks("### a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n") == []


def test_a_search_text_that_stands_twice_is_refused(make_workspace):
    """The original replaced every match."""
    workspace = make_workspace({"src/a.py": "x = 1\ny = 2\nx = 1\n"})
    result = apply(workspace, "src/a.py", "x = 1\n=======\nx = 3")
    assert not result.ok
    assert "stands 2 times" in result.text
    assert workspace.changes() == ()


def test_only_the_shown_lines_are_searched(make_workspace):
    workspace = make_workspace({"src/a.py": "x = 1\ny = 2\nx = 1\n"})
    assert apply(workspace, "src/a.py", "x = 1\n=======\nx = 3", shown=((2, 3),)).ok
    assert workspace.get("src/a.py").content == b"x = 1\ny = 2\nx = 3\n"
    assert not apply(workspace, "src/a.py", "x = 1\n=======\nx = 4", shown=((2, 3),)).ok


def test_a_body_may_hold_a_divider(make_workspace):
    workspace = make_workspace({"src/a.py": "Title\n=======\ntext\n"})
    assert apply(workspace, "src/a.py", "Title\n=======\ntext\n=======\nTitle\n=======\nmore").ok
    assert workspace.get("src/a.py").content == b"Title\n=======\nmore\n"


def test_line_ends_and_a_missing_last_one_are_kept(make_workspace):
    workspace = make_workspace({"src/a.py": b"a = 1\r\nb = 2\x0c\r\nc = 3"})
    bodies = ("b = 2\x0c\n=======\nb = 4\nd = 5", "c = 3\n=======\nc = 6")
    assert apply(workspace, "src/a.py", *bodies).ok
    assert workspace.get("src/a.py").content == b"a = 1\r\nb = 4\r\nd = 5\r\nc = 6"


def test_several_blocks_of_a_file_see_the_lines_that_were_shown(make_workspace):
    workspace = make_workspace({"src/a.py": "a = 1\nb = 2\nc = 3\n"})
    result = apply(
        workspace,
        "src/a.py",
        "a = 1\n=======\na = 1\na2 = 1\na3 = 1",
        "c = 3\n=======\nc = 4",
        "b = 2\nc = 3\n=======\nb = 0",
        shown=((1, 3),),
    )
    assert not result.ok
    assert "block 3: overlaps another block" in result.text
    assert workspace.get("src/a.py").content == b"a = 1\na2 = 1\na3 = 1\nb = 2\nc = 4\n"


def test_an_empty_search_text_makes_a_new_file_and_nothing_else(make_workspace):
    workspace = make_workspace(FILES)
    assert apply(workspace, "src/new.py", "=======\ny = 1", shown=()).ok
    assert workspace.get("src/new.py").content == b"y = 1\n"
    assert not apply(workspace, "src/other.py", "=======\ny = 1").ok
    assert not apply(workspace, "src/gone.py", "z = 1\n=======\ny = 1").ok


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("tests/test_cart.py", "protected_path"),
        ("../x.py", "outside_tree"),
        ("/x.py", "outside_tree"),
    ],
)
def test_the_patch_policy_holds(make_workspace, path, refused):
    result = apply(make_workspace(FILES), path, "def test(): pass\n=======\nx = 1")
    assert result.refused == refused
