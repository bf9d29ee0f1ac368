"""Reading stored chat streams: a function of the bytes, however they are cut into blocks."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.servers.chat_stream import (
    MAX_EVENT_BYTES,
    ChatStream,
    ChatStreamError,
    error_message,
    read_chat_stream,
)
from actors.servers.contract import ToolCall, Usage


def chunk(delta: dict[str, object] | None = None, **more: object) -> bytes:
    """One event, as LM Studio writes it (bug-tracker#378)."""
    finish_reason = more.pop("finish_reason", None)
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish_reason}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(body | more) + b"\n\n"


def call(index: int, arguments: str, **head: str) -> dict[str, object]:
    function = {"arguments": arguments} | ({"name": head["name"]} if "name" in head else {})
    start = {"index": index, "function": function}
    return {"tool_calls": [start | ({"id": head["id"], "type": "function"} if head else {})]}


DONE = b"data: [DONE]\n\n"
STREAM = b"".join(
    [
        b": keep-alive\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Ich prüfe "}),
        chunk({"reasoning_content": "das."}),
        chunk({"content": "Reading “a.py” now."}),
        chunk(call(0, "", id="11", name="read_file")),
        chunk(call(0, '{"path": ')),
        chunk(call(0, '"a.py"}')),
        chunk(call(1, "{}", id="12", name="run_tests")),
        chunk(finish_reason="tool_calls"),
        chunk(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}),
        DONE,
    ]
)


def test_every_part_of_an_answer() -> None:
    reply = read_chat_stream(STREAM)
    assert reply.reasoning == "Ich prüfe das."
    assert reply.reasoning_field == "reasoning_content"
    assert reply.content == "Reading “a.py” now."
    assert reply.tool_calls == (
        ToolCall(id="11", name="read_file", arguments='{"path": "a.py"}'),
        ToolCall(id="12", name="run_tests", arguments="{}"),
    )
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(prompt_tokens=9, completion_tokens=4)
    assert reply.echoed_model == "m"
    assert not reply.leaked_markup


@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.booleans())
def test_block_borders_and_line_ends_do_not_matter(cuts: list[int], crlf: bool) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    reader = ChatStream()
    borders = [0, *sorted(cuts), len(stream)]
    for start, end in zip(borders, borders[1:], strict=False):
        reader.feed(stream[start:end])
    assert reader.done
    assert reader.reply() == read_chat_stream(STREAM)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for stream in (content, b"data: " + content + b"\n\n", STREAM[:400] + content):
        try:
            reply = read_chat_stream(stream)
        except ChatStreamError:
            continue
        assert reply == read_chat_stream(stream + b"\n\n")  # the last blank line may be missing


def test_what_counts_as_a_token_and_as_progress() -> None:
    reader = ChatStream()
    for block, tokens, progress in [
        (b": keep-alive\n\n", 0, 0),
        (chunk({"role": "assistant", "content": "", "tool_calls": []}), 0, 0),
        (chunk({"reasoning": "a"}), 1, 1),
        (b": keep-alive\n\n", 1, 1),
        (chunk({"content": "b"}), 2, 2),
        (chunk(call(0, "", id="1", name="submit")), 3, 3),
        (chunk(finish_reason="stop"), 3, 4),
        (chunk(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 1}), 3, 5),
        (DONE, 3, 5),
    ]:
        reader.feed(block)
        assert (reader.tokens, reader.progress) == (tokens, progress)
    assert reader.ended
    assert reader.done


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": 0, "completion_tokens": 7},
        {"prompt_tokens": 5},
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1.5, "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": 2**64 - 1, "completion_tokens": 2},
        {"prompt_tokens": 5, "completion_tokens": 2**63},
        {"prompt_tokens": 5, "completion_tokens": 2**32 - 1},
        "9",
    ],
)
def test_usage_that_is_missing_or_cannot_be_is_unknown(usage: object) -> None:
    assert read_chat_stream(chunk({"content": "x"}, usage=usage) + DONE).usage is None


def test_reasoning_tokens_of_the_details() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 0,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    expected = Usage(prompt_tokens=5, completion_tokens=0, reasoning_tokens=3)
    assert read_chat_stream(chunk(usage=usage) + DONE).usage == expected


def test_ids_and_names_that_are_repeated_or_emptied_later() -> None:
    stream = chunk(call(0, "{", id="7", name="edit_file")) + chunk(call(0, "}", id="", name=""))
    assert read_chat_stream(stream).tool_calls == (
        ToolCall(id="7", name="edit_file", arguments="{}"),
    )


