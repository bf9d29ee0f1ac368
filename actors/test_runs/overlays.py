"""Overlays: whole files laid over a workspace, never through a link and never outside of it."""

import contextlib
import errno
import os
import unicodedata
from pathlib import Path

from actors.test_runs.git_trees import WorkspaceError
from schemas.repair.overlay import Changes


class UnsafePath(WorkspaceError):
    """A path of an overlay would leave the workspace, or reach its git directory."""


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
