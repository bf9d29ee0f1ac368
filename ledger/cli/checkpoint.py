"""``ledger checkpoint``."""

import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Literal

import click

from actors.loop import Context
from ledger.cli.options import json_option, print_json, study_option, writing
from ledger.errors import Refused, Unfinished


@click.command("checkpoint")
@study_option
@json_option
@click.option(
    "--copy",
    "copy",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also write the note to this file (another disk, a mounted host).",
)
@click.option(
    "--push",
    default=None,
    metavar="REMOTE",
    help="Also push the note as a commit to this git remote (URL or path).",
)
@click.option("--branch", default="checkpoints", show_default=True, help="Branch for --push.")
@click.option(
    "--time-token",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Record an RFC 3161 response for the note that --note names.",
)
@click.option(
    "--note",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="The note that the time token is for.",
)
def command(
    study: Path,
    as_json: bool,
    copy: Path | None,
    push: str | None,
    branch: str,
    time_token: Path | None,
    note: Path | None,
) -> None:
    """Sign the present root, and optionally anchor it outside; each anchor is recorded.

    For a time stamp: `ledger checkpoint --copy note`, then `openssl ts -query -data note -sha256
    -cert -out note.tsq`, send the query to your authority, then
    `ledger checkpoint --note note --time-token note.tsr`.
    """
    import base64

    from ledger.checkpoint import Checkpointer, parse_checkpoint

    with writing(study) as context:
        if time_token is not None:
            if note is None:
                raise Refused("--time-token needs --note: the note that was stamped")
            signed = note.read_bytes()
            token = base64.b64encode(time_token.read_bytes()).decode()
            _record(context, signed, "time", time_token.name, token)
        else:
            signed = Checkpointer(context.directory).sign(context.log)  # type: ignore[arg-type]
            if copy is not None:
                _write_copy(copy, signed)
                where = str(copy.resolve())
                _record(context, signed, "copy", where, sha256(signed).hexdigest())
            if push is not None:
                where = str(Path(push).resolve()) if Path(push).exists() else push
                _record(context, signed, "git", where, push_note(where, branch, signed))
    size = parse_checkpoint(signed).checkpoint.size
    if as_json:
        print_json({"size": size, "note": signed.decode()})
        return
    print(signed.decode(), end="")
    print(f"\nsigned over {size} events")


def _record(
    context: Context, note: bytes, kind: Literal["git", "time", "copy"], where: str, receipt: str
) -> None:
    from actors.loop import carry_out
    from actors.operator import HANDLERS
    from ledger.checkpoint import parse_checkpoint
    from schemas.commands import AnchorCheckpoint

    size = parse_checkpoint(note).checkpoint.size
    order = AnchorCheckpoint(size=size, note=note.decode(), kind=kind, where=where, receipt=receipt)
    carry_out(context, order, HANDLERS)


def _write_copy(path: Path, note: bytes) -> None:
    """Append the note to a file that may hold earlier ones."""
    try:
        with open(path, "ab") as file:
            file.write(note + b"\n")
    except OSError as error:
        raise Unfinished(f"{path}: {error.strerror}") from None


def push_note(remote: str, branch: str, note: bytes) -> str:
    """Push a commit with the note (file ``checkpoint``) on top of the remote's branch.

    Returns the commit id, which is the receipt. The user's own git configuration is used, because
    it knows the credentials of the remote. Raises Unfinished with git's words.
    """
    with tempfile.TemporaryDirectory(prefix="ledger-anchor-") as folder:

        def git(*words: str, check: bool = True) -> str:
            done = subprocess.run(
                ["git", "-C", folder, *words], capture_output=True, text=True, check=False
            )
            if check and done.returncode != 0:
                raise Unfinished(f"git {words[0]} {remote}: {done.stderr.strip()[-600:]}")
            return done.stdout.strip()

        git("init", "--quiet")
        git("fetch", "--quiet", "--depth=1", remote, branch, check=False)
        parent = git("rev-parse", "--quiet", "--verify", "FETCH_HEAD", check=False)
        Path(folder, "checkpoint").write_bytes(note)
        git("add", "checkpoint")
        tree = git("write-tree")
        name = ("-c", "user.name=ledger", "-c", "user.email=ledger@invalid")
        above = ("-p", parent) if parent else ()
        commit = git(*name, "commit-tree", tree, *above, "-m", "ledger checkpoint")
        git("push", "--quiet", remote, f"{commit}:refs/heads/{branch}")
        return commit
