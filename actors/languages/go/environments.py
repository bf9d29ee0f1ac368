"""Test environments of Go: the toolchain of this host and the modules that the tree requires.

``<root>/<identity>/modcache`` is a module cache, filled by ``go mod download`` for every ``go.mod``
of the tree and read-only in a run. Downloading needs a network and runs outside the sandbox; it
unpacks modules and runs nothing of them. ``GOTOOLCHAIN=local`` keeps a ``toolchain`` line from
bringing another toolchain, whose version is part of the identity.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from actors.languages.contract import BuildFailed, Environment
from actors.sandbox import layout
from actors.test_runs.builds import Runner, Step, build_once
from actors.test_runs.overlays import unsafe_reason
from schemas.repair.study import Layout, Platform
from schemas.repair.task import EnvironmentInputs

_FORMAT = b"go environment 1\n"
"""Part of every identity; raise it when the way of building changes what is built."""
MODULE_CACHE = "modcache"

_GO_VARIABLES = re.compile(
    r"PATH|LANG|TMPDIR|GO(PROXY|PRIVATE|NOPROXY|NOSUMDB|SUMDB|INSECURE)|(?i:https?|no|all)_(?i:proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR"
)
_DEPENDENCY_FILES = ("go.mod", "go.sum", "go.work", "go.work.sum")
_NO_MODULE_OF_OURS = {"vendor", "testdata"}


class Toolchain(NamedTuple):
    """A Go toolchain of this host."""

    go: Path
    version: str
    """Without ``go`` before it: ``1.26.1``."""
    root: Path
    goos: str
    goarch: str


@functools.cache
def toolchain() -> Toolchain | None:
    """The ``go`` beside our interpreter (a package may ship it), on the path, or where its
    installer puts it."""
    beside = Path(sys.executable).with_name("go")
    for candidate in (beside, shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate is None or not os.access(candidate, os.X_OK):
            continue
        environment = {"PATH": os.environ.get("PATH", os.defpath), "GOENV": "off"}
        environment |= {"GOTOOLCHAIN": "local", "GOCACHE": "off", "HOME": "/nonexistent"}
        try:
            done = subprocess.run(
                [candidate, "env", "-json", "GOVERSION", "GOROOT", "GOOS", "GOARCH"],
                capture_output=True,
                check=True,
                timeout=60,
                cwd="/",
                env=environment,
            )
            about = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            continue
        version = about["GOVERSION"].partition(" ")[0].removeprefix("go")
        root = Path(os.path.realpath(about["GOROOT"]))
        return Toolchain(root / "bin" / "go", version, root, about["GOOS"], about["GOARCH"])
    return None


def missing(platform: Platform, layout: Layout) -> str:
    """Why no environment can be made here; see ``contract.Environments``."""
    return _missing_go(platform.go) or _other_platform(platform)


def _missing_go(declared: str) -> str:
    found = toolchain()
    if found is None:
        return (
            f"no Go on this host, and the study declares Go {declared} (platform.go): install it "
            "from https://go.dev/dl/ so that `go` starts it"
        )
    if found.version.split(".")[:2] != declared.split("."):
        here = ".".join(found.version.split(".")[:2])
        return (
            f"the study declares Go {declared} (platform.go) and this host has {found.version}: "
            f'install it, or declare go = "{here}"'
        )
    return ""


def _other_platform(platform: Platform) -> str:
    found = toolchain()
    assert found is not None, "asked behind _missing_go"
    if (platform.goos, platform.goarch) == (found.goos, found.goarch):
        return ""
    return (
        f"the study declares {platform.goos}/{platform.goarch} (platform) and tests of Go run on "
        f'{found.goos}/{found.goarch} here: declare goos = "{found.goos}", '
        f'goarch = "{found.goarch}", or validate on such a host'
    )


def dependency_files(layout: Layout, paths: Iterable[str]) -> Iterator[str]:
    """Module and workspace files of the tree's own modules, sorted."""
    return iter(
        sorted(
            path
            for path in paths
            if path.rpartition("/")[2] in _DEPENDENCY_FILES
            and not any(
                part in _NO_MODULE_OF_OURS or part.startswith(("_", "."))
                for part in path.split("/")[:-1]
            )
        )
    )


