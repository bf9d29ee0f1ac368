import pytest

from harnesses.h000_exact_search import TOOLS
from harnesses.retrieval.snapshot import snapshot_file
from harnesses.tools import dispatch
from harnesses.workspace import MAX_FILE_BYTES, MAX_OVERLAY_BYTES


def edit(workspace, path, old, new, room=8_000):
    return dispatch(workspace, TOOLS, "edit_file", {"path": path, "old": old, "new": new}, room)


def create(workspace, path, content="x = 1\n"):
    return dispatch(workspace, TOOLS, "create_file", {"path": path, "content": content})


def content_of(workspace, path) -> bytes:
    return workspace.file(path).content


def changed(workspace) -> dict[str, bytes]:
    return {file.path: file.content for file in workspace.changes()}


# --- edits that are carried out


def test_an_edit_replaces_the_only_occurrence_and_shows_it(make_workspace):
    workspace = make_workspace({"a.py": "".join(f"line {i}\n" for i in range(1, 21))})
    result = edit(workspace, "a.py", "line 10\n", "ten\nten and a half\n")
    assert changed(workspace) == {
        "a.py": "".join(
            "ten\nten and a half\n" if i == 10 else f"line {i}\n" for i in range(1, 21)
        ).encode()
    }
    assert result.text.startswith("Edited a.py: lines 10-12 are new.\n<repository_text>\n")
    assert "     7\tline 7\n" in result.text
    assert "    10\tten\n    11\tten and a half\n" in result.text
    assert (result.ok, result.edited, result.shown) == (True, ("a.py",), ("a.py",))


def test_an_edit_without_room_is_carried_out_and_not_shown(make_workspace):
    workspace = make_workspace({"a.py": "a\n"})
    result = edit(workspace, "a.py", "a", "b", room=0)
    assert result.text == "Edited a.py: lines 1-1 are new."
    assert content_of(workspace, "a.py") == b"b\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "edited"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "\nb\n", "\nx\n", b"a\r\nx\r\n"),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        (b"a\nb", "b", "b\n", b"a\nb\n"),
        (b"a\nb\n", "b\n", "b", b"a\nb"),
        (b"\xef\xbb\xbfa\nb\n", "a\n", "x\n", b"\xef\xbb\xbfx\nb\n"),
        (b"caf\xe9 = 1\nb = 2\n", "b = 2", "b = 3", b"caf\xe9 = 1\nb = 3\n"),
        ("変数 = 1\n".encode(), "変数", "é", "é = 1\n".encode()),
        (b"", "", "x\n", b"x\n"),
        (b"a\n", "a\n", "", b""),
        (b"a\x0cb\n", "a\x0cb", "c", b"c\n"),
    ],
)
def test_bytes_outside_of_the_passage_stay_and_line_ends_follow_the_file(
    make_workspace, content, old, new, edited
):
    workspace = make_workspace({"a.py": content})
    assert edit(workspace, "a.py", old, new).ok
    assert content_of(workspace, "a.py") == edited


def test_an_edit_keeps_the_mode_and_the_class(make_workspace):
    tool = snapshot_file("run.py", "100755", b"a\n", "production")
    workspace = make_workspace({"run.py": tool})
    edit(workspace, "run.py", "a", "b")
    (file,) = workspace.changes()
    assert (file.mode, file.file_class, file.content) == ("100755", "production", b"b\n")


def test_an_edit_that_is_undone_is_no_change(make_workspace):
    workspace = make_workspace({"a.py": "a\n"})
    edit(workspace, "a.py", "a", "b")
    assert edit(workspace, "a.py", "b", "a").ok
    assert workspace.changes() == ()


# --- edits that are not


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("c", "x", "old occurs 0 times in a.py; nothing was changed. Read the file again"),
        ("a", "x", "old occurs 2 times in a.py (lines 1, 3); nothing was changed. Take in more"),
        ("aba", "x", "old occurs 2 times in a.py (lines 4, 4)"),
        ("b\r\n", "x", "old occurs 0 times"),
        ("", "x", "old is empty"),
        ("b", "b", "old and new are the same"),
        ("b", "x\0", "NUL"),
        ("b", "\ud800", "not valid Unicode"),
    ],
)
def test_a_passage_must_occur_once(make_workspace, old, new, says):
    workspace = make_workspace({"a.py": "a\nb\nA a\n"})
    if old == "aba":
        workspace = make_workspace({"a.py": "1\n2\n3\nababa\n"})
    result = edit(workspace, "a.py", old, new)
    assert (result.ok, result.edited, result.refused) == (False, (), None)
    assert result.text.startswith("Error: ")
    assert says in result.text
    assert workspace.changes() == ()


@pytest.mark.parametrize("content", [b"a\0", "a".encode("utf-16")])
def test_what_is_not_utf8_text_cannot_be_edited(make_workspace, content):
    result = edit(make_workspace({"a.py": content}), "a.py", "a", "b")
    assert "is not a UTF-8 text file" in result.text


CLOSED = {
    "tests/test_a.py": "protected_path",
    "tests/conftest.py": "protected_path",
    "requirements.txt": "protected_path",
    "hidden.py": "protected_path",
    "docs/a.md": "not_production",
    "pyproject.toml": "not_production",
    "README": "not_production",
    "gen.py": "not_production",
}


