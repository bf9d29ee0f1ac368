"""Who works on which command: leases beside the log, never facts.

One row for every command that was requested and not finished. A lease is a random token and a
deadline; finishing a command names the token, so a process that was stopped for a minute and lost
its lease cannot commit. Everything here can be deleted and rebuilt from the records
(``rebuild``), and the same commands are pending again.

The functions work inside a transaction that ``sqlite_log`` opens and closes.
"""

import sqlite3
from collections.abc import Collection, Iterable, Sequence

from ledger.clock import new_id
from ledger.log import Claim, Lease

# An id that another program has written a second time is the first record's: SQLite takes the other
# columns from the row of the minimum.
_PENDING = """\
SELECT id, substr(stream, 6), min(seq) FROM records AS request
WHERE stream >= 'role/' AND stream < 'role0' AND type = 'command.requested.v1'
  AND NOT EXISTS (SELECT 1 FROM records WHERE stream = 'command/' || request.id)
GROUP BY id ORDER BY min(seq)"""


def offer(connection: sqlite3.Connection, requested: Iterable[tuple[str, str, int]]) -> None:
    """Make commands claimable: (command id, role, seq of the request)."""
    connection.executemany("INSERT INTO delivery (command, role, seq) VALUES (?, ?, ?)", requested)


def withdraw(connection: sqlite3.Connection, finished: Iterable[str]) -> None:
    """Forget commands that a record of the same transaction finishes."""
    connection.executemany(
        "DELETE FROM delivery WHERE command = ?", ((command,) for command in finished)
    )


def holds(connection: sqlite3.Connection, lease: Lease) -> bool:
    """True while nobody has taken the command over, however late it is."""
    row = connection.execute(
        "SELECT 1 FROM delivery WHERE command = ? AND lease = ?", (lease.command, lease.token)
    ).fetchone()
    return row is not None


def find_free(
    connection: sqlite3.Connection, roles: Sequence[str], now_us: int
) -> tuple[int, str, int] | None:
    """(seq, command, attempts) of the oldest command whose lease is free or has run out."""
    row: tuple[int, str, int] | None = connection.execute(
        f"SELECT seq, command, attempts FROM delivery WHERE role IN ({', '.join('?' * len(roles))})"
        " AND (lease IS NULL OR deadline <= ?) ORDER BY seq LIMIT 1",
        (*roles, now_us),
    ).fetchone()
    return row


def claim(
    connection: sqlite3.Connection, roles: Sequence[str], now_us: int, seconds: float
) -> Claim | None:
    """Lease the oldest free command of these roles."""
    free = find_free(connection, roles, now_us)
    if free is None:
        return None
    seq, command, attempts = free
    token = new_id()
    connection.execute(
        "UPDATE delivery SET lease = ?, deadline = ?, attempts = ? WHERE seq = ?",
        (token, _deadline(now_us, seconds), attempts + 1, seq),
    )
    return Claim(Lease(command, token), seq, attempts + 1)


def renew(connection: sqlite3.Connection, lease: Lease, now_us: int, seconds: float) -> bool:
    """Move the deadline; False when the lease is no longer held."""
    cursor = connection.execute(
        "UPDATE delivery SET deadline = ? WHERE command = ? AND lease = ?",
        (_deadline(now_us, seconds), lease.command, lease.token),
    )
    return cursor.rowcount == 1


def pending(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """(command id, role, seq), from the records alone, oldest first."""
    return connection.execute(_PENDING).fetchall()


def rebuild(connection: sqlite3.Connection, roles: Collection[str] | None = None) -> None:
    """Delete every row, or those of ``roles``, and offer what the records say is pending: no
    leases, no attempts."""
    if roles is None:
        connection.execute("DELETE FROM delivery")
    else:
        connection.executemany("DELETE FROM delivery WHERE role = ?", ((role,) for role in roles))
    offer(connection, [row for row in pending(connection) if roles is None or row[1] in roles])


def _deadline(now_us: int, seconds: float) -> int:
    return now_us + int(seconds * 1_000_000)
