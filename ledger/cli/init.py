"""``ledger init``."""

import os
import re
import shlex
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import click

from actors.study.kind import StudyKind
from actors.study_kinds import KINDS, kind_of
from ledger.cli.options import print_json, printable, reading
from ledger.errors import Refused, Unfinished, Usage
from ledger.study_directory import StudyDirectory
from schemas.identifiers import check_identifier

TEMPLATES = {
    name: (kind, template) for kind in KINDS.values() for name, template in kind.templates.items()
}


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="repair",
    show_default=True,
    help="Which study.toml to begin with: repairs in a repository of yours, the study of 888 cells "
    "that this was built for, or transfer of corrections.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(directory: Path, template: str, as_json: bool) -> None:
    """Make a new study in DIRECTORY: study.toml, protocol.md and an empty ledger.

    DIRECTORY is new or empty, or has a study.toml already, which is kept. Next: edit study.toml
    (every key: docs/study-toml.md), then `ledger tasks mine`. With --template transfer: also eight
    example families, ready for `ledger freeze`; then families of your own.
    """
    from ledger.atomic_file import make_folder, write_file
    from ledger.creation import create_ledger

    study = StudyDirectory(directory)
    if os.path.lexists(study.ledger):
        with reading(directory) as context:
            if context.log.head() is not None:
                raise Refused(f"{study.root} has a ledger already; a ledger is never begun twice")
    _require_place(study)
    texts = files("actors.rehearsal") / "templates"
    kind, begins_with = TEMPLATES[template]
    beside = {"protocol.md": texts / "protocol.md"}
    beside |= {path: files(package) / name for path, (package, name) in begins_with.beside.items()}
    try:
        make_folder(study.root)
        if not study.toml.exists():
            content = _named((texts / f"{template}.toml").read_bytes(), study.root.name)
            if begins_with.present_python:
                content = with_this_python(content.decode()).encode()
            write_file(study.toml, content, mode=0o644)
        for name, source in beside.items():
            make_folder((study.root / name).parent)
            if not (study.root / name).exists():
                write_file(study.root / name, source.read_bytes(), mode=0o644)
    except OSError as error:
        raise Unfinished(f"{study.root}: {error.strerror}") from None
    uuid = create_ledger(study)
    if as_json:
        print_json({"study": str(study.root), "ledger": uuid})
        return
    print(f"study    {study.root}")
    print(f"ledger   {uuid}")
    step = _first_command(study, kind)
    print(f"next     edit {study.toml}, then: cd {shlex.quote(str(study.root))} && {step}")


def _named(text: bytes, folder: str) -> bytes:
    """The template with the folder's name as the study's id, where it can be one."""
    try:
        name = check_identifier(folder, "id").encode()
    except ValueError:
        return text
    return re.sub(rb'(?m)^id = "my-[a-z]+"$', b'id = "' + name + b'"', text, count=1)


def with_this_python(template: str) -> str:
    """The template with the Python that is here for certain: the one that this program runs in,
    which also tests a repository without requirement files."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return re.sub(r'(?m)^python = "[0-9.]+"$', f'python = "{here}"', template, count=1)


def _first_command(study: StudyDirectory, kind: StudyKind) -> str:
    """By the kind of study.toml, which may have been there before and need not be right yet."""
    with suppress(Usage):
        kind = kind_of(study.read_study()[1])
    return kind.first_command


def _require_place(study: StudyDirectory) -> None:
    """Raises Refused for a folder that holds something and no study: a clone, or a home folder that
    was not meant."""
    if os.path.lexists(study.toml) or os.path.lexists(study.var) or not study.root.is_dir():
        return
    found = sorted(entry for entry in os.listdir(study.root) if not entry.startswith("."))
    if found:
        names = ", ".join(map(printable, found[:3])) + (", …" if len(found) > 3 else "")
        raise Refused(
            f"{study.root} holds {names} and no study.toml: name a new folder, or put a study.toml "
            "there first if it is meant"
        )
