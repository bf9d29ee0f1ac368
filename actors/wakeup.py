"""Wake-ups between the processes of one machine: a datagram socket per worker.

A wake-up only says "look at the log"; it carries nothing and may be lost, because every worker
also polls. Polling alone would cost tens of milliseconds at every hop of a turn.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.25


class Waiter:
    """The receiving end, one per worker process. Named ``<role>[+<role>…]-<pid>.sock``."""

    def __init__(self, directory: Path, roles: Sequence[str]) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"{'+'.join(roles)}-{os.getpid()}.sock"
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.fspath(self._path))
        self._socket.settimeout(POLL_SECONDS)

    def wait(self) -> None:
        """Return when woken, or after the polling interval."""
        with suppress(TimeoutError):
            self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()
        with suppress(FileNotFoundError):
            self._path.unlink()


def wake(directory: Path, roles: Iterable[str]) -> None:
    """Wake every worker of these roles. Never blocks and never fails: polling stands behind it."""
    wanted = set(roles)
    if not wanted or not directory.is_dir():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for path in sorted(directory.glob("*.sock")):
            if wanted & set(path.stem.rsplit("-", 1)[0].split("+")):
                try:
                    sender.sendto(b"!", os.fspath(path))
                except ConnectionRefusedError:  # its worker was killed
                    with suppress(OSError):
                        path.unlink()
                except OSError:
                    continue
