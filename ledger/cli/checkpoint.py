"""``ledger checkpoint``."""

import base64
import hashlib
import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import click

from actors.loop import Context
from ledger.atomic_file import sync
from ledger.cli.options import json_option, print_json, printable, read_given, study_option, writing
from ledger.errors import Integrity, Refused, Unfinished, Usage
from schemas.counted import counted
from schemas.credentials import carries_credentials, without_credentials
from schemas.secret_shapes import marked_secrets

MAX_TOKEN_BYTES = 64 << 10

_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")


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
@click.option(
    "--branch", metavar="NAME", default="checkpoints", show_default=True, help="Branch for --push."
)
@click.option(
    "--note",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="A note of this ledger that was stamped, for --time-token.",
)
@click.option(
    "--time-token",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Record the RFC 3161 response of a time-stamping authority for --note.",
)
@click.option(
    "--time-authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="The authority's certificate (PEM); the token is checked before it is recorded.",
)
def command(
    study: Path,
    as_json: bool,
    copy: Path | None,
    push: str | None,
    branch: str,
    note: Path | None,
    time_token: Path | None,
    time_authority: Path | None,
) -> None:
    """Sign the present root, and optionally anchor it outside; each anchor is recorded.

        ledger checkpoint --push ../anchors.git --copy /mnt/other-disk/notes

    Standard output is the signed note, so `ledger checkpoint > note` keeps one. Anybody verifies
    against it with `ledger verify-chain --against note --key KEY`, where KEY is the verifier string
    that is printed too.

    For a time stamp: `ledger checkpoint > note`, then `openssl ts -query -data note -sha256 -cert
    -out note.tsq`, send the query to your authority, then `ledger checkpoint --note note
    --time-token note.tsr --time-authority authority.pem`.
    """
    from ledger.checkpoint import Checkpointer, ledger_key, parse_checkpoint

    if (note is None) != (time_token is None):
        raise Usage("--note and --time-token go together: the note that was stamped, and the token")
    if note is not None and (copy is not None or push is not None):
        raise Usage("--copy and --push anchor the present root; --note one that was signed before")
    branch = _branch(branch)
    anchors = []
    with writing(study) as context:
        checkpointer = Checkpointer(context.directory)
        if push is not None:
            _check_address(push, context)
        if copy is not None:
            _check_place(copy, context)
        if note is not None and time_token is not None:
            signed = _own_note(note, context)
            token = _token(time_token, signed)
            anchors.append(_anchor(context, signed, "time", time_token.name, token, time_authority))
        else:
            signed = checkpointer.sign(context.log)
            if copy is not None:
                _write_copy(copy, signed)
                where = str(copy.resolve())
                anchors.append(_anchor(context, signed, "copy", where, sha256(signed).hexdigest()))
            if push is not None:
                where = str(Path(push).resolve()) if Path(push).exists() else push
                commit = push_note(where, branch, signed)
                anchors.append(_anchor(context, signed, "git", where, commit))
        key = ledger_key(context.log)
    size = parse_checkpoint(signed).checkpoint.size
    if as_json:
        print_json({"size": size, "key": str(key), "note": signed.decode(), "anchors": anchors})
        return
    print(signed.decode(), end="")
    said = [f"signed over {counted(size, 'event')}", f"key {key}"]
    for anchor in anchors:
        counts = "counts" if anchor["counts"] else "recorded, does not count here"
        said.append(f"anchor {anchor['kind']} {anchor['where']}: {counts}: {anchor['detail']}")
    print("\n".join(map(printable, said)), file=sys.stderr)


