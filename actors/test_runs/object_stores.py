"""Object stores of one tree: written by hand, filled from one pack, checked object by object.

``git worktree`` and ``git clone --shared`` keep later commits within reach, and stripped clones
have leaked them too. So nothing is ever removed from a repository here: a store is made from
nothing and is given the objects of exactly one tree.
"""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path

from actors.test_runs.git import Git, GitError
from actors.test_runs.git_trees import WorkspaceError
from ledger.errors import Integrity

CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = {bare}\n"
HEAD = "ref: refs/heads/base\n"
RAW_ATTRIBUTES = "* -text !eol -ident -filter -working-tree-encoding !diff !merge\n"
"""For .git/info/attributes, the strongest place: blobs are files, byte for byte."""


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
        new_repository(building, bare=True)
        try:
            Git(building).run("index-pack", "--stdin", stdin=pack)
        except GitError as error:
            raise WorkspaceError(f"not a complete packfile: {error}") from None
        os.rename(building, directory)
    return directory


def check_store(directory: Path) -> None:
    """Raises Integrity for a store whose objects are not what their ids say, or not all its own."""
    if fault := fault_of_store(directory):
        raise altered(directory, fault)


def fault_of_store(directory: Path, loose: Collection[str] = ()) -> str:
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


def altered(place: Path, what: str) -> Integrity:
    return Integrity(
        f"{place} is not as it was made: {what}. Keep a copy if you want to know why, then remove "
        "it: it is made again from what is frozen"
    )


def new_repository(git_dir: Path, *, bare: bool) -> None:
    """What git needs of a repository, written by hand: no template, hook or default of the host."""
    try:
        git_dir.mkdir(parents=True)
    except FileExistsError:
        raise WorkspaceError(f"{git_dir} exists already") from None
    for name in ("objects/pack", "objects/info", "refs/heads", "info"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(HEAD)
    (git_dir / "config").write_text(CONFIG.format(bare=str(bare).lower()))
    (git_dir / "info" / "attributes").write_text(RAW_ATTRIBUTES)


def all_objects(git: Git) -> list[str]:
    form = "--batch-check=%(objectname)"
    return git.text("cat-file", "--batch-all-objects", form).split()
