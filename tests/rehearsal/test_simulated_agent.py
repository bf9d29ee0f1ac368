"""The simulated agent in the real arms: what it does follows from what the tools returned."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.rehearsal.simulated_agent import (
    NO_BRIEF,
    NO_TOOLS,
    AgentReply,
    Brief,
    GoldFile,
    decide,
    find_brief,
    is_competent,
    search_terms,
    statement_in,
)
from harnesses.answers import parse_answer
from harnesses.contract import AskModel, CallTool, CellInput, Submit, ToolResult, wire, wire_tools
from harnesses.prompts import read_prompts
from harnesses.registry import HARNESSES
from harnesses.retrieval.snapshot import snapshot, snapshot_file
from harnesses.tools import dispatch
from harnesses.workspace import Workspace

STATEMENT = "The header parser drops repeated fields: parse_fields keeps only the last one."

PARSER = '''"""Reading headers."""


def parse_fields(lines):
    """Names and values, in order."""
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name] = value.strip()
    return fields
'''
MENDED = PARSER.replace(
    "        fields[name] = value.strip()\n",
    "        fields.setdefault(name, []).append(value.strip())\n",
)
OTHERS = {
    "README.md": "# Example\n",
    "src/app.py": "from src import headers\n\nprint(headers)\n",
    "src/empty.py": "",
    "tests/test_headers.py": "from src.headers import parse_fields\n",
}


def brief_of(gold: dict[str, tuple[str | None, str | None]], statement: str = STATEMENT) -> Brief:
    return Brief(
        statement=hashlib.sha256(statement.encode()).hexdigest(),
        task="R001-001",
        gold={path: GoldFile(before=old, after=new) for path, (old, new) in gold.items()},
    )


@dataclass
class Rehearsed:
    """What became of one cell."""

    workspace: Workspace
    submitted: bool = False
    replies: list[AgentReply] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    shown_before_edits: str = ""

    def content(self, path: str) -> str | None:
        file = self.workspace.get(path)
        return None if file is None else file.content.decode()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def rehearse(
    arm: str,
    brief: Brief | None,
    *,
    statement: str = STATEMENT,
    others: dict[str, str] | None = None,
    competence: int = 1_000,
    turns: int = 12,
    tool_calls: int = 12,
    test_runs: int = 2,
) -> Rehearsed:
    """Drive a real arm with the agent as its model; the agent keeps to the budgets."""
    files = dict(OTHERS if others is None else others)
    if brief is not None:
        files |= {path: g.before for path, g in brief.gold.items() if g.before is not None}
    workspace = Workspace(
        snapshot(
            snapshot_file(
                path, "100644", text.encode(), "test" if path.startswith("tests/") else "production"
            )
            for path, text in files.items()
        ),
        protected_paths=frozenset(),
        classify=lambda path, content: "production",
    )
    harness = HARNESSES[arm]
    cell = CellInput(
        statement=statement,
        workspace=workspace,
        prompts=read_prompts(harness),
        turns=turns,
        tool_calls=tool_calls,
        test_runs=test_runs,
        context_length=65_536,
        oracle_files=tuple(sorted(brief.gold)) if brief and harness.needs_oracle_files else (),
    )
    seen = Rehearsed(workspace)
    program = harness.run(cell)
    effect = next(program)
    while True:
        if isinstance(effect, AskModel):
            if len(seen.replies) == turns:
                return seen
            messages, tools = wire(effect.messages), wire_tools(effect.tools)
            found = None if brief is None else find_brief(messages, {brief.statement: brief})
            assert found == brief
            reply = decide(messages, tools, found, seed="s", competence_per_mille=competence)
            assert reply == decide(
                messages, tools, found, seed="s", competence_per_mille=competence
            )
            seen.replies.append(reply)
            native = [
                (f"{index:09d}", call.name, json.dumps(call.arguments))
                for index, call in enumerate(reply.calls, 1)
            ]
            answer = parse_answer(
                reply.content, reply.reasoning, native, "tool_calls", effect.tools
            )
            assert answer.violations == ()
            effect = program.send(answer)
        elif isinstance(effect, Submit):
            seen.submitted = True
            return seen
        else:
            if isinstance(effect, CallTool):
                if effect.name == "edit_file":
                    assert effect.arguments["path"] in seen.shown_before_edits
                result = dispatch(
                    workspace, harness.tools, effect.name, effect.arguments, effect.room
                )
                seen.calls.append((effect.name, effect.arguments))
                if not seen.errors and effect.name not in ("edit_file", "create_file"):
                    seen.shown_before_edits += result.text
            else:
                seen.calls.append(("run_tests", {}))
                result = ToolResult(ok=True, text="31 passed")
            assert len(seen.calls) <= tool_calls
            assert seen.names.count("run_tests") <= test_runs
            seen.opened += result.opened
            if not result.ok:
                seen.errors.append(result.text)
            effect = program.send(result)


def test_a_competent_agent_finds_reads_mends_tests_and_submits() -> None:
    done = rehearse("H000", brief_of({"src/headers.py": (PARSER, MENDED)}))
    assert done.names == ["search", "read_file", "edit_file", "run_tests", "submit"][:-1]
    assert done.submitted
    assert done.errors == []
    assert done.content("src/headers.py") == MENDED
    assert [file.path for file in done.workspace.changes()] == ["src/headers.py"]
    assert all(reply.reasoning for reply in done.replies)


@pytest.mark.parametrize(
    ("turns", "tool_calls", "test_runs", "mended"),
    [(5, 4, 1, True), (4, 4, 0, True), (4, 12, 2, True), (3, 12, 2, False), (12, 3, 2, False)],
)
def test_smaller_budgets(turns: int, tool_calls: int, test_runs: int, mended: bool) -> None:
    done = rehearse(
        "H000",
        brief_of({"src/headers.py": (PARSER, MENDED)}),
        turns=turns,
        tool_calls=tool_calls,
        test_runs=test_runs,
    )
    assert (done.content("src/headers.py") == MENDED) is mended
    assert done.submitted is mended


def test_names_in_the_prompt_are_read_at_once() -> None:
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    done = rehearse("H018", brief)
    assert done.names == ["read_file", "edit_file", "run_tests"]
    assert done.content("src/headers.py") == MENDED
    assert len(done.replies) < len(rehearse("H000", brief).replies)


def test_what_no_tool_shows_is_not_edited() -> None:
    """The same gold file, out of reach of the statement's words: only the oracle arm gets there."""
    statement = "Uploads time out on slow links."
    gold: dict[str, tuple[str | None, str | None]] = {"lib/deep/inner.py": (PARSER, MENDED)}
    many = {f"pkg{number}/module.py": "pass\n" * 3 for number in range(400)}
    brief = brief_of(gold, statement)
    lost = rehearse("H000", brief, statement=statement, others=many)
    assert set(lost.names) <= {"search", "list_files"}
    assert lost.content("lib/deep/inner.py") == PARSER
    assert lost.workspace.changes() == ()
    assert len(lost.replies) <= 12
    helped = rehearse("H018", brief, statement=statement, others=many)
    assert helped.content("lib/deep/inner.py") == MENDED


