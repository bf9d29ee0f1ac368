"""Test environments: an interpreter with pytest and the dependencies, never the project itself.

Each is a virtual environment in ``<root>/<identity>/``, built once, found again by its identity:

``own``   for a repository that names no requirement files: the interpreter that we run in, and a
          copy of our own pytest with what it needs. Made without a network.
``venv``  ``pip install -r`` of the repository's requirement files, wheels only.

It is built under a temporary name and then renamed, so a folder that is there is complete; and it
holds a manifest of digests, with which every process compares it before the first use.

Building needs a network and thus runs outside the sandbox. So nothing that a repository names is
run there: pip takes wheels only, which are unpacked and not run; requirement files may name
packages and nothing that is built or fetched in another way (``_requirement_lines``); and the
interpreter of a built environment, which would run what its packages put into ``*.pth``, is never
started.
"""

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from actors.sandbox import SandboxError, layout
from actors.test_runs.overlays import unsafe_reason
from actors.untrusted_trees import remove_tree
from ledger.errors import Integrity, Unfinished
from schemas.credentials import without_credentials

_FORMAT = b"environment 2\n"
"""Part of every identity; raise it when the way of building changes what is built."""
_BUILD_SECONDS = 1800
_LOG_TAIL = 4000
_MANIFEST = "manifest"

# What pip may see of the host: where packages come from and how to get there. No credentials but
# those that its own configuration holds.
_PIP_VARIABLES = re.compile(
    r"PATH|HOME|LANG|TMPDIR|PIP_.*|(?i:https?|no|all)_(?i:proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
_PROJECT_ITSELF = re.compile(r"\s*(?:(?:-e|--editable)[ \t=]*)?\.(?:\[[^\]]*\])?/?\s*(?:#.*)?")
_PLAIN_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[^\]]*\])?\s*"  # name and extras
    r"(?:\(?\s*(?:===?|[<>!~]=?)[^;@/\\:]*)?(?:;[^@]*)?"  # versions and marker, no URL
)
_OPTIONS = {
    "-r", "--requirement", "-c", "--constraint", "-i", "--index-url", "--extra-index-url",
    "--no-index", "-f", "--find-links", "--pre", "--prefer-binary", "--require-hashes",
    "--only-binary",
}  # fmt: skip
_INCLUDES = {"-r", "--requirement", "-c", "--constraint"}
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
    cancelled: threading.Event | None = None,
) -> Environment | BuildFailed:
    """The environment for a base tree with these requirement files, built if it is not there yet.

    ``requirements`` maps the path of each file to its bytes, in the order in which pip gets them;
    files that they include must be among them. Empty: the ``own`` environment. ``python`` is the
    declared version (``3.11``). ``fallbacks`` are tried in order where the base's own pins do not
    build: ``head`` (the head's requirement files), ``without NAME`` (that pin lifted).

    ``cancelled`` is set from another thread to end the build at once. Raises Unfinished then, and
    Integrity where an environment is there already and not as it was built.
    """
    run = _Runner(cancelled or threading.Event())
    if not requirements:
        return _own_environment(root, python, run)
    found = _find_python(python)
    if found is None:
        return BuildFailed(reason=missing_python(python, own=False), log=b"")
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
        built = _venv(place, found, files, fallback, run)
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


def missing_python(python: str, *, own: bool) -> str:
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
    minors = [f"3.{minor}" for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1)]
    present = ", ".join(f'python = "{minor}"' for minor in minors if _find_python(minor))
    return (
        f"no Python {python} on this host (platform.python). Install it, so that `python{python}` "
        f"starts it, or declare one that is there: {present}"
    )


OLDEST_MINOR, NEWEST_MINOR = 6, 20
"""Minor versions of Python 3 that are looked for where the declared one is not there."""


# --- own ----------------------------------------------------------------------------------------


def _own_environment(root: Path, python: str, run: "_Runner") -> Environment | BuildFailed:
    found = layout.launcher_interpreter()
    if reason := missing_python(python, own=True):
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
    place: Path,
    found: layout.Interpreter,
    requirements: Mapping[str, bytes],
    fallback: str,
    run: "_Runner",
) -> Environment | BuildFailed:
    def build(folder: Path) -> tuple[int, bytes]:
        try:
            files = {path: _requirement_lines(path, requirements) for path in requirements}
        except _Refused as refused:
            return 1, _cleared(f"{refused}\n".encode())
        status, log = run([found.executable, "-m", "venv", folder / "venv"])
        if status:
            return status, log
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
            return status, log
        # By what lies there: the new interpreter would run the packages' own start-up code.
        site_packages = _site_packages(folder / "venv")
        packages = sorted(
            f"{distribution.metadata['Name']}=={distribution.version}"
            for distribution in importlib.metadata.distributions(path=[str(site_packages)])
        )
        (folder / "packages").write_text("".join(f"{one}\n" for one in packages), encoding="utf-8")
        if not any(
            (site_packages / name).is_file() for name in ("pytest/__init__.py", "pytest.py")
        ):
            return 1, log + b"No module named 'pytest': the requirement files do not bring it\n"
        _move_scripts(folder, place)
        return 0, log

    return _build(place, found, build, kind="venv", packages=None, fallback=fallback)


class _Refused(Exception):
    """A line of a requirement file that is not given to pip."""


