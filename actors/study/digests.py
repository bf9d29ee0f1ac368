"""Digests of what a study rests on: code, libraries, treatments, models."""

import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

import msgspec

import actors
import harnesses
import ledger
import projections
import schemas
from actors.test_runs.git import Git, GitError
from schemas.events.study import FrozenFile
from schemas.study import Model

PACKAGES = (actors, harnesses, ledger, projections, schemas)

GRADER_FILES = (
    "actors/test_runs/execution.py",
    "actors/repair/grading.py",
    "actors/languages/",
    "actors/test_runs/builds.py",
    "actors/test_runs/verdicts.py",
    "actors/sandbox/",
    "actors/untrusted_trees.py",
    "actors/test_runs/git_trees.py",
    "actors/test_runs/object_stores.py",
    "actors/test_runs/overlays.py",
    "actors/test_runs/templates.py",
    "actors/test_runs/patches.py",
)


def package_files() -> tuple[FrozenFile, ...]:
    """Every file of the five packages with its digest, sorted by name; byte code left out."""
    files = []
    for package in PACKAGES:
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"{root.name}/{path.relative_to(root).as_posix()}"
                files.append(FrozenFile(name=name, digest=sha256(path.read_bytes()).hexdigest()))
    return tuple(sorted(files, key=lambda file: file.name))


def grader_digest(files: Sequence[FrozenFile]) -> str:
    """Digest over the files that run tests and judge."""
    return combined({f.name: f.digest for f in files if f.name.startswith(GRADER_FILES)})


def combined(digests: Mapping[str, str]) -> str:
    """One digest over named digests: SHA-256 of lines ``<digest>  <name>``, sorted by name."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return sha256(lines.encode()).hexdigest()


def library_versions() -> dict[str, str]:
    """Installed distributions and their versions, by normalised name."""
    return {
        (dist.name or "").lower().replace("_", "-"): dist.version
        for dist in sorted(distributions(), key=lambda dist: dist.name or "")
    }


def lock_digest() -> str:
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(library_versions().items()))
    return sha256(lines.encode()).hexdigest()


def model_digest(model: Model) -> str:
    """Digest of a model's frozen identity."""
    return sha256(msgspec.json.encode(model, order="sorted")).hexdigest()


def checkout() -> tuple[str, bool]:
    """(revision, dirty) of the checkout that the code runs from; ("", False) outside of one.

    Files that git does not track make it not dirty: a study may lie in the checkout. One that is
    code is bound by its digest like every other."""
    assert actors.__file__ is not None
    root = Path(actors.__file__).parent.parent
    if not (root / ".git").exists():
        return "", False
    try:
        git = Git(root)
        changed = git.run("status", "--porcelain", "--untracked-files=no").strip()
        return git.text("rev-parse", "HEAD"), bool(changed)
    except (GitError, OSError, subprocess.SubprocessError):
        return "", False
