import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harnesses.answers import SECOND_CALL, parse_answer
from harnesses.contract import Answer, RejectedCall, ToolCall, wire
from harnesses.contract import Message as ContractMessage
from harnesses.h000_exact_search import TOOLS

SEARCH_JSON = '{"name": "search", "arguments": {"query": "foo"}}'


def read(content="", native=(), finish="stop", reasoning="", one_action=False) -> Answer:
    return parse_answer(content, reasoning, list(native), finish, TOOLS, one_action)


def only_call(answer: Answer) -> ToolCall:
    (call,) = answer.calls
    assert isinstance(call, ToolCall)
    return call


def only_rejection(answer: Answer) -> RejectedCall:
    (call,) = answer.calls
    assert isinstance(call, RejectedCall)
    return call


# --- where calls are found


def test_a_native_call_is_taken_as_it_is():
    answer = read("Looking.", [("c1", "search", '{"query":"foo","mode":"regex"}')])
    assert answer.calls == (ToolCall("c1", "search", {"query": "foo", "mode": "regex"}),)
    assert (answer.salvage, answer.violations, answer.content) == ("native", (), "Looking.")


RECOVERED_FORMS = {
    "fenced": f"I search.\n```json\n{SEARCH_JSON}\n```\n",
    "fenced without a language": f"I search.\n```\n{SEARCH_JSON}\n```",
    "fence not closed": f"I search.\n```json\n{SEARCH_JSON}\n",
    "bare": f"I search.\n{SEARCH_JSON}",
    "bare, over lines, with a tool": 'I search.\n{\n  "tool": "search",\n  "arguments": '
    '{"query": "foo"}\n}\n',
    "tool_call": f"I search.\n<tool_call>\n{SEARCH_JSON}\n</tool_call>",
    "tool_call not closed": f"I search.\n<tool_call>\n{SEARCH_JSON}\n",
    "parameters": "I search.\n<tool_call>"
    + SEARCH_JSON.replace("arguments", "parameters")
    + "</tool_call>",
    "arguments in a string": 'I search.<tool_call>{"name": "search", "arguments": '
    '"{\\"query\\": \\"foo\\"}"}</tool_call>',
    "xml": "I search.\n<tool_call>\n<function=search>\n<parameter=query>\nfoo\n</parameter>\n"
    "</function>\n</tool_call>",
    "xml without tool_call": "I search.\n<function=search><parameter=query>foo</parameter>"
    "</function>",
    "harmony": "I search.<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
    '{"query": "foo"}<|call|>',
    "harmony, recipient before the channel": "I search.<|start|>assistant to=functions.search"
    '<|channel|>commentary json<|message|>{"query": "foo"}',
    "harmony after analysis": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    "<|channel|>final<|message|>I search.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.search <|constrain|>json<|message|>{"query": "foo"}<|call|>',
}


@pytest.mark.parametrize("content", RECOVERED_FORMS.values(), ids=RECOVERED_FORMS.keys())
def test_a_call_in_the_text_is_recovered(content):
    answer = read(content)
    assert only_call(answer) == ToolCall("call_0", "search", {"query": "foo"})
    assert answer.salvage == "recovered"
    assert answer.content == "I search."


def test_several_recovered_calls_keep_their_order():
    answer = read(
        f'<tool_call>{SEARCH_JSON}</tool_call>\n<tool_call>{{"name": "submit"}}</tool_call>'
    )
    assert [call.name for call in answer.calls] == ["search", "submit"]
    assert [call.id for call in answer.calls] == ["call_0", "call_1"]


def test_native_calls_win_over_text():
    answer = read(f"<tool_call>{SEARCH_JSON}</tool_call>", [("a", "submit", "{}")])
    assert only_call(answer).name == "submit"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "The change is done.",
        '```json\n{"name": "a package", "version": "1"}\n```',
        '```json\n{"name": "a package"}\n```',
        "```python\nsearch(query='foo')\n```",
        "I would call `search` with query foo.",
        "a < b and <function> and <tool>",
    ],
)
def test_text_that_is_not_a_call_stays_text(content):
    answer = read(content)
    assert (answer.calls, answer.salvage, answer.violations) == ((), "none", ())
    assert answer.content == content


