"""Test environments of Python: an interpreter, pytest and dependencies, never the project itself.

Each is a virtual environment in ``<root>/<identity>/venv``:

``own``   for a repository that names no requirement files: the interpreter that we run in, and a
          copy of our own pytest with what it needs. Made without a network.
``venv``  ``pip install -r`` of the repository's requirement files, wheels only.

Building the second needs a network and thus runs outside the sandbox. So nothing that a repository
names is run there: pip takes wheels only, which are unpacked and not run; requirement files may
name packages and nothing that is built or fetched in another way (``requirement_files.py``); and
the interpreter of a built environment, which would run what its packages put into ``*.pth``, is
never started.
"""

import hashlib
import importlib.metadata
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from actors.languages.contract import BuildFailed, Environment
from actors.languages.python.requirement_files import (
    PIN,
    RefusedLine,
    lift_pin,
    requirement_lines,
)
from actors.sandbox import SandboxError, layout
from actors.test_runs.builds import Built, Runner, Step, build_once, cleared
from actors.test_runs.overlays import unsafe_reason
from schemas.repair.study import Layout, Platform
from schemas.repair.task import EnvironmentInputs

_FORMAT = b"environment 2\n"
"""Part of every identity; raise it when the way of building changes what is built."""

# What pip may see of the host: where packages come from and how to get there. No credentials but
# those that its own configuration holds.
_PIP_VARIABLES = re.compile(
    r"PATH|HOME|LANG|TMPDIR|PIP_.*|(?i:https?|no|all)_(?i:proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)


def missing(platform: Platform, layout: Layout) -> str:
    """Why no environment can be made here; see ``contract.Environments``."""
    return _missing_python(platform.python, own=not layout.requirements)


def dependency_files(layout: Layout, paths: Iterable[str]) -> Iterator[str]:
    """The requirement files that the layout names, in the order in which pip gets them."""
    there = set(paths)
    return (path for path in layout.requirements if path in there)


def prepare(
    root: Path, inputs: EnvironmentInputs, cancelled: threading.Event
) -> Environment | BuildFailed:
    """The environment for a base tree with these requirement files.

    Files that they include must be among them. None: the ``own`` environment. Fall-backs are tried
    in order where the base's own pins do not build: ``head`` (the head's requirement files),
    ``without NAME`` (that pin lifted).
    """
    run = Runner(cancelled, _PIP_VARIABLES, {"LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"})
    requirements = {path: content.encode() for path, content in inputs.requirements.items()}
    at_head = {path: content.encode() for path, content in inputs.head_requirements.items()}
    if not requirements:
        return _own_environment(root, inputs.python, run)
    found = _find_python(inputs.python)
    if found is None:
        return BuildFailed(reason=_missing_python(inputs.python, own=False), log=b"")
    attempts: list[tuple[str, Mapping[str, bytes], Path]] = []
    for fallback in ("", *inputs.fallbacks):
        files: Mapping[str, bytes] = requirements
        if fallback == "head":
            files = at_head or requirements
        elif fallback.startswith("without "):
            name = fallback.removeprefix("without ").strip()
            files = {path: lift_pin(content, name) for path, content in requirements.items()}
        elif fallback:
            reason = f"fall-back {fallback!r}: declare `head` or `without NAME`"
            return BuildFailed(reason=reason, log=b"")
        for path in files:
            if problem := unsafe_reason(path):
                return BuildFailed(reason=f"requirement file {path!r}: {problem}", log=b"")
        attempts.append((fallback, files, root / _venv_identity(found, files, fallback)))

    # What failed before a later fall-back worked is not tried again, or each task would pay for it.
    for _, files, place in attempts:
        if place.exists():
            return _venv(place, found, files, "", run)
        if not _failure_log(place).exists():
            break
    log, reason = b"", ""
    for fallback, files, place in attempts:
        built = _venv(place, found, files, fallback, run)
        if isinstance(built, Environment):
            return built
        log += b"=== " + (fallback or "as pinned").encode() + b" ===\n" + built.log
        reason = built.reason
        _failure_log(place).write_bytes(built.log)
    return BuildFailed(reason=reason, log=log)


def installed_copies(folder: Path, path: str) -> Iterator[Path]:
    """The project is never installed by us, but a requirement can bring it: pytest needs pluggy, so
    the environment of pluggy's own history holds a pluggy of today, with every fix."""
    parts = path.split("/")
    for site_packages in folder.glob("venv/lib/python3*/site-packages"):
        for start in range(len(parts)):
            copy = site_packages.joinpath(*parts[start:])
            if copy.is_file():
                yield copy


def _find_python(version: str) -> layout.Interpreter | None:
    for candidate in (sys.executable, shutil.which(f"python{version}"), shutil.which("python3")):
        try:
            found = layout.interpreter(Path(candidate)) if candidate else None
        except SandboxError:  # a version manager's shim of a version that it does not have
            continue
        if found and found.version.split(".")[:2] == version.split("."):
            return found
    return None


def _missing_python(python: str, *, own: bool) -> str:
    """Why no environment of the declared Python can be made here, with what there is instead; empty
    where one can. ``own``: for a repository that names no requirement files."""
    ours = layout.launcher_interpreter().version
    if own:
        if ours.split(".")[:2] == python.split("."):
            return ""
        return (
            f"the study declares Python {python} (platform.python) and this program runs in {ours},"
            " in which a repository without requirement files is tested: declare "
            f'python = "{".".join(ours.split(".")[:2])}", run this program with Python {python}, '
            "or name the repository's requirement files (layout.requirements)"
        )
    if _find_python(python) is not None:
        return ""
    minors = [f"3.{minor}" for minor in range(_OLDEST_MINOR, _NEWEST_MINOR + 1)]
    present = ", ".join(f'python = "{minor}"' for minor in minors if _find_python(minor))
    return (
        f"no Python {python} on this host (platform.python). Install it, so that `python{python}` "
        f"starts it, or declare one that is there: {present}"
    )


_OLDEST_MINOR, _NEWEST_MINOR = 6, 20
"""Minor versions of Python 3 that are looked for where the declared one is not there."""


# --- own ----------------------------------------------------------------------------------------


def _own_environment(root: Path, python: str, run: Runner) -> Environment | BuildFailed:
    found = layout.launcher_interpreter()
    if reason := _missing_python(python, own=True):
        return BuildFailed(reason=reason, log=b"")
    files: dict[str, Path] = {}
    packages = []
    for distribution in _closure("pytest"):
        packages.append(f"{distribution.metadata['Name']}=={distribution.version}")
        if distribution.files is None:
            reason = f"{packages[-1]} has no list of its files: install it with pip"
            return BuildFailed(reason=reason, log=b"")
        for file in distribution.files:
            if ".." not in file.parts and file.suffix != ".pyc":
                files[file.as_posix()] = Path(str(distribution.locate_file(file)))
    digest = hashlib.sha256(_FORMAT + _about(found))
    for name, path in sorted(files.items()):
        digest.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
    identity = f"own-{digest.hexdigest()[:24]}"
    place = root / identity

    def build(folder: Path) -> Step:
        status, log = run([found.executable, "-m", "venv", "--without-pip", folder / "venv"])
        site_packages = _site_packages(folder / "venv")
        for name, path in sorted(files.items()):
            target = site_packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        # The environment is read-only in a run: without byte code each run would compile pytest.
        compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        compiled, more = run([found.executable, *compile_all, site_packages])
        note = f"copied {len(files)} files of {', '.join(packages)}\n".encode()
        return Step(status=status or compiled, log=log + note + more, packages=packages)

    return _environment(place, found, build_once(place, build, fallback=""))


def _closure(name: str) -> list[importlib.metadata.Distribution]:
    """The installed distribution and what it needs, by name. Markers are not evaluated: what is
    installed is taken, what is not was not needed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    pending = [name]
    while pending:
        wanted = pending.pop().lower()
        try:
            distribution = importlib.metadata.distribution(wanted)
        except importlib.metadata.PackageNotFoundError:
            continue
        if wanted not in found:
            found[wanted] = distribution
            for requirement in distribution.requires or ():
                match = PIN.match(requirement)
                if match and "extra ==" not in requirement:
                    pending.append(match["name"])
    return [found[key] for key in sorted(found)]


# --- venv ---------------------------------------------------------------------------------------


def _venv_identity(
    found: layout.Interpreter, requirements: Mapping[str, bytes], fallback: str
) -> str:
    digest = hashlib.sha256(_FORMAT + _about(found) + fallback.encode() + b"\n")
    for path, content in requirements.items():
        digest.update(f"{hashlib.sha256(content).hexdigest()}  {path}\n".encode())
    return f"venv-{digest.hexdigest()[:24]}"


def _failure_log(place: Path) -> Path:
    return place.with_name(f"{place.name}.failed.log")


def _venv(
    place: Path,
    found: layout.Interpreter,
    requirements: Mapping[str, bytes],
    fallback: str,
    run: Runner,
) -> Environment | BuildFailed:
    def build(folder: Path) -> Step:
        try:
            files = {path: requirement_lines(path, requirements) for path in requirements}
        except RefusedLine as refused:
            return Step(status=1, log=cleared(f"{refused}\n".encode()))
        status, log = run([found.executable, "-m", "venv", folder / "venv"])
        if status:
            return Step(status=status, log=log)
        arguments: list[str | Path] = []
        for path, (kept, left_out) in files.items():
            target = folder / "requirements" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
            # A constraints file is there for the others to name; installing it would be wrong.
            if not target.name.startswith("constraints"):
                arguments += ["-r", target]
            for line in left_out:
                log += f"{path}: left out, the project is not installed: {line}\n".encode()
        pip: list[str | Path] = [folder / "venv" / "bin" / "python", "-I", "-m", "pip"]
        pip += ["--no-input", "--disable-pip-version-check", "install", "--only-binary", ":all:"]
        status, more = run([*pip, *arguments], cwd=folder / "requirements")
        log += more
        if status:
            return Step(status=status, log=log)
        # By what lies there: the new interpreter would run the packages' own start-up code.
        site_packages = _site_packages(folder / "venv")
        packages = sorted(
            f"{distribution.metadata['Name']}=={distribution.version}"
            for distribution in importlib.metadata.distributions(path=[str(site_packages)])
        )
        if not any(
            (site_packages / name).is_file() for name in ("pytest/__init__.py", "pytest.py")
        ):
            log += b"No module named 'pytest': the requirement files do not bring it\n"
            return Step(status=1, log=log)
        _move_scripts(folder, place)
        return Step(status=0, log=log, packages=packages)

    return _environment(place, found, build_once(place, build, fallback=fallback))


def _move_scripts(folder: Path, place: Path) -> None:
    """Console scripts name their interpreter by its full path: let them name the final one."""
    old, new = os.fsencode(folder), os.fsencode(place)
    for script in (folder / "venv" / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content = script.read_bytes()
            if old in content and b"\0" not in content:
                script.write_bytes(content.replace(old, new))


# --- both ---


def _about(found: layout.Interpreter) -> bytes:
    return f"{found.version} {sys.platform} {os.uname().machine}\n".encode()


def _site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python3*")) / "site-packages"


def _environment(
    place: Path, found: layout.Interpreter, built: Built | Step
) -> Environment | BuildFailed:
    if isinstance(built, Step):
        kind = place.name.partition("-")[0]
        reason = f"{kind} environment {place.name}: a build step ended with status {built.status}"
        return BuildFailed(reason=reason, log=built.log)
    return Environment(
        identity=place.name,
        folder=place,
        program=place / "venv" / "bin" / "python",
        version=found.version,
        read_only=(place / "venv", *layout.interpreter_paths(found)),
        hidden=found.site_packages,
        packages=built.packages,
        fallback=built.fallback,
        log=built.log,
    )
