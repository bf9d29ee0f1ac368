"""What code under test must not reach. Each test shows first, or beside it, that the target is
there for who is not contained."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.sandbox import Finished, Limits, Sandbox, launcher
from actors.sandbox.contract import Rung
from actors.untrusted_trees import remove_tree

Run = Callable[..., Finished]


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """A port of the host's loopback that accepts, as a model server's does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        yield port


def test_model_server_on_the_loopback_is_unreachable(contained: Sandbox, run: Run) -> None:
    with listener() as port:
        done = run(
            contained,
            f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)",
        )
    assert done.exit_status == 1
    assert b"Error" in done.output


def test_the_same_code_reaches_it_without_a_sandbox(run: Run) -> None:
    with listener() as port:
        done = run(
            Sandbox(kind="none", user=None),
            f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)",
        )
    assert done.exit_status == 0


def test_loopback_inside_works(isolated: Sandbox, run: Run) -> None:
    source = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        server.accept()[0].sendall(b"heard")
        print(client.recv(5))
"""
    assert run(isolated, source).output == b"b'heard'\n"


def test_var_of_the_study_is_unreachable(contained: Sandbox, run: Run, tmp_path: Path) -> None:
    var = tmp_path / "var"
    (var / "artifacts").mkdir(parents=True)
    (var / "artifacts" / "gold").write_text("the gold patch")
    (var / "ledger.db").write_text("log")
    os.chmod(var, 0o777)
    (tmp_path / "workspace" / "link").symlink_to(var / "artifacts" / "gold")
    source = f"""
import errno, os
def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return "refused" if error.errno in (errno.EACCES, errno.ENOENT, errno.EXDEV) else error
var = {str(var)!r}
print(attempt(lambda: open(var + "/artifacts/gold").read()))
print(attempt(lambda: open("link").read()))
print(attempt(lambda: os.listdir(var)))
print(attempt(lambda: open(var + "/new", "w")))
print(attempt(lambda: os.unlink(var + "/ledger.db")))
print(attempt(lambda: os.truncate(var + "/ledger.db", 0)))
print(attempt(lambda: os.rename(var + "/ledger.db", "here")))
print(attempt(lambda: os.link(var + "/ledger.db", "here")))
"""
    done = run(contained, source)
    assert done.output == b"refused\n" * 8
    assert sorted(os.listdir(var)) == ["artifacts", "ledger.db"]
    assert (var / "ledger.db").read_text() == "log"


def test_unix_sockets_outside_are_unreachable(
    contained: Sandbox, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes at most
    name = f"ledger-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
        by_path.bind("s")
        os.chmod("s", 0o777)
        abstract.bind("\0" + name)
        for server in (by_path, abstract):
            server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("s")
        source = f"""
import os, socket
for address in ({str(tmp_path / "s")!r}, "../s", "\\0" + {name!r}):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_UNIX, kind) as client:
                client.connect(address)
            print("reached", address)
        except OSError:
            pass
try:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    first.sendto(b"x", "../s")
    print("sent")
except OSError:
    pass
first, second = socket.socketpair()
first.sendall(b"pair works")
print(second.recv(100).decode())
"""
        done = run(contained, source)
    assert done.output == b"pair works\n"


def test_read_only_is_read_only_and_hidden_is_hidden(
    contained: Sandbox, run: Run, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    (environment / "inside" / "hidden").mkdir(parents=True)
    (environment / "inside" / "hidden" / "stream").write_text("future commits")
    (environment / "inside" / "visible").write_text("library")
    for folder in (environment, environment / "inside", environment / "inside" / "hidden"):
        os.chmod(folder, 0o777)
    source = f"""
place = {str(environment)!r}
print(open(place + "/inside/visible").read())
for action in (
    lambda: open(place + "/inside/hidden/stream").read(),
    lambda: open(place + "/inside/visible", "w"),
    lambda: open(place + "/new", "w"),
    lambda: open(place + "/inside/hidden/new", "w"),
):
    try:
        print(action())
    except OSError:
        print("refused")
"""
    done = run(
        contained,
        source,
        read_only=(environment,),
        hidden=(environment / "inside" / "hidden",),
    )
    assert done.output == b"library\n" + b"refused\n" * 4


def test_processes_outside_cannot_be_signalled(contained: Sandbox, run: Run) -> None:
    done = run(contained, f"import os; os.kill({os.getpid()}, 0)")
    assert done.exit_status == 1
    assert b"ProcessLookupError" in done.output or b"PermissionError" in done.output


def test_no_right_of_the_host_is_left(contained: Sandbox, run: Run) -> None:
    source = """
import os
open("mine", "w").close()
for action in (lambda: os.chown("mine", 4321, 4321), lambda: os.chroot("."),
               lambda: os.setuid(0 if os.getuid() else 1), lambda: os.nice(-5)):
    try:
        action()
        print("allowed")
    except OSError:
        print("refused")
"""
    assert run(contained, source).output == b"refused\n" * 4


def test_process_one_cannot_be_touched(isolated: Sandbox, run: Run) -> None:
    source = """
import os, signal
for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGCHLD):
    try:
        os.kill(1, number)
    except PermissionError:
        pass
for name in ("environ", "mem", "maps"):
    try:
        open("/proc/1/" + name).read(1)
        print("read", name)
    except OSError:
        pass
try:
    print(os.listdir("/proc/1/fd"))
except OSError:
    pass
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
"""
    done = run(isolated, source)
    assert done.exit_status == 0
    assert done.output == b"[1, 2]\n"


def test_a_fork_bomb_is_stopped_where_the_matrix_says_so(
    contained: Sandbox, run: Run, rung_of: Callable[[Sandbox], Rung]
) -> None:
    states = {row.name: row.state for row in rung_of(contained).isolation}
    source = """