def _anchor(
    context: Context,
    note: bytes,
    kind: Literal["git", "time", "copy"],
    where: str,
    receipt: str,
    authority: Path | None = None,
) -> dict[str, Any]:
    """Record an anchor; returns what verification would say of it now."""
    from actors.loop import carry_out
    from actors.study.orders import HANDLERS
    from ledger.checkpoint import parse_checkpoint
    from ledger.verify.anchors import check_receipt
    from schemas.commands import AnchorCheckpoint
    from schemas.events.ledger import CheckpointAnchored

    size = parse_checkpoint(note).checkpoint.size
    event = CheckpointAnchored(
        size=size, note=note.decode(), kind=kind, where=where, receipt=receipt
    )
    counts, detail = check_receipt(event, context.directory.ledger, authority)
    if authority is not None and not counts:
        raise Refused(f"{where}: {detail}; nothing was recorded")
    order = AnchorCheckpoint(size=size, note=event.note, kind=kind, where=where, receipt=receipt)
    carry_out(context, order, HANDLERS)
    return {"kind": kind, "where": where, "receipt": receipt, "counts": counts, "detail": detail}


def _branch(name: str) -> str:
    """Raises Usage for what git would read as something else than the name of a branch."""
    if not _BRANCH.fullmatch(name) or ".." in name or name.endswith((".lock", ".", "/")):
        raise Usage(f"{name!r} is not the name of a branch; write letters, digits, - _ . and /")
    return name


def _check_address(remote: str, context: Context) -> None:
    """Raises Usage for an address that may not be recorded, Refused for a place that is none."""
    if carries_credentials(remote) or marked_secrets(remote):
        raise Usage(
            "the address of the remote carries a password or a token, and it is recorded: let git "
            "know it instead (a credential helper, SSH), and give the address without"
        )
    if Path(remote).exists():
        _check_place(Path(remote), context)


def _check_place(place: Path, context: Context) -> None:
    from ledger.verify.anchors import lies_beside

    if lies_beside(place, context.directory.ledger):
        raise Refused(
            f"{place} lies in the study's own folder: whoever changes the ledger changes it too; "
            "name another disk or host"
        )


def _own_note(path: Path, context: Context) -> bytes:
    """The one note in a file. Raises Usage unless this ledger's key has signed it."""
    from ledger.checkpoint import check_signature, ledger_key, parse_checkpoint

    note = read_given(path)
    try:
        signed = parse_checkpoint(note)
    except Integrity:
        raise Usage(
            f"{path} must be exactly the note that was stamped, one and nothing else: "
            "`ledger checkpoint > note` writes it"
        ) from None
    if check_signature(signed, ledger_key(context.log)) != "valid":
        raise Usage(f"{path} is not a note of this ledger that your key has signed")
    return note


def _token(path: Path, note: bytes) -> str:
    """The response as it is recorded. Raises Usage where it is not about the note at all: an
    RFC 3161 token holds the plain digest of what was stamped."""
    response = read_given(path)
    digests = [hashlib.new(name, note).digest() for name in ("sha256", "sha384", "sha512")]
    if len(response) > MAX_TOKEN_BYTES or not any(digest in response for digest in digests):
        raise Usage(f"{path} is no time-stamp response for this note (SHA-256, 384 or 512)")
    return base64.b64encode(response).decode()


def _write_copy(path: Path, note: bytes) -> None:
    """Append the note to a file that may hold earlier ones, durably. The first one stands alone, so
    that the file is exactly a note."""
    try:
        with open(path, "ab") as file:
            file.write(b"\n" + note if file.tell() else note)
            file.flush()
            sync(file.fileno())
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
                ["git", "-C", folder, *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
            )
            if check and done.returncode != 0:
                words_of_git = without_credentials(done.stderr.strip()[-600:])
                raise Unfinished(f"git {words[0]} {remote}: {words_of_git}")
            return str(done.stdout).strip()

        git("init", "--quiet")
        # What the user gives stands behind --, where git takes nothing for an option.
        git("fetch", "--quiet", "--depth=1", "--", remote, f"refs/heads/{branch}", check=False)
        parent = git("rev-parse", "--quiet", "--verify", "FETCH_HEAD", check=False)
        Path(folder, "checkpoint").write_bytes(note)
        git("add", "checkpoint")
        tree = git("write-tree")
        name = ("-c", "user.name=ledger", "-c", "user.email=ledger@invalid")
        above = ("-p", parent) if parent else ()
        commit = git(*name, "commit-tree", tree, *above, "-m", "ledger checkpoint")
        git("push", "--quiet", "--", remote, f"{commit}:refs/heads/{branch}")
        return commit
