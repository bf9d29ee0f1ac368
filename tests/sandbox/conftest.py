"""Sandboxes of every rung that this host offers, and the folders that runs need."""

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.sandbox import Finished, Limits, Sandbox, layout, open_sandbox
from actors.sandbox.contract import Kind, Rung
from actors.sandbox.ladder import probe_rung

KINDS: tuple[Kind, ...] = ("bubblewrap", "namespaces", "landlock", "none")

Run = Callable[..., Finished]


@functools.cache
def rungs() -> dict[Kind, Rung]:
    with tempfile.TemporaryDirectory() as scratch:
        return {kind: probe_rung(kind, Path(scratch)) for kind in KINDS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``contained``: each offered rung. ``any_sandbox``: these and ``none``, for what holds on all
    of them. ``isolated``: offered rungs that have namespaces. ``one_sandbox``: the best one, for
    what is the same code on all of them."""
    offered = [kind for kind in KINDS if rungs()[kind].offered]
    for name, kinds in (
        ("contained", offered),
        ("any_sandbox", [*offered, "none"]),
        ("one_sandbox", [*offered, "none"][:1]),
        ("isolated", [kind for kind in offered if kind != "landlock"]),
    ):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, kinds, indirect=True)


@pytest.fixture
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return open_sandbox(request.param, tmp_path, unsafe=True)


any_sandbox = contained
one_sandbox = contained
isolated = contained


@pytest.fixture
def rung_of() -> Callable[[Sandbox], Rung]:
    return lambda sandbox: rungs()[sandbox.kind]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python source in a sandbox with a fresh workspace at ``tmp_path/workspace``."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    python = layout.launcher_interpreter()

    def run(
        sandbox: Sandbox,
        source: str,
        *,
        limits: Limits | None = None,
        read_only: tuple[Path, ...] = (),
        hidden: tuple[Path, ...] = (),
        environment: dict[str, str] | None = None,
        request: bytes = b"",
        result_bytes: int = 10_000,
    ) -> Finished:
        return sandbox.run(
            [str(python.executable), "-I", "-S", "-c", source],
            workspace=workspace,
            read_only=(*layout.interpreter_paths(python), *read_only),
            hidden=(*python.site_packages, *hidden),
            environment={"PATH": os.defpath, "LC_ALL": "C.UTF-8"} | (environment or {}),
            limits=limits or Limits(wall_s=20, grace_s=1),
            request=request,
            result_bytes=result_bytes,
        )

    return run
