"""Starting a stand-in LM Studio as a child process and talking to its admin routes."""

import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import msgspec

from actors.rehearsal.simulated_agent import Brief
from actors.rehearsal.stand_in_lms import LMS_FILE, write_lms_wrapper
from actors.rehearsal.stand_in_server import TOKEN_HEADER
from actors.rehearsal.stand_in_state import CATALOGUE
from ledger.errors import Unfinished
from schemas.study import Rehearsal

ADDRESS_FILE = "address"
"""Where a stand-in serves, for workers that somebody else starts."""


class StandInError(Unfinished):
    """The stand-in does not start, or refuses an order; the message is its own."""


def running_stand_in(directory: Path) -> tuple[str, str]:
    """(base URL, lms tool) of the stand-in that serves from ``directory`` at present.

    Raises StandInError where none does.
    """
    try:
        url = (directory / ADDRESS_FILE).read_text()
        socket.create_connection(("127.0.0.1", port_of(url)), timeout=5).close()
    except (OSError, ValueError):
        raise StandInError(
            "this study is a rehearsal and its stand-in serves as long as `ledger run` works: "
            "start that first, or name a server with --server-url and --lms"
        ) from None
    return url, str(directory / LMS_FILE)


def port_of_last_time(directory: Path) -> int:
    """The port of the stand-in that served from ``directory`` before, so that workers which joined
    find the next one there. 0, which stands for any, where there was none or the port is taken."""
    try:
        port = port_of((directory / ADDRESS_FILE).read_text())
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
    except (OSError, ValueError):
        return 0
    return port


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


class StandInAdmin:
    """The admin routes of a running stand-in."""

    def __init__(self, port: int, token: str) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={TOKEN_HEADER: token},
            trust_env=False,
            verify=False,  # plain HTTP; loading certificates would only cost time
        )

    def close(self) -> None:
        self._client.close()

    def rehearse(self, agents: Mapping[str, Rehearsal], briefs: Sequence[Brief]) -> None:
        """Give model keys their agents and add briefs. Raises StandInError in a server that was
        not started for a simulated study."""
        self._ask("POST", "rehearsal", {"agents": dict(agents), "briefs": list(briefs)})

    def set_faults(self, faults: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace all faults; names and parameters are in ``stand_in_state.FAULTS``."""
        self._ask("POST", "faults", faults)

    def state(self) -> dict[str, Any]:
        """virtual_ms, resident, max_resident_ever, max_in_flight_ever, switches, log."""
        answer: dict[str, Any] = self._ask("GET", "state", None)
        return answer

    def _ask(self, method: str, name: str, body: object) -> Any:
        content = msgspec.json.encode(body) if body is not None else None
        try:
            response = self._client.request(method, f"/stand-in/{name}", content=content)
        except httpx.HTTPError as error:
            raise StandInError(f"the stand-in does not answer: {error}") from error
        answer = msgspec.json.decode(response.content)
        if response.status_code != 200:
            raise StandInError(f"the stand-in refused {name}: {answer['error']['message']}")
        return answer


class StandInProcess:
    """A stand-in in a process of its own, with a token and an ``lms`` in ``directory``.

    It ends when this object is closed or this process dies, because its standard input does.
    """

    def __init__(
        self,
        directory: Path,
        *,
        simulated_study: bool,
        port: int = 0,
        catalogue: Path = CATALOGUE,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(32)
        token_file = directory / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        command = [sys.executable, "-m", "actors.rehearsal.stand_in_server"]
        command += ["--port", str(port), "--token-file", str(token_file)]
        command += ["--catalogue", str(catalogue), "--log", str(directory / "stand_in.jsonl")]
        command += ["--simulated-study"] if simulated_study else []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for who started it and will close it in order
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready.endswith(b"\n"):
            self._end()
            raise StandInError(
                f"the stand-in did not start (exit status {self.process.returncode}); its "
                f"message is above, and port {port or 'any'} may be taken"
            )
        self.port = int(msgspec.json.decode(ready)["port"])
        self.base_url = f"http://127.0.0.1:{self.port}"
        (directory / ADDRESS_FILE).write_text(self.base_url)
        self.lms = [str(write_lms_wrapper(directory, self.port, token_file))]
        self.admin = StandInAdmin(self.port, token)

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        self.admin.close()
        self._end()

    def _end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> "StandInProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
