"""The one way git is called: user and system configuration ignored, bytes in, bytes out.

Repositories are untrusted input: hooks, aliases, attributes drivers and prompts must not act. An
exit status is not believed where a tree id can be compared (see ``actors/test_runs/patches.py``).
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ledger.errors import Unfinished
from schemas.credentials import without_credentials


class GitError(Unfinished):
    """git failed; the message carries the command and the end of what it wrote on stderr."""


class Git:
    """Commands on one repository (a work tree or a bare directory)."""

    def __init__(self, directory: Path, extra_environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._environment = isolated_environment() | dict(extra_environment or {})

    def run(self, *arguments: str, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        """Standard output of ``git -C directory arguments``; raises GitError on another status."""
        command = ["git", "-C", str(self.directory), *_NEUTRAL, *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, env=self._environment, check=False
            )
        except FileNotFoundError:
            raise GitError(
                "git is not on the PATH; install git (`ledger doctor` says how)"
            ) from None
        if done.returncode not in ok:
            reason = without_credentials(done.stderr.decode("utf-8", "replace").strip()[-800:])
            raise GitError(f"git {' '.join(arguments[:4])} in {self.directory}: {reason}")
        return done.stdout

    def text(self, *arguments: str, stdin: bytes = b"") -> str:
        """Like :meth:`run` for output that is ASCII by nature (object ids, counts)."""
        return self.run(*arguments, stdin=stdin).decode("ascii").strip()


_NEUTRAL = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.quotePath=true",
    "-c", "protocol.ext.allow=never",
    "-c", "safe.directory=*",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
)  # fmt: skip


def isolated_environment() -> dict[str, str]:
    """Environment variables for git: PATH only, no configuration, no prompt, UTC, C locale."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        # A partial clone names a program that fetches what it lacks; git before 2.45 does not know
        # the first of these two.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
