"""Builders shared by the tests of the harnesses: small trees without a disk."""

from collections.abc import Callable

import pytest

from harnesses.retrieval.snapshot import FileClass, SnapshotFile, snapshot, snapshot_file
from harnesses.workspace import Workspace


def classify(path: str, content: bytes) -> FileClass:
    """The rules of a small recipe, enough to tell the groups apart."""
    name = path.rpartition("/")[2]
    if path.startswith("tests/") and name == "conftest.py":
        return "infrastructure"
    if path.startswith("tests/"):
        return "test"
    if path.startswith("docs/"):
        return "docs"
    if name in ("requirements.txt", "go.mod"):
        return "dependency"
    if name.endswith((".toml", ".cfg")):
        return "config"
    if b"DO NOT EDIT" in content:
        return "generated"
    return "production" if name.endswith((".py", ".go", ".txt", ".js")) else "other"


@pytest.fixture
def make_workspace() -> Callable[..., Workspace]:
    """``make_workspace({path: content or SnapshotFile}, protected=…)``."""

    def make(
        files: dict[str, str | bytes | SnapshotFile], protected: frozenset[str] = frozenset()
    ) -> Workspace:
        entries = []
        for path, content in files.items():
            if isinstance(content, SnapshotFile):
                entries.append(content)
                continue
            data = content.encode() if isinstance(content, str) else content
            entries.append(snapshot_file(path, "100644", data, classify(path, data)))
        return Workspace(snapshot(entries), protected_paths=protected, classify=classify)

    return make
