"""The example repositories: small libraries with a history worth mining.

The demonstration needs a repository that is real enough to be searched, edited and tested, and
small enough to ship. `ferial` (Python: recurrence rules, cron expressions, durations, business
days) and `lathe` (Go: sizes, versions, patterns, tables) were written for this purpose and depend
on nothing but their standard libraries. Their first-parent histories mix bug fixes that come with
tests and every common reason for which a miner rejects a commit. They ship as `git fast-import`
streams, so that every machine gets the same object names.
"""

import tempfile
from pathlib import Path

from actors.test_runs.git import Git, GitError
from ledger.errors import Integrity, Refused, Unfinished

BRANCH = "main"
_DATA = Path(__file__).parent / "data"
STREAM = _DATA / "example_repository.fast-import"
RECORDED_HEAD = _DATA / "example_repository.head"
LANGUAGES = {
    "python": (STREAM, RECORDED_HEAD),
    "go": (_DATA / "example_repository_go.fast-import", _DATA / "example_repository_go.head"),
}

# Beyond what every call of git leaves out: object names and file contents must not depend on the
# default hash of a newer git or on the attributes of a system.
_SAME_EVERYWHERE = {"GIT_DEFAULT_HASH": "sha1", "GIT_ATTR_NOSYSTEM": "1"}


def create(destination: Path, language: str = "python") -> str:
    """Import the example repository in a language of :data:`LANGUAGES`, check its branch `main`
    out and return the head's SHA-1.

    `destination` must be absent or an empty directory, and its parent must exist; it appears
    complete or not at all. User and system git configuration play no part, so that neither line
    endings nor attributes nor hooks of this machine reach the files.

    Raises Refused where the destination holds something, Unfinished where its parent is absent or
    git cannot be run or fails, and Integrity where the imported head is not the recorded one.
    """
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise Refused(f"{destination} is not an empty directory; choose another place")
    if not destination.parent.is_dir():
        raise Unfinished(f"{destination.parent} is not a directory; create it first")
    stream, recorded_head = LANGUAGES[language]
    recorded = recorded_head.read_text(encoding="ascii").strip()
    try:
        # Beside the destination, so that it is renamed into place and never copied.
        with tempfile.TemporaryDirectory(prefix=".example-", dir=destination.parent) as directory:
            scratch = Path(directory) / "repository"
            scratch.mkdir()
            git = Git(scratch, _SAME_EVERYWHERE)
            git.run("init", "--quiet", "--template=")
            git.run("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
            # `--done` makes a stream that was cut short an error instead of a shorter history.
            git.run("fast-import", "--quiet", "--done", stdin=stream.read_bytes())
            head = git.text("rev-parse", "--verify", f"refs/heads/{BRANCH}")
            if head != recorded:
                raise Integrity(
                    f"{stream.name} gives the head {head}, recorded is {recorded}; "
                    "reinstall the package, its data files do not belong together"
                )
            git.run("reset", "--quiet", "--hard", head)
            scratch.replace(destination)
    except GitError as error:
        raise Unfinished(f"the example repository cannot be imported: {error}") from error
    return head
