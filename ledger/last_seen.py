"""What this user's own verifier remembers, in the configuration folder and never in a ledger.

``ledgers/``    which key belongs to the ledger at a path: written when the ledger's first
                checkpoint is signed, when it is imported under a given key, or when it is verified
                for the first time under the user's own key
``last-seen/``  by key, the largest size that was found sound, and its root

With these an older copy that is put back, another ledger in the old one's place, and a history that
was rewritten and signed again with the right key are found without any outside anchor. Both are
keyed by what the user configured, never by what a database says about itself.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from ledger.atomic_file import write_file
from ledger.errors import Unfinished
from ledger.signing_keys import VerifierKey, make_private_folder, parse_verifier_key
from schemas.base import Digest, Position, Value

MAX_STATE_BYTES = 1 << 16

State = TypeVar("State", "LastSeen", "KnownLedger")


class LastSeen(Value):
    """The largest tree that was verified under a key, without a finding."""

    key: str
    size: Position
    root: Digest


class KnownLedger(Value):
    """The key of the ledger at a path."""

    path: str
    key: str


def recall(home: Path, key: VerifierKey) -> LastSeen | None:
    """What was seen under this key before. Raises Unfinished for a damaged file."""
    seen = _read(_seen_file(home, key), LastSeen)
    return seen if seen is not None and seen.key == str(key) else None


def remember(home: Path, key: VerifierKey, size: int, root: bytes) -> None:
    """Keep the tree that has just been verified, unless a larger one was seen meanwhile."""
    before = recall(home, key)
    if before is None or before.size < size:
        _write(_seen_file(home, key), LastSeen(key=str(key), size=size, root=root.hex()))


def key_of_ledger(home: Path, path: Path) -> VerifierKey | None:
    """The key that was configured for the ledger at this path."""
    known = _read(_ledger_file(home, path), KnownLedger)
    if known is None or known.path != os.path.realpath(path):
        return None
    return parse_verifier_key(known.key)


def remember_ledger(home: Path, path: Path, key: VerifierKey) -> None:
    """Say which key the ledger at this path must be signed with from now on."""
    known = KnownLedger(path=os.path.realpath(path), key=str(key))
    if _read(_ledger_file(home, path), KnownLedger) != known:
        _write(_ledger_file(home, path), known)


def _seen_file(home: Path, key: VerifierKey) -> Path:
    return home / "last-seen" / f"{sha256(str(key).encode()).hexdigest()[:32]}.json"


def _ledger_file(home: Path, path: Path) -> Path:
    digest = sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return home / "ledgers" / f"{digest[:32]}.json"


def _read(file: Path, kind: type[State]) -> State | None:
    try:
        with open(file, "rb") as opened:
            content = opened.read(MAX_STATE_BYTES)
        return msgspec.json.decode(content, type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Unfinished(f"{file}: {error}; delete it to forget what it says") from None


def _write(file: Path, state: LastSeen | KnownLedger) -> None:
    make_private_folder(file.parent)
    try:
        write_file(file, msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    except OSError as error:
        raise Unfinished(f"{file}: {error.strerror}") from None
