"""Snapshots, stores, templates, copies, overlays and the leak probe."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from actors.languages.python import PYTHON
from actors.test_runs.git import Git
from actors.test_runs.git_trees import WorkspaceError, blob_id, read_snapshot
from actors.test_runs.leak_probe import gold_only_lines, installed_leaks, leak_probe
from actors.test_runs.object_stores import check_store, export_pack, import_pack
from actors.test_runs.overlays import UnsafePath, lay_over, unsafe_reason
from actors.test_runs.templates import copy_workspace, make_template
from ledger.errors import Integrity
from schemas.repair.overlay import Changes

MakeChanges = Callable[..., Changes]


class Repository(Protocol):
    directory: Path
    git: Git

    def tree(self, files: Mapping[str, bytes | tuple[str, bytes]]) -> str: ...
    def commit(self, tree: str, *parents: str) -> str: ...


FILES: dict[str, bytes | tuple[str, bytes]] = {
    "crlf.txt": b"one\r\ntwo\r\n",
    ".gitattributes": b"*.txt text eol=lf\n*.big filter=lfs\n*.id ident\n",
    "data.big": b"not a pointer",
    "keyword.id": b"$Id$\n",
    "no-newline": b"end",
    "empty": b"",
    "bin/tool": ("100755", b"#!/bin/sh\n"),
    "a/b/c/deep.py": b"value = 1\n",
    "link": ("120000", b"a/b/c/deep.py"),
    "outside": ("120000", b"/etc/hostname"),
    "name with spaces - and [brackets]": b"x",
    "é\u0301.py": b"accent",
    "binary": bytes(range(256)) * 40,
}


def test_snapshot_is_the_tree_byte_for_byte(repository: Repository) -> None:
    snapshot = read_snapshot(repository.directory, repository.tree(FILES))
    assert [file.path for file in snapshot] == sorted(path.encode() for path in FILES)
    for file in snapshot:
        given = FILES[file.path.decode()]
        assert (file.mode, file.content) == (
            ("100644", given) if isinstance(given, bytes) else given
        )
        assert file.blob == blob_id(file.content)


def test_store_has_the_tree_and_nothing_of_its_future(
    repository: Repository, tmp_path: Path
) -> None:
    base, gold = repository.tree(FILES), repository.tree({"gold.py": b"the secret solution"})
    repository.commit(gold, repository.commit(base))
    pack = export_pack(repository.directory, base)
    assert pack == export_pack(repository.directory, base), "same objects, same bytes"
    store = import_pack(pack, tmp_path / "store.git")
    assert read_snapshot(store, base) == read_snapshot(repository.directory, base)
    assert Git(store).run("cat-file", "-e", gold, ok=(0, 1, 128)) == b""
    with pytest.raises(Exception, match="Not a valid object|could not get|bad object"):
        Git(store).run("cat-file", "-t", gold)
    assert leak_probe(store, [b"the secret solution"]) == []
    with pytest.raises(WorkspaceError, match="exists already"):
        import_pack(pack, store)


def test_damaged_pack_leaves_nothing(repository: Repository, tmp_path: Path) -> None:
    pack = export_pack(repository.directory, repository.tree(FILES))
    with pytest.raises(WorkspaceError, match="not a complete packfile"):
        import_pack(pack[:-30], tmp_path / "store.git")
    assert not (tmp_path / "store.git").exists()


def test_template_is_byte_exact_and_knows_one_root_commit(
    repository: Repository, tmp_path: Path
) -> None:
    base, gold = repository.tree(FILES), repository.tree({"gold.py": b"the secret solution"})
    repository.commit(gold, repository.commit(base))
    template = make_template(repository.directory, base, tmp_path / "templates")
    for path, given in FILES.items():
        mode, content = ("100644", given) if isinstance(given, bytes) else given
        if mode == "120000":
            assert os.fsencode(os.readlink(template / path)) == content
        else:
            assert (template / path).read_bytes() == content
            assert os.access(template / path, os.X_OK) == (mode == "100755")
    git = Git(template)
    assert git.text("rev-list", "--all", "--count") == "1"
    assert git.run("status", "--porcelain") == b""
    assert git.text("log", "--format=%an %ae %at %ct %P") == "base base@invalid 946684800 946684800"
    assert git.run("remote") == b""
    assert leak_probe(template, [b"the secret solution"]) == []
    assert make_template(repository.directory, base, tmp_path / "templates") == template
    again = make_template(repository.directory, base, tmp_path / "elsewhere")
    assert Git(again).text("rev-parse", "HEAD") == git.text("rev-parse", "HEAD")


def damage_file(template: Path) -> None:
    (template / "tool.py").write_bytes(b"import os\n")


def add_a_file(template: Path) -> None:
    (template / "conftest.py").write_bytes(b"")


def change_a_mode(template: Path) -> None:
    os.chmod(template / "tool.py", 0o755)


def name_a_program(template: Path) -> None:
    with open(template / ".git" / "config", "a") as config:
        config.write("\tfsmonitor = /bin/false\n")


def add_an_object(template: Path) -> None:
    Git(template).run("hash-object", "-w", "--stdin", stdin=b"gold")


def add_a_reference(template: Path) -> None:
    (template / ".git" / "refs" / "heads" / "gold").write_text("0" * 40 + "\n")


def add_a_file_to_the_git_directory(template: Path) -> None:
    (template / ".git" / "objects" / "info" / "notes").write_text("the gold patch\n")


def borrow(template: Path) -> None:
    (template / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere\n")


def damage_the_pack(template: Path) -> None:
    (pack,) = (template / ".git" / "objects" / "pack").glob("*.pack")
    os.chmod(pack, 0o644)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)


def stage_another_tree(template: Path) -> None:
    Git(template).run("update-index", "--force-remove", "tool.py")


@pytest.mark.parametrize(
    "damage",
    [
        damage_file, add_a_file, change_a_mode, name_a_program, add_an_object, add_a_reference,
        add_a_file_to_the_git_directory, borrow, damage_the_pack, stage_another_tree,
    ],
)  # fmt: skip
def test_a_template_that_is_there_already_is_compared(
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
) -> None:
    tree = repository.tree({**FILES, "tool.py": b"print(1)\n"})
    template = make_template(repository.directory, tree, tmp_path / "t")
    monkeypatch.setattr("actors.test_runs.templates._FOUND_GOOD", set())  # another process
    assert make_template(repository.directory, tree, tmp_path / "t") == template
    damage(template)
    assert make_template(repository.directory, tree, tmp_path / "t") == template, "compared once"
    monkeypatch.setattr("actors.test_runs.templates._FOUND_GOOD", set())
    with pytest.raises(Integrity, match="is not as it was made.*remove it: it is made again"):
        make_template(repository.directory, tree, tmp_path / "t")


def test_a_store_is_compared_with_its_ids(repository: Repository, tmp_path: Path) -> None:
    pack = export_pack(repository.directory, repository.tree(FILES))
    store = import_pack(pack, tmp_path / "store.git")
    check_store(store)
    Git(store).run("hash-object", "-w", "--stdin", stdin=b"gold")
    with pytest.raises(Integrity, match="in objects"):
        check_store(store)
    other = import_pack(pack, tmp_path / "other.git")
    (content,) = (other / "objects" / "pack").glob("*.pack")
    os.chmod(content, 0o644)
    content.write_bytes(content.read_bytes()[:-30] + bytes(30))
    with pytest.raises(Integrity, match="is not as it was made"):
        check_store(other)


def test_template_of_a_tree_that_is_not_there_leaves_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="rev-list"):
        make_template(repository.directory, "1" * 40, tmp_path / "templates")
    assert list((tmp_path / "templates").iterdir()) == []


def test_copy_is_private(repository: Repository, tmp_path: Path) -> None:
    template = make_template(repository.directory, repository.tree(FILES), tmp_path / "t")
    copy = copy_workspace(template, tmp_path / "copy")
    assert Git(copy).run("status", "--porcelain") == b""
    assert Git(copy).run("fsck", "--full") is not None
    for folder, _, files in os.walk(copy):
        for name in files:
            about = os.lstat(os.path.join(folder, name))
            assert stat.S_ISLNK(about.st_mode) or about.st_nlink == 1
    (copy / "crlf.txt").write_bytes(b"changed")
    (copy / ".git" / "HEAD").write_bytes(b"changed")
    assert (template / "crlf.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert Git(template).run("status", "--porcelain") == b""
    with pytest.raises(FileExistsError):
        copy_workspace(template, copy)


def test_lay_over_writes_and_deletes_as_git_would(
    repository: Repository, tmp_path: Path, changes: MakeChanges
) -> None:
    template = make_template(repository.directory, repository.tree(FILES), tmp_path / "t")
    copy = copy_workspace(template, tmp_path / "copy")
    overlay = changes(
        {
            "a/b/c": b"a file where a folder was",
            "new/folder/file.py": ("100755", b"\xff\x00raw"),
            "link": b"a file where a link was",
            "bin/tool": b"not executable any more",
        },
        ["a/b/c/deep.py", "empty", "never/there"],
    )
    lay_over(copy, overlay)
    assert (copy / "a/b/c").read_bytes() == b"a file where a folder was"
    assert (copy / "new/folder/file.py").read_bytes() == b"\xff\x00raw"
    assert os.access(copy / "new/folder/file.py", os.X_OK)
    assert not os.access(copy / "bin/tool", os.X_OK)
    assert not (copy / "link").is_symlink()
    assert not (copy / "empty").exists()
    assert not (copy / "never").exists()
    lay_over(copy, changes(delete=["new/folder/file.py"]))
    assert not (copy / "new").exists(), "empty folders go, as in git"


@pytest.mark.parametrize(
    "path",
    [
        "../escape", "a/../../escape", "/absolute", "a//b", "./a", "a/.", "", "nul\0byte",
        ".git/hooks/post-checkout", "a/.git/config", ".GIT/config", ".git /config", ".git./config",
        ".gi\u200ct/config", "git~1/config", ".git::$INDEX_ALLOCATION/x", "back\\slash",
        "a/" + "x" * 256, "\udcff",
    ],
)  # fmt: skip
def test_lay_over_refuses_paths_that_no_tree_may_have(
    tmp_path: Path, changes: MakeChanges, path: str
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    assert unsafe_reason(path)
    for overlay in (changes({"fine.py": b"1", path: b"2"}), changes({"fine.py": b"1"}, [path])):
        with pytest.raises(UnsafePath):
            lay_over(workspace, overlay)
        assert list(workspace.iterdir()) == [], "refused before anything is touched"
    assert [entry.name for entry in tmp_path.iterdir()] == ["workspace"]


@pytest.mark.parametrize("path", ["a.gitignore", ".github/x", ".gitignore", "..a", "a../b", "é"])
def test_ordinary_names_are_safe(path: str) -> None:
    assert unsafe_reason(path) == ""


def test_lay_over_never_follows_a_link(tmp_path: Path, changes: MakeChanges) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "file").write_bytes(b"untouched")
    (workspace / "folder").symlink_to(outside)
    (workspace / "file").symlink_to(outside / "file")
    for overlay in (changes({"folder/file": b"x"}), changes(delete=["folder/file"])):
        with pytest.raises(UnsafePath, match="link or a file"):
            lay_over(workspace, overlay)
    lay_over(workspace, changes({"file": b"replaced"}))
    assert not (workspace / "file").is_symlink()
    assert (workspace / "file").read_bytes() == b"replaced"
    lay_over(workspace, changes({"folder": b"a file now"}))
    assert (outside / "file").read_bytes() == b"untouched"
    assert sorted(entry.name for entry in outside.iterdir()) == ["file"]


def test_lay_over_does_not_replace_folders(tmp_path: Path, changes: MakeChanges) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_bytes(b"")
    with pytest.raises(UnsafePath, match="folder"):
        lay_over(tmp_path, changes({"package": b"x"}))
    with pytest.raises(UnsafePath, match="folder"):
        lay_over(tmp_path, changes(delete=["package"]))
    with pytest.raises(UnsafePath, match="mode 120000"):
        lay_over(tmp_path, changes({"link": ("120000", b"/etc/passwd")}))
    assert (tmp_path / "package" / "a.py").exists()


def test_gold_only_lines() -> None:
    base = [b"def solve():\n    return legacy_value()\n"]
    gold = [b"def solve():\n    return legacy_value() + correction\n  \nshort\n"]
    assert gold_only_lines(base, gold) == [b"return legacy_value() + correction"]
    assert gold_only_lines(gold, gold) == []


def test_leak_probe_sees_files_objects_links_alternates_and_remotes(
    repository: Repository, tmp_path: Path
) -> None:
    secret = b"return value + correction"
    template = make_template(repository.directory, repository.tree(FILES), tmp_path / "t")
    assert leak_probe(template, [secret]) == []
    copy = copy_workspace(template, tmp_path / "copy")
    git = Git(copy)
    blob = git.text("hash-object", "-w", "--stdin", stdin=b"x\n  " + secret + b"\n")
    (copy / "notes.patch").write_bytes(b"+    " + secret + b"\n")
    (copy / "pointer").symlink_to(os.fsdecode(secret))
    git.run("remote", "add", "origin", "/somewhere")
    alternates = copy / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(str(repository.directory / "objects") + "\n")
    found = {(leak.kind, leak.place) for leak in leak_probe(copy, [secret])}
    assert found == {
        ("object", blob),
        ("file", "notes.patch"),
        ("file", "pointer"),
        ("remote", "config"),
        ("alternate", "objects/info/alternates"),
    }


def test_a_later_version_in_the_test_environment_is_a_leak(tmp_path: Path) -> None:
    """pytest needs pluggy: the environment of pluggy's history holds the pluggy of today."""
    secret = b"return value + correction"
    site_packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (site_packages / "pluggy").mkdir(parents=True)
    (site_packages / "pluggy" / "_manager.py").write_bytes(b"x\n    " + secret + b"\n")
    (site_packages / "other.py").write_bytes(secret)
    told = ["src/pluggy/_manager.py", "src/pluggy/_hooks.py", "testing/test_manager.py"]
    found = installed_leaks(PYTHON, tmp_path, told, [b"an absent line", secret])
    place = "venv/lib/python3.11/site-packages/pluggy/_manager.py"
    assert [(leak.kind, leak.place, leak.line) for leak in found] == [("installed", place, secret)]
    assert installed_leaks(PYTHON, tmp_path, told, [b"an absent line"]) == []
    assert installed_leaks(PYTHON, tmp_path / "absent", told, [secret]) == []
