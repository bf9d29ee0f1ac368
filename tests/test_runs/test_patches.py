"""The candidate's patch: policy, bytes, and the proof that it gives the overlay's tree."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.test_runs.git import Git
from actors.test_runs.git_trees import blob_id, read_snapshot
from actors.test_runs.object_stores import export_pack, import_pack
from actors.test_runs.patches import (
    CandidatePatch,
    apply_patch,
    check_policy,
    diff_of,
    make_patch,
    without_unchanged,
)
from harnesses.retrieval.snapshot import FileClass
from schemas.repair.overlay import Changes, WrittenFile

MakeChanges = Callable[..., Changes]


class Repository(Protocol):
    directory: Path
    git: Git

    def tree(self, files: Mapping[str, bytes | tuple[str, bytes]]) -> str: ...


BASE: dict[str, bytes | tuple[str, bytes]] = {
    "src/app.py": b"one\ntwo\nthree\n",
    "src/crlf.py": b"one\r\ntwo\r\n",
    "src/bare.py": b"no newline",
    "src/run.py": ("100755", b"#!/usr/bin/env python\n"),
    "src/data.bin": bytes(range(256)) * 8,
    "src/link.py": ("120000", b"app.py"),
    "src/sub/inner.py": b"inner = 1\n",
    ".gitattributes": b"*.py -diff\n*.bin binary\n*.txt eol=crlf\n",
    "tests/test_app.py": b"def test(): pass\n",
    "tests/conftest.py": b"",
    "pyproject.toml": b"[project]\n",
    "README.md": b"hello\n",
}


def classify(path: str, content: bytes) -> FileClass:
    if path.endswith("conftest.py") or path == "src/protected.cfg":
        return "infrastructure"
    if path.startswith("tests/"):
        return "test"
    if path == "pyproject.toml":
        return "dependency"
    return "production" if path.startswith("src/") else "docs"


def tree_id(files: Mapping[str, tuple[str, bytes]]) -> str:
    """The git tree id of whole files, computed without git."""
    folders: dict[str, dict[str, tuple[str, bytes]]] = {}
    entries: list[tuple[bytes, bytes]] = []
    for path, (mode, content) in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(name, {})[rest] = (mode, content)
        else:
            entry = f"{mode} {name}".encode() + b"\0" + bytes.fromhex(blob_id(content))
            entries.append((name.encode(), entry))
    for name, inside in folders.items():
        entry = f"40000 {name}".encode() + b"\0" + bytes.fromhex(tree_id(inside))
        entries.append((name.encode() + b"/", entry))
    body = b"".join(entry for _, entry in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def after(overlay: Changes) -> dict[str, tuple[str, bytes]]:
    """The files of base + overlay."""
    files = {p: ("100644", f) if isinstance(f, bytes) else f for p, f in BASE.items()}
    for path in overlay.delete:
        files.pop(path, None)
    return files | {file.path: (file.mode, file.content) for file in overlay.write}


@pytest.fixture
def store(repository: Repository, tmp_path: Path) -> tuple[Path, str]:
    tree = repository.tree(BASE)
    return import_pack(export_pack(repository.directory, tree), tmp_path / "st:ore.git"), tree


def patch_of(store: tuple[Path, str], overlay: Changes, max_bytes: int = 10**6) -> CandidatePatch:
    return make_patch(
        *store,
        overlay,
        classify=classify,
        protected_paths={"src/closed.py"},
        hidden_paths={"src/hidden.py", "src/held/test_new.py"},
        max_bytes=max_bytes,
    )


def objects_in(store: Path) -> set[str]:
    form = "--batch-check=%(objectname)"
    return set(Git(store).text("cat-file", "--batch-all-objects", form).split())


def test_patch_is_binary_with_full_index_and_no_renames(
    store: tuple[Path, str], changes: MakeChanges
) -> None:
    overlay = changes(
        {
            "src/app.py": b"one\n2\nthree\n",
            "src/crlf.py": b"one\r\n2\r\n",
            "src/bare.py": b"still no newline",
            "src/data.bin": b"\0\xff" * 100,
            "src/moved.py": b"inner = 1\n",
            "src/run.py": ("100755", b"#!/usr/bin/env python3\n"),
        },
        ["src/sub/inner.py"],
    )
    before = objects_in(store[0])
    patch = patch_of(store, overlay)
    assert patch.violations == ()
    assert (patch.applies, patch.problem) == (True, "")
    assert patch.paths == (
        "src/app.py", "src/bare.py", "src/crlf.py", "src/data.bin", "src/moved.py", "src/run.py",
        "src/sub/inner.py",
    )  # fmt: skip
    assert patch.tree == tree_id(after(overlay))
    assert b"GIT binary patch" in patch.diff
    assert b"rename" not in patch.diff
    assert b"-two\r\n+2\r\n" in patch.diff
    assert b"\\ No newline at end of file" in patch.diff
    assert f"index {blob_id(b'inner = 1' + bytes([10]))}..{'0' * 40}".encode() in patch.diff
    assert patch == patch_of(store, overlay), "same edits, same bytes"
    assert objects_in(store[0]) == before, "candidate objects never reach the base store"


def test_what_does_not_differ_is_not_a_change(
    store: tuple[Path, str], changes: MakeChanges
) -> None:
    overlay = changes({"src/app.py": BASE["src/app.py"]}, ["src/absent.py"])
    patch = patch_of(store, overlay)
    assert (patch.paths, patch.diff, patch.tree, patch.violations) == ((), b"", store[1], ())
    snapshot = read_snapshot(*store)
    nothing = without_unchanged(overlay, snapshot)
    assert nothing == Changes()
    (violation,) = check_policy(nothing, snapshot, classify=classify, protected_paths=())
    assert violation.kind == "empty"


@pytest.mark.parametrize(
    ("write", "delete", "expected"),
    [
        ({"tests/test_app.py": b"x"}, (), {"test_path"}),
        ({"tests/test_new.py": b"x"}, (), {"test_path"}),
        ({}, ("tests/test_app.py",), {"test_path"}),
        ({"conftest.py": b"x"}, (), {"infrastructure_path"}),
        ({"src/protected.cfg": b"x"}, (), {"infrastructure_path"}),
        ({"src/closed.py": b"x"}, (), {"infrastructure_path"}),
        ({"src/hidden.py": b"x"}, (), {"hidden_path"}),
        ({"src/HIDDEN.py": b"x"}, (), {"hidden_path"}),
        ({"src/hidden.py/x.py": b"x"}, (), {"hidden_path"}),
        ({"src/held": b"x"}, (), {"hidden_path"}),
        ({"src/held/test_new.py/x.py": b"x"}, (), {"hidden_path"}),
        ({"src/held/other.py": b"x"}, (), set()),
        ({"src/closed.py/x.py": b"x"}, (), {"infrastructure_path"}),
        ({"pyproject.toml": b"x"}, (), {"dependency_path"}),
        ({"README.md": b"x"}, (), {"not_production"}),
        ({"src/new.py": ("120000", b"/etc/passwd")}, (), {"symlink"}),
        ({"src/link.py": b"a file now"}, (), {"symlink"}),
        ({}, ("src/link.py",), {"symlink"}),
        ({"src/new.py": ("160000", b"")}, (), {"submodule"}),
        ({"src/app.py": ("100755", b"one\ntwo\nthree\n")}, (), {"mode_change"}),
        ({"src/run.py": b"#!/usr/bin/env python\n"}, (), {"mode_change"}),
        ({"src/new.py": ("100755", b"x")}, (), {"mode_change"}),
        ({"src/APP.py": b"x"}, (), {"case_collision"}),
        ({"src/SUB/other.py": b"x"}, (), {"case_collision"}),
        ({"src/cafe\u0301.py": b"x", "src/caf\u00e9.py": b"y"}, (), {"case_collision"}),
        ({"src/sub": b"x"}, (), {"file_and_folder"}),
        ({"src/app.py/x.py": b"x"}, (), {"file_and_folder"}),
        ({"src/link.py/x.py": b"x"}, (), {"file_and_folder"}),
        ({"../outside.py": b"x"}, (), {"unsafe_path"}),
        ({"/absolute.py": b"x"}, (), {"unsafe_path"}),
        ({"src/nul\0.py": b"x"}, (), {"unsafe_path"}),
        ({"src/.git/config": b"x"}, (), {"unsafe_path"}),
        ({".Git/config": b"x"}, (), {"unsafe_path"}),
        ({"src/ok.py": b"x", "tests/t.py": b"y", "src/N.py": ("100755", b"")}, (),
         {"test_path", "mode_change"}),
    ],
)  # fmt: skip
def test_policy_violations_are_values(
    store: tuple[Path, str],
    changes: MakeChanges,
    write: dict[str, bytes | tuple[str, bytes]],
    delete: tuple[str, ...],
    expected: set[str],
) -> None:
    before = objects_in(store[0])
    patch = patch_of(store, changes(write, delete))
    assert {violation.kind for violation in patch.violations} == expected
    assert all(violation.path in {*write, *delete} for violation in patch.violations)
    assert all(str(violation) for violation in patch.violations)
    no_tree = expected & {"unsafe_path", "file_and_folder"}
    assert (patch.diff == b"") == bool(no_tree), "what was attempted is kept where it can be"
    assert objects_in(store[0]) == before


def test_replacing_a_folder_by_a_file_is_allowed_when_its_files_go(
    store: tuple[Path, str], changes: MakeChanges
) -> None:
    overlay = changes({"src/sub": b"x"}, ["src/sub/inner.py"])
    patch = patch_of(store, overlay)
    assert patch.violations == ()
    assert patch.tree == tree_id(after(overlay))


def test_renaming_by_case_only_is_no_collision(
    store: tuple[Path, str], changes: MakeChanges
) -> None:
    overlay = changes({"src/App.py": b"one\ntwo\nthree\n"}, ["src/app.py"])
    assert patch_of(store, overlay).violations == ()


def test_size_cap_counts_the_patch(store: tuple[Path, str], changes: MakeChanges) -> None:
    overlay = changes({"src/app.py": b"one\ntwo\nthree\nfour\n"})
    size = len(patch_of(store, overlay).diff)
    assert patch_of(store, overlay, max_bytes=size).violations == ()
    (violation,) = patch_of(store, overlay, max_bytes=size - 1).violations
    assert violation.kind == "too_large"
    assert str(size) in violation.detail


def test_a_patch_that_does_not_fit_is_a_value(store: tuple[Path, str]) -> None:
    """No fuzz, nothing by halves, and the exit status alone is not believed."""
    other = b"one\nTWO\nthree\n"
    diff = (
        b"diff --git a/src/app.py b/src/app.py\n"
        b"index %s..%s 100644\n--- a/src/app.py\n+++ b/src/app.py\n"
        b"@@ -1,3 +1,3 @@\n one\n-TWO\n+2\n three\n"
        % (blob_id(other).encode(), blob_id(b"one\n2\nthree\n").encode())
    )
    tree, problem = apply_patch(*store, diff)
    assert tree == ""
    assert "patch does not apply" in problem
    for nothing in (b"", b"no patch at all\n", b"\xff\xfe"):
        tree, problem = apply_patch(*store, nothing)
        assert tree == ""
        assert problem


def test_candidate_inside_another_repository_applies(
    store: tuple[Path, str], changes: MakeChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    Git(outer).run("init", "--quiet")
    monkeypatch.chdir(outer)
    assert patch_of(store, changes({"src/app.py": b"changed\n"})).applies


names = st.text(alphabet="aB1é _-.[]\n\"'\t", min_size=1, max_size=6)
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "src/" + "/".join(parts))
lines = st.sampled_from([b"one", b"two", b"", b"  x", b"\r", b"\0", b"+a", b"-- "])
contents = st.one_of(st.binary(max_size=60), st.lists(lines, max_size=8).map(b"\n".join))


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    new=st.dictionaries(paths, contents, max_size=4),
    edited=st.dictionaries(
        st.sampled_from(["src/app.py", "src/crlf.py", "src/bare.py", "src/data.bin"]),
        contents,
        max_size=3,
    ),
    deleted=st.sets(st.sampled_from(["src/sub/inner.py", "src/data.bin", "src/run.py"])),
)
def test_any_allowed_overlay_gives_its_own_tree(
    store: tuple[Path, str], new: dict[str, bytes], edited: dict[str, bytes], deleted: set[str]
) -> None:
    overlay = Changes(
        write=tuple(
            WrittenFile(path=path, mode="100644", content=content)
            for path, content in {**new, **edited}.items()
        ),
        delete=tuple(deleted),
    )
    patch = patch_of(store, overlay)
    if patch.violations or not patch.paths:
        assert {v.kind for v in patch.violations} <= {
            "unsafe_path",
            "file_and_folder",
            "case_collision",
        }
        return
    effective = without_unchanged(overlay, read_snapshot(*store))
    assert patch.applies, patch.problem
    assert patch.tree == tree_id(after(effective))
    assert (patch.diff, patch.tree) == diff_of(*store, effective)
