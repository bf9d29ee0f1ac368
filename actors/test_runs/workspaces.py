"""Trees of files for untrusted runs: snapshots, object stores, templates, copies, overlays.

``git worktree`` and ``git clone --shared`` keep later commits within reach, and stripped clones
have leaked them too. So nothing is ever removed from a repository here: a store or a template is
made from nothing and is given the objects of exactly one tree.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from actors.sandbox.run import remove_tree
from actors.test_runs.git import Git, GitError
from ledger.errors import Integrity, Unfinished
from schemas.repair.overlay import Changes

_TEMPLATE_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = {bare}\n"
_TEMPLATE_STAT_CONFIG = "\tcheckStat = minimal\n\ttrustctime = false\n"
"""A work tree's files are copied with their times; inode and ctime of a copy are its own."""
_HEAD = "ref: refs/heads/base\n"
_RAW_ATTRIBUTES = "* -text !eol -ident -filter -working-tree-encoding !diff !merge\n"
"""For .git/info/attributes, the strongest place: blobs are files, byte for byte."""
_ROOT_COMMIT = {
    "GIT_AUTHOR_NAME": "base",
    "GIT_AUTHOR_EMAIL": "base@invalid",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "base",
    "GIT_COMMITTER_EMAIL": "base@invalid",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000",
}


class WorkspaceError(Unfinished):
    """A workspace could not be made as asked. The message says what differs."""


class UnsafePath(WorkspaceError):
    """A path of an overlay would leave the workspace, or reach its git directory."""


class SnapshotFile(NamedTuple):
    """One entry of a tree. A symbolic link's content is its target, a submodule's is empty."""

    path: bytes
    mode: str
    blob: str
    content: bytes


