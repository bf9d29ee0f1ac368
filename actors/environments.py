"""Test environments: an interpreter with pytest and the dependencies, never the project itself.

Each is a virtual environment in ``<root>/<identity>/``, built once, found again by its identity:

``own``   for a repository that names no requirement files: the interpreter that we run in, and a
          copy of our own pytest with what it needs. Made without a network.
``venv``  ``pip install -r`` of the repository's requirement files.

It is built under a temporary name and then renamed, so a folder that is there is complete.
"""

import errno
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.sandbox import SandboxError, layout
from actors.sandbox.run import remove_tree
from actors.workspaces import unsafe_reason
from schemas.credentials import without_credentials

_FORMAT = b"environment 1\n"
"""Part of every identity; raise it when the way of building changes what is built."""
_BUILD_SECONDS = 1800
_LOG_TAIL = 4000

# What pip may see of the host: where packages come from and how to get there. No credentials but
# those that its own configuration holds.
_PIP_VARIABLES = re.compile(
    r"PATH|HOME|LANG|TMPDIR|PIP_.*|(?i:https?|no|all)_(?i:proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
_PROJECT_ITSELF = re.compile(r"\s*(?:(?:-e|--editable)[ \t=]*)?\.(?:\[[^\]]*\])?/?\s*(?:#.*)?")
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\s*\[[^\]]*\])?(?P<rest>.*)")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A built environment and what a sandbox must show of it."""

    kind: Literal["own", "venv"]
    identity: str
    """Digest over Python, platform, requirement files and fall-back (own: over the files)."""
    python: Path
    python_version: str
    read_only: tuple[Path, ...]
    hidden: tuple[Path, ...]
    """Site-packages of the base interpreter: not part of the environment."""
    packages: tuple[str, ...]
    """``name==version`` of everything in it, sorted."""
    fallback: str
    """The declared fall-back that was needed; empty: none."""
    log: bytes


@dataclass(frozen=True, kw_only=True)
class BuildFailed:
    """No declared way leads to an environment: the executed criterion ``environment_failed``."""

    reason: str
    log: bytes
    """What every attempt printed."""

    @property
    def tail(self) -> str:
        return self.log[-_LOG_TAIL:].decode("utf-8", "replace")


def prepare(
    root: Path,
    requirements: Mapping[str, bytes],
    *,
    python: str,
    fallbacks: Sequence[str] = (),
    head_requirements: Mapping[str, bytes] | None = None,
) -> Environment | BuildFailed:
    """The environment for a base tree with these requirement files, built if it is not there yet.

    ``requirements`` maps the path of each file to its bytes, in the order in which pip gets them;
    files that they include must be among them. Empty: the ``own`` environment. ``python`` is the
    declared version (``3.11``). ``fallbacks`` are tried in order where the base's own pins do not
    build: ``head`` (the head's requirement files), ``without NAME`` (that pin lifted).
    """
    if not requirements:
        return _own_environment(root, python)
    found = _find_python(python)
    if found is None:
        reason = f"no Python {python} on this host: install it, so that `python{python}` starts it"
        return BuildFailed(reason=reason, log=b"")
    attempts: list[tuple[str, Mapping[str, bytes], Path]] = []
    for fallback in ("", *fallbacks):
        files = requirements
        if fallback == "head":
            files = head_requirements or requirements
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
    for _, _, place in attempts:
        if place.exists():
            return _load(place, found)
        if not _failure_log(place).exists():
            break
    log, reason = b"", ""
    for fallback, files, place in attempts:
        built = _venv(place, found, files, fallback)
        if isinstance(built, Environment):
            return built
        log += b"=== " + (fallback or "as pinned").encode() + b" ===\n" + built.log
        reason = built.reason
        _failure_log(place).write_bytes(built.log)
    return BuildFailed(reason=reason, log=log)


