"""A file with one record a line, alone or in an exported bundle: read without trusting it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ledger.errors import Refused, Unfinished
from ledger.record_source import (
    PAGE_BYTES,
    PAGE_RECORDS,
    OwnCheck,
    Row,
    Stretch,
    Unreadable,
    held_in_memory,
    not_to_be_read,
    read_checkpoint_log,
)
from ledger.regular_file import open_regular
from schemas.envelope import MAX_RECORD_BYTES

MAX_SKIPS = 64
"""How often, in all, a line that is too long is read on by as much as a record may have."""


class JsonlRecords:
    """A file with one record a line, alone or in an exported bundle."""

    def __init__(
        self, path: Path, checkpoints: Path | None = None, artifacts: Path | None = None
    ) -> None:
        self.path = path
        self.artifacts = artifacts
        self.imported = False
        self._checkpoints = checkpoints
        try:
            self._file: BinaryIO = open_regular(path)
        except OSError as error:
            raise not_to_be_read(path, error) from None

    def first(self) -> bytes | None:
        self._file.seek(0)
        return next(self._lines(), None)

    def end(self) -> int | None:
        return None

    def stretches(self, end: int | None) -> Iterator[Stretch]:
        rows: list[Row] = []
        size = 0
        following = 0
        self._file.seek(0)
        for line in self._lines():
            if line is None:
                reason = f"a line longer than {MAX_RECORD_BYTES} bytes"
                yield Stretch(rows, Unreadable(following, following + 1, reason, too_large=True))
                rows, size = [], 0
                following += 1
                continue
            match = _BEGINNING.match(line)
            position = int(match[1]) if match else None
            rows.append((position, line))
            following = (following if position is None else position) + 1
            size += len(line)
            if len(rows) == PAGE_RECORDS or size > PAGE_BYTES:
                yield Stretch(rows)
                rows, size = [], 0
        if rows:
            yield Stretch(rows)

    def _lines(self) -> Iterator[bytes | None]:
        """Lines without their end; None for one that is too long. Nothing after ``MAX_SKIPS``: a
        file can be made to go on for as long as one cares, in one line or in many."""
        limit = MAX_RECORD_BYTES + 1
        skips = iter(range(MAX_SKIPS))
        try:
            while line := self._file.readline(limit):
                if line.endswith(b"\n"):
                    yield line[:-1]
                elif len(line) < limit:
                    yield line
                else:
                    yield None
                    if not any(
                        self._file.readline(MAX_RECORD_BYTES).endswith(b"\n") for _ in skips
                    ):
                        return
        except OSError as error:
            raise Unfinished(f"{self.path}: {error.strerror}") from None

    def published(self) -> bytes:
        return read_checkpoint_log(self._checkpoints) if self._checkpoints else b""

    def checkpoint_rows(self) -> list[tuple[int, bytes]]:
        return []

    def find(self, event_type: str) -> list[bytes]:
        mark = f'"type":"{event_type}"'.encode()
        self._file.seek(0)
        lines = ((line,) for line in self._lines() if line is not None and mark in line[:512])
        return [
            row[0] for row in held_in_memory(lines, f"records of type {event_type}", lambda r: r[0])
        ]

    def changed_at_rest(self) -> bool:
        return False

    def begin_own_checks(self, end: int | None) -> None:
        pass

    def own_checks(self) -> Iterable[OwnCheck]:
        return ()

    def copy_to(self, target: Path) -> None:
        raise Refused(f"{self.path.parent} is an export; copy the folder")

    def close(self) -> None:
        self._file.close()


_BEGINNING = re.compile(rb'\{"seq":(0|[1-9][0-9]{0,15}),"prev":"')
