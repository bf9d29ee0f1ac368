"""Raw trees: what git writes, and what only an attacker writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.mining import trees as trees_module
from actors.mining.history import isolated_repository
from actors.mining.trees import EMPTY_TREE, Entry, UnreadableObject
from actors.test_runs.git import Git


def raw_tree(git: Git, *entries: tuple[bytes, bytes, str]) -> str:
    content = b"".join(
        mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
    )
    return git.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=content)


def blob(git: Git, content: bytes = b"x") -> str:
    return git.text("hash-object", "-w", "--stdin", stdin=content)


def test_written_trees_have_gits_ids(history: Any) -> None:
    """Deletions empty folders, files become folders and folders files, names sort as in git."""
    history.commit(
        {"a": b"1", "b/c": b"2", "b.txt": b"3", "b0": b"4", "d/e/f": b"5", b"\xff": b"6"},
        parents=(),
    )
    before = history.git.text("rev-parse", f"{history.head}^{{tree}}")
    history.commit(
        {"a": None, "a/x": b"7", "b/c": None, "b": b"8", "d/e/f": None, "b0": ("100755", b"4")}
    )
    after = history.git.text("rev-parse", f"{history.head}^{{tree}}")
    with isolated_repository(history.path) as room:
        changes = room.trees.changes(before, after)
        assert set(changes) == {"a", "a/x", "b/c", "b", "d/e/f", "b0"}
        updates = {path: new for path, (_, new) in changes.items()}
        assert room.trees.write(before, updates) == after
        assert room.trees.write(after, {p: old for p, (old, _) in changes.items()}) == before
        everything: dict[str, Entry | None] = dict.fromkeys(room.trees.files(before))
        assert room.trees.write(before, everything) == EMPTY_TREE
        assert room.trees.write(EMPTY_TREE, dict(room.trees.files(after))) == after


def test_nothing_is_written_into_the_mined_repository(history: Any) -> None:
    before = sorted(path for path in history.path.rglob("*"))
    with isolated_repository(history.path) as room:
        tree = room.trees.write(EMPTY_TREE, {"x": Entry("100644", blob(room.git))})
        assert room.trees.count_paths(tree) == 1
    assert sorted(path for path in history.path.rglob("*")) == before


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda git: raw_tree(git, (b"100644", b"..", blob(git))), "impossible name"),
        (lambda git: raw_tree(git, (b"100644", b"a/b", blob(git))), "impossible name"),
        (lambda git: raw_tree(git, (b"100644", b"", blob(git))), "impossible name"),
        (lambda git: raw_tree(git, *[(b"100644", b"a", blob(git))] * 2), "same name twice"),
        (lambda git: raw_tree(git, (b"7", b"a", blob(git))), "unknown file mode"),
        (lambda git: raw_tree(git, (b"100644", b"a", "1" * 40)), "is absent"),
        (lambda git: raw_tree(git, (b"40000", b"a", "1" * 40)), "is absent"),
        (lambda git: raw_tree(git, (b"40000", b"a", blob(git))), "unexpected type"),
        (
            lambda git: git.text(
                "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=b"100644 a\0xy"
            ),
            "cut off",
        ),
    ],
)
def test_malformed_trees(history: Any, make: Callable[[Git], str], why: str) -> None:
    tree = make(history.git)
    with (
        isolated_repository(history.path) as room,
        pytest.raises(UnreadableObject, match=why),
    ):
        room.trees.count_paths(tree)


def test_a_bomb_is_counted_and_not_expanded(history: Any) -> None:
    """Ten names in each of ten levels of equal trees stand for ten thousand million files."""
    leaf = blob(history.git)
    tree = raw_tree(history.git, *[(b"100644", b"f%d" % n, leaf) for n in range(10)])
    for _ in range(9):
        tree = raw_tree(history.git, *[(b"40000", b"d%d" % n, tree) for n in range(10)])
    history.commit({}, tree=tree)
    row = history.mine().rows[0]
    assert row.criterion == "object_missing"
    assert f"more than {trees_module.MAX_PATHS} files" in row.reasons["object_missing"]


def test_folders_without_end(history: Any) -> None:
    tree = raw_tree(history.git, (b"100644", b"f", blob(history.git)))
    for _ in range(trees_module.MAX_DEPTH + 2):
        tree = raw_tree(history.git, (b"40000", b"d", tree))
    history.commit({}, tree=tree)
    assert "nested" in history.mine().rows[0].reasons["object_missing"]


def test_old_file_modes_are_read_as_git_reads_them(history: Any, tmp_path: Path) -> None:
    oid = blob(history.git)
    tree = raw_tree(history.git, (b"100664", b"a", oid), (b"100775", b"b", oid))
    with isolated_repository(history.path) as room:
        assert room.trees.entries(tree) == {
            "a": Entry("100644", oid),
            "b": Entry("100755", oid),
        }
