"""Digests of what a study rests on, and what is installed here: evidence of every run."""

import subprocess
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

import msgspec

import schemas
from actors.test_runs.git import Git, GitError
from schemas.study import Model

assert schemas.__file__ is not None
ROOT = Path(schemas.__file__).parents[1]
"""The folder that holds our packages, wherever they are installed."""
PACKAGES = ("actors", "harnesses", "ledger", "projections", "schemas")


def package_files() -> dict[str, str]:
    """Digest of every file of the five packages by its path from ``ROOT``; byte code left out."""
    return {
        path.relative_to(ROOT).as_posix(): sha256(path.read_bytes()).hexdigest()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def installed_distributions() -> dict[str, str]:
    """Installed distributions and their versions, by normalised name."""
    return {
        (dist.name or "").lower().replace("_", "-"): dist.version
        for dist in sorted(distributions(), key=lambda dist: dist.name or "")
    }


def program_evidence() -> bytes:
    """JSON of every file of ours and every installed distribution: what ``run.started`` records
    and nothing is gated by."""
    found = {"files": package_files(), "distributions": installed_distributions()}
    return msgspec.json.encode(found, order="sorted")


def model_digest(model: Model) -> str:
    """Digest of a model's frozen identity."""
    return sha256(msgspec.json.encode(model, order="sorted")).hexdigest()


def checkout() -> tuple[str, bool]:
    """(revision, dirty) of the checkout that the code runs from; ("", False) outside of one.

    Files that git does not track make it not dirty: a study may lie in the checkout. One that is
    code of a component is bound by its digest like every other."""
    if not (ROOT / ".git").exists():
        return "", False
    try:
        git = Git(ROOT)
        changed = git.run("status", "--porcelain", "--untracked-files=no").strip()
        return git.text("rev-parse", "HEAD"), bool(changed)
    except (GitError, OSError, subprocess.SubprocessError):
        return "", False
