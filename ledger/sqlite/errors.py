"""The errors of SQLite as ours: what each means, and what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.errors import Integrity, LedgerError, Unfinished, Usage

_CONDITIONS: dict[int, tuple[type[LedgerError], str]] = {
    sqlite3.SQLITE_FULL: (Unfinished, "the disk is full; make room and run the command again"),
    sqlite3.SQLITE_BUSY: (
        Unfinished,
        "another program holds the database locked; close it (a database browser, a backup) and "
        "run the command again",
    ),
    sqlite3.SQLITE_LOCKED: (
        Unfinished,
        "another program holds a table locked; close it and run the command again",
    ),
    sqlite3.SQLITE_PROTOCOL: (
        Unfinished,
        "too many processes open the database at the same moment; run the command again",
    ),
    sqlite3.SQLITE_READONLY: (
        Unfinished,
        "the file or its directory cannot be written; change its permissions or copy the study "
        "directory to a place of yours",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        Unfinished,
        "the database or its -wal or -shm file cannot be opened; look at the permissions of the "
        "directory, or copy all three files to a directory of yours",
    ),
    sqlite3.SQLITE_PERM: (Unfinished, "access is denied; look at the permissions of the file"),
    sqlite3.SQLITE_IOERR: (
        Unfinished,
        # SQLite says so too where its index of the WAL finds no room.
        "reading or writing the disk failed; look at the free space, at the system's log and at "
        "the disk, then run `ledger verify-chain`",
    ),
    sqlite3.SQLITE_NOLFS: (
        Unfinished,
        "the file system does not take a file of this size; move the study directory to another",
    ),
    sqlite3.SQLITE_NOMEM: (Unfinished, "there is not enough memory; close something, run again"),
    sqlite3.SQLITE_INTERRUPT: (Unfinished, "it was interrupted; run the command again"),
    sqlite3.SQLITE_CORRUPT: (
        Integrity,
        "the database file is damaged; do not write to it, keep a copy, let `ledger verify-chain` "
        "say what is whole and go on with a backup",
    ),
    sqlite3.SQLITE_NOTADB: (Usage, "it is not a SQLite database; give the path of a ledger.db"),
    sqlite3.SQLITE_CONSTRAINT: (
        Integrity,
        "the database refused rows that do not follow from its records; another program has "
        "written to it, run `ledger verify-chain`",
    ),
    sqlite3.SQLITE_MISMATCH: (
        Integrity,
        "a column holds another type than the ledger writes; run `ledger verify-chain`",
    ),
    sqlite3.SQLITE_ERROR: (
        Integrity,
        "its tables are not those of a ledger; run `ledger verify-chain`",
    ),
    sqlite3.SQLITE_TOOBIG: (
        Integrity,
        "it holds a value larger than any that the ledger writes; run `ledger verify-chain`",
    ),
}
_OTHERWISE = (Unfinished, "SQLite could not finish; run `ledger verify-chain`")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raises the errors of SQLite and of the operating system as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise ledger_error(error, path) from error
    except OSError as error:
        raise Unfinished(
            f"{path}: {error.strerror or error}; look at the disk and at the permissions of its "
            "directory, then run the command again"
        ) from error


def ledger_error(error: sqlite3.Error, path: Path) -> LedgerError:
    """Our error for one of SQLite's: what it means, in one line, and what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.ProgrammingError):
        return Usage(f"{path}: {error}; open the log again")
    # The low byte is the condition, the rest says where it arose.
    kind, remedy = _OTHERWISE if code is None else _CONDITIONS.get(code & 0xFF, _OTHERWISE)
    return kind(f"{path}: {error}: {remedy}")
