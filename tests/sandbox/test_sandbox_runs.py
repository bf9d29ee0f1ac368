"""What every rung does for a run that behaves, and for one that does not end."""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.sandbox import Finished, Limits, Sandbox, SandboxError, layout

Run = Callable[..., Finished]


def test_status_output_and_digest(any_sandbox: Sandbox, run: Run) -> None:
    done = run(
        any_sandbox,
        "import os; os.write(1, b'out \\xff'); os.write(2, b'err'); os._exit(7)",
    )
    assert (done.exit_status, done.signal, done.timed_out) == (7, None, False)
    assert done.output == b"out \xfferr"
    assert done.output_bytes == 8
    assert done.output_digest == hashlib.sha256(b"out \xfferr").hexdigest()
    assert done.output_closed
    assert done.survivors_killed == 0


def test_a_signal_is_not_an_exit_status(any_sandbox: Sandbox, run: Run) -> None:
    done = run(any_sandbox, "import os; os.kill(os.getpid(), 11)")
    assert (done.exit_status, done.signal) == (None, signal.SIGSEGV)


def test_request_and_results_bypass_environment_and_workspace(
    any_sandbox: Sandbox, run: Run, tmp_path: Path
) -> None:
    source = """
import os
def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
os.write(3, os.read(4, 100)[::-1])
print([descriptor for descriptor in range(1024) if is_open(descriptor)])
"""
    done = run(any_sandbox, source, request=b"nonce-1")
    assert done.results == b"1-ecnon"
    assert done.results_complete
    assert done.output == b"[0, 1, 2, 3, 4]\n", "no descriptor of ours may leak into a run"
    assert list((tmp_path / "workspace").iterdir()) == []


def test_results_beyond_their_bound_are_dropped_and_said_so(one_sandbox: Sandbox, run: Run) -> None:
    done = run(one_sandbox, "import os\nfor _ in range(64): os.write(3, b'x' * 4096)")
    assert done.exit_status == 0
    assert done.results == b"x" * 10_000
    assert not done.results_complete


def test_environment_is_what_was_given(any_sandbox: Sandbox, run: Run, tmp_path: Path) -> None:
    source = """
import json, os
print(json.dumps([dict(os.environ), os.getcwd(), os.listdir(os.environ["HOME"]),
                  os.listdir(os.environ["TMPDIR"])]))
open(os.environ["HOME"] + "/h", "w").close(); open(os.environ["TMPDIR"] + "/t", "w").close()
open("kept", "w").close()
"""
    done = run(any_sandbox, source, environment={"TZ": "UTC"})
    variables, directory, home, temporary = json.loads(done.output)
    assert variables.keys() == {"PATH", "LC_ALL", "TZ", "HOME", "TMPDIR"}
    assert variables["HOME"] != os.environ.get("HOME")
    assert (home, temporary) == ([], [])
    assert directory == any_sandbox.inside(tmp_path / "workspace")
    assert os.listdir(tmp_path) == ["workspace"], "home and temporary files must be gone"
    assert os.listdir(tmp_path / "workspace") == ["kept"]


def test_two_hundred_megabytes_that_are_not_text(one_sandbox: Sandbox, run: Run) -> None:
    count = 200
    source = f"""
import os
def put(content):
    while content:
        content = content[os.write(1, content):]
put(b"begin ")
for _ in range({count}):
    put(b"\\xff\\xfe\\x00\\x80" * 250_000)
put(b" end")
"""
    done = run(one_sandbox, source, limits=Limits(wall_s=60, output_bytes=10_000))
    digest = hashlib.sha256(b"begin ")
    for _ in range(count):
        digest.update(b"\xff\xfe\x00\x80" * 250_000)
    digest.update(b" end")
    assert done.exit_status == 0
    assert done.output_bytes == count * 1_000_000 + 10
    assert done.output_digest == digest.hexdigest()
    assert done.output.startswith(b"begin \xff")
    assert done.output.endswith(b"\x80 end")
    notice = f"[{count * 1_000_000 + 10 - 10_000} bytes of output left out]"
    assert notice.encode() in done.output
    assert len(done.output) == 10_000 + len(notice) + 2


def test_daemon_that_ignores_sigterm_and_keeps_the_output_open(
    any_sandbox: Sandbox, run: Run, tmp_path: Path
) -> None:
    source = """
import fcntl, os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        file = open("lock", "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        open("ready", "w").close()
        time.sleep(600)
    os._exit(0)
while not os.path.exists("ready"):
    time.sleep(0.005)
"""
    done = run(any_sandbox, source)
    assert done.exit_status == 0
    assert done.survivors_killed == 1
    assert done.output_closed
    assert _nobody_holds(tmp_path / "workspace" / "lock")


def test_time_limit_reaches_also_who_ignores_sigterm(any_sandbox: Sandbox, run: Run) -> None:
    limits = Limits(wall_s=0.5, grace_s=0.2)
    polite = run(any_sandbox, "import time; time.sleep(600)", limits=limits)
    assert (polite.timed_out, polite.signal) == (True, signal.SIGTERM)
    source = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    stubborn = run(any_sandbox, source, limits=limits)
    assert (stubborn.timed_out, stubborn.signal) == (True, signal.SIGKILL)