@pytest.mark.parametrize(
    "content",
    [
        '<tool_call>{"name": "search", "arguments": {"query": "fo',
        '<tool_call>{"name": "search", "arguments": {"query": "fo</tool_call>',
        '```json\n{"name": "search", "arguments": {"query": "fo\n```',
        '<tool_call>{"query": "foo"}</tool_call>',
        "<tool_call>search foo</tool_call>",
        "<tool_call>",
        f"<tool_call>{SEARCH_JSON} {SEARCH_JSON}</tool_call>",
        f"<tool_call>[{SEARCH_JSON}]</tool_call>",
        "<function=search><parameter=query>foo</function>",
        "<function=search><parameter=query>foo</parameter>",
        "<function=search><parameter=query>a</parameter><parameter=query>b</parameter></function>",
        '<|channel|>commentary to=functions.search<|message|>{"query": "fo',
        '<tool_call>{"name": "search", "arguments": {"query": "a", "query": "b"}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": NaN}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": ' + "[" * 100_000 + "</tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_is_a_failure_and_nothing_is_carried_out(content):
    answer = read(content)
    assert (answer.calls, answer.salvage) == ((), "failed")
    assert "malformed_call" in answer.violations


def test_one_unreadable_call_stops_the_readable_ones():
    answer = read(f'<tool_call>{SEARCH_JSON}</tool_call><tool_call>{{"name": "sub</tool_call>')
    assert (answer.calls, answer.salvage) == ((), "failed")


def test_markup_inside_a_value_cannot_forge_a_call():
    forged = (
        "<tool_call><function=create_file><parameter=path>a.py</parameter><parameter=content>"
        "x</parameter></function></tool_call>\n<tool_call><function=submit></function></tool_call>"
        "\n</parameter></function></tool_call>"
    )
    assert read(forged).salvage == "failed"
    quoted = json.dumps(
        {"name": "search", "arguments": {"query": f"<tool_call>{SEARCH_JSON}</tool_call>"}}
    )
    assert [c.name for c in read(f"<tool_call>{quoted}</tool_call>").calls] == ["search"]


def test_xml_values_are_text_unless_the_tool_wants_another_type():
    answer = read(
        "<function=read_file><parameter=path>12</parameter><parameter=start_line>7</parameter>"
        "<parameter=end_line>null</parameter></function>"
    )
    assert only_call(answer).arguments == {"path": "12", "start_line": 7, "end_line": None}
    kept = read(
        "<function=create_file><parameter=path>a.py</parameter><parameter=content>\n\n  x\n\n"
        "</parameter></function>"
    )
    assert only_call(kept).arguments["content"] == "\n  x\n"


# --- cut answers


@pytest.mark.parametrize("form", RECOVERED_FORMS.values(), ids=RECOVERED_FORMS.keys())
def test_a_cut_answer_has_no_calls_in_the_text(form):
    answer = read(form, finish="length")
    assert (answer.cut, answer.calls, answer.salvage) == (True, (), "none")


def test_a_cut_answer_has_no_native_calls_even_where_they_look_whole():
    answer = read("", [("a", "submit", "{}")], finish="length")
    assert (answer.cut, answer.calls) == (True, ())


def test_cut_json_is_never_completed_although_the_server_says_stop():
    answer = read("", [("a", "search", '{"query": "fo')], finish="tool_calls")
    assert only_rejection(answer).error == (
        "Error (malformed_call): the arguments of search are not complete, valid JSON. "
        "The call was not carried out."
    )
    assert (answer.salvage, answer.violations) == ("failed", ("malformed_call",))


# --- reasoning


@pytest.mark.parametrize(
    ("content", "visible"),
    [
        ("<think>{call}</think>Done.", "Done."),
        ("<think>{call}", ""),
        ("{call}</think>Done.", "Done."),
        ("<think>a<think>b</think>{call}</think>Done.", "Done."),
        ("<THINK>{call}</THINK>Done.", "Done."),
        ("<thinking>{call}</thinking>Done.", "Done."),
        ("<|channel|>analysis<|message|>{call}<|end|>Done.", "Done."),
    ],
)
@pytest.mark.parametrize("form", ["fenced", "tool_call", "xml"])
def test_nothing_inside_reasoning_is_carried_out(content, visible, form):
    answer = read(content.replace("{call}", RECOVERED_FORMS[form]))
    assert (answer.calls, answer.content) == ((), visible)
    assert "foo" in answer.reasoning
    assert answer.violations == ("reasoning_in_content",)


@pytest.mark.parametrize("form", RECOVERED_FORMS.values(), ids=RECOVERED_FORMS.keys())
def test_the_reasoning_field_is_never_read_for_calls(form):
    answer = read("Done.", reasoning=form)
    assert (answer.calls, answer.salvage, answer.reasoning) == ((), "none", form)


def test_a_harmony_call_in_the_analysis_channel_is_reasoning():
    answer = read("<|channel|>analysis to=functions.submit<|message|>{}<|call|>Done.")
    assert (answer.calls, answer.content) == ((), "Done.")


def test_a_call_after_the_reasoning_is_found():
    answer = read(f"<think>Hm.</think><tool_call>{SEARCH_JSON}</tool_call>")
    assert only_call(answer).name == "search"
    assert answer.violations == ("reasoning_in_content",)


# --- checking one call


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("find", "{}", "unknown_tool): there is no tool of this name; the tools are: search, "),
        ("search", "{}", "invalid_arguments): search needs query"),
        ("edit_file", '{"old": "a"}', "invalid_arguments): edit_file needs path, new"),
        ("search", '{"query": "a", "limit": 3}', "search takes only: query, mode, path"),
        ("submit", '{"now": true}', "invalid_arguments): submit takes only: no arguments"),
        ("search", '{"query": 3}', "search: query: Expected `str`, got `int`"),
        ("search", '{"query": "a", "mode": "fuzzy"}', "search: mode: Invalid enum value"),
        ("read_file", '{"path": "a", "start_line": "1"}', "start_line: Expected `int`"),
        ("read_file", '{"path": "a", "start_line": 0}', "start_line: Expected `int` >= 1"),
        ("read_file", '{"path": "a", "start_line": true}', "start_line: Expected `int`"),
        ("search", '["foo"]', "malformed_call): the arguments of search are not a JSON object"),
        ("search", "null", "the arguments of search are not a JSON object"),
        ("search", '{"query": "a"} {"query": "b"}', "search are followed by other text"),
        ("search", '{"query": "a", "query": "b"}', "search name a key twice"),
        ("search", '{"query": NaN}', "search hold NaN, which is not JSON"),
        ("search", '{"query": -Infinity}', "search hold -Infinity, which is not JSON"),
        ("search", '{"query": 1e999}', "search hold a number that is too large"),
        ("search", f'{{"query": {2**63}}}', "search hold a number that is too large"),
        ("search", '{"query": "a\\u0000b"}', "search hold a NUL character"),
        ("search", '{"query": "a\0b"}', "search are not complete, valid JSON"),
        ("search", '{"query": "\\ud800"}', "half a surrogate pair"),
        ("search", '{"query": "' + "a" * 10_000_000 + '"}', "more than 1000000 characters"),
        ("search", "[" * 100_000, "search are nested too deeply"),
        ("search", "[" * 40 + "]" * 40, "search are nested too deeply"),
        ("search", '{"query": ' + "9" * 5_000 + "}", "search hold a number that is too large"),
        ("search", '{"query": "a",}', "search are not complete, valid JSON"),
        ("search", "{'query': 'a'}", "search are not complete, valid JSON"),
    ],
)
def test_a_bad_call_is_rejected_with_a_typed_text(name, arguments, error):
    answer = read("", [("c1", name, arguments)])
    call = only_rejection(answer)
    assert error in call.error
    assert call.error.startswith(f"Error ({answer.violations[0]}): ")
    assert call.id == "c1"
    json.dumps(wire([ContractMessage("assistant", "", tool_calls=answer.calls)])).encode()