def lift_pin(content: bytes, name: str) -> bytes:
    """A requirement file with the version of ``name`` (any spelling) left open."""

    def canonical(text: str) -> str:
        return re.sub(r"[-_.]+", "-", text).lower()

    lines = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        match = _PIN.match(line)
        if match and canonical(match["name"]) == canonical(name):
            _, semicolon, marker = match["rest"].partition(";")
            line = f"{match['name']}{match['extras'] or ''}{semicolon}{marker}"
        lines.append(line + "\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def _find_python(version: str) -> layout.Interpreter | None:
    for candidate in (sys.executable, shutil.which(f"python{version}"), shutil.which("python3")):
        try:
            found = layout.interpreter(Path(candidate)) if candidate else None
        except SandboxError:  # a version manager's shim of a version that it does not have
            continue
        if found and found.version.split(".")[:2] == version.split("."):
            return found
    return None


# --- own ----------------------------------------------------------------------------------------


def _own_environment(root: Path, python: str) -> Environment | BuildFailed:
    found = layout.launcher_interpreter()
    if found.version.split(".")[:2] != python.split("."):
        reason = (
            f"the study declares Python {python} and the product runs in {found.version}: run it "
            f"with Python {python}, or name requirement files in the repository's layout"
        )
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
    if place.exists():
        return _load(place, found)

    def build(folder: Path) -> tuple[int, bytes]:
        status, log = _run([found.executable, "-m", "venv", "--without-pip", folder / "venv"])
        site_packages = _site_packages(folder / "venv")
        for name, path in sorted(files.items()):
            target = site_packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        # The environment is read-only in a run: without byte code each run would compile pytest.
        compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        compiled, more = _run([found.executable, *compile_all, site_packages])
        note = f"copied {len(files)} files of {', '.join(packages)}\n".encode()
        return status or compiled, log + note + more

    return _build(place, found, build, kind="own", packages=packages, fallback="")


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
                match = _PIN.match(requirement)
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
    place: Path, found: layout.Interpreter, requirements: Mapping[str, bytes], fallback: str
) -> Environment | BuildFailed:
    def build(folder: Path) -> tuple[int, bytes]:
        status, log = _run([found.executable, "-m", "venv", folder / "venv"])
        if status:
            return status, log
        arguments: list[str | Path] = []
        for path, content in requirements.items():
            target = folder / "requirements" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            kept, left_out = _without_project(content)
            target.write_bytes(kept)
            # A constraints file is there for the others to name; installing it would be wrong.
            if not target.name.startswith("constraints"):
                arguments += ["-r", target]
            for line in left_out:
                log += f"{path}: left out, the project is not installed: {line}\n".encode()
        inside: list[str | Path] = [folder / "venv" / "bin" / "python", "-I"]
        pip = [*inside, "-m", "pip", "--no-input", "--disable-pip-version-check"]
        for step in ([*pip, "install", *arguments], [*inside, "-c", "import pytest"]):
            status, more = _run(step, cwd=folder / "requirements")
            log += more
            if status:
                return status, log
        _, listed = _run([*pip, "list", "--format=freeze"])
        (folder / "packages").write_bytes(listed)
        _move_scripts(folder, place)
        return 0, log

    return _build(place, found, build, kind="venv", packages=None, fallback=fallback)


def _without_project(content: bytes) -> tuple[bytes, list[str]]:
    kept: list[str] = []
    left_out: list[str] = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        (left_out if _PROJECT_ITSELF.fullmatch(line) else kept).append(line)
    text = "".join(f"{line}\n" for line in kept)
    return text.encode("utf-8", "surrogateescape"), left_out


def _move_scripts(folder: Path, place: Path) -> None:
    """Console scripts name their interpreter by its full path: let them name the final one."""
    old, new = os.fsencode(folder), os.fsencode(place)
    for script in (folder / "venv" / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content = script.read_bytes()
            if old in content and b"\0" not in content:
                script.write_bytes(content.replace(old, new))


# --- both ---------------------------------------------------------------------------------------


def _about(found: layout.Interpreter) -> bytes:
    return f"{found.version} {sys.platform} {os.uname().machine}\n".encode()


def _site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python3*")) / "site-packages"


def _run(command: Sequence[str | Path], cwd: Path | None = None) -> tuple[int, bytes]:
    """Exit status and output; a time-out or a missing program is a status too."""
    environment = {k: v for k, v in os.environ.items() if _PIP_VARIABLES.fullmatch(k)}
    environment |= {"LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
    words = [str(word) for word in command]
    echo = ("$ " + " ".join(words) + "\n").encode()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, cwd=cwd, timeout=_BUILD_SECONDS, umask=0o022, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return 124, echo + _cleared(error.output or b"") + b"\n[no end after 30 minutes: killed]\n"
    except OSError as error:
        return 127, echo + str(error).encode() + b"\n"
    return done.returncode, echo + _cleared(done.stdout)


def _cleared(output: bytes) -> bytes:
    """The log is recorded, and pip's configuration may hold an index with a password."""
    text = without_credentials(output.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")


def _build(
    place: Path,
    found: layout.Interpreter,
    build: Callable[[Path], tuple[int, bytes]],
    *,
    kind: Literal["own", "venv"],
    packages: Sequence[str] | None,
    fallback: str,
) -> Environment | BuildFailed:
    """Run ``build`` in a folder with a temporary name; put it in place when it succeeded."""
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{place.name[:12]}-", dir=place.parent))
    os.chmod(folder, 0o755)
    try:
        status, log = build(folder)
        if status:
            reason = f"{kind} environment {place.name}: a build step ended with status {status}"
            return BuildFailed(reason=reason, log=log)
        if packages is None:
            packages = (folder / "packages").read_text(encoding="utf-8").split("\n")
        about = {
            "kind": kind,
            "fallback": fallback,
            "packages": sorted(line for line in packages if "==" in line),
        }
        (folder / "build.log").write_bytes(log)
        (folder / "environment.json").write_text(json.dumps(about, indent=1) + "\n")
        try:
            os.rename(folder, place)
        except OSError as error:
            # Another process was faster. What it built has the same identity.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        return _load(place, found)
    finally:
        if folder.exists():
            remove_tree(folder)


def _load(place: Path, found: layout.Interpreter) -> Environment:
    about = json.loads((place / "environment.json").read_text(encoding="utf-8"))
    return Environment(
        kind=about["kind"],
        identity=place.name,
        python=place / "venv" / "bin" / "python",
        python_version=found.version,
        read_only=(place / "venv", *layout.interpreter_paths(found)),
        hidden=found.site_packages,
        packages=tuple(about["packages"]),
        fallback=about["fallback"],
        log=(place / "build.log").read_bytes(),
    )
