"""Which rung of the ladder works on this host, found out by trying to break out of it.

A rung is offered when a run in it starts and an attack on each of network, host loopback, Unix
sockets, outside files and survivors fails. Memory, process count and signals are reported as found.
"""

import contextlib
import ctypes
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from actors.sandbox import launcher, layout
from actors.sandbox.contract import (
    Finished,
    Isolation,
    Kind,
    Limits,
    Rung,
    SandboxError,
    SandboxReport,
    State,
)
from actors.sandbox.run import SHARED_MEMORY_BYTES, Sandbox
from actors.untrusted_trees import remove_tree

LADDER: tuple[Kind, ...] = ("bubblewrap", "namespaces", "landlock")
_REQUIRED = (
    "network",
    "host loopback",
    "unix sockets",
    "files outside",
    "kernel objects",
    "survivors",
)

# Runs inside. Every attempt says "stopped: <why>" or "got through"; the request names the targets.
_ATTACK = r"""
import json, os, resource, socket, subprocess, sys, time
targets = json.loads(os.read(4, 60000))

def attempt(action):
    try:
        action()
    except (OSError, MemoryError) as error:
        return "stopped: " + (type(error).__name__ + " " + str(error)).strip()
    return "got through"

def connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)

def read_and_write_outside():
    for path in (targets["secret"], targets["folder"]):
        try:
            os.listdir(path) if os.path.isdir(path) else open(path).read()
        except OSError:
            continue
        return
    with open(os.path.join(targets["folder"], "written"), "w") as file:
        file.write("x")

def many_processes():
    children = []
    try:
        for _ in range(targets["processes"] + 50):
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)

def too_large_a_file():
    with open("large", "wb") as file:
        file.seek(targets["file"])
        file.write(b"x")

def much_shared_memory():
    try:
        with open("/dev/shm/probe", "wb") as file:
            for _ in range((targets["shared memory"] >> 20) + 1):
                file.write(bytes(1 << 20))
                file.flush()
    finally:
        if os.path.exists("/dev/shm/probe"):
            os.unlink("/dev/shm/probe")

def families():
    through = []
    for name, family in targets["families"].items():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            through.append(name)
            break
    return through

def kernel_objects():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    through = []
    def note(name, result):
        if result >= 0:
            through.append(name)
    user_keyring = ctypes.c_long(-4)
    calls = targets["calls"]
    if calls:
        note("user keyring", libc.syscall(
            ctypes.c_long(calls["add_key"]), b"user", b"ledger-probe", b"x", ctypes.c_size_t(1),
            user_keyring))
        note("session keyring", libc.syscall(
            ctypes.c_long(calls["keyctl"]), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(1)))
        note("request_key", libc.syscall(
            ctypes.c_long(calls["request_key"]), b"user", b"ledger-probe", None, ctypes.c_long(0)))
    else:
        through.append("keyrings (this machine has no filter of ours)")
    note("System V shared memory", libc.shmget(targets["ipc key"], 0, 0))
    note("System V semaphores", libc.semget(targets["ipc key"], 0, 0))
    note("System V messages", libc.msgget(targets["ipc key"], 0))
    try:
        note("POSIX messages", libc.mq_open(targets["queue"].encode(), os.O_RDONLY))
    except AttributeError:
        pass
    return through

report = {
    "kernel objects": kernel_objects(),
    "network": attempt(lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))),
    "host loopback": attempt(
        lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", targets["port"]))
    ),
    "unix path": attempt(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, targets["unix"])),
    "unix abstract": attempt(
        lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + targets["abstract"])
    ),
    "files outside": attempt(read_and_write_outside),
    "families": families(),
    "memory": attempt(lambda: bytearray(targets["memory"] * 2)),
    "large file": attempt(too_large_a_file),
    "shared memory": attempt(much_shared_memory),
    "processes": attempt(many_processes),
    "signals": attempt(lambda: os.kill(targets["pid"], 0)),
}
try:
    report["interfaces"] = [name for _, name in socket.if_nameindex()]
except OSError:
    report["interfaces"] = []
os.write(3, json.dumps(report).encode())
os.close(3)
# The daemon: a session of its own, SIGTERM ignored, standard output kept.
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    os._exit(0)
"""

