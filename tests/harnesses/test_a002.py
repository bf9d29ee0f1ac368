"""A002: window, searches, range edit and guard, elision; after the published behaviour."""

import pytest

from harnesses.a002_swe_agent_style import TOOLS, elided
from harnesses.contract import Message
from harnesses.tools import dispatch

LONG = "".join(f"x{n} = {n}\n" for n in range(1, 301))
FILES = {"src/long.py": LONG, "src/short.py": "a = 1\nb = 2\nc = 3\n", "tests/test_a.py": "x = 1\n"}


def call(workspace, name, **arguments):
    return dispatch(workspace, TOOLS, name, arguments)


def lines_of(result):
    """(first, last) numbers that the window shows."""
    numbers = [
        int(line.partition(":")[0]) for line in result.text.split("\n") if line[:1].isdigit()
    ]
    return numbers[0], numbers[-1]


def test_a_window_has_a_hundred_lines_and_says_what_is_around_it(make_workspace):
    workspace = make_workspace(FILES)
    result = call(workspace, "open", path="src/long.py")
    assert result.text.startswith("[File: src/long.py (300 lines total)]\n")
    assert result.text.endswith("(200 more lines below)")
    assert lines_of(result) == (1, 100)
    assert result.opened == ("src/long.py",)


def test_scrolling_keeps_two_lines_in_sight_and_stops_at_the_ends(make_workspace):
    workspace = make_workspace(FILES)
    call(workspace, "open", path="src/long.py")
    seen = [lines_of(call(workspace, "scroll_down")) for _ in range(3)]
    assert seen == [(99, 198), (197, 296), (201, 300)]
    assert lines_of(call(workspace, "scroll_up")) == (103, 202)
    for _ in range(3):
        first = call(workspace, "scroll_up")
    assert lines_of(first) == (1, 100)


def test_goto_has_the_line_a_sixth_from_the_top(make_workspace):
    workspace = make_workspace(FILES)
    call(workspace, "open", path="src/long.py", line_number=150)
    assert lines_of(call(workspace, "goto", line_number=150)) == (134, 233)
    assert lines_of(call(workspace, "goto", line_number=300)) == (201, 300)
    result = call(workspace, "goto", line_number=301)
    assert result.text == "Error: src/long.py has 300 lines."


@pytest.mark.parametrize("name", ["goto", "scroll_down", "scroll_up", "search_file", "edit"])
def test_without_an_open_file_nothing_is_done(make_workspace, name):
    arguments = {
        "goto": {"line_number": 1},
        "search_file": {"search_term": "x"},
        "edit": {"start_line": 1, "end_line": 1, "replacement_text": "x"},
    }.get(name, {})
    result = call(make_workspace(FILES), name, **arguments)
    assert result.text == "Error: no file is open; use open first."


def test_a_hundred_hits_are_shown_and_more_are_refused(make_workspace):
    hundred = {f"src/m{n:03}.py": "needle\n" for n in range(100)}
    workspace = make_workspace(hundred)
    assert len(call(workspace, "search_dir", search_term="needle").shown) == 100
    more = make_workspace({**hundred, "src/z.py": "needle\n"})
    result = call(more, "search_dir", search_term="needle")
    assert not result.ok
    assert "more than 100 files match" in result.text
    assert not call(more, "find_file", file_name="*.py").ok
    workspace = make_workspace({"src/a.py": "needle\n" * 101})
    assert (
        "more than 100 lines match"
        in call(workspace, "search_file", search_term="needle", file="src/a.py").text
    )


def test_searches_name_files_and_lines(make_workspace):
    workspace = make_workspace({**FILES, ".hidden/x.py": "b = 2\n"})
    assert "src/short.py (1 matches)" in call(workspace, "search_dir", search_term="b = 2").text
    assert ".hidden" not in call(workspace, "search_dir", search_term="b = 2").text
    found = call(workspace, "search_file", search_term="= 2", file="src/short.py")
    assert "src/short.py:2: b = 2" in found.text
    assert call(workspace, "find_file", file_name="sho*").shown == ("src/short.py",)
    assert call(workspace, "search_dir", search_term="nowhere").text == (
        'No matches found for "nowhere" in the repository'
    )


