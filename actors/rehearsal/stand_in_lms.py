"""The fake ``lms``: the command line tool of the stand-in LM Studio, with one state shared.

    python -m actors.rehearsal.stand_in_lms --port N --token-file FILE server status --json
    ... server start [--port N] | ps --json | ls --json

``write_lms_wrapper`` writes an executable named ``lms`` that fills in the first two options. Every
residency check starts one such process, so it imports as little as possible: ``http.client`` alone
would double its time.
"""

import json
import socket
import sys
from pathlib import Path

TOKEN_HEADER = "x-stand-in-token"  # as in stand_in_server
LMS_FILE = "lms"


def write_lms_wrapper(directory: Path, port: int, token_file: Path) -> Path:
    """Write ``directory/lms`` for the stand-in on ``port``; returns its path."""
    import shlex

    words = [sys.executable, "-IS", str(Path(__file__).resolve())]
    words += ["--port", str(port), "--token-file", str(token_file.resolve())]
    path = directory / LMS_FILE
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    return path


def run(words: list[str]) -> int:
    """Act on the words after the program's name; returns the exit status."""
    if len(words) < 4 or words[0] != "--port" or words[2] != "--token-file":
        return _fail("the first options must be --port N --token-file FILE")
    port, token = int(words[1]), Path(words[3]).read_text().strip()
    if not token.isprintable():
        return _fail(f"{words[3]} does not hold a token")
    command = [word for word in words[4:] if word not in ("--quiet", "--json")]
    try:
        if command == ["server", "status"]:
            try:
                _print(_admin(port, token, "GET", "/stand-in/lms/status"))
            except OSError:
                _print({"running": False, "port": port})
            return 0
        if command[:2] == ["server", "start"] and command[2:] in ([], ["--port", str(port)]):
            started = _admin(port, token, "POST", "/stand-in/lms/start")
            if started != {"exit": 0}:
                return _fail("Failed to verify the server is running.")
            sys.stderr.write(f"Success! Server is now running on port {port}\n")
            return 0
        if command in (["ps"], ["ls"]) and "--json" in words:
            _print(_admin(port, token, "GET", f"/stand-in/lms/{command[0]}"))
            return 0
    except (OSError, ValueError) as error:
        return _fail(f"the stand-in on port {port} cannot be asked: {error}")
    return _fail(f"not a command of the fake lms: {' '.join(command)}")


def _admin(port: int, token: str, method: str, path: str) -> object:
    """One HTTP/1.0 exchange with the stand-in. Raises OSError, or ValueError for a refusal."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"{method} {path} HTTP/1.0\r\n{TOKEN_HEADER}: {token}\r\n\r\n".encode())
        answer = b""
        while block := connection.recv(1 << 16):
            answer += block
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].split(b" ")[1:2]
    if status != [b"200"]:
        raise ValueError(f"it answered {body[:200]!r}")
    return json.loads(body)


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"Error: {message}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
