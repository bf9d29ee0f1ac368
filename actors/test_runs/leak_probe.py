"""The leak probe: is a line that only gold has anywhere that a test run could read it?"""

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.languages.contract import Language
from actors.test_runs.git import Git
from actors.test_runs.git_trees import read_blobs, shown_path
from actors.test_runs.object_stores import all_objects


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
            place = shown_path(os.path.relpath(full, root))
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
    objects = all_objects(git)
    for start in range(0, len(objects), 500):
        some = objects[start : start + 500]
        for id, content in zip(some, read_blobs(git, some), strict=True):
            if hashlib.sha256(content).digest() not in seen:
                search("object", id, content)
    return found


def installed_leaks(
    language: Language, environment: Path, paths: Iterable[str], lines: Sequence[bytes]
) -> list[Leak]:
    """Search what a test environment has installed in the place of the repository's ``paths``.

    The project is never installed by us, but a dependency can bring it. A whole environment is not
    searched: in a million lines each short one stands somewhere.
    """
    found: set[Leak] = set()
    for path in paths:
        for copy in language.environments.installed_copies(environment, path):
            content = copy.read_bytes()
            place = str(copy.relative_to(environment))
            found |= {
                Leak(line=line, kind="installed", place=place) for line in lines if line in content
            }
    return sorted(found, key=lambda leak: (leak.place, leak.line))