def edited(make_workspace, content, start, end, text, path="src/a.py"):
    workspace = make_workspace({path: content})
    assert call(workspace, "open", path=path).ok
    result = call(workspace, "edit", start_line=start, end_line=end, replacement_text=text)
    return result, workspace.get(path).content


@pytest.mark.parametrize(
    ("content", "start", "end", "text", "after"),
    [
        (b"a = 1\nb = 2\nc = 3\n", 2, 2, "b = 5", b"a = 1\nb = 5\nc = 3\n"),  # no blank line added
        (b"a = 1\nb = 2\nc = 3\n", 2, 2, "b = 5\n", b"a = 1\nb = 5\nc = 3\n"),
        (b"a = 1\nb = 2\nc = 3\n", 1, 3, "", b""),
        (b"a = 1\nb = 2\nc = 3\n", 3, 3, "c = 4\nd = 5", b"a = 1\nb = 2\nc = 4\nd = 5\n"),
        (b"a = 1\r\nb = 2\r\n", 2, 2, "b = 3\nc = 4", b"a = 1\r\nb = 3\r\nc = 4\r\n"),
        (b"a = 1\nb = 2", 2, 2, "b = 3\n", b"a = 1\nb = 3"),
        (b"a = 1\r\nb = 2", 2, 2, "b = 3", b"a = 1\r\nb = 3"),
        (b"\xef\xbb\xbfa = 1\nb = 2\n", 2, 2, "b = 3", b"\xef\xbb\xbfa = 1\nb = 3\n"),
        (b"a = 1\x0c\nb = 2\n", 2, 2, "b = 3", b"a = 1\x0c\nb = 3\n"),
        (b"", 1, 1, "a = 1", b"a = 1\n"),
    ],
)
def test_a_range_is_replaced_and_every_other_byte_stays(
    make_workspace, content, start, end, text, after
):
    result, now = edited(make_workspace, content, start, end, text)
    assert result.ok
    assert now == after


@pytest.mark.parametrize(("start", "end"), [(2, 1), (1, 4), (4, 4)])
def test_a_range_outside_of_the_file_is_refused(make_workspace, start, end):
    result, now = edited(make_workspace, b"a = 1\nb = 2\nc = 3\n", start, end, "x = 1")
    assert not result.ok
    assert now == b"a = 1\nb = 2\nc = 3\n"


@pytest.mark.parametrize(
    ("path", "content", "text"),
    [
        ("src/a.py", b"def f():\n    return 1\n", "return (1"),
        ("src/a.py", b"def f():\n    return 1\n", "  x = 1\n    return 1"),
        ("src/a.go", b"package a\nfunc f() {}\n", "func f() {"),
    ],
)
def test_an_edit_that_adds_a_syntax_error_is_taken_back(make_workspace, path, content, text):
    result, now = edited(make_workspace, content, 2, 2, text, path=path)
    assert not result.ok
    assert "syntax error" in result.text
    assert now == content


def test_an_error_that_was_there_before_does_not_forbid_an_edit(make_workspace):
    result, now = edited(make_workspace, b"def f(:\n    return 1\n", 2, 2, "    return 2")
    assert result.ok
    assert now == b"def f(:\n    return 2\n"


def test_the_patch_policy_holds(make_workspace):
    workspace = make_workspace(FILES)
    call(workspace, "open", path="tests/test_a.py")
    result = call(workspace, "edit", start_line=1, end_line=1, replacement_text="x = 2")
    assert result.refused == "protected_path"
    assert call(workspace, "create", filename="../x.py").refused == "outside_tree"
    assert call(workspace, "create", filename="src/new.py").ok
    assert call(workspace, "edit", start_line=1, end_line=1, replacement_text="y = 1\n").ok
    assert [file.path for file in workspace.changes()] == ["src/new.py"]


def test_the_last_five_observations_are_kept_and_older_ones_elided():
    messages = [Message("user", "task")]
    for number in range(7):
        messages.append(Message("assistant", f"do {number}"))
        messages.append(Message("tool", f"line\nline {number}", tool_call_id=str(number)))
    shown = [message.content for message in elided(messages) if message.role == "tool"]
    assert shown[:2] == ["Old output omitted (2 lines)"] * 2
    assert shown[2:] == [f"line\nline {number}" for number in range(2, 7)]
    assert [message.content for message in elided(messages) if message.role == "assistant"] == [
        f"do {number}" for number in range(7)
    ]
