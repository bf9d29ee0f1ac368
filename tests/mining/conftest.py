"""Small repositories with a chosen history, written by ``git fast-import``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.mining.walk import Mined, mine
from actors.test_runs.git import Git
from schemas.repair.study import Layout, Platform, Repository, TaskRules

DAY = 86_400
FIRST_DAY = 1_700_000_000  # November 2023

FileState = bytes | tuple[str, bytes] | None
"""Bytes of a regular file, (mode, bytes), or None for a deletion."""

BASE: dict[str, FileState] = {
    "pkg/__init__.py": b"",
    "pkg/calc.py": b'"""Sums."""\n\n\ndef add(a, b):\n    return a - b\n',
    "pkg/other.py": b"OTHER = 1\n",
    "tests/unit/test_calc.py": b"from pkg import calc\n\n\ndef test_zero():\n"
    b"    assert calc.add(0, 0) == 0\n",
    "tests/unit/conftest.py": b"",
    "README.md": b"# A package\n",
    "requirements.txt": b"pytest==8.0\n",
}
CALC_FIXED = b'"""Sums."""\n\n\ndef add(a, b):\n    return a + b\n'
TEST_FIXED = (
    b"from pkg import calc\n\n\ndef test_zero():\n    assert calc.add(0, 0) == 0\n"
    b"\n\ndef test_sum():\n    assert calc.add(1, 2) == 3\n"
)
FIX: dict[str, FileState] = {"pkg/calc.py": CALC_FIXED, "tests/unit/test_calc.py": TEST_FIXED}


@dataclass
class History:
    """A bare repository; every commit is the child of the one before unless told otherwise."""

    path: Path
    oids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.git = Git(self.path)
        self.git.run("init", "--quiet", "--bare", "--template=")

    @property
    def head(self) -> str:
        return self.oids[-1]

    def commit(
        self,
        files: Mapping[str | bytes, FileState],
        message: str | bytes = "fix: correct the sum of two numbers",
        *,
        day: int | None = None,
        parents: tuple[str, ...] | None = None,
        tree: str | None = None,
    ) -> str:
        """Write a commit (``tree``: with exactly this tree) and return its id."""
        if isinstance(message, str):
            message = message.encode()
        seconds = FIRST_DAY + DAY * (len(self.oids) if day is None else day)
        if parents is None:
            parents = tuple(self.oids[-1:])
        stream = [
            b"commit refs/heads/main\nmark :1\n",
            b"committer A <a@example.org> %d +0000\n" % seconds,
            b"data %d\n%s\n" % (len(message), message),
        ]
        stream += [b"from %s\n" % parent.encode() for parent in parents[:1]]
        stream += [b"merge %s\n" % parent.encode() for parent in parents[1:]]
        if tree is not None:
            stream.append(b'M 040000 %s ""\n' % tree.encode())
        for path, state in files.items():
            raw = path if isinstance(path, bytes) else path.encode()
            escaped = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
            quoted = b'"%s"' % escaped
            mode, content = ("100644", state) if not isinstance(state, tuple) else state
            if content is None:
                stream.append(b"D %s\n" % quoted)
            elif mode == "160000":
                stream.append(b"M 160000 %s %s\n" % (content, quoted))
            else:
                stream.append(b"M %s inline %s\n" % (mode.encode(), quoted))
                stream.append(b"data %d\n%s\n" % (len(content), content))
        # A commit without a parent would otherwise build on what the branch holds.
        self.git.run("update-ref", "-d", "refs/heads/main")
        marks = self.path / "marks"
        self.git.run(
            "fast-import", "--quiet", "--force", f"--export-marks={marks}", stdin=b"".join(stream)
        )
        self.oids.append(marks.read_text().split()[1])
        return self.head

    def mine(self, rules: TaskRules | None = None, **changes: object) -> Mined:
        return mine(
            self.path,
            repository(self.head, **changes),
            rules or TaskRules(),
            Platform(),
            {},
        )


def repository(head: str, **changes: object) -> Repository:
    layout = Layout(package_roots=("pkg",), test_roots=("tests/unit",))
    fields = {"id": "T001", "url": "local", "head": head, "language": "python", "layout": layout}
    return Repository(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def new_history(tmp_path: Path) -> Callable[[], History]:
    """Makes repositories; each begins with :data:`BASE` as its root commit."""

    def make() -> History:
        history = History(tmp_path / f"repository-{len(list(tmp_path.iterdir()))}.git")
        history.commit(BASE, "feat: begin")  # type: ignore[arg-type]
        return history

    return make


@pytest.fixture
def history(new_history: Callable[[], History]) -> History:
    return new_history()


@pytest.fixture
def fix() -> dict[str, FileState]:
    """A change that passes every static criterion on top of :data:`BASE`."""
    return dict(FIX)