def _requirement_lines(path: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """(what pip may read of a requirement file, lines that name the project itself).

    A package with versions is unpacked and no more. An archive, a folder, the address of a
    repository, or an option that allows one would be built, which is to run its code; an include of
    a file that nobody declared could hold any of these; a variable could carry a secret into an
    address. What is given to pip is written anew, without comments: one of them could name another
    encoding. Raises :class:`_Refused`.
    """
    kept: list[str] = []
    left_out: list[str] = []
    for line in _logical_lines(path, files[path]):

        def refuse(why: str, line: str = line) -> NoReturn:
            raise _Refused(f"{path}: {line!r}: {why}")

        if _PROJECT_ITSELF.fullmatch(line):
            left_out.append(line)
            continue
        if "${" in line:
            refuse("variables are not read")
        if line.startswith("-"):
            if set(line) & set("\\\"'"):
                refuse("an option is written without quotes")
            words = [part for word in line.split() for part in word.split("=", 1)]
            for option, value in zip(words, [*words[1:], ""], strict=True):
                if not option.startswith("-"):
                    continue
                if option not in _OPTIONS:
                    refuse(f"{option} is not an option that a requirement file may have here")
                included = os.path.normpath(os.path.join(os.path.dirname(path), value))
                if option in _INCLUDES and included not in files:
                    refuse(f"layout.requirements does not name {included}")
                if option == "--only-binary" and ":none:" in value:
                    refuse("only wheels are installed")
        else:
            requirement, *options = line.split(" --")
            hashes_only = all(option.startswith("hash=") for option in options)
            if not _PLAIN_REQUIREMENT.fullmatch(requirement.strip()) or not hashes_only:
                refuse("only packages that an index has as a wheel can be named here")
        kept.append(line)
    return kept, left_out


def _logical_lines(path: str, content: bytes) -> Iterator[str]:
    """Lines with their continuations, as pip joins them, without comments and empty ones."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Refused(f"{path}: not UTF-8") from None
    joined = ""
    for line in [*text.splitlines(), ""]:
        comment = line.lstrip().startswith("#")
        joined += "" if comment else line
        if joined.endswith("\\") and not comment:
            joined = joined[:-1]
            continue
        logical = re.sub(r"(^|\s+)#.*$", "", joined).strip()
        joined = ""
        if logical:
            yield logical


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


@dataclass(frozen=True)
class _Runner:
    """Runs build steps; ends them when it is cancelled."""

    cancelled: threading.Event

    def __call__(self, command: Sequence[str | Path], cwd: Path | None = None) -> tuple[int, bytes]:
        """Exit status and output; a time-out or a missing program is a status too.

        Raises Unfinished when cancelled. Nothing of the step is left alive in any case.
        """
        environment = {k: v for k, v in os.environ.items() if _PIP_VARIABLES.fullmatch(k)}
        environment |= {"LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
        words = [str(word) for word in command]
        echo = ("$ " + " ".join(words) + "\n").encode()
        with tempfile.TemporaryFile() as output:
            try:
                # A session of its own: Ctrl-C reaches us, and we end it.
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env=environment, cwd=cwd, umask=0o022, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                return 127, echo + str(error).encode() + b"\n"
            deadline = time.monotonic() + _BUILD_SECONDS
            late = False
            try:
                while process.poll() is None and not late:
                    if self.cancelled.wait(0.05):
                        raise Unfinished("the build of a test environment was interrupted")
                    late = time.monotonic() > deadline
            finally:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            said = echo + _cleared(output.read())
        if late:
            return 124, said + b"\n[no end after 30 minutes: killed]\n"
        return process.returncode, said


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
        (folder / _MANIFEST).write_bytes(_manifest(folder))
        try:
            os.rename(folder, place)
        except OSError as error:
            # Another process was faster. What it built has the same identity.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            _FOUND_GOOD.add(place)
        return _load(place, found)
    finally:
        if folder.exists():
            remove_tree(folder)


_FOUND_GOOD: set[Path] = set()
"""Environments that this process has built or compared with their manifest."""


def _manifest(folder: Path) -> bytes:
    """A line of every file and link beneath ``folder``: digest or target, then the path."""
    lines = []
    root = os.fsencode(folder)
    for above, folders, files in os.walk(root):
        for name in (*files, *folders):
            full = os.path.join(above, name)
            path = os.path.relpath(full, root)
            if os.path.islink(full):
                lines.append(b"-> %s  %s\n" % (os.readlink(full), path))
            elif name in files and path != _MANIFEST.encode():
                with open(full, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                lines.append(digest.encode() + b"  " + path + b"\n")
    return b"".join(sorted(lines))


def _compare(place: Path) -> None:
    """Raises Integrity where an environment is not as it was built."""
    try:
        wanted = set((place / _MANIFEST).read_bytes().splitlines())
        differing = sorted(set(_manifest(place).splitlines()) ^ wanted)
    except OSError as error:
        raise Integrity(
            f"{place} is not a whole environment ({error.filename}: {error.strerror}); remove it: "
            "it is built again"
        ) from None
    if differing:
        first = differing[0].partition(b"  ")[2].decode("utf-8", "backslashreplace")
        raise Integrity(
            f"{place} is not as it was built: {len(differing)} entries differ, first {first}. "
            "Keep a copy if you want to know why, then remove it: it is built again"
        )


def _load(place: Path, found: layout.Interpreter) -> Environment:
    if place not in _FOUND_GOOD:
        _compare(place)
        _FOUND_GOOD.add(place)
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