import os, time
made = 0
try:
    while made < 60:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
    done = run(contained, source, limits=Limits(wall_s=20, processes=30))
    made = int(done.output)
    assert (made < 30) == (states["processes"] == "enforced")
    assert done.survivors_killed == made, "also those that it was allowed to make are gone"
    assert done.output_closed


def test_names_of_the_host_are_not_shown(isolated: Sandbox, run: Run) -> None:
    source = """
import json, os, pwd, socket
print(json.dumps([socket.gethostname(), sorted(os.listdir("/etc")), pwd.getpwuid(os.getuid())[0],
                  os.getuid()]))
"""
    host, etc, user, uid = json.loads(run(isolated, source).output)
    assert (host, user) == ("sandbox", "sandbox")
    assert uid != 0
    system = {"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"}
    assert set(etc) - system == {"passwd", "group", "hosts", "nsswitch.conf"}


def test_families_that_a_network_namespace_does_not_hold(contained: Sandbox, run: Run) -> None:
    """AF_VSOCK reaches the host of a virtual machine from within a network namespace."""
    source = """
import ctypes, os, socket
for family in (17, 29, 30, 31, 38, 40, 42, 44):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(family, kind)
            print("made", family, kind)
        except OSError:
            pass
print(ctypes.CDLL(None).unshare(0x10000000))
"""
    assert run(contained, source).output == b"-1\n"


def test_what_a_run_leaves_in_the_kernel_does_not_reach_the_next(
    contained: Sandbox, run: Run
) -> None:
    """A memory program kept a taught text in its user's keyring, where no snapshot looks."""
    calls = launcher.KEPT_BY_THE_KERNEL[os.uname().machine]
    key = 0x4C454447
    leave = f"""
import ctypes
libc = ctypes.CDLL(None)
for keyring in (-1, -2, -3, -4, -5):
    print(libc.syscall({calls["add_key"]}, b"user", b"taught", b"text", 4, ctypes.c_long(keyring)))
libc.shmget({key}, 100, 0o1666), libc.semget({key}, 1, 0o1666), libc.msgget({key}, 0o1666)
libc.mq_open(b"/taught", 0o102, 0o666, None)
"""
    find = f"""
import ctypes
libc = ctypes.CDLL(None)
print(libc.syscall({calls["request_key"]}, b"user", b"taught", None, ctypes.c_long(-4)))
print(libc.shmget({key}, 0, 0), libc.semget({key}, 0, 0), libc.msgget({key}, 0))
print(libc.mq_open(b"/taught", 0))
"""
    assert run(contained, leave).output == b"-1\n" * 5
    assert run(contained, find).output == b"-1\n-1 -1 -1\n-1\n"


def test_threads_processes_and_shared_memory_work(isolated: Sandbox, run: Run) -> None:
    source = """
import multiprocessing, os, subprocess, sys, threading
heard = []
thread = threading.Thread(target=heard.append, args=(1,))
thread.start(); thread.join()
lock = multiprocessing.get_context("fork").Lock()  # a semaphore in /dev/shm
with lock:
    heard.append(2)
heard.append(subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True).stdout)
open("/dev/shm/mine", "w").write("x")
try:
    open("/dev/mine", "w")
except OSError:
    heard.append("closed")
print(heard)
"""
    assert run(isolated, source).output == b"[1, 2, b'3\\n', 'closed']\n"


@pytest.mark.parametrize("hold", [False, True])
def test_a_run_that_fills_the_disk_is_ended(any_sandbox: Sandbox, run: Run, hold: bool) -> None:
    """Whether its files can be seen, or were removed and are held open."""
    source = f"""
import os, time
held = []
for number in range(24):
    file = open(str(number), "wb")
    file.write(os.urandom(1 << 20))
    file.flush()
    if {hold}:
        held.append(file)
        os.unlink(file.name)
time.sleep(60)
"""
    done = run(any_sandbox, source, limits=Limits(wall_s=50, disk_bytes=12 << 20))
    assert done.disk_exceeded
    assert (done.exit_status, done.signal, done.timed_out) == (None, 9, False)
    room = Limits(wall_s=50, disk_bytes=200 << 20)
    enough = run(any_sandbox, source.replace("time.sleep(60)", ""), limits=room)
    assert (enough.exit_status, enough.disk_exceeded) == (0, False)


def test_a_run_that_hides_its_files_below_too_long_a_path_is_ended(
    any_sandbox: Sandbox, run: Run
) -> None:
    source = """
import os, time
for _ in range(20):
    os.mkdir("x" * 250)
    os.chdir("x" * 250)
with open("large", "wb") as file:
    file.write(bytes(24 << 20))
time.sleep(60)
"""
    done = run(any_sandbox, source, limits=Limits(wall_s=50, disk_bytes=12 << 20))
    assert done.disk_exceeded


def test_what_untrusted_code_has_nested_and_closed_can_be_removed(tmp_path: Path) -> None:
    """As the user that runs the tests; root is never refused a folder."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "outside").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir(mode=0o700)
    folder = os.open(place, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("n", dir_fd=folder)
        below = os.open("n", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.mkdir("closed", 0o000, dir_fd=folder)
    os.close(folder)
    remove_tree(place)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_a_file_has_a_largest_size(any_sandbox: Sandbox, run: Run) -> None:
    source = """
with open("large", "wb") as file:
    file.seek(1 << 20)
    try:
        file.write(b"x")
        file.flush()
    except OSError as error:
        print(error.strerror)
        file.seek(0)
"""
    done = run(any_sandbox, source, limits=Limits(wall_s=20, file_bytes=1 << 20))
    assert b"File too large" in done.output
