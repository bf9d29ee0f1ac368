"""Which store an address names: the only place that opens a log, or records to be verified.

A log lies in one SQLite file (``ledger/sqlite/``). Records that came from elsewhere may also be an
exported bundle or a file of JSON lines. A further store is a room of its own and a line here.
"""

import os
from pathlib import Path
from typing import Literal

from ledger.errors import Refused, Usage
from ledger.jsonl_records import JsonlRecords
from ledger.log import EventLog
from ledger.record_source import (
    ARTIFACTS_FOLDER,
    CHECKPOINTS_FILE,
    DATABASE_FILE,
    RECORDS_FILE,
    RecordSource,
    not_to_be_read,
)
from ledger.regular_file import is_open_here
from ledger.sqlite.imported import ImportedDatabase
from ledger.sqlite.log import SqliteLog
from ledger.sqlite.records import SqliteRecords
from ledger.sqlite.schema import begins_like_a_database
from ledger.study_directory import refuse_links

Mode = Literal["create", "append", "read"]


def open_log(address: Path, mode: Mode) -> EventLog:
    """The log at ``address``, the path of a ``ledger.db``.

    ``create`` makes one where there is none, ``append`` reads and writes, ``read`` never writes.
    Raises Usage for what is no ledger of this version, Integrity for one that is damaged or not a
    ledger any more, Refused for appending to an imported one, Unfinished where it cannot be opened.
    """
    if mode == "create":
        return SqliteLog.create(address)
    return SqliteLog.open(address) if mode == "append" else SqliteLog.open_read_only(address)


def open_records(path: Path, artifacts: Path | None = None, live: bool = False) -> RecordSource:
    """Open what stands at ``path``: a study directory, its ``var/``, a database, an exported
    bundle, or a file of JSON lines. ``live`` reads with locks, as beside a writer.

    Raises Usage where there is nothing of the kind, Unfinished, Damaged.
    """
    file = records_at(path)
    refuse_links(file.parent)
    if file.suffix == ".db" or is_sqlite(file):
        return SqliteRecords(file, artifacts, live)
    if file == path:
        return JsonlRecords(file, None, artifacts)
    beside = artifacts or path / ARTIFACTS_FOLDER
    return JsonlRecords(file, path / CHECKPOINTS_FILE, beside if beside.is_dir() else None)


def records_at(path: Path) -> Path:
    """The one file that holds the records of what stands at ``path``: a folder's database or its
    records.jsonl, else the file itself.

    Raises Usage where there is none, Refused where a folder holds two: one could be a decoy.
    """
    if not path.is_dir():
        if not path.exists():
            raise Usage(f"{path} does not exist; name a study, a database or an export")
        return path
    refuse_links(path, ("var",))
    places = (path / DATABASE_FILE, path / "var" / DATABASE_FILE, path / RECORDS_FILE)
    found = [place for place in places if os.path.lexists(place)]
    if not found:
        raise Usage(
            f"{path}: no {DATABASE_FILE} and no {RECORDS_FILE} in it; name a study or export"
        )
    if len(found) > 1:
        raise Refused(
            f"{path} holds {' and '.join(str(place.relative_to(path)) for place in found)}: "
            "move the one away that does not belong there"
        )
    return found[0]


def new_imported(path: Path) -> ImportedDatabase:
    """A store that is filled with the records of a bundle and never written again."""
    return ImportedDatabase(path)


def begins_like_a_ledger(path: Path) -> bool:
    """Whether the file is one of a log's store. Raises OSError where it cannot be read."""
    return is_open_here(path) or begins_like_a_database(path, of_a_ledger=True)


def is_sqlite(path: Path) -> bool:
    """Raises Damaged for what is no regular file, Unfinished for what cannot be read."""
    try:
        return is_open_here(path) or begins_like_a_database(path, of_a_ledger=False)
    except OSError as error:
        raise not_to_be_read(path, error) from None
