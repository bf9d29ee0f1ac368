"""Whatever a model names and writes: nothing leaves the tree, nothing closed changes."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from harnesses.h000_exact_search import TOOLS
from harnesses.retrieval.snapshot import FileClass, Snapshot, display_path, snapshot, snapshot_file
from harnesses.tools import dispatch
from harnesses.workspace import MAX_OVERLAY_BYTES, Workspace

PROTECTED = frozenset({"src/hidden.py", "tests/test_new.py"})


def classify(path: str, content: bytes) -> FileClass:
    return "test" if path.startswith("tests/") else "production"


def base() -> Snapshot:
    entries = {
        "src/a.py": b"a = 1\nb = 2\n",
        "src/pkg/b.py": b"a\r\nb\r\n",
        "src/empty.py": b"",
        "tests/test_a.py": b"a = 1\n",
        "caf\udce9.py": b"caf\xe9\n",
        "bin.py": b"a\0",
    }
    files = [snapshot_file(p, "100644", c, classify(p, c)) for p, c in entries.items()]
    files.append(snapshot_file("link", "120000", b"/etc", "production"))
    files.append(snapshot_file("sub", "160000", b"", "production"))
    return snapshot(files)


PARTS = st.sampled_from(
    ["src", "a.py", "pkg", "b.py", "empty.py", "tests", "test_a.py", "test_new.py", "hidden.py"]
    + ["..", ".", "", ".git", ".GIT", "git~1", "link", "sub", "bin.py", "caf\\xe9.py", "~", "C:"]
    + ["\0", "a\n", "\\", "new.py", "SRC", "é", "e\u0301", "\udce9", "\ud800", "*", "con", " "]
)
PATHS = st.one_of(st.lists(PARTS, max_size=5).map("/".join), st.text(max_size=20))
TEXTS = st.one_of(
    st.sampled_from(
        ["a", "a = 1", "a\nb", "\n", "", "\0", "\ud800", "b", "x\r\ny", "</repository_text>"]
    ),
    st.text(st.characters(codec=None), max_size=20),
)
CALLS = st.one_of(
    st.tuples(st.just("create_file"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS})),
    st.tuples(
        st.just("edit_file"), st.fixed_dictionaries({"path": PATHS, "old": TEXTS, "new": TEXTS})
    ),
    st.tuples(st.just("read_file"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("list_files"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(
        st.just("search"),
        st.fixed_dictionaries(
            {
                "query": TEXTS,
                "mode": st.sampled_from(["exact", "substring", "regex"]),
                "path": PATHS,
            }
        ),
    ),
)


@settings(deadline=None, derandomize=True)
@given(st.lists(CALLS, max_size=8))
def test_no_sequence_of_calls_escapes_the_tree_or_opens_what_is_closed(calls):
    workspace = Workspace(base(), protected_paths=PROTECTED, classify=classify)
    again = Workspace(base(), protected_paths=PROTECTED, classify=classify)
    for name, arguments in calls:
        before = workspace.changes()
        result = dispatch(workspace, TOOLS, name, arguments)
        assert dispatch(again, TOOLS, name, arguments) == result
        result.text.encode("utf-8")
        if not result.ok or name not in ("create_file", "edit_file"):
            assert workspace.changes() == before
            assert result.edited == ()

    original = base().by_path
    changed = workspace.changes()
    assert sum(len(file.content) for file in changed) <= MAX_OVERLAY_BYTES
    for file in changed:
        assert file.path not in PROTECTED
        assert file.file_class == "production"
        assert file.mode == (original[file.path].mode if file.path in original else "100644")
        parts = file.path.split("/")
        assert not {"", ".", ".."} & set(parts)
        assert not any(part.casefold() in (".git", "git~1") for part in parts)
        assert parts[0] not in ("link", "sub")
        if file.path not in original:
            assert display_path(file.path) == file.path
            assert "\\" not in file.path
    paths = {file.path for file in workspace.files}
    assert set(original) <= paths
    assert not any(path.startswith(f"{other}/") for path in paths for other in paths)
    assert [file.path for file in workspace.files] == [
        file.path for file in snapshot(workspace.files).files
    ]


WORDS = st.text(st.sampled_from("ab_ é.\xff\n"), max_size=12)


@settings(deadline=None, derandomize=True)
@given(
    lines=st.lists(WORDS, max_size=6),
    query=st.text(st.sampled_from("ab_é."), min_size=1, max_size=3),
)
def test_exact_search_agrees_with_a_word_by_word_reference(lines, query):
    text = "\n".join(lines)
    workspace = Workspace(
        snapshot([snapshot_file("a.py", "100644", text.encode(), "production")]),
        protected_paths=frozenset(),
        classify=classify,
    )
    before = r"(?<!\w)" if re.match(r"\w", query) else ""
    after = r"(?!\w)" if re.search(r"\w$", query) else ""
    pattern = re.compile(before + re.escape(query) + after)
    expected = sum(bool(pattern.search(line)) for line in text.split("\n"))
    result = dispatch(workspace, TOOLS, "search", {"query": query})
    assert result.text.startswith(f"{expected} matches in ")


@settings(deadline=None, derandomize=True)
@given(
    text=st.text(st.sampled_from("aAkK\u212a éÉ\n"), max_size=30),
    query=st.text(st.sampled_from("aAkKé"), min_size=1, max_size=3),
)
def test_the_fast_way_for_ascii_text_finds_what_re2_finds(text, query):
    def count(suffix: str, mode: str, query: str) -> str:
        content = (text + suffix).encode()
        workspace = Workspace(
            snapshot([snapshot_file("a.py", "100644", content, "production")]),
            protected_paths=frozenset(),
            classify=classify,
        )
        result = dispatch(workspace, TOOLS, "search", {"query": query, "mode": mode})
        return result.text.partition(" ")[0]

    # A last line with another letter takes the text off the fast way and matches nothing.
    assert count("", "substring", query) == count("\nλ", "substring", query)
    assert count("", "substring", query) == count("", "regex", f"(?i){query}")