def test_an_incompetent_agent_makes_a_wrong_edit_in_the_file_that_it_found() -> None:
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    for arm in ("H000", "H018"):
        done = rehearse(arm, brief, competence=0)
        assert done.submitted
        content = done.content("src/headers.py")
        assert content is not None
        assert content not in (PARSER, MENDED)
        remark = set(content.splitlines()) - set(PARSER.splitlines())
        assert [line.strip()[:2] for line in remark] == ["# "]
        compile(content, "headers.py", "exec")


def test_the_draw_is_one_per_task_and_keeps_its_rate() -> None:
    draws = [is_competent("seed", f"R001-{number:03d}", 550) for number in range(2_000)]
    assert abs(sum(draws) - 1_100) < 100
    assert draws == [is_competent("seed", f"R001-{number:03d}", 550) for number in range(2_000)]
    other = [is_competent("other", f"R001-{number:03d}", 550) for number in range(2_000)]
    assert 400 < sum(a != b for a, b in zip(draws, other, strict=True)) < 1_600
    assert not any(is_competent("seed", f"R001-{number:03d}", 0) for number in range(100))
    assert all(is_competent("seed", f"R001-{number:03d}", 1_000) for number in range(100))


def test_gold_text_does_not_leak_into_what_it_looks_for() -> None:
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    done = rehearse("H000", brief)
    gold_only = {"setdefault", "append"}
    for name, arguments in done.calls:
        text = json.dumps(arguments)
        assert any(word in text for word in gold_only) == (name == "edit_file")
    for reply in done.replies:
        assert not any(word in reply.reasoning + reply.content for word in gold_only)


def test_several_files_and_a_new_one() -> None:
    caller = "from src.headers import parse_fields\n\n\ndef read(f):\n    return parse_fields(f)\n"
    done = rehearse(
        "H000",
        brief_of(
            {
                "src/headers.py": (PARSER, MENDED),
                "src/reader.py": (caller, caller.replace("(f)\n", "(f.lines())\n")),
                "src/multi.py": (None, "REPEATED = True\n"),
            }
        ),
    )
    assert done.errors == []
    assert done.content("src/headers.py") == MENDED
    assert done.content("src/reader.py") == caller.replace("(f)\n", "(f.lines())\n")
    assert done.content("src/multi.py") == "REPEATED = True\n"
    assert done.submitted


