"""How the tests of a Go repository are started: ``go test``, our reporter, and the canary."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from actors.languages.contract import Environment, Requested, TestCommand, secret_name
from actors.languages.go import source
from actors.languages.go.environments import MODULE_CACHE, dependency_files, toolchain
from actors.sandbox import layout
from schemas.base import Value
from schemas.repair.overlay import Changes, WrittenFile
from schemas.repair.study import Layout, Platform

PLAN = "plan.json"
_REPORTER = Path(__file__).with_name("reporter.py")
_MODULE = re.compile(rb'^\s*module\s+"?([^\s"]+)', re.MULTILINE)

# A package's own test files come in the order of their names, then those of its external tests: the
# first canary fails before any other test, the last one behind them all.
_FIRST = """\
package {package}

import "testing"

func Test{name}Error(t *testing.T) {{ t.Error("must fail") }}

func Test{name}Fatal(t *testing.T) {{ t.Fatal("must fail") }}

func Test{name}Subtest(t *testing.T) {{
	t.Run("inner", func(t *testing.T) {{ t.FailNow() }})
}}
"""
_LAST = """\
package {package}

import "testing"

func Test{name}Last(t *testing.T) {{ t.Fail() }}
"""


class Job(Value):
    """One call of ``go test``: packages of one module."""

    folder: str
    """Of the module, from the top of the workspace."""
    words: tuple[str, ...]
    flags: str


class Package(Value):
    """A package that is tested."""

    tests: dict[str, tuple[str, ...]]
    """Files that define a test, by its name; two where an external package has one of that name."""
    files: tuple[str, ...]
    """Test files that were asked for, sorted."""


class Plan(Value):
    """What a run is asked to do, and what its report is read with."""

    version: str
    warm_cache: str
    """Read-only builds that a private cache begins with; empty: none."""
    build_cache: str
    """Where builds are kept; empty: a private cache."""
    jobs: tuple[Job, ...]
    packages: dict[str, Package]
    """By import path."""


def canary_name(nonce: str) -> str:
    return secret_name("canary", nonce).upper()


def command(requested: Requested) -> TestCommand:
    """Run the packages of the test files, module by module."""
    platform = _platform(requested.environment)
    by_folder: dict[str, list[str]] = {}
    for path in requested.tests:
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    by_module: dict[str, list[str]] = {}
    packages: dict[str, Package] = {}
    planted: list[WrittenFile] = []
    for folder, files in sorted(by_folder.items()):
        module = _module_of(requested.workspace, folder)
        by_module.setdefault(module, []).append(folder)
        sources = _sources(requested.workspace / folder, platform)
        tests: dict[str, list[str]] = {}
        for name, content in sources.items():
            if name.endswith("_test.go"):
                for test in source.test_functions(content):
                    tests.setdefault(test, []).append(os.path.join(folder, name))
        packages[_import_path(requested.workspace, module, folder)] = Package(
            tests={test: tuple(where) for test, where in sorted(tests.items())},
            files=tuple(sorted(files)),
        )
        if requested.canary:
            planted += _canary(folder, sources, canary_name(requested.nonce))
    plan = Plan(
        version=requested.environment.version,
        warm_cache=str(requested.warm_cache or ""),
        build_cache="",
        jobs=tuple(
            _job(requested, module, _test_words(requested, module, folders))
            for module, folders in sorted(by_module.items())
        ),
        packages=packages,
    )
    warm = (requested.warm_cache,) if requested.warm_cache else ()
    started = _started(requested, plan)
    return replace(
        started,
        read_only=(*started.read_only, *warm),
        planted=Changes(write=tuple(planted)),
    )


def warm_up(requested: Requested, cache: Path) -> TestCommand:
    """Build every package and every test binary of the tree; ``true`` is run in their place."""
    modules = dependency_files(
        Layout(),
        (
            os.path.relpath(os.path.join(above, name), requested.workspace)
            for above, _, names in os.walk(requested.workspace)
            for name in names
        ),
    )
    words = (
        str(requested.environment.program), "test", "-vet=off", "-count=1",
        f"-exec={shutil.which('true')}", "./...",
    )  # fmt: skip
    plan = Plan(
        version=requested.environment.version,
        warm_cache="",
        build_cache=str(cache),
        jobs=tuple(
            _job(requested, os.path.dirname(path), words)
            for path in modules
            if os.path.basename(path) == "go.mod"
        ),
        packages={},
    )
    return replace(_started(requested, plan), writable=(cache,))


def _started(requested: Requested, plan: Plan) -> TestCommand:
    """The reporter, told what to do."""
    (requested.place / PLAN).write_bytes(msgspec.json.encode(plan))
    script = requested.place / f"{secret_name('reporter', requested.nonce)}.py"
    script.write_bytes(_REPORTER.read_bytes())
    python = str(layout.launcher_interpreter().executable)
    shown = (script, requested.place / PLAN)
    return TestCommand(
        words=(python, "-I", "-S", *map(str, shown)),
        variables=variables(requested.environment),
        read_only=shown,
    )


def _test_words(requested: Requested, module: str, folders: Iterable[str]) -> tuple[str, ...]:
    relative = ["./" + os.path.relpath(folder or ".", module or ".") for folder in folders]
    return (
        str(requested.environment.program), "test", "-json", "-count=1", "-vet=off",
        "-shuffle=off", "-timeout=0", "-p=1", *relative,
    )  # fmt: skip


def _job(requested: Requested, module: str, words: tuple[str, ...]) -> Job:
    vendored = (requested.workspace / module / "vendor" / "modules.txt").is_file()
    return Job(
        folder=module or ".",
        words=words,
        flags=f"-mod={'vendor' if vendored else 'readonly'} -buildvcs=false",
    )


def variables(environment: Environment) -> dict[str, str]:
    """What ``go`` and code under test see, but for HOME, TMPDIR, GOFLAGS and the private caches."""
    return {
        "PATH": f"{environment.program.parent}:/usr/bin:/bin",
        "GOENV": "off",
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOSUMDB": "off",
        "GOMODCACHE": str(environment.folder / MODULE_CACHE),
        "CGO_ENABLED": "0",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }


def _platform(environment: Environment) -> Platform:
    found = toolchain()
    assert found is not None, "its environment has been made"
    minor = ".".join(environment.version.split(".")[:2])
    return msgspec.convert(
        {"goos": found.goos, "goarch": found.goarch, "go": minor}, Platform, strict=False
    )


def _module_of(workspace: Path, folder: str) -> str:
    """The nearest folder with a go.mod; the top where there is none."""
    while folder and not (workspace / folder / "go.mod").is_file():
        folder = os.path.dirname(folder)
    return folder


def _import_path(workspace: Path, module: str, folder: str) -> str:
    try:
        match = _MODULE.search((workspace / module / "go.mod").read_bytes())
    except OSError:
        match = None
    name = match[1].decode("utf-8", "replace") if match else ""
    inner = os.path.relpath(folder or ".", module or ".")
    return name if inner == "." else f"{name}/{inner}"


def _sources(folder: Path, platform: Platform) -> Mapping[str, bytes]:
    """Contents of the folder's Go files that are built here, by name, sorted."""
    found = {}
    for path in sorted(folder.glob("*.go")):
        if path.is_file() and not path.is_symlink() and not path.name.startswith(("_", ".")):
            content = path.read_bytes()
            if source.built_for(path.name, content, platform):
                found[path.name] = content
    return found


def _canary(folder: str, sources: Mapping[str, bytes], name: str) -> list[WrittenFile]:
    """Tests that must fail, as the first and the last of a package."""
    own, external = "", ""
    for file, content in sources.items():
        package = source.package_name(content)
        if file.endswith("_test.go") and package.endswith("_test"):
            external = external or package
        else:
            own = own or package
    first, last = own or external, external or own
    if not first:
        return []
    return [
        WrittenFile(
            path=os.path.join(folder, f"{place}{name.lower()}_test.go"),
            mode="100644",
            content=text.format(package=package, name=name).encode(),
        )
        for place, text, package in (("0", _FIRST, first), ("zz", _LAST, last))
    ]
