"""SQL over the projections, in two steps: which tables a statement reads, then its rows.

The first step compiles the statement against empty tables and never sees a value, so the inspection
gate can be passed before anything of a guarded table is read. Both steps run under SQLite's
authorizer: reading declared tables and calling listed functions is allowed, nothing else.
"""

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import Unfinished, Usage
from projections.fold import Row
from projections.registry import declared_tables
from projections.store import GUARDED_SCHEMA, BuiltFrom, Generation, create_table_sql

MAX_VALUE_BYTES = 16 << 20
MAX_STATEMENT_BYTES = 1 << 20
STEPS_BETWEEN_LOOKS = 20_000

FUNCTIONS = frozenset(
    """
    -> ->> abs avg ceil ceiling char coalesce count cume_dist date datetime dense_rank exp
    first_value floor format glob group_concat hex ifnull iif instr json json_array
    json_array_length json_extract json_group_array json_group_object json_object json_quote
    json_type json_valid julianday lag last_value lead length like likelihood likely ln log log10
    log2 lower ltrim max min mod nth_value ntile nullif percent_rank pow power printf quote rank
    replace round row_number rtrim sign sqrt strftime string_agg substr substring sum time total
    trim trunc typeof unicode unixepoch unlikely upper
    """.split()  # noqa: SIM905
)
"""Functions of SQLite that read nothing but their arguments."""

ONLY_SELECT = "only one SELECT is allowed"


@dataclass(frozen=True)
class Answer:
    columns: tuple[str, ...]
    """Names as SQLite gives them; a name that stands twice gets ``_2`` the second time."""
    rows: tuple[tuple[Any, ...], ...]
    complete: bool
    """False where there are more rows than were asked for."""


def readable_tables() -> Mapping[str, tuple[type[Row], bool]]:
    """(table, guarded) of everything that a statement may read, by name."""
    in_front: list[type[Row]] = [*declared_tables(False), BuiltFrom]
    return {
        **{table.TABLE: (table, False) for table in in_front},
        **{table.TABLE: (table, True) for table in declared_tables(True)},
    }


def guarded_tables_read(sql: str) -> tuple[str, ...]:
    """Compile the statement against empty tables; names of the guarded tables that it reads.

    Raises Usage for what is not one SELECT over the projections, with the tables that there are.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute(f"ATTACH DATABASE ':memory:' AS {GUARDED_SCHEMA}")
        for table, guarded in readable_tables().values():
            connection.execute(create_table_sql(table, GUARDED_SCHEMA if guarded else "main"))
        authorizer = _Authorizer()
        connection.set_authorizer(authorizer)
        _execute(connection, f"EXPLAIN {sql}", authorizer).close()
    finally:
        connection.close()
    if not authorizer.selects:
        raise _explained(Usage(ONLY_SELECT), authorizer)  # VACUUM asks nobody
    return tuple(sorted(authorizer.guarded))


def ask(generation: Generation, sql: str, outcomes: bool, max_rows: int, seconds: float) -> Answer:
    """Run the statement; at most ``max_rows`` rows and ``seconds`` of computing.

    ``outcomes`` attaches the guarded tables, for a caller that has passed the gate. Raises Usage
    for what SQLite refuses, Unfinished when the time is over.
    """
    connection = generation.connect(outcomes)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_BYTES)
        deadline = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
        authorizer = _Authorizer()
        connection.set_authorizer(authorizer)
        cursor = _execute(connection, sql, authorizer)
        try:
            rows = cursor.fetchmany(max_rows + 1)
        except sqlite3.Error as error:
            raise _explained(error, authorizer) from None
        columns = _unique([column[0] for column in cursor.description or ()])
    finally:
        connection.close()
    return Answer(columns, tuple(rows[:max_rows]), len(rows) <= max_rows)


@dataclass
class _Authorizer:
    """Says to SQLite what a statement may do, and remembers what it wanted."""

    guarded: set[str] = field(default_factory=set)
    selects: bool = False
    refused: str = ""

    def __call__(
        self, action: int, first: str | None, second: str | None, schema: str | None, _view: object
    ) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            self.selects = True
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            # Without a column the name is as it was written, and also that of a WITH clause.
            name = (first or "").lower()
            table = readable_tables().get(name)
            if table is not None:
                if table[1]:
                    self.guarded.add(name)
                return sqlite3.SQLITE_OK
            if not second and not name.startswith("sqlite_"):
                return sqlite3.SQLITE_OK
        self.refused = self.refused or {
            sqlite3.SQLITE_FUNCTION: f"the function {second} is not allowed",
            sqlite3.SQLITE_READ: f"{first} cannot be read",
        }.get(action, ONLY_SELECT)
        return sqlite3.SQLITE_DENY


def _execute(connection: sqlite3.Connection, sql: str, authorizer: _Authorizer) -> sqlite3.Cursor:
    try:
        return connection.execute(sql)
    except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeEncodeError) as error:
        raise _explained(error, authorizer) from None


def _explained(error: Exception, authorizer: _Authorizer) -> Usage | Unfinished:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_INTERRUPT:
        return Unfinished("the query took too long and was stopped; --seconds allows more")
    tables = ", ".join(readable_tables())
    reason = authorizer.refused or str(error).rstrip(".")
    return Usage(f"{reason}. Tables: {tables} (`ledger query --tables` shows columns)")


def _unique(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(unique)
