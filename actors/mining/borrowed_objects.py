"""A private repository that borrows another one's objects.

A repository under study is never used in place: an empty bare repository in a private folder names
its object store as an alternate, so its configuration, attributes, hooks, replacement refs and
grafts have no effect and nothing is written into it. A bare mirror, a clone and a linked work tree
all work.
"""

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.test_runs.git import Git, GitError
from ledger.errors import Usage


@contextmanager
def borrowed_objects(path: Path) -> Iterator[Path]:
    """The private bare repository for the repository at ``path``; removed at the end.

    Raises Usage where ``path`` is missing, no repository, shallow, or not SHA-1.
    """
    objects = _object_directory(path)
    with tempfile.TemporaryDirectory(prefix="borrowed-objects-") as folder:
        directory = Path(folder) / "borrowed.git"
        Git(Path(folder)).run("init", "--quiet", "--bare", "--template=", str(directory))
        alternates = directory / "objects" / "info" / "alternates"
        alternates.parent.mkdir(exist_ok=True)
        alternates.write_bytes(str(objects).encode("utf-8", "surrogateescape") + b"\n")
        yield directory


def _object_directory(path: Path) -> Path:
    if not path.exists():
        raise Usage(f"{path}: does not exist; clone the repository there first")
    path = path.resolve()
    if "\n" in str(path):
        raise Usage(f"{str(path)!r}: a repository cannot lie at a path with a line break")
    # Without a ceiling a plain folder inside another repository would be taken for that one.
    ceiling = {"GIT_CEILING_DIRECTORIES": str(path.parent)}
    try:
        if not path.is_dir():
            raise GitError("it is a file")
        answers = Git(path, ceiling).run(
            "rev-parse", "--path-format=absolute", "--git-path", "objects",
            "--is-shallow-repository", "--show-object-format",
        ).decode("utf-8", "surrogateescape")  # fmt: skip
    except GitError as error:
        raise Usage(
            f"{path}: is not a git repository that can be read ({error}); give the work tree or "
            "the bare directory of a clone"
        ) from None
    objects, shallow, object_format = answers.rstrip("\n").rsplit("\n", 2)
    if shallow == "true":
        raise Usage(
            f"{path}: is a shallow clone, so its history ends early; "
            f"run `git -C {shlex.quote(str(path))} fetch --unshallow` first"
        )
    if object_format != "sha1":
        raise Usage(f"{path}: object ids are {object_format}; only sha1 is supported")
    return Path(objects)