# Runs inside, after it: small files, every second one removed while it is held open.
_FILL = r"""
import os, time
kept = []
for number in range(32):
    file = open(f"file-{number}", "wb")
    file.write(os.urandom(1 << 20))
    file.flush()
    if number % 2:
        os.unlink(file.name)
        kept.append(file)
time.sleep(20)
"""
_OTHER_FAMILIES = {
    "rds": 21, "can": 29, "tipc": 30, "bluetooth": 31, "alg": 38, "vsock": 40, "qipcrtr": 42,
    "smc": 43, "xdp": 44,
}  # fmt: skip
"""Address families that a network namespace does not hold, or that nobody needs (socket.h)."""


def probe(scratch: Path | None = None, kinds: Sequence[Kind] = LADDER) -> SandboxReport:
    """Try the ladder from the top; ``scratch`` is an existing folder where workspaces will lie (the
    system's temporary folder where it is not given). ``kinds`` are the rungs that may be used:
    tasks are graded in the kind that validated them.

    Where nothing holds, ``kind`` is ``none`` and ``remedy`` says what this system needs.
    """
    scratch = Path(tempfile.gettempdir()) if scratch is None else scratch
    rungs: list[Rung] = []
    chosen: Kind = "none"
    for kind in kinds:
        rungs.append(probe_rung(kind, scratch))
        if rungs[-1].offered:
            chosen = kind
            break
    else:
        rungs += [*_not_offered(), probe_rung("none", scratch)]
    remedy = "" if chosen in ("bubblewrap", "namespaces") else _remedy()
    return SandboxReport(kind=chosen, rungs=tuple(rungs), remedy=remedy)


def open_sandbox(kind: Kind, scratch: Path, *, unsafe: bool = False) -> Sandbox:
    """The sandbox of a rung that :func:`probe` found, for workspaces in ``scratch``.

    ``none`` contains nothing and is opened only with ``unsafe``; raises SandboxError without it.
    """
    if kind == "none" and not unsafe:
        raise SandboxError(
            "nothing on this host contains a test run; it can only be run uncontained on purpose "
            f"(--unsafe-no-sandbox). To have a sandbox: {_remedy()}"
        )
    return Sandbox(kind=kind, user=_unprivileged_user(kind, scratch))


def probe_rung(kind: Kind, scratch: Path) -> Rung:
    """Attack one rung. ``none`` is reported as found and never offered."""
    if kind == "bubblewrap" and shutil.which("bwrap") is None:
        return Rung(name=kind, offered=False, reason="the program bwrap is not installed")
    if kind != "none" and sys.platform != "linux":
        return Rung(name=kind, offered=False, reason=f"not for {sys.platform}")
    if kind == "landlock":
        if launcher.landlock_version() < 3:
            reason = "the kernel's Landlock is absent or older than ABI 3 (Linux 6.2)"
            return Rung(name=kind, offered=False, reason=reason)
        if platform.machine() not in launcher.MACHINES:
            reason = f"no socket filter for {platform.machine()}"
            return Rung(name=kind, offered=False, reason=reason)
    try:
        isolation = _attack(open_sandbox(kind, scratch, unsafe=True), scratch)
    except SandboxError as error:
        return Rung(name=kind, offered=False, reason=str(error))
    open_rows = [row.name for row in isolation if row.name in _REQUIRED and row.state != "enforced"]
    reason = f"not contained: {', '.join(open_rows)}" if open_rows else ""
    offered = not open_rows and kind != "none"
    return Rung(name=kind, offered=offered, reason=reason, isolation=isolation)