def test_endless_output_is_ended_by_the_time_limit(one_sandbox: Sandbox, run: Run) -> None:
    limits = Limits(wall_s=0.3, grace_s=0.1, output_bytes=1000)
    done = run(one_sandbox, "import os\nwhile True: os.write(1, b'y' * 4096)", limits=limits)
    assert done.timed_out
    assert done.output_bytes > 1000
    assert len(done.output) < 1100


def test_memory_bomb(one_sandbox: Sandbox, run: Run) -> None:
    limits = Limits(wall_s=20, memory_bytes=300 << 20)
    source = "kept = []\nwhile True: kept.append(bytearray(10 << 20))"
    done = run(one_sandbox, source, limits=limits)
    assert done.exit_status == 1
    assert b"MemoryError" in done.output


def test_file_size_is_limited(one_sandbox: Sandbox, run: Run, tmp_path: Path) -> None:
    source = """
with open("big", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 20))
    except OSError as error:
        print(error.errno)
"""
    done = run(one_sandbox, source, limits=Limits(wall_s=20, file_bytes=3 << 20))
    assert done.output == b"27\n"
    assert (tmp_path / "workspace" / "big").stat().st_size == 3 << 20


def test_processor_time_is_limited(one_sandbox: Sandbox, run: Run) -> None:
    done = run(one_sandbox, "while True: pass", limits=Limits(wall_s=20, cpu_s=1))
    assert done.signal == signal.SIGXCPU
    assert not done.timed_out


def test_dies_with_its_parent(any_sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    source = """
import fcntl, os, signal, time
signal.signal(15, signal.SIG_IGN)
file = open("lock", "w")
fcntl.flock(file, fcntl.LOCK_EX)
if os.fork() == 0:
    os.setsid()
open("ready", "w").close()
time.sleep(600)
"""
    parent = f"""
import pathlib
from actors.sandbox import Limits, layout
from actors.sandbox.run import Sandbox
python = layout.launcher_interpreter()
Sandbox(kind={any_sandbox.kind!r}, user={any_sandbox.user!r}).run(
    [str(python.executable), "-I", "-S", "-c", {source!r}],
    workspace=pathlib.Path({str(tmp_path / "workspace")!r}),
    read_only=layout.interpreter_paths(python), environment={{}}, limits=Limits(),
)
"""
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=Path(__file__).parents[2])
    try:
        assert _eventually((tmp_path / "workspace" / "ready").exists)
        assert not _nobody_holds(tmp_path / "workspace" / "lock")
    finally:
        process.kill()
        process.wait()
    assert _eventually(lambda: _nobody_holds(tmp_path / "workspace" / "lock"))


def test_an_interrupt_ends_the_run_with_its_daemons(
    any_sandbox: Sandbox, run: Run, tmp_path: Path
) -> None:
    lock, ready = tmp_path / "workspace" / "lock", tmp_path / "workspace" / "ready"
    source = """
import fcntl, os, signal, time
if os.fork() == 0:
    os.setsid()
    signal.signal(15, signal.SIG_IGN)
    file = open("lock", "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    open("ready", "w").close()
time.sleep(600)
"""

    def interrupt() -> None:
        if _eventually(ready.exists):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(any_sandbox, source)
    thread.join()
    assert _eventually(lambda: _nobody_holds(lock))
    assert os.listdir(tmp_path) == ["workspace"]


def test_a_command_that_does_not_exist_is_not_a_result(
    any_sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "workspace").mkdir()
    with pytest.raises(SandboxError, match="could not be started in the sandbox.*no-such"):
        any_sandbox.run(
            ["/usr/bin/no-such-program"],
            workspace=tmp_path / "workspace",
            read_only=(),
            environment={},
            limits=Limits(),
        )
    assert os.listdir(tmp_path) == ["workspace"]


def test_a_folder_above_the_workspace_is_refused(any_sandbox: Sandbox, run: Run) -> None:
    with pytest.raises(SandboxError, match="contains the workspace"):
        run(any_sandbox, "", read_only=(Path("/"),))
    with pytest.raises(SandboxError, match="does not exist"):
        run(any_sandbox, "", read_only=(Path("/no/such/folder"),))


def test_what_a_run_made_unreadable_is_still_removed(
    any_sandbox: Sandbox, run: Run, tmp_path: Path
) -> None:
    source = """
import os
os.makedirs(os.environ["TMPDIR"] + "/a/b")
open(os.environ["TMPDIR"] + "/a/b/c", "w").close()
os.chmod(os.environ["TMPDIR"] + "/a/b", 0)
os.chmod(os.environ["TMPDIR"] + "/a", 0)
print("closed")
"""
    assert run(any_sandbox, source).output == b"closed\n"
    assert os.listdir(tmp_path) == ["workspace"]


def test_python_of_the_launcher_is_described() -> None:
    python = layout.launcher_interpreter()
    assert python.executable.is_file()
    assert python.version.count(".") == 2
    with pytest.raises(SandboxError, match="not a Python"):
        layout.interpreter(Path("/bin/true"))


def _nobody_holds(lock: Path) -> bool:
    with open(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(2000):
        if holds():
            return True
        time.sleep(0.005)
    return False
