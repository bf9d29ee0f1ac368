import json

import pytest

from harnesses.contract import (
    AskModel,
    CallTool,
    Message,
    RejectedCall,
    ToolCall,
    ToolResult,
    ask,
    perform,
    wire,
    wire_tools,
    with_reasoning,
)
from harnesses.h000_exact_search import TOOLS
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH


def test_messages_take_the_form_of_a_chat_completions_request():
    assert wire(
        [
            Message("system", "s"),
            Message("user", "u"),
            Message(
                "assistant",
                "",
                tool_calls=(
                    ToolCall("c1", "search", {"query": "é"}),
                    RejectedCall("c2", "unknown", "Error"),
                ),
                reasoning="because",
            ),
            Message("tool", "found", tool_call_id="c1"),
        ]
    ) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "because",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"query": "é"}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "unknown", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ]


def test_a_tool_is_described_by_a_flat_schema():
    (wired,) = wire_tools([READ_FILE])
    assert wired["type"] == "function"
    assert wired["function"]["name"] == "read_file"
    parameters = wired["function"]["parameters"]
    assert parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, from the root of the repository"},
            "start_line": {
                "type": "integer",
                "description": "first line to show, from 1",
                "minimum": 1,
                "default": 1,
            },
            "end_line": {
                "type": "integer",
                "description": "last line to show; default: the end",
                "minimum": 1,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_argument_is_described_and_no_schema_refers_elsewhere(tool):
    text = json.dumps(tool.parameters)
    assert "$ref" not in text and "anyOf" not in text
    for described in tool.parameters["properties"].values():
        assert described["description"]
    assert tool.description


def test_choices_are_listed():
    mode = SEARCH.parameters["properties"]["mode"]
    assert mode["enum"] == ["exact", "regex", "substring"]


HISTORY = (
    Message("user", "task"),
    Message("assistant", "1", reasoning="r1"),
    Message("user", "no call"),
    Message("assistant", "2", reasoning="r2"),
    Message("tool", "found", tool_call_id="c"),
    Message("assistant", "3", reasoning="r3"),
)


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ("omit", ["", "", ""]),
        ("tool_chain", ["", "r2", "r3"]),
        ("keep", ["r1", "r2", "r3"]),
    ],
)
def test_reasoning_is_kept_as_the_study_says(history, kept):
    messages = with_reasoning(HISTORY, history)
    assert [m.reasoning for m in messages if m.role == "assistant"] == kept
    assert [m.content for m in messages] == [m.content for m in HISTORY]


def test_an_effect_that_is_answered_with_the_wrong_kind_is_an_error_of_the_engine():
    asking = ask([Message("user", "u")])
    assert isinstance(next(asking), AskModel)
    with pytest.raises(TypeError, match="AskModel was answered with ToolResult"):
        asking.send(ToolResult(ok=True, text=""))
    calling = perform(CallTool("search", {}, 1))
    next(calling)
    with pytest.raises(TypeError, match="CallTool was answered with NoneType"):
        calling.send(None)
