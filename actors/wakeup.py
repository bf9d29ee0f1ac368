"""Wake-ups between the processes of one machine: a datagram socket per worker.

A wake-up only says "look at the log"; it carries nothing and may be lost, because every worker
also polls. Polling alone would cost tens of milliseconds at every hop of a turn.

The sockets lie in the folder for temporary files, where others may write too. So nothing is put
into, sent to or removed from a folder there that is not ours alone: where somebody else has made it
first, workers poll. The last one to end removes it.
"""

import os
import socket
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from actors.diagnostics import diagnostics

POLL_SECONDS = 0.25
ATTEMPTS = 5


class Waiter:
    """The receiving end, one per worker process. Named ``<role>[+<role>…]-<pid>.sock``."""

    def __init__(self, directory: Path, roles: Sequence[str]) -> None:
        self._directory = directory
        self._path = directory / f"{'+'.join(roles)}-{os.getpid()}.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(POLL_SECONDS)
        for _ in range(ATTEMPTS):
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not is_ours_alone(directory):
                    reason = "others can write to the folder, or it is somebody else's"
                    break
                self._path.unlink(missing_ok=True)
                self._socket.bind(os.fspath(self._path))
                return
            except FileNotFoundError:  # whoever ended last has just removed the folder
                reason = "the folder vanishes again and again"
            except OSError as error:
                reason = str(error)
                break
        diagnostics().warning("no wake-ups, polling", folder=str(directory), reason=reason)

    def wait(self) -> None:
        """Return when woken, or after the polling interval."""
        with suppress(TimeoutError):
            self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()
        if is_ours_alone(self._directory):
            self._path.unlink(missing_ok=True)
            clean_up(self._directory)


def wake(directory: Path, roles: Iterable[str]) -> None:
    """Wake every worker of these roles. Never blocks and never fails: polling stands behind it."""
    wanted = set(roles)
    if not wanted or not is_ours_alone(directory):
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


def clean_up(directory: Path) -> None:
    """Remove the sockets of killed workers, and the folder where nobody is left in it."""
    if not is_ours_alone(directory):
        return
    for path in sorted(directory.glob("*.sock")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
            try:
                caller.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue
    with suppress(OSError):  # somebody listens there
        directory.rmdir()


def clean_up_abandoned(directory: Path) -> None:
    """Clean up the folder of a study and those of all others of this user: where every process of a
    study was killed, nobody else would."""
    of_this_user = directory.name.rpartition("-")[0]
    for folder in sorted(directory.parent.glob(f"{of_this_user}-*")):
        clean_up(folder)


def is_ours_alone(directory: Path) -> bool:
    """True for a folder, no link, that belongs to this user and that nobody else can look into."""
    try:
        about = directory.lstat()
    except OSError:
        return False
    private = not stat.S_IMODE(about.st_mode) & 0o077
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and private
