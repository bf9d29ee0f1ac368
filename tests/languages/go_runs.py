"""Real runs of ``go test`` in the best sandbox of this host, over trees given as files."""

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.languages.contract import Environment
from actors.languages.go import GO
from actors.languages.go.environments import toolchain
from actors.sandbox import Limits, Sandbox
from actors.test_runs.execution import TestRun, execute
from actors.test_runs.templates import make_template
from schemas.repair.overlay import Changes
from schemas.repair.task import EnvironmentInputs
from tests.test_runs.conftest import Repository

FOUND = toolchain()
needs_go = pytest.mark.skipif(
    FOUND is None and os.environ.get("CI") != "true", reason="no Go on this host"
)
MINOR = ".".join(FOUND.version.split(".")[:2]) if FOUND else "1.26"
MODULE = f"module example.org/thing\n\ngo {MINOR}\n".encode()

Files = Mapping[str, bytes]


def inputs(**files: str) -> EnvironmentInputs:
    return EnvironmentInputs(
        language="go",
        python="3.11",
        go=MINOR,
        requirements=files,
        head_requirements={},
        fallbacks=(),
    )


def prepare(root: Path, **files: str) -> Any:
    return GO.environments.prepare(root, inputs(**files), threading.Event())


class GoRuns:
    """Runs test files of trees."""

    def __init__(
        self,
        repository: Repository,
        environment: Environment,
        sandbox: Sandbox,
        place: Path,
        warm_cache: Path,
    ) -> None:
        self.repository, self.environment, self.sandbox = repository, environment, sandbox
        self.place, self.warm_cache = place, warm_cache

    def __call__(
        self,
        files: Files,
        *overlays: Changes,
        tests: Sequence[str] = ("thing_test.go",),
        nonce: str = "",
        canary: bool = True,
        limits: Limits | None = None,
    ) -> TestRun:
        tree = self.repository.tree({"go.mod": MODULE, **files})
        (self.place / "scratch").mkdir(exist_ok=True)
        return execute(
            language=GO,
            sandbox=self.sandbox,
            environment=self.environment,
            template=make_template(self.repository.directory, tree, self.place / "templates"),
            overlays=overlays,
            tests=tests,
            package_roots=("",),
            hash_seed=0,
            nonce=nonce or hashlib.sha256(repr(files).encode()).hexdigest(),
            limits=limits or Limits(wall_s=120, grace_s=1),
            scratch=self.place / "scratch",
            canary=canary,
            warm_cache=self.warm_cache,
        )
