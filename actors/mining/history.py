"""First-parent history of a repository that nobody vouches for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pygit2

from actors.mining.borrowed_objects import borrowed_objects
from actors.mining.trees import TreeStore, UnreadableObject
from actors.test_runs.git import Git
from ledger.errors import Usage


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

    Raises Usage where ``path`` is missing, no repository, shallow, or not SHA-1.
    """
    with borrowed_objects(path) as directory:
        repository = pygit2.Repository(str(directory))
        try:
            yield IsolatedRepository(directory, Git(directory), repository, TreeStore(repository))
        finally:
            repository.free()


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
    Usage where the head itself cannot be read.
    """
    limit = int(datetime.fromisoformat(not_before).replace(tzinfo=UTC).timestamp())
    try:
        commit = read_commit(room, head)
    except UnreadableObject as error:
        raise Usage(
            f"head {head}: {error}; fetch it into the repository, or correct the study's `head` "
            "(`git rev-parse HEAD` there prints the newest)"
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
