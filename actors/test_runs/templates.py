"""Template work trees: one per base tree, made once, compared before use, copied for each run.

A template is a fresh repository with the objects of exactly one tree and one root commit, and its
files checked out byte for byte.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.test_runs.git import Git
from actors.test_runs.git_trees import (
    SnapshotFile,
    WorkspaceError,
    blob_id,
    read_snapshot,
    shown_path,
)
from actors.test_runs.object_stores import (
    CONFIG,
    HEAD,
    RAW_ATTRIBUTES,
    all_objects,
    altered,
    export_pack,
    fault_of_store,
    new_repository,
)
from actors.untrusted_trees import remove_tree
from ledger.errors import Unfinished

_STAT_CONFIG = "\tcheckStat = minimal\n\ttrustctime = false\n"
"""A work tree's files are copied with their times; inode and ctime of a copy are its own."""
_ROOT_COMMIT = {
    "GIT_AUTHOR_NAME": "base",
    "GIT_AUTHOR_EMAIL": "base@invalid",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "base",
    "GIT_COMMITTER_EMAIL": "base@invalid",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000",
}


def make_template(source_git: Path, tree: str, root: Path) -> Path:
    """The template work tree of ``tree`` (a full tree id) at ``root/<tree>``, made once.

    A fresh repository whose only commit is a root commit of fixed author and date. Checked before
    it is put in place: the written tree id, every file against its blob, and that the store holds
    exactly the tree's objects and that commit. Raises WorkspaceError where one of these differs.

    A name proves nothing about what lies there now: a template that is there already is compared
    with ``source_git`` once in the life of a process. Raises Integrity where it differs.
    """
    place = root / tree
    if place.exists():
        if place not in _FOUND_GOOD:
            _check_template(place, tree, read_snapshot(source_git, tree))
            _FOUND_GOOD.add(place)
        return place
    root.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{tree[:12]}-", dir=root))
    os.chmod(building, 0o755)
    try:
        git_dir = building / ".git"
        new_repository(git_dir, bare=False)
        with open(git_dir / "config", "a") as config:
            config.write(_STAT_CONFIG)
        git = Git(building, _ROOT_COMMIT)
        git.run("index-pack", "--stdin", stdin=export_pack(source_git, tree))
        git.run("read-tree", tree)
        git.run("checkout-index", "--all", "--quiet")
        git.run("update-index", "-q", "--refresh")
        written = git.text("write-tree")
        if written != tree:
            raise WorkspaceError(f"the template's tree is {written}, not {tree}")
        commit = git.text("commit-tree", tree, "-m", "base")
        git.run("-c", "core.logAllRefUpdates=false", "update-ref", "refs/heads/base", commit)
        _check_files(building, read_snapshot(git_dir, tree))
        _check_objects(git, tree, commit)
        os.rename(building, place)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not place.exists():
            raise
        remove_tree(building)  # another process was faster; its template passed the same checks
    except BaseException:
        remove_tree(building)
        raise
    _FOUND_GOOD.add(place)
    return place


_FOUND_GOOD: set[Path] = set()
"""Templates that this process has made or compared."""


_PACK_FILE = re.compile(r"objects/pack/pack-[0-9a-f]+\.(pack|idx|rev|keep)")


def _check_template(place: Path, tree: str, snapshot: Sequence[SnapshotFile]) -> None:
    """Files against their blobs; configuration, references and objects against what we write."""
    git_dir = place / ".git"
    config = CONFIG.format(bare="false") + _STAT_CONFIG
    expected = {
        "HEAD": HEAD,
        "config": config,
        "info/attributes": RAW_ATTRIBUTES,
        "refs/heads/base": f"{_commit_id(_root_commit(tree))}\n",
    }
    try:
        # Before git is run in it: a configuration can name programs.
        for name, content in expected.items():
            if (git_dir / name).read_bytes() != content.encode():
                raise WorkspaceError(f".git/{name} is another")
        commit = _root_commit(tree)
        id = _commit_id(commit)
        loose = f"objects/{id[:2]}/{id[2:]}"
        for path in sorted(git_dir.rglob("*")):
            name = path.relative_to(git_dir).as_posix()
            known = name in expected or name in ("index", loose) or _PACK_FILE.fullmatch(name)
            if not (known or path.is_dir()) or path.is_symlink():
                raise WorkspaceError(f".git/{name} was not put there by us")
        if fault := fault_of_store(git_dir, [_commit_id(commit)]):
            raise WorkspaceError(fault)
        if Git(place).run("cat-file", "commit", _commit_id(commit)) != commit:
            raise WorkspaceError("its commit is another")
        _check_files(place, snapshot)
        _check_objects(Git(place), tree, _commit_id(commit))
        if Git(place).text("write-tree") != tree:
            raise WorkspaceError("its index gives another tree")
    except OSError as error:
        raise altered(place, f"{error.filename}: {error.strerror}") from None
    except Unfinished as error:
        raise altered(place, str(error)) from None


