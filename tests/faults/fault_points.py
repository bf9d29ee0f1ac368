"""How many places the sweeps let something happen at, by kind of fault.

Every sweep counts the distinct points that it went through; fewer than its kind's minimum is a
failure. What was counted is printed at the end of the session.
"""

from collections.abc import Collection, Hashable

MINIMUM = {
    "kill -9 at a system call of the storage": 250,
    "input/output error at a system call": 250,
    "full disk at a system call": 250,
    "full file system": 50,
    "file size limit": 30,
    "power loss": 400,
    "kill -9 of one of two writers": 30,
    "stopped beyond the lease": 3,
    "kill -9 at a commit boundary of an actor": 150,
    "kill -9 at a commit boundary of a transfer study": 150,
    "kill -9 of a command that copies, moves, cleans, anchors or amends": 300,
    "kill -9 at a commit boundary, a worker or the whole set": 80,
    "kill -9 at a random moment of a run": 40,
    "kill -9 of a whole transfer run at a random moment": 15,
}
"""By kind, how many distinct points a complete sweep has at least."""

counted: dict[str, set[Hashable]] = {}
"""The points that this session has gone through so far."""


def count(kind: str, points: Collection[Hashable], complete: bool = True) -> None:
    """A sweep ends. With ``complete`` the minimum of its kind must have been reached."""
    distinct = set(points)
    assert len(distinct) == len(points), "a point was counted twice"
    counted.setdefault(kind, set()).update(distinct)
    if complete:
        found = len(counted[kind])
        assert found >= MINIMUM[kind], f"{kind}: {found} points, at least {MINIMUM[kind]} expected"