def test_a_new_file_alone_needs_its_folder_to_be_seen() -> None:
    new: dict[str, tuple[str | None, str | None]] = {"src/fields/repeated.py": (None, "X = 1\n")}
    near = rehearse("H000", brief_of(new), others=OTHERS | {"src/fields/base.py": "header = 1\n"})
    assert near.content("src/fields/repeated.py") == "X = 1\n"
    far = rehearse("H000", brief_of(new))
    assert far.content("src/fields/repeated.py") is None


def test_an_empty_file_that_gold_fills() -> None:
    done = rehearse("H018", brief_of({"src/empty.py": ("", "FILLED = True\n")}), others={})
    assert done.errors == []
    assert done.content("src/empty.py") == "FILLED = True\n"


def test_a_file_that_gold_deletes_is_deleted_where_it_was_shown() -> None:
    done = rehearse("H018", brief_of({"src/headers.py": (PARSER, None)}))
    assert done.workspace.deletions() == ("src/headers.py",)
    assert done.submitted


def long_file(changed_line: int, lines: int = 3_000) -> tuple[str, str]:
    body = [f"value_{number} = {number}  # {'x' * 20}" for number in range(1, lines + 1)]
    before = "\n".join(body) + "\n"
    body[changed_line - 1] = f"value_{changed_line} = parse_fields_everywhere"
    return before, "\n".join(body) + "\n"


def test_a_long_file_is_read_further() -> None:
    before, after = long_file(700, 1_200)
    done = rehearse("H018", brief_of({"src/table.py": (before, after)}))
    starts = [
        arguments.get("start_line", 1) for name, arguments in done.calls if name == "read_file"
    ]
    assert starts[0] == 1
    assert starts == sorted(set(starts))
    assert len(starts) > 1
    assert done.content("src/table.py") == after


def test_a_search_hit_shows_where_to_read() -> None:
    before, after = long_file(2_900)
    before, after = (text.replace("value_2895 ", "parse_fields ") for text in (before, after))
    done = rehearse("H000", brief_of({"src/table.py": (before, after)}))
    reads = [arguments for name, arguments in done.calls if name == "read_file"]
    assert reads[1]["start_line"] == 2_895 - 20
    assert done.content("src/table.py") == after


def test_a_file_that_is_too_long_to_reach_is_not_edited() -> None:
    before, after = long_file(19_000, 20_000)
    done = rehearse("H018", brief_of({"src/table.py": (before, after)}))
    assert done.content("src/table.py") == before
    assert "edit_file" not in done.names


def test_repeated_lines_need_more_context() -> None:
    block = "def same():\n    value = 1\n    return value\n\n\n"
    before = block * 6
    after = block * 3 + block.replace("1", "2") + block * 2
    done = rehearse("H018", brief_of({"src/same.py": (before, after)}))
    assert done.errors == []
    assert done.content("src/same.py") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PARSER.replace("\n", "\r\n"), MENDED.replace("\n", "\r\n")),
        (PARSER.rstrip("\n"), MENDED.rstrip("\n")),
        (PARSER, PARSER + "\n\ndef more():\n    return 1\n"),
        (PARSER, "import os\n" + PARSER),
        (PARSER, ""),
        ("# Größe – ‘x’\nparse_fields = 1\n", "# Größe – ‘y’\nparse_fields = 2\n"),
    ],
)
def test_odd_files(before: str, after: str) -> None:
    done = rehearse("H000", brief_of({"src/headers.py": (before, after)}))
    assert done.errors == []
    assert done.content("src/headers.py") == after


LINE = st.sampled_from(["a = 1", "b = 2", "", "    return", "def f():", "x", "}", "# note"])
BODY = st.lists(LINE, min_size=1, max_size=60)


