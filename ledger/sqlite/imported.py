"""A database that is filled with the records of an exported bundle, then never written again."""

import os
import sqlite3
from pathlib import Path
from types import TracebackType

from ledger.checkpoint import parse_checkpoint, split_notes
from ledger.errors import Integrity
from ledger.record_page import Page
from ledger.record_source import CHECKPOINTS_FILE
from ledger.sqlite.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION

_INSERT = """\
INSERT INTO records
  (seq, record, leaf, id, type, stream, version, at, actor, cause, "index", run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class ImportedDatabase:
    """A new file. Nobody sees it before it is complete and synced as a whole, so that nothing here
    is durable by itself. Raises Integrity for what no ledger can hold."""

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA journal_mode = MEMORY")
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        for statement in SCHEMA.values():
            self._connection.execute(statement)

    def __enter__(self) -> "ImportedDatabase":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def add_notes(self, published: bytes) -> None:
        """The content of a file of signed notes."""
        notes, strays, torn = split_notes(published)
        if strays or torn:
            raise Integrity(f"{CHECKPOINTS_FILE} holds something that is no checkpoint")
        for note in notes:
            size = parse_checkpoint(note).checkpoint.size
            try:
                self._connection.execute(
                    "INSERT OR IGNORE INTO checkpoints (size, note) VALUES (?, ?)", (size, note)
                )
            except OverflowError:
                raise Integrity(f"a checkpoint over {size} records; nothing was kept") from None

    def add_records(self, page: Page) -> None:
        """Records exactly as they were read, all of a page or none."""
        for position, problem in page.not_canonical:
            raise Integrity(f"seq {position}: {problem}; nothing was kept")
        self._connection.execute("BEGIN")
        for fields, record, leaf in zip(page.fields, page.records, page.leaves, strict=True):
            assert fields is not None  # it would not be canonical
            named = (fields.id, fields.type, fields.stream, fields.version, fields.at, fields.actor)
            rest = (fields.cause, fields.index, fields.run)
            try:
                self._connection.execute(_INSERT, (fields.seq, record, leaf, *named, *rest))
            except (sqlite3.IntegrityError, OverflowError) as error:
                raise Integrity(f"seq {fields.seq}: {error}; nothing was kept") from None
        self._connection.execute("COMMIT")
