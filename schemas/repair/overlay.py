"""A candidate's changes as one artifact: whole files, base64, sorted by path.

    {"write":[{"path":"src/a.py","mode":"100644","content":"<base64>"}],"delete":["src/b.py"]}

Contents are inline (unlike :class:`schemas.repair.task.Overlay`), so that a cell's edits are one
file with one digest. Same changes, same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import Value


class WrittenFile(Value):
    path: Annotated[str, Meta(min_length=1, description="path from the tree's root")]
    mode: Literal["100644", "100755"]
    content: Annotated[bytes, Meta(description="the file's bytes (base64 in JSON)")]


class Changes(Value):
    """Files written and deleted on top of a base tree."""

    write: tuple[WrittenFile, ...] = ()
    delete: tuple[str, ...] = ()


def encode_changes(files: Mapping[str, tuple[str, bytes]], deleted: Sequence[str] = ()) -> bytes:
    """Bytes of the artifact. ``files`` maps a path to its mode and content."""
    changes = Changes(
        write=tuple(
            msgspec.convert(
                {"path": path, "mode": mode, "content": content},
                WrittenFile,
                builtin_types=(bytes,),
            )
            for path, (mode, content) in sorted(files.items())
        ),
        delete=tuple(sorted(deleted)),
    )
    return msgspec.json.encode(changes)


def decode_changes(content: bytes) -> Changes:
    """Raises msgspec.ValidationError for anything but the form above."""
    return msgspec.json.decode(content, type=Changes)