def prepare(
    root: Path, inputs: EnvironmentInputs, cancelled: threading.Event
) -> Environment | BuildFailed:
    """The module cache for a base tree with these module files."""
    found = toolchain()
    if reason := _missing_go(inputs.go):
        return BuildFailed(reason=reason, log=b"")
    assert found is not None
    if inputs.fallbacks:
        return BuildFailed(reason="a Go environment has no fall-backs: declare none", log=b"")
    for path in inputs.requirements:
        if problem := unsafe_reason(path):
            return BuildFailed(reason=f"module file {path!r}: {problem}", log=b"")
    about = f"{found.version} {found.goos} {found.goarch}\n".encode()
    digest = hashlib.sha256(_FORMAT + about)
    for path, content in sorted(inputs.requirements.items()):
        digest.update(f"{hashlib.sha256(content.encode()).hexdigest()}  {path}\n".encode())
    place = root / f"go-{digest.hexdigest()[:24]}"

    def build(folder: Path) -> Step:
        return _download(folder, found, inputs, cancelled)

    built = build_once(place, build, fallback="")
    if isinstance(built, Step):
        last = built.log.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return BuildFailed(
            reason=f"environment {place.name}: `go mod download` ended with status "
            f"{built.status}: {last[:300]}",
            log=built.log,
        )
    python = layout.launcher_interpreter()  # the reporter runs in it
    return Environment(
        identity=place.name,
        folder=place,
        program=found.go,
        version=found.version,
        read_only=(found.root, place / MODULE_CACHE, *layout.interpreter_paths(python)),
        hidden=python.site_packages,
        packages=built.packages,
        fallback="",
        log=built.log,
    )


def _download(
    folder: Path, found: Toolchain, inputs: EnvironmentInputs, cancelled: threading.Event
) -> Step:
    cache = folder / MODULE_CACHE
    cache.mkdir()
    # Building happens beneath a folder that is not kept: `go` writes there while it downloads.
    private = folder / "building"
    for path, content in inputs.requirements.items():
        target = private / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
    run = Runner(
        cancelled,
        _GO_VARIABLES,
        {
            "HOME": str(private / "home"),
            "GOENV": "off",
            "GOTOOLCHAIN": "local",
            "GOMODCACHE": str(cache),
            "GOCACHE": str(private / "cache"),
            "GOPATH": str(private / "path"),
            "GOFLAGS": "-modcacherw",
            "GOWORK": "off",
            "LC_ALL": "C.UTF-8",
        },
    )
    log = b""
    for path in sorted(inputs.requirements):
        if path.rpartition("/")[2] == "go.mod":
            where = (private / "tree" / path).parent
            status, said = run([found.go, "mod", "download"], cwd=where)
            log += said
            if status:
                return Step(status=status, log=log)
    shutil.rmtree(private, ignore_errors=True)
    return Step(status=0, log=log, packages=sorted(_packages(cache)))


def _packages(cache: Path) -> Iterator[str]:
    """``module==version`` of every unpacked module. An upper-case letter is escaped as ``!a``."""
    downloads = cache / "cache" / "download"
    for archive in downloads.rglob("@v/*.zip"):
        module = archive.parent.parent.relative_to(downloads).as_posix()
        named = f"{module}=={archive.stem}"
        yield re.sub(r"!([a-z])", lambda match: match[1].upper(), named)


def installed_copies(folder: Path, path: str) -> Iterator[Path]:
    """A module can require a later version of the project itself, through another module."""
    for module in _modules(folder):
        copy = module / path
        if copy.is_file():
            yield copy


@functools.lru_cache(maxsize=8)
def _modules(folder: Path) -> tuple[Path, ...]:
    """Folders of unpacked modules in an environment."""
    found = []
    for above, folders, _ in os.walk(folder / MODULE_CACHE):
        found += [Path(above) / name for name in folders if "@" in name]
        folders[:] = [name for name in folders if "@" not in name and name != "cache"]
    return tuple(sorted(found))