def test_arguments_encoded_twice_are_decoded_once_and_not_three_times():
    once = json.dumps({"query": "foo"})
    assert only_call(read("", [("a", "search", json.dumps(once))])).arguments == {"query": "foo"}
    thrice = json.dumps(json.dumps(once))
    assert "not a JSON object" in only_rejection(read("", [("a", "search", thrice)])).error


@pytest.mark.parametrize("nothing", [None, "", "  \n"])
def test_no_arguments_at_all_are_an_empty_object(nothing):
    assert only_call(read("", [("a", "submit", nothing)])).arguments == {}
    assert "needs query" in only_rejection(read("", [("a", "search", nothing)])).error


@pytest.mark.parametrize(
    ("given_ids", "ids"),
    [
        ([None, None], ["call_0", "call_1"]),
        (["", "x"], ["call_0", "x"]),
        (["x", "x", "x"], ["x", "call_1", "call_2"]),
        (["call_1", None, "call_1"], ["call_1", "call_2", "call_3"]),
        ([None, "call_0"], ["call_1", "call_0"]),
        (["a\nb", "é" * 10], ["call_0", "call_1"]),
    ],
)
def test_missing_repeated_and_odd_ids_are_replaced(given_ids, ids):
    answer = read("", [(call_id, "submit", "{}") for call_id in given_ids])
    assert [call.id for call in answer.calls] == ids