@pytest.mark.parametrize(("path", "kind"), CLOSED.items())
def test_closed_files_are_neither_changed_nor_created(make_workspace, path, kind):
    content = "a # DO NOT EDIT\n" if path == "gen.py" else "a\n"
    protected = frozenset({"hidden.py"})
    workspace = make_workspace({path: content}, protected)
    result = edit(workspace, path, "a", "b")
    assert (result.ok, result.refused) == (False, kind)
    assert "change production code only" in result.text
    result = create(make_workspace({}, protected), path, content)
    assert (result.ok, result.refused) == (False, kind)
    assert workspace.changes() == ()


# --- new files


def test_a_new_file_can_be_read_searched_and_edited(make_workspace):
    workspace = make_workspace({"src/a.py": "a\n"})
    result = create(workspace, "src/new/b.py", "é = 1\n")
    assert (result.ok, result.edited) == (True, ("src/new/b.py",))
    assert result.text == "Created src/new/b.py (7 bytes)."
    assert edit(workspace, "src/new/b.py", "1", "2").ok
    assert changed(workspace) == {"src/new/b.py": "é = 2\n".encode()}
    assert workspace.changes()[0].mode == "100644"
    assert workspace.is_directory("src/new")


@pytest.mark.parametrize(
    ("path", "says", "kind"),
    [
        ("src/a.py", "src/a.py exists; change it with edit_file", None),
        ("./src//a.py", "src/a.py exists", None),
        ("src", "src is a directory", None),
        ("", "the root is a directory", None),
        ("src/a.py/b.py", "src/a.py is a file, not a directory", None),
        ("SRC/b.py", "SRC/b.py differs from src only in how letters are written", None),
        ("src/A.py", "differs from src/a.py only", None),
        ("caf\u0065\u0301.py", "differs from caf\u00e9.py only", None),
        ("../b.py", "`..` is not allowed", "outside_tree"),
        ("src/../../b.py", "`..` is not allowed", "outside_tree"),
        ("/etc/b.py", "is absolute", "outside_tree"),
        ("C:\\b.py", "is absolute", "outside_tree"),
        ("c:/b.py", "is absolute", "outside_tree"),
        ("a\0.py", "NUL", "invalid_path"),
        ("a\nb.py", "character that cannot be printed", "invalid_path"),
        ("a\u202eb.py", "character that cannot be printed", "invalid_path"),
        ("\ud800.py", "not valid Unicode", "invalid_path"),
        ("..\\b.py", "holds a backslash", "invalid_path"),
        ("x" * 300 + ".py", "part longer than 255 bytes", "invalid_path"),
        ("/".join(["d" * 200] * 6) + "/a.py", "longer than 1024 bytes", "invalid_path"),
        (".git/hooks/a.py", ".git is closed", "git_directory"),
        ("src/.GIT/a.py", ".git is closed", "git_directory"),
        ("src/.git./a.py", ".git is closed", "git_directory"),
        ("git~1/a.py", ".git is closed", "git_directory"),
        (".g\u200cit/a.py", ".git is closed", "git_directory"),
        (".git::$INDEX_ALLOCATION/a.py", ".git is closed", "git_directory"),
        ("link/a.py", "link is a link or submodule", "symlink"),
        ("link", "link is a link or submodule", "symlink"),
        ("sub/a.py", "sub is a link or submodule", "symlink"),
    ],
)
def test_a_new_file_stays_inside_the_tree(make_workspace, path, says, kind):
    workspace = make_workspace(
        {
            "src/a.py": "a\n",
            "café.py": "a\n",
            "link": snapshot_file("link", "120000", b"src", "production"),
            "sub": snapshot_file("sub", "160000", b"", "other"),
        }
    )
    result = create(workspace, path)
    assert (result.ok, result.refused, result.edited) == (False, kind, ())
    assert says in result.text
    assert workspace.changes() == ()


def test_content_must_be_text(make_workspace):
    assert "NUL" in create(make_workspace({}), "a.py", "a\0").text
    assert "not valid Unicode" in create(make_workspace({}), "a.py", "\ud800").text


def test_a_change_has_a_size_limit_for_a_file_and_for_all(make_workspace):
    workspace = make_workspace({"a.py": "a\n"})
    assert create(workspace, "b.py", "x" * (MAX_FILE_BYTES + 1)).refused == "too_large"
    assert edit(workspace, "a.py", "a", "x" * MAX_FILE_BYTES).refused == "too_large"
    assert workspace.changes() == ()
    whole = MAX_OVERLAY_BYTES // MAX_FILE_BYTES
    for number in range(whole):
        assert create(workspace, f"n{number}.py", "x" * MAX_FILE_BYTES).ok
    assert create(workspace, "one_more.py", "x").refused == "too_large"
    assert len(workspace.changes()) == whole
    assert edit(workspace, "n0.py", "x" * MAX_FILE_BYTES, "y").ok


# --- dispatch


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("rm", {}, "Error: there is no tool 'rm'."),
        ("submit", {}, "Error: there is no tool 'submit'."),
        ("search", {}, "Error: search: Object missing required field `query`"),
        ("search", {"query": 1}, "Error: search: Expected `str`, got `int`"),
        ("create_file", {"path": "a", "content": "", "x": 1}, "contains unknown field `x`"),
    ],
)
def test_a_call_that_no_tool_takes_is_an_error_result(make_workspace, name, arguments, says):
    result = dispatch(make_workspace({}), TOOLS, name, arguments)
    assert not result.ok
    assert says in result.text