def read_snapshot(git_dir: Path, tree: str) -> list[SnapshotFile]:
    """Every file of ``tree`` (a tree or commit id), sorted by the bytes of its path."""
    git = Git(git_dir)
    entries = []
    for line in git.run("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, kind, blob = about.decode("ascii").split()
            entries.append((path, mode, kind, blob))
    wanted = [blob for _, _, kind, blob in entries if kind == "blob"]
    contents = dict(zip(wanted, _read_blobs(git, wanted), strict=True))
    return sorted(
        SnapshotFile(path, mode, blob, contents.get(blob, b"")) for path, mode, _, blob in entries
    )


def _read_blobs(git: Git, ids: Sequence[str]) -> list[bytes]:
    answer = git.run("cat-file", "--batch", stdin="".join(f"{id}\n" for id in ids).encode())
    contents, at = [], 0
    for id in ids:
        end = answer.index(b"\n", at)
        header = answer[at:end].split()
        if len(header) != 3:
            raise WorkspaceError(f"{git.directory}: object {id} is missing")
        size = int(header[2])
        contents.append(answer[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return contents


def blob_id(content: bytes) -> str:
    """The git object id (SHA-1 format) of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


# --- object stores ------------------------------------------------------------------------------


def export_pack(source_git: Path, tree: str) -> bytes:
    """A packfile with the objects of ``tree`` and no others."""
    git = Git(source_git)
    objects = git.run("rev-list", "--objects", "--no-object-names", f"{tree}^{{tree}}")
    # One thread and nothing reused: the same objects give the same bytes.
    return git.run(
        "-c", "pack.threads=1", "pack-objects", "--stdout", "--quiet", "--no-reuse-delta",
        "--no-reuse-object", stdin=objects,
    )  # fmt: skip


def import_pack(pack: bytes, directory: Path) -> Path:
    """A bare repository at ``directory`` that holds the objects of ``pack`` and nothing else.

    It has no reference, no remote and no alternate, and appears complete or not at all: who is
    killed in the middle leaves nothing under this name. Raises WorkspaceError where the pack is
    damaged or thin, or ``directory`` exists.
    """
    if directory.exists():
        raise WorkspaceError(f"{directory} exists already")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{directory.name[:12]}-", dir=directory.parent
    ) as near:
        building = Path(near) / "store"
        _new_repository(building, bare=True)
        try:
            Git(building).run("index-pack", "--stdin", stdin=pack)
        except GitError as error:
            raise WorkspaceError(f"not a complete packfile: {error}") from None
        os.rename(building, directory)
    return directory


def check_store(directory: Path) -> None:
    """Raises Integrity for a store whose objects are not what their ids say, or not all its own."""
    if fault := _fault_of_store(directory):
        raise _altered(directory, fault)


def _fault_of_store(directory: Path, loose: Collection[str] = ()) -> str:
    """What is wrong with an object store that was made from one pack; empty where nothing is.

    Every packed object's id is computed again. ``loose`` objects may lie beside the pack; their
    contents are the caller's to compare.
    """
    objects = directory / "objects"
    packs = sorted(path.name for path in (objects / "pack").glob("*.idx"))
    try:
        # Not fsck: it also judges form, and old trees of honest repositories fail that.
        for pack in packs:
            Git(directory).run("verify-pack", f"{objects.absolute()}/pack/{pack}")
    except GitError as error:
        return " ".join(str(error).split())
    found = {path.parent.name + path.name for path in objects.glob("[0-9a-f][0-9a-f]/*")}
    borrowed = [path.name for path in (objects / "info").glob("*alternates")]
    added = [*sorted(found - set(loose))[:3], *borrowed]
    return f"in objects: {', '.join(added)}" if added else "" if packs else "its pack is gone"


def _altered(place: Path, what: str) -> Integrity:
    return Integrity(
        f"{place} is not as it was made: {what}. Keep a copy if you want to know why, then remove "
        "it: it is made again from what is frozen"
    )


def _new_repository(git_dir: Path, *, bare: bool) -> None:
    """What git needs of a repository, written by hand: no template, hook or default of the host."""
    try:
        git_dir.mkdir(parents=True)
    except FileExistsError:
        raise WorkspaceError(f"{git_dir} exists already") from None
    for name in ("objects/pack", "objects/info", "refs/heads", "info"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(_HEAD)
    (git_dir / "config").write_text(_TEMPLATE_CONFIG.format(bare=str(bare).lower()))
    (git_dir / "info" / "attributes").write_text(_RAW_ATTRIBUTES)


# --- templates ----------------------------------------------------------------------------------


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
        _new_repository(git_dir, bare=False)
        with open(git_dir / "config", "a") as config:
            config.write(_TEMPLATE_STAT_CONFIG)
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
    config = _TEMPLATE_CONFIG.format(bare="false") + _TEMPLATE_STAT_CONFIG
    expected = {
        "HEAD": _HEAD,
        "config": config,
        "info/attributes": _RAW_ATTRIBUTES,
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
        if fault := _fault_of_store(git_dir, [_commit_id(commit)]):
            raise WorkspaceError(fault)
        if Git(place).run("cat-file", "commit", _commit_id(commit)) != commit:
            raise WorkspaceError("its commit is another")
        _check_files(place, snapshot)
        _check_objects(Git(place), tree, _commit_id(commit))
        if Git(place).text("write-tree") != tree:
            raise WorkspaceError("its index gives another tree")
    except OSError as error:
        raise _altered(place, f"{error.filename}: {error.strerror}") from None
    except Unfinished as error:
        raise _altered(place, str(error)) from None


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
                f"{_shown(path)} in the template is {found.get(path)}, not {wanted}: this "
                "file system may fold case or normalise names"
            )


def _shown(path: bytes) -> str:
    """A path for messages and records: what is not UTF-8 becomes escapes."""
    return path.decode("utf-8", "backslashreplace")


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
    found = set(_all_objects(git))
    if found != wanted | {commit}:
        extra = sorted(found - wanted - {commit})[:3]
        raise WorkspaceError(f"the template's store has objects beside its tree: {extra}")


def _all_objects(git: Git) -> list[str]:
    form = "--batch-check=%(objectname)"
    return git.text("cat-file", "--batch-all-objects", form).split()


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


# --- overlays -----------------------------------------------------------------------------------


def unsafe_reason(path: str) -> str:
    """Why ``path`` must not be used inside a work tree; empty where it may.

    ``.git`` is refused in every spelling that some file system takes for it: other case, the 8.3
    name, trailing dots and spaces, characters that HFS+ ignores.
    """
    if not path:
        return "empty path"
    if "\0" in path:
        return "NUL in the path"
    if path.startswith("/") or "\\" in path:
        return "absolute path or backslash"
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "not UTF-8"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"{part!r} as a part of the path"
        if len(part.encode("utf-8")) > 255:
            return "a part of more than 255 bytes"
        plain = "".join(c for c in part if unicodedata.category(c) != "Cf").casefold()
        if plain.rstrip(". ").partition(":")[0] in (".git", "git~1"):
            return "the git directory"
    return ""


def folders_of(path: str) -> list[str]:
    """The folders that a path lies in, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def lay_over(workspace: Path, changes: Changes) -> None:
    """Delete, then write, inside ``workspace``; never through a symbolic link.

    A deleted path need not exist; folders that become empty go, as in git. A written path replaces
    a link or file there. Raises UnsafePath before anything is touched for a path that no tree may
    have, and when a parent is a link or a file.
    """
    written = {file.path: file for file in changes.write}
    for path in (*changes.delete, *written):
        if reason := unsafe_reason(path):
            raise UnsafePath(f"{path!r} cannot be laid over a workspace: {reason}")
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in sorted(changes.delete):
            _delete(root, path)
        for path, file in sorted(written.items()):
            if file.mode not in ("100644", "100755"):
                raise UnsafePath(f"{path!r} has mode {file.mode}; only plain files are laid over")
            _write(root, path, 0o755 if file.mode == "100755" else 0o644, file.content)
    finally:
        os.close(root)


_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _open_parent(root: int, path: str, create: bool) -> int | None:
    """Descriptor of the folder that holds ``path``, None where it is absent."""
    here = os.dup(root)
    for part in path.split("/")[:-1]:
        try:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
                    os.chmod(part, 0o755, dir_fd=here)
            below = os.open(part, _OPEN_FOLDER, dir_fd=here)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafePath(f"{path!r}: {part!r} is a link or a file, not a folder") from None
            raise
        finally:
            os.close(here)
        here = below
    return here


def _delete(root: int, path: str) -> None:
    *folders, name = path.split("/")
    parent = _open_parent(root, path, create=False)
    if parent is None:
        return
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        raise UnsafePath(f"{path!r} is a folder; only files are deleted") from None
    finally:
        os.close(parent)
    while folders:
        above = _open_parent(root, "/".join(folders), create=False)
        assert above is not None, "a folder vanished while nothing else used the workspace"
        try:
            os.rmdir(folders.pop(), dir_fd=above)
        except OSError:
            return
        finally:
            os.close(above)


def _write(root: int, path: str, mode: int, content: bytes) -> None:
    name = path.rpartition("/")[2]
    parent = _open_parent(root, path, create=True)
    assert parent is not None, "folders are created on the way"
    try:
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            raise UnsafePath(f"{path!r} is a folder; a file cannot be written there") from None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, mode, dir_fd=parent), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
    finally:
        os.close(parent)


# --- leak probe ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A line of the gold patch where a run could read it."""

    line: bytes
    kind: Literal["file", "object", "alternate", "remote", "installed"]
    place: str
    """Path from the directory's root, or an object id."""


def gold_only_lines(
    base: Iterable[bytes], gold: Iterable[bytes], min_bytes: int = 12
) -> list[bytes]:
    """Lines of the ``gold`` files that occur nowhere in the ``base`` files, sorted.

    White space around them does not count; lines shorter than ``min_bytes`` say nothing.
    """
    everything = b"\n".join(base)
    lines = {line.strip() for content in gold for line in content.splitlines()}
    return sorted(line for line in lines if len(line) >= min_bytes and line not in everything)


def leak_probe(directory: Path, lines: Sequence[bytes]) -> list[Leak]:
    """Search every file and every git object beneath ``directory`` for ``lines``.

    Objects are searched whether or not something refers to them. A remote or an alternate is a
    finding by itself: through it more could be reached than is here.
    """
    found: list[Leak] = []

    def search(kind: Literal["file", "object"], place: str, content: bytes) -> None:
        found.extend(Leak(line=line, kind=kind, place=place) for line in lines if line in content)

    seen: set[bytes] = set()
    root = os.fsencode(directory)
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted([*files, *folders]):
            full = os.path.join(folder, name)
            place = _shown(os.path.relpath(full, root))
            if os.path.islink(full):
                search("file", place, os.readlink(full))
            elif stat.S_ISREG(os.lstat(full).st_mode):
                with open(full, "rb") as file:
                    content = file.read()
                seen.add(hashlib.sha256(content).digest())
                search("file", place, content)
    git_dir = directory / ".git" if (directory / ".git").is_dir() else directory
    if not (git_dir / "objects").is_dir():
        return found
    for alternates in sorted((git_dir / "objects" / "info").glob("*alternates")):
        place = f"objects/info/{alternates.name}"
        found.append(Leak(line=alternates.read_bytes(), kind="alternate", place=place))
    git = Git(git_dir)
    for remote in git.run("remote").splitlines():
        found.append(Leak(line=remote, kind="remote", place="config"))
    objects = _all_objects(git)
    for start in range(0, len(objects), 500):
        some = objects[start : start + 500]
        for id, content in zip(some, _read_blobs(git, some), strict=True):
            if hashlib.sha256(content).digest() not in seen:
                search("object", id, content)
    return found


def installed_leaks(environment: Path, paths: Iterable[str], lines: Sequence[bytes]) -> list[Leak]:
    """Search what a test environment has installed in the place of the repository's ``paths``.

    The project is never installed by us, but a requirement can bring it: pytest needs pluggy, so
    the environment of pluggy's own history holds a pluggy of today, with every fix. A whole
    environment is not searched: in a million lines each short one stands somewhere.
    """
    found: set[Leak] = set()
    for site_packages in environment.glob("venv/lib/python3*/site-packages"):
        for path in paths:
            parts = path.split("/")
            for start in range(len(parts)):
                copy = site_packages.joinpath(*parts[start:])
                if copy.is_file():
                    content = copy.read_bytes()
                    place = str(copy.relative_to(environment))
                    found |= {
                        Leak(line=line, kind="installed", place=place)
                        for line in lines
                        if line in content
                    }
    return sorted(found, key=lambda leak: (leak.place, leak.line))
