"""A git repository to make trees in, the best sandbox of this host, the ``own`` environment."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from actors.languages.contract import Environment
from actors.languages.python import PYTHON
from actors.sandbox import Limits, Sandbox, layout, open_sandbox, probe
from actors.test_runs.execution import TestRun, execute
from actors.test_runs.git import Git
from actors.test_runs.templates import make_template
from schemas.repair.overlay import Changes, WrittenFile
from schemas.repair.task import EnvironmentInputs

Files = Mapping[str, bytes | tuple[str, bytes]]


class Repository:
    """Trees and commits made by plumbing: no work tree, no configuration of the host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.git = Git(
            directory,
            {
                "GIT_AUTHOR_NAME": "a",
                "GIT_AUTHOR_EMAIL": "a@invalid",
                "GIT_COMMITTER_NAME": "a",
                "GIT_COMMITTER_EMAIL": "a@invalid",
                "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
                "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
            },
        )
        self.git.run("init", "--quiet", "--bare", "--initial-branch=main", ".")

    def tree(self, files: Files) -> str:
        lines = []
        for path, content in files.items():
            mode, data = ("100644", content) if isinstance(content, bytes) else content
            blob = self.git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=data)
            lines.append(f"{mode} {blob}\t{path}\0".encode())
        self.git.run("read-tree", "--empty")
        self.git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        return self.git.text("write-tree")

    def commit(self, tree: str, *parents: str) -> str:
        arguments = [word for parent in parents for word in ("-p", parent)]
        return self.git.text("commit-tree", tree, "-m", "change", *arguments)


def changes(write: Files | None = None, delete: Sequence[str] = ()) -> Changes:
    written = []
    for path, content in sorted((write or {}).items()):
        mode, data = ("100644", content) if isinstance(content, bytes) else content
        written.append(WrittenFile(path=path, mode=mode, content=data))  # type: ignore[arg-type]
    return Changes(write=tuple(written), delete=tuple(delete))


@pytest.fixture(name="changes")
def changes_fixture() -> Callable[..., Changes]:
    return changes


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository.git")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    version = ".".join(layout.launcher_interpreter().version.split(".")[:2])
    inputs = EnvironmentInputs(python=version, requirements={}, head_requirements={}, fallbacks=())
    root = tmp_path_factory.mktemp("environments")
    built = PYTHON.environments.prepare(root, inputs, threading.Event())
    assert isinstance(built, Environment), built
    return built


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """The best rung; none where this host has no rung, because the logic must hold there too."""
    scratch = tmp_path_factory.mktemp("probe")
    return open_sandbox(probe(scratch).kind, scratch, unsafe=True)


RunTests = Callable[..., TestRun]


@pytest.fixture
def run_tests(
    repository: Repository, environment: Environment, sandbox: Sandbox, tmp_path: Path
) -> RunTests:
    """Run test files of a tree given as ``files``, with overlays."""

    def run_tests(
        files: Files,
        *overlays: Changes,
        tests: Sequence[str] = ("tests/test_it.py",),
        sandbox: Sandbox = sandbox,
        limits: Limits | None = None,
        hash_seed: int = 0,
        canary: bool = True,
        package_roots: Sequence[str] = (),
    ) -> TestRun:
        template = make_template(
            repository.directory, repository.tree(files), tmp_path / "templates"
        )
        (tmp_path / "scratch").mkdir(exist_ok=True)
        run = execute(
            language=PYTHON,
            sandbox=sandbox,
            environment=environment,
            template=template,
            overlays=overlays,
            tests=tests,
            package_roots=package_roots,
            hash_seed=hash_seed,
            nonce=hashlib.sha256(repr(files).encode()).hexdigest(),
            limits=limits or Limits(wall_s=30, grace_s=1, memory_bytes=1 << 30),
            scratch=tmp_path / "scratch",
            canary=canary,
        )
        assert list((tmp_path / "scratch").iterdir()) == [], "a run's workspace is gone afterwards"
        return run

    return run_tests
