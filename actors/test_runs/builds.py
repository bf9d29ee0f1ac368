"""Folders that are built once, found again by name, and compared with a manifest before use.

A folder is built under a temporary name and then renamed, so one that is there is complete; it
holds a manifest of digests, with which every process compares it before the first use.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors.untrusted_trees import remove_tree
from ledger.errors import Integrity, Unfinished
from schemas.credentials import without_credentials

_BUILD_SECONDS = 1800
_MANIFEST = "manifest"
_ABOUT = "environment.json"
_LOG = "build.log"


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a build has come to: an exit status, what was printed, what is in the folder."""

    status: int
    log: bytes
    packages: Sequence[str] = ()
    """``name==version`` of everything that was installed."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A folder as it was built."""

    packages: tuple[str, ...]
    fallback: str
    log: bytes


@dataclass(frozen=True)
class Runner:
    """Runs build steps; ends them when it is cancelled."""

    cancelled: threading.Event
    passed_on: re.Pattern[str]
    """Matches the names of the host's variables that a step may see."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, command: Sequence[str | Path], cwd: Path | None = None) -> tuple[int, bytes]:
        """Exit status and output; a time-out or a missing program is a status too.

        Raises Unfinished when cancelled. Nothing of the step is left alive in any case.
        """
        environment = {k: v for k, v in os.environ.items() if self.passed_on.fullmatch(k)}
        environment |= self.variables
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
            said = echo + cleared(output.read())
        if late:
            return 124, said + b"\n[no end after 30 minutes: killed]\n"
        return process.returncode, said


def cleared(output: bytes) -> bytes:
    """The log is recorded, and a package manager's configuration may hold a password."""
    text = without_credentials(output.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")


def build_once(place: Path, build: Callable[[Path], Step], *, fallback: str) -> Built | Step:
    """What ``place`` holds, built by ``build`` where it is not there yet; the step that failed
    where it cannot be built. Raises Integrity where it is there and not as it was built."""
    if place.exists():
        return load(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{place.name[:12]}-", dir=place.parent))
    os.chmod(folder, 0o755)
    try:
        step = build(folder)
        if step.status:
            return step
        about = {"fallback": fallback, "packages": sorted(step.packages)}
        (folder / _LOG).write_bytes(step.log)
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        (folder / _MANIFEST).write_bytes(_manifest(folder))
        try:
            os.rename(folder, place)
        except OSError as error:
            # Another process was faster. What it built has the same identity.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            _FOUND_GOOD.add(place)
        return load(place)
    finally:
        if folder.exists():
            remove_tree(folder)


def load(place: Path) -> Built:
    """Raises Integrity where ``place`` is not as it was built."""
    if place not in _FOUND_GOOD:
        _compare(place)
        _FOUND_GOOD.add(place)
    about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
    return Built(
        packages=tuple(about["packages"]),
        fallback=about["fallback"],
        log=(place / _LOG).read_bytes(),
    )


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