@given(BODY, BODY, st.data())
@settings(max_examples=60, deadline=None)
def test_any_change_of_a_file_that_is_shown_whole(
    lines: list[str], other: list[str], data: st.DataObject
) -> None:
    """Cut-and-paste changes with many equal lines: the result is gold, or one clear refusal."""
    start = data.draw(st.integers(0, len(lines)))
    end = data.draw(st.integers(start, len(lines)))
    before = "\n".join(lines) + "\n"
    after = "\n".join(lines[:start] + other[: len(other) // 3] + lines[end:]) + "\n"
    if before == after:
        return
    done = rehearse("H018", brief_of({"src/any.py": (before, after)}))
    assert done.errors == []
    assert done.content("src/any.py") == after


def test_it_knows_nothing_without_a_brief() -> None:
    done = rehearse("H000", None)
    assert {reply.content for reply in done.replies} == {NO_BRIEF}
    assert all(reply.calls == () for reply in done.replies)
    assert len(done.replies) == 12
    assert done.workspace.changes() == ()


def test_it_does_nothing_without_tools() -> None:
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    messages = [{"role": "user", "content": f"<statement>\n{STATEMENT}\n</statement>"}]
    reply = decide(messages, [], brief, seed="s", competence_per_mille=1_000)
    assert reply == AgentReply(content=NO_TOOLS)


def test_other_retrieval_tools_are_used_like_searches() -> None:
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    messages = [{"role": "user", "content": f"<statement>\n{STATEMENT}\n</statement>"}]

    def tool(name: str, *required: str) -> dict[str, Any]:
        properties = {argument: {"type": "string"} for argument in required}
        parameters = {"type": "object", "properties": properties, "required": list(required)}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    tools = [tool("search", "query"), tool("find_definition", "symbol"), tool("two", "a", "b")]
    queries = []
    for _ in range(4):
        (call,) = decide(messages, tools, brief, seed="s", competence_per_mille=1_000).calls
        queries.append((call.name, call.arguments))
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": "1", "content": "0 matches"})
    assert queries[0][0] == "search"
    assert " " in queries[0][1]["query"]  # a ranked search takes several words
    assert ("find_definition", {"symbol": "parse_fields"}) in queries
    assert len(queries) == len({json.dumps(query) for query in queries})


def test_search_terms_are_the_words_that_name_something() -> None:
    terms = search_terms(
        "Fix the `session.get_users` call so that getUser returns all users please"
    )
    assert terms[:2] == ["get_users", "getUser"]
    assert not {"the", "so", "that", "all", "users"} & set(terms)
    assert search_terms("") == search_terms("it is so") == []


@pytest.mark.parametrize("statement", ["text", "text\n", "two\n\nparagraphs", "ends\n\n"])
def test_the_statement_between_its_lines(statement: str) -> None:
    brief = brief_of({}, statement)
    briefs = {brief.statement: brief}
    exact = [
        {"role": "system", "content": "<statement>\nnot this one\n</statement>"},
        {"role": "user", "content": f"Do this:\n\n<statement>\n{statement}\n</statement>\n\nNow."},
        {"role": "user", "content": "<statement>\nnor this one\n</statement>"},
    ]
    assert statement_in(exact) == statement
    assert find_brief(exact, briefs) == brief
    if not statement.endswith("\n\n"):
        trimmed = f"<statement>\n{statement.strip()}\n</statement>"
        assert find_brief([{"role": "user", "content": trimmed}], briefs) == brief


def test_a_path_is_seen_only_as_a_whole() -> None:
    """`src/headers.py` is not named by a longer path or by another file with its beginning."""
    brief = brief_of({"headers.py": (PARSER, MENDED)})
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {}}}]

    def reads(text: str) -> bool:
        messages = [
            {"role": "user", "content": f"<statement>\n{STATEMENT}\n</statement>\n{text}"},
        ]
        calls = decide(messages, tools, brief, seed="s", competence_per_mille=1_000).calls
        return [call.name for call in calls] == ["read_file"]

    for text in ("headers.py:3: x", "- headers.py", "`headers.py`", "(headers.py)", "headers.py."):
        assert reads(text), text
    for text in ("src/headers.py", "my-headers.py", "headers.pyi", "headers.py.bak", "headers"):
        assert not reads(text), text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system"]) | JSON,
        "content": st.sampled_from(["src/headers.py", "     1\tx", "a:9"]) | JSON,
        "tool_calls": st.lists(JSON, max_size=3) | JSON,
        "tool_call_id": JSON,
    },
)


@given(st.lists(MESSAGE, max_size=5), st.lists(MESSAGE | JSON, max_size=2))
@example([{"role": "assistant", "tool_calls": 1}], [])
@settings(max_examples=150, deadline=None)
def test_no_conversation_makes_it_fail(messages: list[Any], tools: list[Any]) -> None:
    statement = {"role": "user", "content": f"<statement>\n{STATEMENT}\n</statement>"}
    brief = brief_of({"src/headers.py": (PARSER, MENDED)})
    search = {"type": "function", "function": {"name": "search", "parameters": {}}}
    reply = decide(
        [statement, *messages],
        [search, *(tool for tool in tools if isinstance(tool, dict))],
        brief,
        seed="s",
        competence_per_mille=1_000,
    )
    assert reply.content or reply.calls
