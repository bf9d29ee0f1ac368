"""First-parent history of a repository that nobody vouches for.

The repository is never used in place: an empty bare repository in a private folder borrows its
objects, so its configuration, attributes, hooks, replacement refs and grafts have no effect and
nothing is written into it. A bare mirror, a clone and a linked work tree all work.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pygit2

from actors.git import Git, GitError
from actors.mining.recipes import MiningError
from actors.mining.trees import TreeStore, UnreadableObject


@dataclass(frozen=True)
class IsolatedRepository:
    """Objects of the mined repository, seen through a private one."""

    directory: Path
    """The private bare repository; ``index`` files may be put beside it."""
    git: Git
    repository: pygit2.Repository
    trees: TreeStore


@contextmanager
def isolated_repository(path: Path) -> Iterator[IsolatedRepository]:
    """Open the repository at ``path`` (its work tree or its bare directory).

    Raises :class:`MiningError` where ``path`` is missing, no repository, shallow, or not SHA-1.
    """
    objects = _object_directory(path)
    with tempfile.TemporaryDirectory(prefix="mining-") as folder:
        directory = Path(folder) / "objects-only.git"
        Git(Path(folder)).run("init", "--quiet", "--bare", "--template=", str(directory))
        alternates = directory / "objects" / "info" / "alternates"
        alternates.parent.mkdir(exist_ok=True)
        alternates.write_bytes(str(objects).encode("utf-8", "surrogateescape") + b"\n")
        repository = pygit2.Repository(str(directory))
        try:
            yield IsolatedRepository(directory, Git(directory), repository, TreeStore(repository))
        finally:
            repository.free()


def _object_directory(path: Path) -> Path:
    if not path.exists():
        raise MiningError(f"{path}: does not exist; clone the repository there first")
    path = path.resolve()
    if "\n" in str(path):
        raise MiningError(f"{path!r}: a path with a line break cannot hold the repository")
    # Without a ceiling a plain folder inside another repository would be taken for that one.
    git = Git(path if path.is_dir() else path.parent, {"GIT_CEILING_DIRECTORIES": str(path.parent)})
    try:
        if not path.is_dir():
            raise GitError("it is a file")
        answers = git.run(
            "rev-parse", "--path-format=absolute", "--git-path", "objects",
            "--is-shallow-repository", "--show-object-format",
        ).decode("utf-8", "surrogateescape")  # fmt: skip
    except GitError as error:
        raise MiningError(
            f"{path}: is not a git repository that can be read ({error}); give the work tree or "
            "the bare directory of a clone"
        ) from None
    objects, shallow, object_format = answers.rstrip("\n").rsplit("\n", 2)
    if shallow == "true":
        raise MiningError(
            f"{path}: is a shallow clone, so its history ends early; "
            f"run `git -C {path} fetch --unshallow` first"
        )
    if object_format != "sha1":
        raise MiningError(f"{path}: object ids are {object_format}; only sha1 is supported")
    return Path(objects)


@dataclass(frozen=True)
class Commit:
    """One commit of the walk."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    seconds: int
    """Committer date, seconds since 1970 UTC."""
    message: str

    @property
    def parent(self) -> str | None:
        return self.parents[0] if self.parents else None

    @property
    def subject(self) -> str:
        return self.message.lstrip("\n").partition("\n")[0].strip()

    @property
    def date(self) -> str:
        """Committer date as RFC 3339 in UTC; ``@seconds`` where no calendar reaches it."""
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)
        except OverflowError:
            return f"@{self.seconds}"
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


@dataclass(frozen=True)
class Walk:
    commits: tuple[Commit, ...]
    """Within the date limit, newest to oldest: what is audited."""
    visited: tuple[Commit, ...]
    """These and the older ones that were passed, in first-parent order."""


def read_commit(room: IsolatedRepository, oid: str) -> Commit:
    """Raises :class:`UnreadableObject` where it is absent or damaged."""
    try:
        found = room.repository[oid]
    except KeyError:
        raise UnreadableObject(f"commit {oid[:12]} is absent") from None
    except (pygit2.GitError, ValueError) as error:
        raise UnreadableObject(f"commit {oid[:12]} cannot be read: {error}") from None
    if not isinstance(found, pygit2.Commit):
        raise UnreadableObject(f"object {oid[:12]} is a {found.type_str}, not a commit")
    raw = found.raw_message
    try:
        message = raw.decode(found.message_encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        message = raw.decode("utf-8", "replace")
    return Commit(
        oid=oid,
        tree=str(found.tree_id),
        parents=tuple(str(parent) for parent in found.parent_ids),
        seconds=found.commit_time,
        message=message.replace("\r\n", "\n"),
    )


def first_parent_walk(
    room: IsolatedRepository,
    head: str,
    *,
    not_before: str,
    older_commits_in_a_row: int,
    revert_window: int,
) -> Walk:
    """Walk from ``head`` along first parents, filtered by committer date.

    Committer dates are not monotonic, so an older commit is passed over and the walk ends only
    after ``older_commits_in_a_row`` of them. It then goes on to see ``revert_window`` ancestors of
    the last audited commit, or to the first commit that cannot be read. Raises
    :class:`MiningError` where the head itself cannot be read.
    """
    limit = int(datetime.fromisoformat(not_before).replace(tzinfo=UTC).timestamp())
    try:
        commit = read_commit(room, head)
    except UnreadableObject as error:
        raise MiningError(
            f"head {head}: {error}; fetch it into the repository, or correct the study's `head`"
        ) from None
    audited: list[Commit] = []
    visited: list[Commit] = []
    older = 0
    ancestors = 0
    while True:
        visited.append(commit)
        ended = older >= older_commits_in_a_row
        if commit.seconds >= limit and not ended:
            audited.append(commit)
            older = ancestors = 0
        else:
            older += 1
            ancestors += 1
        if older >= older_commits_in_a_row and ancestors >= revert_window:
            break
        if commit.parent is None:
            break
        try:
            commit = read_commit(room, commit.parent)
        except UnreadableObject:
            break
    return Walk(commits=tuple(audited), visited=tuple(visited))