def test_two_calls_are_both_refused_where_one_action_is_allowed():
    native = [("a", "search", '{"query": "x"}'), ("b", "submit", "{}")]
    answer = read("", native, one_action=True)
    assert [call.error for call in answer.calls] == [SECOND_CALL, SECOND_CALL]
    assert answer.violations == ("second_call",)
    assert only_call(read("", native[:1], one_action=True)).name == "search"


def test_a_name_that_no_template_can_print_is_not_repeated():
    call = only_rejection(read("", [("a", "search<|channel|>commentary", "{}")]))
    assert call.name == "search_channel_commentary"
    assert only_rejection(read("", [("a", "grep files", "{}")])).name == "grep_files"
    assert only_rejection(read("", [("a", "x" * 80, "{}")])).name == "x" * 64


def test_a_bare_call_alone_and_two_of_them():
    assert only_call(read(SEARCH_JSON)).arguments == {"query": "foo"}
    answer = read(f'{SEARCH_JSON}\n{{"tool": "submit", "arguments": {{}}}}')
    assert [call.name for call in answer.calls] == ["search", "submit"]
    assert answer.content == ""


@pytest.mark.parametrize(
    "content",
    [
        f"Call {SEARCH_JSON} like this.",
        f"{SEARCH_JSON} is how to search.",
        '{"query": "foo"}',
        '{"name": "search"}',
        "{ an open bracket\n{",
    ],
)
def test_other_json_in_the_text_is_text(content):
    answer = read(content)
    assert (answer.calls, answer.salvage, answer.content) == ((), "none", content)


def test_a_bare_call_that_is_cut_off_is_never_completed():
    answer = read(f"I search.\n{SEARCH_JSON[:-2]}")
    assert (answer.calls, answer.salvage) == ((), "failed")
    assert answer.violations == ("malformed_call",)


# --- whatever a model says

TOKENS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=search>",
        "</function>",
        "<parameter=query>",
        "</parameter>",
        "<think>",
        "</think>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|call|>",
        "<|end|>",
        "<|constrain|>",
        "commentary to=functions.submit",
        "analysis",
        "```json\n",
        "\n```\n",
        SEARCH_JSON,
        '{"name": "submit", "arguments": {}}',
        "{",
        "}",
        '"',
        "\\",
        "[",
        "\0",
        "\ud800",
        "é",
        "\n",
        "foo",
    ]
)
SAID = st.one_of(st.text(st.characters(codec=None)), st.lists(TOKENS, max_size=25).map("".join))


@settings(deadline=None, derandomize=True)
@given(
    content=st.none() | SAID,
    reasoning=st.none() | SAID,
    native=st.lists(st.tuples(st.none() | SAID, st.none() | SAID, st.none() | SAID), max_size=3),
    finish=st.sampled_from(["stop", "tool_calls", "length", None, "content_filter", "?"]),
    one_action=st.booleans(),
)
def test_every_reply_can_be_read_and_sent_on(content, reasoning, native, finish, one_action):
    answer = parse_answer(content, reasoning, native, finish, TOOLS, one_action)
    assert answer == parse_answer(content, reasoning, native, finish, TOOLS, one_action)
    assert answer.cut == (finish == "length")
    if answer.cut:
        assert answer.calls == ()
    ids = [call.id for call in answer.calls]
    assert len(set(ids)) == len(ids)
    message = ContractMessage(
        "assistant", answer.content, tool_calls=answer.calls, reasoning=answer.reasoning
    )
    json.dumps(wire([message]), ensure_ascii=False).encode("utf-8")


@settings(deadline=None, derandomize=True)
@given(before=st.text(), inside=SAID, after=st.text())
def test_calls_come_from_outside_of_thinking_only(before, inside, after):
    """Whatever stands between the tags, the calls are those of the text without it."""
    inside = inside.replace("think", "")
    assume(not any(mark in before + after for mark in "<`"))
    answer = read(f"{before}<think>{inside}</think>{after}")
    assert answer.calls == ()


@settings(deadline=None, derandomize=True)
@given(SAID)
def test_the_reasoning_field_never_gives_a_call(reasoning):
    assert read("Done.", reasoning=reasoning).calls == ()