def _attack(sandbox: Sandbox, scratch: Path) -> tuple[Isolation, ...]:
    python = layout.launcher_interpreter()
    limits = Limits(
        wall_s=30, grace_s=0.5, memory_bytes=512 << 20, processes=40, cpu_s=20,
        file_bytes=256 << 20, disk_bytes=16 << 20,
    )  # fmt: skip
    place = Path(tempfile.mkdtemp(prefix="probe-", dir=scratch))
    try:
        (place / "workspace").mkdir()
        (place / "outside").mkdir(mode=0o777)
        (place / "outside" / "secret").write_text("secret", encoding="ascii")
        with _listeners() as (targets, control):
            targets |= {
                "secret": str(place / "outside" / "secret"),
                "folder": str(place / "outside"),
                "memory": limits.memory_bytes,
                "processes": limits.processes,
                "pid": os.getpid(),
                "file": limits.file_bytes,
                "shared memory": SHARED_MEMORY_BYTES,
                "families": _OTHER_FAMILIES,
                "calls": launcher.KEPT_BY_THE_KERNEL.get(platform.machine(), {}),
            }

            def run(source: str) -> Finished:
                return sandbox.run(
                    [str(python.executable), "-I", "-S", "-c", source],
                    workspace=place / "workspace",
                    read_only=layout.interpreter_paths(python),
                    environment={"PATH": os.defpath},
                    limits=limits,
                    hidden=python.site_packages,
                    request=json.dumps(targets).encode(),
                    result_bytes=100_000,
                )

            done = run(_ATTACK)
            filled = run(_FILL)
    finally:
        remove_tree(place)
    try:
        said = json.loads(done.results)
    except ValueError:
        tail = done.output.decode("utf-8", "replace")[-400:]
        raise SandboxError(
            f"the probe did not report (status {done.exit_status}): {tail}"
        ) from None
    return _matrix(said, done, filled, network_here=control)


def _matrix(
    said: dict[str, Any], done: Finished, filled: Finished, network_here: bool
) -> tuple[Isolation, ...]:
    def held(*names: str) -> State:
        stopped = all(said[name].startswith("stopped") for name in names)
        return "enforced" if stopped else "not enforced"

    network = held("network")
    how = f"UDP route to 192.0.2.1: {said['network']}; interfaces inside: {said['interfaces']}"
    if network == "enforced" and not network_here and set(said["interfaces"]) - {"lo"}:
        network, how = "unknown", "this host has no route either, and shows its interfaces inside"
    gone = done.output_closed and not done.timed_out
    memory = "address space of one process; the sum over processes is not limited"
    return (
        Isolation(name="network", state=network, how=how),
        Isolation(
            name="host loopback",
            state=held("host loopback"),
            how=f"connection to a port that listened on 127.0.0.1: {said['host loopback']}",
        ),
        Isolation(
            name="unix sockets",
            state=held("unix path", "unix abstract"),
            how=f"by path: {said['unix path']}; abstract: {said['unix abstract']}",
        ),
        Isolation(
            name="other sockets",
            state="not enforced" if said["families"] else "enforced",
            how=f"of {', '.join(_OTHER_FAMILIES)}: {', '.join(said['families']) or 'none'}",
        ),
        Isolation(
            name="files outside",
            state=held("files outside"),
            how=f"reading, listing, then writing beside the workspace: {said['files outside']}",
        ),
        Isolation(
            name="kernel objects",
            state="not enforced" if said["kernel objects"] else "enforced",
            how="keyrings, and System V and POSIX IPC of the host: "
            + (", ".join(said["kernel objects"]) or "none"),
        ),
        Isolation(name="memory", state=held("memory"), how=f"{memory}: {said['memory']}"),
        Isolation(
            name="disk",
            state=held("large file", "shared memory") if filled.disk_exceeded else "not enforced",
            how=f"a file beyond the limit: {said['large file']}; 65 MiB of shared memory: "
            f"{said['shared memory']}; 32 MiB of small files under a limit of 16: "
            f"{'ended' if filled.disk_exceeded else 'got through'} (watched, not reserved)",
        ),
        Isolation(
            name="processes",
            state=held("processes"),
            how=f"90 processes under a limit of 40: {said['processes']}",
        ),
        Isolation(
            name="survivors",
            state="enforced" if gone and done.survivors_killed else "not enforced",
            how="a daemon in its own session that ignores SIGTERM and keeps the output open: "
            f"{done.survivors_killed} killed, output {'closed' if gone else 'still open'}",
        ),
        Isolation(
            name="signals",
            state=held("signals"),
            how=f"signal 0 to a process outside: {said['signals']}",
        ),
    )


