"""Options that several commands share, and how a study is opened."""

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from actors.loop import Context
from ledger.artifacts import Artifacts
from ledger.cli.printable import printable as printable
from ledger.clock import new_id
from ledger.errors import Integrity, LedgerError, Unfinished, Usage
from ledger.last_seen import known_ledger, recall
from ledger.log import EventLog
from ledger.regular_file import (
    check_regular,
    is_no_file,
    read_regular,
)
from ledger.signing_keys import config_home, parse_verifier_key
from ledger.stores import Mode, begins_like_a_ledger, open_log, records_at
from ledger.study_directory import StudyDirectory, refuse_links
from schemas.counted import counted

F = TypeVar("F", bound=Callable[..., Any])

MAX_GIVEN_BYTES = 64 << 20
PUT_BACK = (
    "put a backup of the study in its place, or make a study to read of an export (`ledger import`)"
)
"""Where nothing is left that a command could look at."""
RESTORE = "keep it, let `ledger verify-chain` say what is whole, and put a copy or an export back"


def study_option(function: F) -> F:
    """``--study DIR``: the study's folder, the current one by default."""
    return click.option(
        "--study",
        "study",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("."),
        envvar="LEDGER_STUDY",
        show_default="the current folder",
        help="Folder of the study (the one with study.toml). Also from LEDGER_STUDY.",
    )(function)


def json_option(function: F) -> F:
    """``--json``: machine-readable output on standard output, messages on standard error, of which
    an error is one JSON object on the last line."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


@contextmanager
def reading(study: Path) -> Iterator[Context]:
    """Open a study's ledger for reading; nothing on disk changes."""
    directory = StudyDirectory(study)
    log = _open_ledger(directory, "read")
    try:
        yield Context(log, Artifacts(directory.artifacts), directory, "")
    finally:
        log.close()


@contextmanager
def writing(study: Path, run: str | None = None) -> Iterator[Context]:
    """Open a study's ledger for appending; a checkpoint is signed at the end."""
    from ledger.checkpoint import Checkpointer

    directory = StudyDirectory(study)
    with writing_log(directory) as log:
        try:
            yield Context(log, Artifacts(directory.artifacts), directory, run or new_id())
        except LedgerError:
            with suppress(LedgerError):  # the first error is the one that says what to do
                Checkpointer(directory).sign(log)
            raise
        Checkpointer(directory).sign(log)


@contextmanager
def writing_log(directory: StudyDirectory) -> Iterator[EventLog]:
    """Open the log for appending and close it in the end.

    Raises Integrity for an older copy of a study of which this user has seen more records, Refused
    for a ledger that another key than the user's has signed.
    """
    from ledger.checkpoint import Checkpointer

    log = _open_ledger(directory, "append")
    try:
        if log.head() is None:
            raise Usage(
                f"{directory.ledger} has no record yet: its creation was interrupted, and "
                f"`ledger init {shlex.quote(str(directory.root))}` finishes it"
            )
        Checkpointer(directory).check_before_writing(log)
        yield log
    finally:
        log.close()


def require_ledger(directory: StudyDirectory) -> None:
    """Raises Usage where the study has no ledger, Integrity where something else stands there, or
    nothing any more.

    What is no regular file is never opened: reading from a pipe would wait for ever. Raises Refused
    where a folder of the study is a link, or another ledger lies beside its own.
    """
    path = directory.ledger
    refuse_links(directory.root, (directory.var.name,))
    refuse_links(directory.var)
    try:
        check_regular(path)
        records_at(directory.root)  # which refuses two
    except FileNotFoundError:
        if not directory.toml.exists():
            directory.read_study()  # says that there is no study here and how to make one
        if directory.checkpoints.exists():
            raise Integrity(
                f"{path} is gone, though {directory.checkpoints.name} beside it says that there "
                f"was a ledger: {PUT_BACK}"
            ) from None
        make = f"ledger init {shlex.quote(str(directory.root))}"
        home = config_home()
        if (known := known_ledger(home, path)) is not None:
            seen = recall(home, parse_verifier_key(known.key))
            records = f"of {counted(seen.size, 'record')} " if seen is not None else ""
            raise Integrity(
                f"{path} is gone: a ledger {records}was seen here, signed by the key {known.key}; "
                f"put a backup of the study back in its place (`{make}` would begin another one)"
            ) from None
        raise Usage(f"{directory.root} has no ledger yet: `{make}` makes one") from None
    except OSError as error:
        if not is_no_file(error):
            raise Unfinished(f"{path}: {error.strerror}; look at its permissions") from None
        raise Integrity(f"{path} is {error.strerror}; move it away and {PUT_BACK}") from None


def _open_ledger(directory: StudyDirectory, mode: Mode) -> EventLog:
    """Open the study's ledger. Its place is fixed, so what stands there and is no ledger is one
    that was damaged or replaced, not a wrong path."""
    require_ledger(directory)
    path = directory.ledger
    try:
        whole = begins_like_a_ledger(path)
    except OSError as error:
        raise Unfinished(f"{path}: {error.strerror}; look at its permissions") from None
    if not whole:
        raise Integrity(f"{path} does not begin like a ledger; {RESTORE}")
    return open_log(path, mode)


def read_given(path: Path) -> bytes:
    """A small file that the user names. Raises Usage for what is none, or cannot be read."""
    try:
        return read_regular(os.path.realpath(path), MAX_GIVEN_BYTES)
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}; name a small file") from None


def print_json(value: Any) -> None:
    """Print one JSON document; keys in the order given, for people and for programs.

    ASCII alone: a terminal that shows it obeys no character of untrusted text.
    """
    text = json.dumps(value, indent=2, ensure_ascii=True)
    print(text.replace("\x7f", "\\u007f"))


def ledger_of(context: Context) -> str:
    """The origin, NAME/UUID, of the ledger that is open; "" without a readable record 0."""
    from ledger.checkpoint import known_origin

    first = next(iter(context.log.read(0, 1)), None)
    return known_origin(first.record if first is not None else None)


def judged(path: Path | str, ledger: str) -> str:
    """Which file a command has judged, or removed from: its path, and the ledger's id."""
    return f"{printable(path)}  {printable(ledger) or 'without a readable record 0'}"


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Print rows as an aligned table; control characters of untrusted text are escaped."""
    if not rows:
        print("(none)")
        return
    names = list(columns or rows[0])
    cells = [[printable(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for line in [names, ["-" * width for width in widths], *cells]:
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )


def notes_in(path: Path) -> list[bytes]:
    """The signed notes of a file that `ledger checkpoint` has written. Raises Usage for a file that
    is none."""
    from ledger.checkpoint import split_notes

    content = read_given(path)
    notes, strays, rest = split_notes(content)
    if (strays or rest) and b"\r\n" in content:
        raise Usage(
            f"{path}: its lines end in CR LF: something converted the file as text; copy it as "
            "binary, what was signed are the bytes"
        )
    if not notes or strays or rest:
        raise Usage(
            f"{path}: not a file of signed notes; `ledger checkpoint > note` writes one, and "
            "`ledger checkpoint --copy FILE`"
        )
    return notes
