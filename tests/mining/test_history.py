"""The walk, and repositories that cannot be walked."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from actors.mining.walk import mine
from actors.test_runs.git import Git
from ledger.errors import Usage
from schemas.repair.study import Layout, Platform, Repository, TaskRules


def repository(head: str, **changes: Any) -> Repository:
    layout = Layout(package_roots=("pkg",), test_roots=("tests/unit",))
    fields: dict[str, Any] = {
        "id": "T001",
        "url": "x",
        "head": head,
        "language": "python",
        "layout": layout,
    }
    return Repository(**(fields | changes))


def mine_at(path: Path, head: str, **changes: Any) -> Any:
    return mine(path, repository(head, **changes), TaskRules(), Platform(), {})


def remove_object(path: Path, oid: str) -> None:
    """Unpack everything, then delete one object: a partial clone without its promise."""
    packs = list((path / "objects" / "pack").glob("*.pack"))
    for pack in packs:
        content = pack.read_bytes()
        for file in (path / "objects" / "pack").glob(f"{pack.stem}.*"):
            file.unlink()
        Git(path).run("unpack-objects", "-q", stdin=content)
    (path / "objects" / oid[:2] / oid[2:]).unlink()


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"does not exist; clone"):
        mine_at(tmp_path / "nothing", "0" * 40)


def test_a_plain_folder_inside_another_repository(tmp_path: Path) -> None:
    Git(tmp_path).run("init", "--quiet")
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(Usage, match="is not a git repository"):
        mine_at(plain, "0" * 40)
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(Usage, match="is not a git repository"):
        mine_at(file, "0" * 40)


def test_shallow_clone(history: Any, fix: Any, tmp_path: Path) -> None:
    history.commit(fix)
    clone = tmp_path / "shallow"
    source = f"file://{history.path}"
    Git(tmp_path, {"GIT_ALLOW_PROTOCOL": "file"}).run(
        "clone", "--quiet", "--depth=1", "--branch", "main", source, str(clone)
    )
    with pytest.raises(Usage, match=r"shallow clone.*--unshallow"):
        mine_at(clone, history.head)


def test_head_that_is_not_there(history: Any) -> None:
    with pytest.raises(Usage, match=r"head 1{40}: .*absent.*fetch it"):
        mine_at(history.path, "1" * 40)
    tree = history.git.text("rev-parse", f"{history.head}^{{tree}}")
    with pytest.raises(Usage, match="is a tree, not a commit"):
        mine_at(history.path, tree)


def test_a_repository_without_packages(history: Any) -> None:
    history.commit({"main.c": b""}, parents=())
    with pytest.raises(Usage, match=r"layout\.package_roots"):
        mine_at(history.path, history.head, layout=Layout())


def test_sha256_repositories_are_refused(tmp_path: Path) -> None:
    Git(tmp_path).run("init", "--quiet", "--object-format=sha256")
    with pytest.raises(Usage, match="only sha1"):
        mine_at(tmp_path, "0" * 40)


def test_work_tree_bare_mirror_and_linked_work_tree_agree(
    history: Any, fix: Any, tmp_path: Path
) -> None:
    history.commit(fix)
    expected = history.mine()
    clone, linked = tmp_path / "clone", tmp_path / "linked"
    Git(tmp_path, {"GIT_ALLOW_PROTOCOL": "file"}).run(
        "clone", "--quiet", "--branch", "main", str(history.path), str(clone)
    )
    Git(clone).run("worktree", "add", "--quiet", "--detach", str(linked))
    shared = tmp_path / "shared"
    Git(tmp_path, {"GIT_ALLOW_PROTOCOL": "file"}).run(
        "clone", "--quiet", "--shared", "--branch", "main", str(clone), str(shared)
    )
    for path in (clone, clone / ".git", linked, shared):
        assert mine_at(path, history.head) == expected


def test_hostile_configuration_has_no_effect(history: Any, fix: Any, tmp_path: Path) -> None:
    history.commit(fix)
    expected = history.mine()
    marker = tmp_path / "executed"
    (history.path / "config").write_text(
        f"[core]\n bare = true\n repositoryformatversion = 0\n autocrlf = true\n"
        f"[diff]\n external = touch {marker}\n noprefix = true\n algorithm = patience\n"
        f"[apply]\n whitespace = fix\n[core]\n fsmonitor = touch {marker}\n"
        f'[filter "x"]\n clean = touch {marker}\n smudge = touch {marker}\n'
    )
    (history.path / "info").mkdir(exist_ok=True)
    (history.path / "info" / "attributes").write_text("* filter=x text eol=crlf diff=x\n")
    assert history.mine() == expected
    assert not marker.exists()


def test_replacement_refs_have_no_effect(history: Any, fix: Any) -> None:
    history.commit(fix)
    expected, head = history.mine(), history.head
    history.commit({"pkg/evil.py": b"X = 1\n"}, parents=())
    history.git.run("replace", head, history.head)
    assert mine_at(history.path, head) == expected


def test_merges_are_judged_against_their_first_parent(history: Any, fix: Any) -> None:
    base = history.head
    history.commit({"pkg/calc.py": fix["pkg/calc.py"]}, "wip: half of it")
    side = history.commit(
        {"tests/unit/test_calc.py": fix["tests/unit/test_calc.py"]}, "wip: other half"
    )
    history.commit(
        fix,
        "Merge branch 'sum' into 'main'\n\nCorrect the sum of two numbers\n\nCloses #1",
        parents=(base, side),
    )
    mined = history.mine()
    assert [(row.merge, row.verdict) for row in mined.rows] == [
        (True, "candidate"),
        (False, "rejected"),
    ]
    assert mined.rows[0].parent == base
    assert mined.candidates[0].statement.text == "# Correct the sum of two numbers\n"


def test_dates_are_filtered_and_the_walk_ends_after_older_ones(history: Any) -> None:
    """Committer dates are not monotonic: one old commit does not end the walk."""
    for number, day in enumerate((1, -800, -800, 2, -800, 3)):
        history.commit({"pkg/other.py": b"X = %d\n" % number}, day=day)
    audited = {
        limit: [row.commit for row in history.mine(TaskRules(older_commits_in_a_row=limit)).rows]
        for limit in (1, 2, 3)
    }
    root, first, _, _, second, _, third = history.oids
    assert audited[1] == [third]
    assert audited[2] == [third, second]
    assert audited[3] == [third, second, first, root]


def test_a_root_commit_has_no_base(history: Any) -> None:
    row = history.mine().rows[-1]
    assert (row.criterion, row.parent) == ("root_commit", "")
    assert row.reasons == {"root_commit": "a root commit has no base"}


def test_objects_that_lack(history: Any, fix: Any) -> None:
    history.commit(fix)
    history.commit({"pkg/other.py": b"OTHER = 3\n"})
    history.commit({"pkg/calc.py": b"X = 1\n"})
    fixed = history.oids[1]
    lost = history.git.text("rev-parse", f"{fixed}:tests/unit/test_calc.py")
    remove_object(history.path, lost)
    rows = history.mine().rows
    assert len(rows) == 4
    assert {row.failed for row in rows[:3]} == {("object_missing",)}
    assert lost[:12] in rows[0].reasons["object_missing"]


def test_a_walk_ends_at_a_commit_that_lacks(history: Any, fix: Any) -> None:
    history.commit(fix)
    middle = history.head
    history.commit({"pkg/other.py": b"OTHER = 3\n"})
    history.commit({"pkg/calc.py": b"X = 1\n"})
    remove_object(history.path, middle)
    rows = history.mine().rows
    assert [row.criterion for row in rows] == ["no_test_file", "object_missing"]
    assert middle[:12] in rows[1].reasons["object_missing"]


def test_a_damaged_object_is_a_verdict(history: Any, fix: Any) -> None:
    history.commit(fix)
    blob = history.git.text("rev-parse", f"{history.head}:pkg/calc.py")
    remove_object(history.path, blob)
    (history.path / "objects" / blob[:2] / blob[2:]).write_bytes(b"not zlib")
    row = history.mine().rows[0]
    assert row.failed == ("object_missing",)


def test_hostile_commits(history: Any, fix: Any) -> None:
    """Bytes that are no text, an unknown encoding, a date that no calendar holds."""
    history.commit(fix, b"fix: \xff\xfe the sum of numbers\n\n\x1b[31mred\0")
    tree = history.git.text("rev-parse", f"{history.head}^{{tree}}")
    raw = (
        f"tree {tree}\nparent {history.oids[0]}\nauthor A <a> 1 +0000\n"
        f"committer A <a> 99999999999999 +0000\nencoding nonsense\n\nfix: caf\u00e9 sums right\n"
    ).encode()
    odd = history.git.text("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw)
    assert "\ufffd" in history.mine().rows[0].subject
    row = mine_at(history.path, odd).rows[0]
    assert (row.subject, row.date) == ("fix: caf\u00e9 sums right", "@99999999999999")
    assert row.verdict == "candidate"


def test_derived_roots_follow_a_package_that_moves(history: Any, fix: Any) -> None:
    layout = Layout(test_roots=("tests/unit",))
    history.commit(fix)
    history.commit(
        {
            "pkg/__init__.py": None,
            "pkg/calc.py": None,
            "pkg/other.py": None,
            "src/pkg/__init__.py": b"",
            "src/pkg/calc.py": fix["pkg/calc.py"],
            "src/pkg/other.py": b"OTHER = 1\n",
        }
    )
    history.commit(
        {"src/pkg/calc.py": b"X = 1\n", "tests/unit/test_x.py": b"def test_x():\n    assert 1\n"}
    )
    rows = history.mine(layout=layout).rows
    assert [row.verdict for row in rows] == ["candidate", "rejected", "candidate", "rejected"]
    assert rows[1].failed == ("no_test_file", "no_selectable_test")
    assert rows[1].numbers.production_lines == 0


def test_progress_counts_to_the_end(history: Any, fix: Any) -> None:
    history.commit(fix)
    seen: list[tuple[int, int]] = []
    mine(
        history.path,
        repository(history.head),
        TaskRules(),
        Platform(),
        {},
        lambda done, total: seen.append((done, total)),
    )
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] == 4
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_mined_repository_may_be_read_only(history: Any, fix: Any, tmp_path: Path) -> None:
    history.commit(fix)
    copy = tmp_path / "copy.git"
    shutil.copytree(history.path, copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert mine_at(copy, history.head) == history.mine()
    finally:
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o755)