def test_calls_that_all_carry_index_0_are_told_apart_by_their_ids() -> None:
    stream = b"".join(
        [
            chunk(call(0, '{"path": ', id="7", name="read_file")),
            chunk(call(0, '"a.py"}')),
            chunk(call(0, '{"path": ', id="8", name="read_file")),
            chunk(call(0, '"b.py"}', id="8", name="")),
            chunk(call(0, "", id="another for the same call")),
        ]
    )
    assert read_chat_stream(stream).tool_calls == (
        ToolCall(id="7", name="read_file", arguments='{"path": "a.py"}'),
        ToolCall(id="8", name="read_file", arguments='{"path": "b.py"}'),
    )


def test_an_empty_finish_reason_ends_nothing() -> None:
    reader = ChatStream()
    reader.feed(chunk({"content": "Readi"}, finish_reason=""))
    assert not reader.ended
    assert reader.reply().finish_reason is None
    reader.feed(chunk({"content": "ng"}, finish_reason="stop") + chunk(finish_reason=""))
    assert reader.ended
    assert reader.reply().finish_reason == "stop"


def test_a_finish_reason_without_end_is_bounded() -> None:
    assert read_chat_stream(chunk(finish_reason="x" * 2_000_000)).finish_reason == "x" * 64


def test_a_first_chunk_may_leave_the_model_unnamed() -> None:
    stream = chunk({"role": "assistant"}, model="") + chunk({"content": "a"}) + DONE
    assert read_chat_stream(stream).echoed_model == "m"


def test_a_tool_call_without_index_is_a_new_one() -> None:
    one = {"tool_calls": [{"id": "a", "function": {"name": "submit", "arguments": "{}"}}]}
    assert [c.name for c in read_chat_stream(chunk(one) + chunk(one)).tool_calls] == ["submit"] * 2


def test_cut_arguments_stay_cut() -> None:
    stream = chunk(call(0, '{"path": "a', id="1", name="read_file")) + chunk(finish_reason="length")
    reply = read_chat_stream(stream)
    assert reply.tool_calls[0].arguments == '{"path": "a'
    assert reply.finish_reason == "length"


@pytest.mark.parametrize("markup", ["<think>", "</think>", "<|channel|>"])
def test_markup_in_the_content_is_noticed_and_left_there(markup: str) -> None:
    text = f"a {markup} b"
    reply = read_chat_stream(chunk({"content": text[:4]}) + chunk({"content": text[4:]}))
    assert reply.leaked_markup
    assert reply.content == text
    assert reply.tool_calls == ()


@pytest.mark.parametrize(
    "data",
    [
        b"{not JSON",
        b"[" * 100_000,
        b'{"choices": ' * 100_000,
        b"[]",
        b'{"choices": 3}',
        b'{"choices": [{"index": 1, "delta": {}}]}',
        b'{"choices": [{"delta": "text"}]}',
        b'{"choices": [{"delta": {"content": 3}}]}',
        b'{"choices": [{"delta": {"tool_calls": {}}}]}',
        b'{"choices": [{"delta": {"tool_calls": ["x"]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]}',
        b'{"choices": [{"delta": {"content": "\xff"}}]}',
    ],
)
def test_events_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ChatStreamError):
        read_chat_stream(b"data: " + data + b"\n\n")


def test_an_endless_line_is_refused() -> None:
    reader = ChatStream()
    with pytest.raises(ChatStreamError, match="longer than"):
        for _ in range(MAX_EVENT_BYTES // (1 << 20) + 1):
            reader.feed(b"data: " + b"x" * (1 << 20))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "text"}, "text"),
        ({"error": {"message": "text", "type": "t", "code": "c"}}, "text (c, t)"),
        ({"error": {"message": "text"}, "message": "text"}, "text"),
        ({"error": {}}, "no message"),
        ({"object": "error", "message": "text", "type": "t", "code": 400}, "text (400, t)"),
        ({"object": "error"}, "no message"),
        ({"detail": "text"}, "text"),
        ({"detail": [{"loc": ["body"], "msg": "one", "type": "t"}, {"msg": "two"}]}, "one; two"),
        ({"detail": ["text"]}, "text"),
        ({"object": "chat.completion.chunk", "message": "text"}, None),
        ({"models": []}, None),
        ({"error": None}, None),
        ([], None),
    ],
)
def test_messages_of_error_bodies(body: object, message: str | None) -> None:
    assert error_message(body) == message


def test_an_error_inside_a_stream() -> None:
    reader = ChatStream()
    reader.feed(b'event: error\ndata: {"error": {"message": "Model is unloaded."}}\n\n')
    assert reader.error == "Model is unloaded."
    assert not reader.ended