def _root_commit(tree: str) -> bytes:
    """The commit that ``_ROOT_COMMIT`` makes of a tree."""
    who = "base <base@invalid> 946684800 +0000"
    return f"tree {tree}\nauthor {who}\ncommitter {who}\n\nbase\n".encode()


def _commit_id(content: bytes) -> str:
    header = b"commit %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def _check_files(directory: Path, snapshot: Sequence[SnapshotFile]) -> None:
    expected = {file.path: (file.mode, file.blob) for file in snapshot if file.mode != "160000"}
    found = {}
    for path in _walk(os.fsencode(directory)):
        full = os.path.join(os.fsencode(directory), path)
        about = os.lstat(full)
        if stat.S_ISLNK(about.st_mode):
            found[path] = ("120000", blob_id(os.readlink(full)))
        else:
            mode = "100755" if about.st_mode & 0o100 else "100644"
            with open(full, "rb") as file:
                found[path] = (mode, blob_id(file.read()))
    for path in sorted(expected.keys() | found.keys()):
        # Old trees have the mode 100664; a work tree knows executable or not.
        wanted = expected.get(path)
        if wanted and wanted[0] == "100664":
            wanted = ("100644", wanted[1])
        if wanted != found.get(path):
            raise WorkspaceError(
                f"{shown_path(path)} in the template is {found.get(path)}, not {wanted}: this "
                "file system may fold case or normalise names"
            )


def _walk(root: bytes) -> Iterable[bytes]:
    """Files and symbolic links beneath ``root`` but for its ``.git``, as relative paths."""
    pending = [b""]
    while pending:
        folder = pending.pop()
        for entry in os.scandir(os.path.join(root, folder)):
            path = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if path != b".git":
                    pending.append(path)
            else:
                yield path


def _check_objects(git: Git, tree: str, commit: str) -> None:
    wanted = set(git.text("rev-list", "--objects", "--no-object-names", tree).split())
    found = set(all_objects(git))
    if found != wanted | {commit}:
        extra = sorted(found - wanted - {commit})[:3]
        raise WorkspaceError(f"the template's store has objects beside its tree: {extra}")


_FICLONE = 0x40049409
"""ioctl(2): share the extents of a file, on btrfs, XFS and bcachefs."""


def copy_workspace(template: Path, destination: Path) -> Path:
    """A private, writable copy of ``template`` at ``destination`` (must not exist).

    Shares extents where the file system can, else copies; never hard links, because a run could
    write through one. Links are copied as links, times are kept (git's index stays valid).
    """
    reflink = True
    destination.mkdir(parents=True)
    os.chmod(destination, 0o755)  # modes are those of git, whatever our umask is
    pending = [(str(template), str(destination))]
    while pending:
        source, target = pending.pop()
        for entry in os.scandir(source):
            to = os.path.join(target, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), to)
                continue
            about = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                os.mkdir(to)
                os.chmod(to, 0o755)
                pending.append((entry.path, to))
                continue
            reflink = _copy_file(entry.path, to, about.st_size, reflink)
            os.chmod(to, 0o755 if about.st_mode & 0o100 else 0o644)
            os.utime(to, ns=(about.st_mtime_ns, about.st_mtime_ns))
    return destination


def _copy_file(source: str, target: str, size: int, reflink: bool) -> bool:
    """Copy one file; whether sharing extents is worth another try."""
    with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0) as writer:
        if reflink and size:
            try:
                import fcntl

                fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
                return True
            except (ImportError, OSError):
                reflink = False
        if size < 1 << 16:
            writer.write(reader.read())
        else:
            shutil.copyfileobj(reader, writer, 1 << 20)
    return reflink