@contextlib.contextmanager
def _listeners() -> Iterator[tuple[dict[str, object], bool]]:
    """What a run must not reach: a TCP port, a Unix socket in a folder, an abstract one, objects of
    System V and POSIX IPC. And whether this host itself has a route to the test network."""
    # A Unix socket's path has 107 bytes at most: a study's folder may be deeper than that.
    folder = tempfile.mkdtemp(prefix="probe-")
    try:
        with contextlib.ExitStack() as stack:
            tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            path = os.path.join(folder, "s")
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(path)
            os.chmod(path, 0o777)
            os.chmod(folder, 0o755)
            unix.listen()
            name = f"ledger-probe-{os.getpid()}"
            ipc_key = stack.enter_context(_ipc_objects(f"/{name}"))
            if sys.platform == "linux":
                abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
                abstract.bind("\0" + name)
                abstract.listen()
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.connect(("192.0.2.1", 9))
                routed = True
            except OSError:
                routed = False
            port = tcp.getsockname()[1]
            targets: dict[str, object] = {"port": port, "unix": path, "abstract": name}
            yield targets | {"ipc key": ipc_key, "queue": f"/{name}"}, routed
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _ipc_objects(queue: str) -> Iterator[int]:
    """Makes one object of each kind of IPC that anybody here may open; their System V key."""
    libc = ctypes.CDLL(None, use_errno=True)
    key, create_for_all, remove = 0x4C000000 | os.getpid() & 0xFFFFFF, 0o1666, 0
    made = [libc.shmget(key, 1, create_for_all), libc.semget(key, 1, create_for_all)]
    made.append(libc.msgget(key, create_for_all))
    has_queues = hasattr(libc, "mq_open")
    if has_queues:
        before = os.umask(0)
        descriptor = libc.mq_open(queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        os.umask(before)
    try:
        yield key
    finally:
        for number, control in zip(made, ("shmctl", "semctl", "msgctl"), strict=True):
            if number >= 0:
                arguments = (number, 0, remove) if control == "semctl" else (number, remove, None)
                getattr(libc, control)(*arguments)
        if has_queues and descriptor >= 0:
            os.close(descriptor)
            libc.mq_unlink(queue.encode())


def _unprivileged_user(kind: Kind, scratch: Path) -> int | None:
    """A host user id of the run's own, where we are root and may hand files to it.

    RLIMIT_NPROC counts by user id and does not count root at all. Without a mount namespace the id
    must also be able to walk to the interpreter and the workspace.
    """
    if os.getuid() != 0 or kind == "none" or sys.platform != "linux":
        return None
    if kind == "landlock":
        places = (layout.launcher_interpreter().executable, scratch)
        if not all(layout.reachable_by_others(place) for place in places):
            return None
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        # A container may map only 65,536 ids; nobody is the last one of them.
        for user in (1_000_000 + os.getpid(), 65_534):
            try:
                os.chown(file.name, user, user)
            except OSError:
                continue
            return user
    return None


def _not_offered() -> list[Rung]:
    rungs = []
    for name in ("docker", "podman", "sandbox-exec"):
        found = "installed" if shutil.which(name) else "not installed"
        reason = f"not offered by this version ({found} here)"
        rungs.append(Rung(name=name, offered=False, reason=reason))
    return rungs


def _remedy() -> str:
    """The command that makes the first rung work on this system."""
    if sys.platform != "linux":
        return "run the study on Linux or in a Linux virtual machine with bubblewrap installed"
    if shutil.which("bwrap"):
        switch = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        if switch.exists() and switch.read_text().strip() == "1":
            return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        return (
            "allow namespaces: `sudo sysctl -w user.max_user_namespaces=10000`, or in a container "
            "start it with --security-opt seccomp=unconfined"
        )
    families = {
        "debian": "sudo apt-get install bubblewrap",
        "ubuntu": "sudo apt-get install bubblewrap",
        "fedora": "sudo dnf install bubblewrap",
        "rhel": "sudo dnf install bubblewrap",
        "centos": "sudo dnf install bubblewrap",
        "suse": "sudo zypper install bubblewrap",
        "opensuse": "sudo zypper install bubblewrap",
        "arch": "sudo pacman -S bubblewrap",
        "alpine": "sudo apk add bubblewrap",
    }
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    for name in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        if name in families:
            return families[name]
    return "install bubblewrap with this system's package manager"
