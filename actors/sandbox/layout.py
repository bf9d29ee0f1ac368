"""The allow-list root: what a run can see, and at which path.

Where there is a mount namespace the root is built from nothing: the workspace is ``/workspace``,
the private home ``/home``, the private temporary directory ``/tmp``, the rest lies at its own path.
Landlock cannot move a path, so there everything stays where it is and the same list becomes rules.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from actors.sandbox.contract import SandboxError

WORKSPACE, HOME, TEMPORARY = "/workspace", "/home", "/tmp"
INSIDE_USER = 1000
"""The user id inside a user namespace; it has a name there, whatever the host calls it."""

_SYSTEM = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec",
    "/usr/share/zoneinfo", "/nix/store",
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
)  # fmt: skip
"""Programs and libraries of the system: not /usr (it has /usr/local and /usr/src), not /etc."""

_SYSTEM_WHERE_PATHS_CANNOT_MOVE = (
    "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu/online",
)  # fmt: skip

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Mount(NamedTuple):
    """One step of building the root. ``source`` of a link is its target, of ``hide`` nothing."""

    kind: Literal["read", "write", "link", "hide"]
    source: str
    destination: str


class Interpreter(NamedTuple):
    """What a Python interpreter needs to start, and its site-packages, which it does not need."""

    version: str
    executable: Path
    prefix: Path
    site_packages: tuple[Path, ...]


_DESCRIBE = """
import json, os, platform, site, sys
print(json.dumps([
    platform.python_version(),
    os.path.realpath(sys.executable),
    sys.base_prefix,
    sorted(set(site.getsitepackages([sys.base_prefix, sys.base_exec_prefix]))),
]))
"""


@functools.cache
def interpreter(python: Path) -> Interpreter:
    """Ask ``python`` (a path) what it is; the base of a virtual environment, not the environment.

    Raises SandboxError where it cannot be run.
    """
    command = [str(python), "-I", "-c", _DESCRIBE]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        version, executable, prefix, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(
            f"{python} is not a Python interpreter that runs here: {error}"
        ) from None
    return Interpreter(version, Path(executable), Path(prefix), tuple(map(Path, packages)))


def launcher_interpreter() -> Interpreter:
    """The interpreter that starts the launcher: the one we run in."""
    return interpreter(Path(sys.executable))


def interpreter_paths(found: Interpreter) -> tuple[Path, ...]:
    """What to make readable for it. A prefix of /usr is covered by the system's own list."""
    prefix = () if found.prefix == Path("/usr") else (found.prefix,)
    return (*prefix, found.executable)


def system_paths() -> list[str]:
    return [path for path in _SYSTEM if os.path.lexists(path)]


def mounts(
    *,
    workspace: Path,
    scratch: Path,
    read_only: Iterable[Path],
    writable: Iterable[Path],
    hidden: Iterable[Path],
) -> list[Mount]:
    """The root where paths can move. ``scratch`` has ``home``, ``tmp`` and ``etc``."""
    steps: dict[str, Mount] = {}
    for path in (*system_paths(), *(os.path.abspath(path) for path in read_only)):
        if os.path.islink(path) and os.path.dirname(path) == "/":
            steps[path] = Mount("link", os.readlink(path), path)
            continue
        # The real path too: a link inside another tree (a virtual environment's interpreter)
        # leads there.
        for place in (path, os.path.realpath(path)):
            steps[place] = Mount("read", os.path.realpath(path), place)
    for name in sorted(os.listdir(scratch / "etc")):
        steps[f"/etc/{name}"] = Mount("read", str(scratch / "etc" / name), f"/etc/{name}")
    for folder in filter(os.path.isdir, hidden):
        for hide in (os.path.abspath(folder), os.path.realpath(folder)):
            steps[hide] = Mount("hide", "", hide)
    for folder in writable:
        steps[os.path.abspath(folder)] = Mount("write", str(folder), os.path.abspath(folder))
    for inside, outside in (
        (WORKSPACE, workspace),
        (HOME, scratch / "home"),
        (TEMPORARY, scratch / "tmp"),
    ):
        steps[inside] = Mount("write", str(outside), inside)

    result: list[Mount] = []
    for destination in sorted(steps, key=lambda path: path.split("/")):
        step = steps[destination]
        above = next((m for m in reversed(result) if _within(destination, m.destination)), None)
        if step.kind == "read" and above and above.kind == "read":
            continue  # already visible
        if _behind_a_link(destination, result):
            continue
        result.append(step)
    return result


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _behind_a_link(path: str, steps: Sequence[Mount]) -> bool:
    return any(step.kind == "link" and _within(path, step.destination) for step in steps)


def shown_by_a_mount(folder: str, steps: Sequence[Mount]) -> bool:
    """Whether ``folder`` comes with a read-only tree, so that nobody has to make it."""
    return any(step.kind == "read" and _within(folder, step.destination) for step in steps)


def rules(
    *,
    workspace: Path,
    scratch: Path,
    read_only: Iterable[Path],
    writable: Iterable[Path],
    hidden: Iterable[Path],
) -> tuple[list[str], list[str], list[str]]:
    """Readable, listable and writable paths where paths cannot move (Landlock alone).

    A folder with something hidden in it can be listed, and so can what is hidden: names are seen,
    contents are not. Python does not start from folders that it cannot list.
    """
    wanted = [*system_paths(), *(str(path) for path in read_only)]
    wanted += [path for path in _SYSTEM_WHERE_PATHS_CANNOT_MOVE if os.path.exists(path)]
    closed = {os.path.realpath(path) for path in hidden}
    readable: set[str] = set()
    listable: set[str] = set()
    pending = [os.path.realpath(path) for path in wanted]
    while pending:
        path = pending.pop()
        if path in closed or not os.path.exists(path):
            continue
        if any(_within(folder, path) for folder in closed):
            # Landlock cannot take away what a folder's rule has given: name the others one by one.
            listable.add(path)
            pending += [os.path.realpath(entry.path) for entry in os.scandir(path)]
        else:
            readable.add(path)
    private = [workspace, scratch / "home", scratch / "tmp", *writable]
    devices = filter(os.path.exists, _DEVICES)
    return sorted(readable), sorted(listable), [*map(str, private), *devices]


def inside_rules(steps: Sequence[Mount]) -> tuple[list[str], list[str]]:
    """Readable and writable paths of a root that :func:`mounts` describes, as seen from inside."""
    readable = [step.destination for step in steps if step.kind == "read"]
    writable = [step.destination for step in steps if step.kind == "write"]
    return [*readable, "/proc"], [*writable, "/dev"]


def write_identity_files(directory: Path, user: int) -> None:
    """``passwd``, ``group``, ``hosts`` and ``nsswitch.conf``: nothing of the host's accounts."""
    content = {
        "passwd": f"root:x:0:0:root:/:/bin/sh\nsandbox:x:{user}:{user}:sandbox:{HOME}:/bin/sh\n",
        "group": f"root:x:0:\nsandbox:x:{user}:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for name, text in content.items():
        (directory / name).write_text(text, encoding="ascii")


def reachable_by_others(path: Path) -> bool:
    """Whether a user that owns nothing here could walk to ``path`` and read it."""
    real = Path(os.path.realpath(path))
    if not os.stat(real).st_mode & 0o004:
        return False
    return all(os.stat(parent).st_mode & 0o001 for parent in real.parents)
