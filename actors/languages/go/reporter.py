"""Runs ``go test`` and reports what it says as JSON lines on descriptor 3.

    python -I -S reporter.py PLAN

Standard library only. It reads the run's nonce from descriptor 4, closes it, and keeps descriptor 3
to itself: ``go`` and the tests get neither. Every line carries the nonce. On Linux it makes itself
unreadable to processes of the same user, so that no test finds the nonce in its memory or opens its
descriptors through ``/proc``. What ``go`` prints is handed on as it is; nothing of it is judged
here. The reading side is ``report.py``.
"""

import ctypes
import fcntl
import json
import os
import subprocess
import sys

_PR_SET_DUMPABLE = 4


def main(plan_file: str) -> None:
    nonce = os.read(4, 4096).decode("ascii")
    os.close(4)
    channel = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(3)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def write(kind: str, **fields: object) -> None:
        line = json.dumps({"kind": kind, "nonce": nonce, **fields}).encode("ascii") + b"\n"
        while line:
            line = line[os.write(channel, line) :]

    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    cache = plan["build_cache"] or private_cache(plan["warm_cache"])
    path = os.path.join(os.environ["TMPDIR"], "go-path")
    environment = {**os.environ, "GOCACHE": cache, "GOPATH": path}
    write("begin", go=plan["version"])
    for number, job in enumerate(plan["jobs"]):
        process = subprocess.Popen(
            job["words"],
            cwd=job["folder"],
            env={**environment, "GOFLAGS": job["flags"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        for raw in process.stdout:
            text = raw.decode("utf-8", "replace").rstrip("\n")
            write("line", job=number, text=text)
            show(text)
        write("ended", job=number, status=process.wait())
    write("end")


def show(text: str) -> None:
    """The output in the form of ``go test -v``, for whoever reads the run's output."""
    try:
        event = json.loads(text)
        said = event.get("Output", "")
    except (ValueError, AttributeError):
        said = text + "\n"
    sys.stdout.write(said)
    sys.stdout.flush()


def private_cache(warm: str) -> str:
    """A build cache of this run: entries of the warm one are links, so that none of them is copied
    and nothing is written through to it (it is read-only here)."""
    cache = os.path.join(os.environ["TMPDIR"], "go-build-cache")
    os.mkdir(cache)
    if warm:
        for folder in os.listdir(warm):
            if len(folder) == 2:
                os.mkdir(os.path.join(cache, folder))
                for name in os.listdir(os.path.join(warm, folder)):
                    os.symlink(os.path.join(warm, folder, name), os.path.join(cache, folder, name))
        # Without this mark `go` would throw out what has not been used for some days.
        mark = os.path.join(cache, "trim.txt")
        with open(mark, "w", encoding="ascii") as file:
            file.write(str(int(os.fstat(file.fileno()).st_mtime)))
    return cache


if __name__ == "__main__":
    main(sys.argv[1])
