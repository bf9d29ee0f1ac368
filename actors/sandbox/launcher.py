"""The part of the sandbox that runs inside it: ``python -I -S launcher.py <spec descriptor>``.

Standard library only and no import of ours: it starts in an interpreter that sees nothing else. It
reads one JSON object (``run.py`` writes it), sets up what its rung needs, forks the command with
its limits, waits as process 1 (or as the reaper of orphans where there is no PID namespace), kills
whatever is left when the command has ended, and writes one JSON line on the status descriptor.

Sources: namespaces(7), mount_setattr(2), pivot_root(2), landlock(7) (ABI 1 to 7), seccomp(2).
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

LINUX = sys.platform == "linux"
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH of the machines for which the filter below knows the system call numbers."""

# prctl(2)
_PDEATHSIG, _DUMPABLE, _SECCOMP, _CAPBSET_DROP, _SECUREBITS = 1, 4, 22, 24, 28
_SUBREAPER, _NO_NEW_PRIVS = 36, 38
# unshare(2)
_NEWNS, _NEWUTS, _NEWIPC = 0x00020000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
# mount(2), mount_setattr(2)
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_DETACH, _AT_FDCWD, _AT_RECURSIVE = 2, -100, 0x8000
_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# landlock(7)
_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_LL_EXECUTE, _LL_WRITE, _LL_READ, _LL_READ_DIR = 1, 2, 4, 8
_LL_MAKE_CHAR, _LL_MAKE_BLOCK = 1 << 6, 1 << 11
_LL_TRUNCATE, _LL_IOCTL_DEV = 1 << 14, 1 << 15
_LL_OF_A_FILE = _LL_EXECUTE | _LL_WRITE | _LL_READ | _LL_TRUNCATE | _LL_IOCTL_DEV
_LL_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 3
KEPT_BY_THE_KERNEL = {
    "x86_64": {"add_key": 248, "request_key": 249, "keyctl": 250, "perf_event_open": 298,
               "bpf": 321},
    "aarch64": {"add_key": 217, "request_key": 218, "keyctl": 219, "perf_event_open": 241,
                "bpf": 280},
}  # fmt: skip
"""System calls whose objects outlive the process, lie in no file and in no namespace of a run: a
user's keyring is found by every later process of that user (keyrings(7))."""
SHARED_IPC = {
    "x86_64": {"shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240},
    "aarch64": {"shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180},
}
"""The same of an IPC namespace (ipc_namespaces(7)), for a run that shares ours."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: Any) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def _prctl(option: int, *arguments: int) -> None:
    values = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(ctypes.c_int(option), *values), f"prctl({option})")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    done = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(done, f"mount {source or kind} on {target}")


def _set_mount(target: str, attributes: int, recursive: bool) -> None:
    """Change a mount and, if asked, all below it; MS_REMOUNT would leave those writable."""
    attr = struct.pack("=QQQQ", attributes, 0, 0, 0)
    path, flags = target.encode(), _AT_RECURSIVE if recursive else 0
    _syscall(f"mount_setattr {target}", _SYS_MOUNT_SETATTR, _AT_FDCWD, path, flags, attr, len(attr))


def landlock_version() -> int:
    """The kernel's Landlock ABI, 0 where it has none or it is switched off."""
    if not LINUX:
        return 0
    return max(0, int(_libc.syscall(ctypes.c_long(_SYS_CREATE_RULESET), None, 0, 1)))


def system_call_filter(machine: str, families: Sequence[int]) -> bytes:
    """A seccomp program (array of ``struct sock_filter``) that leaves a run only sockets of these
    address families, and no user namespace.

    A network namespace does not hold every family: AF_VSOCK reaches the host of a virtual machine
    from within one. And in a user namespace of its own a run could mount memory without bounds.

    Without ``families`` no socket is left but a connected pair, for a run that shares our network:
    Landlock governs TCP ports and abstract names, not UDP and not Unix sockets in the file system.
    ``socketpair`` then gives streams only, because a datagram pair can be used to send to any
    address. ``io_uring_setup`` and ``clone3`` are absent for everybody (the operations of the one
    and the flags of the other are out of a filter's sight; libraries fall back to older calls), and
    another architecture's calls kill the process. Absent too is what would leave something behind
    that is no file: keyrings, performance events, pinned programs, and, without an IPC namespace of
    its own, System V and POSIX IPC.
    """
    numbers = {"x86_64": (41, 42, 53, 56, 272), "aarch64": (198, 203, 199, 220, 97)}[machine]
    socket_, connect, socketpair, clone, unshare = numbers
    io_uring_setup, clone3, x32_bit, af_unix, sock_stream = 425, 435, 0x40000000, 1, 1
    load, equal, at_least, mask, give = 0x20, 0x15, 0x35, 0x54, 0x06
    # seccomp_data: nr at 0, arch at 4, args (64 bits each, little end first) from 16.
    number, architecture, first, second = 0, 4, 16, 24
    kill, allow = (give, 0, 0, 0x80000000), (give, 0, 0, 0x7FFF0000)
    refuse, absent, no_family = ((give, 0, 0, 0x00050000 | errno) for errno in (1, 38, 97))
    Instruction = tuple[int, int, int, int]

    def when(call: int, *block: Instruction) -> list[Instruction]:
        """Every path through a block gives a verdict: the accumulator is its own afterwards."""
        return [(equal, 0, len(block), call), *block]

    def only(argument: int, values: Sequence[int], otherwise: Instruction) -> list[Instruction]:
        checks = [step for value in values for step in ((equal, 0, 1, value), allow)]
        return [(load, 0, 0, argument), *checks, otherwise]

    kept = [*KEPT_BY_THE_KERNEL[machine].values()]
    if not families:
        kept += SHARED_IPC[machine].values()
    if families:
        of_sockets = [
            *when(socket_, *only(first, families, no_family)),
            *when(socketpair, *only(first, [af_unix], no_family)),
        ]
    else:
        of_sockets = [
            *when(socket_, refuse),
            *when(connect, refuse),
            *when(
                socketpair,
                (load, 0, 0, first),
                (equal, 1, 0, af_unix),
                refuse,
                (load, 0, 0, second),
                (mask, 0, 0, 0xF),  # SOCK_NONBLOCK and SOCK_CLOEXEC live above
                (equal, 1, 0, sock_stream),
                refuse,
                allow,
            ),
        ]
    program = [
        (load, 0, 0, architecture),
        (equal, 1, 0, MACHINES[machine]),
        kill,
        (load, 0, 0, number),
        (at_least, 0, 1, x32_bit),
        absent,
        *when(io_uring_setup, absent),
        *when(clone3, absent),
        *(step for call in kept for step in when(call, absent)),
        *when(unshare, refuse),
        *when(clone, (load, 0, 0, first), (mask, 0, 0, _NEWUSER), (equal, 1, 0, 0), refuse, allow),
        *of_sockets,
        allow,
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _filter_system_calls(families: Sequence[int]) -> None:
    program = system_call_filter(os.uname().machine, families)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(header, len(header))
    _prctl(_SECCOMP, 2, ctypes.addressof(pointer))


def _restrict_files(readable: list[str], listable: list[str], writable: list[str]) -> None:
    """Landlock: nothing but these paths, and no signal or abstract socket outside (ABI 6)."""
    version = landlock_version()
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    handled = (1 << rights) - 1
    attribute = struct.pack("=Q", handled)
    if version >= 6:
        attribute = struct.pack("=QQQ", handled, 0, _LL_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL)
    rules = _syscall("landlock_create_ruleset", _SYS_CREATE_RULESET, attribute, len(attribute), 0)
    read = _LL_EXECUTE | _LL_READ | _LL_READ_DIR
    write = handled & ~(_LL_MAKE_CHAR | _LL_MAKE_BLOCK)
    for paths, allowed in ((readable, read), (listable, _LL_READ_DIR), (writable, write)):
        for path in paths:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            here = allowed if os.path.isdir(path) else allowed & _LL_OF_A_FILE
            rule = struct.pack("=Qi", here, beneath)
            _syscall(f"landlock_add_rule {path}", _SYS_ADD_RULE, rules, 1, rule, 0)
            os.close(beneath)
    _syscall("landlock_restrict_self", _SYS_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _drop_capabilities() -> None:
    """For a root that stays user 0: no capability now, none after exec."""
    for capability in range(64):
        try:
            _prctl(_CAPBSET_DROP, capability)
        except OSError:
            if capability == 0:
                raise
            break  # past the last one that this kernel knows
    _prctl(_SECUREBITS, 0b11)  # NOROOT and its lock: exec by user 0 gains nothing
    _check(_libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)), "capset")


def _enter_namespaces(spec: dict[str, Any]) -> None:
    """New user (where we are not root), mount, PID, network, IPC and UTS namespaces and a root of
    ``spec["mounts"]`` only. Returns in process 1; the process that called waits and exits."""
    import _socket  # `socket` would cost a third of the start-up time

    inside, uid, gid = spec["namespace_user"], os.geteuid(), os.getegid()
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | (_NEWUSER if inside else 0)
    _check(_libc.unshare(flags), "unshare")
    if inside:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{inside} {uid} 1"),
            ("gid_map", f"{inside} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    first = os.fork()
    if first:
        os.close(spec["status"])
        os.waitpid(first, 0)
        os._exit(0)
    _prctl(_PDEATHSIG, signal.SIGKILL)
    _socket.sethostname("sandbox")
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    up_and_running = struct.pack("16sh22x", b"lo", 0x1 | 0x40)
    fcntl.ioctl(control.fileno(), 0x8914, up_and_running)  # SIOCSIFFLAGS
    control.close()

    root = spec["root"]
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=0755,size=1m")
    for kind, source, destination in spec["mounts"]:
        target = root + destination
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if kind == "link":
            os.symlink(source, target)
        elif kind == "hide":
            os.makedirs(target, exist_ok=True)
            _mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, "mode=0755,size=1m")
        else:
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            elif not os.path.exists(target):
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            _mount(source, target, "", _BIND | _REC)
            read_only = _ATTR_RDONLY if kind == "read" else 0
            _set_mount(target, _ATTR_NOSUID | _ATTR_NODEV | read_only, recursive=True)
    for kind, _, destination in spec["mounts"]:
        if kind == "hide":
            _set_mount(root + destination, _ATTR_RDONLY, recursive=False)
    os.makedirs(f"{root}/proc")
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    os.makedirs(f"{root}/dev")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        _mount(f"/dev/{name}", f"{root}/dev/{name}", "", _BIND)
    for kind, directory, data in (
        ("tmpfs", "shm", f"mode=1777,size={spec['shared_memory']}"),
        ("devpts", "pts", "newinstance,ptmxmode=0666,mode=0620"),
    ):
        os.mkdir(f"{root}/dev/{directory}")
        _mount(kind, f"{root}/dev/{directory}", kind, _NOSUID | _NOEXEC, data)
    for name, link in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(link, f"{root}/dev/{name}")
    os.chdir(root)
    _syscall("pivot_root", _SYS_PIVOT_ROOT[os.uname().machine], b".", b".")
    _check(_libc.umount2(b".", _DETACH), "umount2 of the old root")
    os.chdir("/")
    _set_mount("/", _ATTR_RDONLY, recursive=False)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    top = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (top, top))


def _become_command(spec: dict[str, Any], failure: int) -> NoReturn:
    """In the forked child: limits, identity, restrictions, descriptors 0 to 4, exec."""
    try:
        os.setsid()
        limits = spec["limits"]
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, 1024)
        _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
        _limit(resource.RLIMIT_NPROC, limits["processes"])
        resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 5))
        if LINUX:
            _limit(resource.RLIMIT_AS, limits["memory_bytes"])
        # Everything we keep goes out of the way first: 3 and 4 may be in use by the others.
        failure, results, request = (
            -1 if fd < 0 else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
            for fd in (failure, spec["results"], spec["request"])
        )
        for kept, wanted in ((results, 3), (request, 4)):
            if kept >= 0:
                os.dup2(kept, wanted)
            else:
                os.closerange(wanted, wanted + 1)
        os.closerange(5, failure)
        os.closerange(failure + 1, 1024)

        os.chdir(spec["directory"])
        user = spec["user"]
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        elif spec["drop_capabilities"]:
            _drop_capabilities()
        if LINUX:
            _prctl(_PDEATHSIG, signal.SIGKILL)
            _prctl(_NO_NEW_PRIVS, 1)
        if spec["restrict_files"]:
            _restrict_files(spec["readable"], spec["listable"], spec["writable"])
        if spec["families"] is not None:
            _filter_system_calls(spec["families"])
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except BaseException as error:
        os.write(failure, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
    os._exit(125)


def _alive(namespaced: bool) -> set[int]:
    """Processes that are not zombies: all others of our PID namespace, or our descendants."""
    return set(_parents()) - {os.getpid()} if namespaced else descendants(os.getpid())


def descendants(ancestor: int) -> set[int]:
    """Processes below ``ancestor`` that are not zombies."""
    parents = _parents()
    ours, grew = {ancestor}, True
    while grew:
        found = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= found
        grew = bool(found)
    return ours - {ancestor}


def _parents() -> dict[int, int]:
    """Parent of every process that is not a zombie."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc") if LINUX else ():
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state not in (b"Z", b"X"):
                parents[int(entry)] = int(parent)
    return parents


def _wait_for_signal(seconds: float, awaited: set[signal.Signals]) -> int:
    """One of ``awaited``, or 0 when the time is over (macOS cannot wait for signals: polled)."""
    if not LINUX:
        time.sleep(min(seconds, 0.02))
        return 0
    got = signal.sigtimedwait(awaited, max(seconds, 0.0))
    return got.si_signo if got else 0


def _reap(main: int) -> int | None:
    """Collect every child that has ended; the wait status of ``main`` if it was among them."""
    result = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == main:
            result = status


def _signal(processes: set[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _kill_the_rest(main: int, namespaced: bool) -> int:
    """SIGKILL until nothing is left; how many different processes that took."""
    killed: set[int] = set()
    if not LINUX:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(main, signal.SIGKILL)
    for _ in range(2000):
        _reap(main)
        alive = _alive(namespaced)
        if not alive:
            break
        if namespaced:
            killed |= alive
            _signal({-1}, signal.SIGKILL)  # reaches all of them at once: nobody can fork past it
        else:
            _signal(alive, signal.SIGSTOP)  # who stands still does not fork
            alive |= _alive(namespaced)
            killed |= alive
            _signal(alive, signal.SIGKILL)
        _wait_for_signal(0.005, {signal.SIGCHLD})
    return len(killed)


def _supervise(spec: dict[str, Any], namespaced: bool) -> dict[str, Any]:
    """Fork the command, wait for its end or its time, kill the rest; the status line."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if LINUX:
        # Same user inside: without this the command could read or trace process 1.
        _prctl(_DUMPABLE, 0)
        if not namespaced:
            _prctl(_SUBREAPER, 1)
    failed, failure = os.pipe()
    os.write(spec["status"], b'{"started": true}\n')
    started = time.monotonic_ns()
    main = os.fork()
    if main == 0:
        os.close(spec["status"])
        _become_command(spec, failure)
    for descriptor in (failure, spec["results"], spec["request"]):
        if descriptor >= 0:
            os.close(descriptor)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the output ends with the command's processes, not with us
        os.dup2(quiet, descriptor)
    reason = os.read(failed, 4096)
    if reason:
        return {"error": reason.decode("utf-8", "replace")}

    wall_end = started + int(spec["limits"]["wall_s"] * 1e9)
    grace = int(max(spec["limits"]["grace_s"], 0.05) * 1e9)
    # Process 1 dies with its parent anyway, and the command could send it a SIGTERM.
    awaited = {signal.SIGCHLD} if namespaced else {signal.SIGCHLD, signal.SIGTERM}
    timed_out = False
    status = _reap(main)
    while status is None:
        now = time.monotonic_ns()
        if now >= wall_end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(main, signal.SIGKILL if timed_out else signal.SIGTERM)
            timed_out, wall_end = True, now + grace
        if _wait_for_signal((wall_end - now) / 1e9, awaited) == signal.SIGTERM:
            _kill_the_rest(main, namespaced)  # our parent died
            os._exit(0)
        status = _reap(main)
    ended = time.monotonic_ns()
    return {
        "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "timed_out": timed_out,
        "survivors": _kill_the_rest(main, namespaced),
        "duration_ns": ended - started,
    }


def main() -> NoReturn:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec: dict[str, Any] = json.loads(file.read())
    namespaced = spec["kind"] in ("bubblewrap", "namespaces")
    os.umask(0o022)
    try:
        if LINUX and spec["kind"] != "bubblewrap":
            # A PID namespace dies with its first process; elsewhere we must live to kill the rest.
            _prctl(_PDEATHSIG, signal.SIGKILL if namespaced else signal.SIGTERM)
            if os.getppid() != spec["parent"]:
                os._exit(0)
        if spec["kind"] == "namespaces":
            _enter_namespaces(spec)
        line = _supervise(spec, namespaced)
    except Exception as error:
        line = {"error": f"{type(error).__name__}: {error}"}
    os.write(spec["status"], json.dumps(line).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
