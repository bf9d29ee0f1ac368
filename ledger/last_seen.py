"""What this user's own verifier remembers, in the configuration folder and never in a ledger.

``ledgers/``    which key belongs to the ledger at a path: written when a checkpoint of it is signed
                there, when it is imported under a given key, or when it is verified for the first
                time under the user's own key
``last-seen/``  by key, the largest size that was signed here or found sound, and its root: in
                ``KEY.json`` what was synced, in ``KEY.unsynced.json`` what a loss of power may take

With these an older copy that is put back, another ledger in the old one's place, and a history that
was rewritten and signed again with the right key are found without any outside anchor. Both are
keyed by what the user configured, never by what a database says about itself.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from ledger.atomic_file import write_file
from ledger.errors import Unfinished
from ledger.regular_file import read_regular
from ledger.signing_keys import VerifierKey, make_private_folder
from schemas.base import Digest, Position, Value

MAX_STATE_BYTES = 1 << 16
MAX_LEDGERS = 10_000

State = TypeVar("State", "LastSeen", "KnownLedger")


class LastSeen(Value):
    """The largest tree that was signed here, or verified without a finding, under a key."""

    key: str
    size: Position
    root: Digest


class KnownLedger(Value):
    """The key of the ledger at a path."""

    path: str
    key: str
    live: bool = True
    """False for a copy that is only read: it may be older than what was seen elsewhere."""


def recall(home: Path, key: VerifierKey) -> LastSeen | None:
    """What was seen under this key before. Raises Unfinished for a damaged file."""
    return _largest(home, key)[1]


def remember(home: Path, key: VerifierKey, size: int, root: bytes, durable: bool = True) -> None:
    """Keep the tree that has just been signed or verified, unless a larger one was seen
    meanwhile.

    Without ``durable`` it costs no sync; a loss of power may take the newest state away, but never
    one that was synced, and the signed note in the study is not lost with it.
    """
    with _locked(home / "last-seen"):
        synced, unsynced = _seen_files(home, key)
        before = _seen_in(synced, key) if durable else recall(home, key)
        if before is None or before.size < size:
            state = LastSeen(key=str(key), size=size, root=root.hex())
            _write(synced if durable else unsynced, state, durable)


def known_ledger(home: Path, path: Path) -> KnownLedger | None:
    """What is known about the ledger at this path. Raises Unfinished for a damaged file."""
    known = _read(_ledger_file(home, path), KnownLedger)
    return known if known is not None and known.path == os.path.realpath(path) else None


def remember_ledger(home: Path, path: Path, key: VerifierKey, live: bool = True) -> None:
    """Say which key the ledger at this path must be signed with from now on. Who is once known to
    be written (``live``) stays so under the same key."""
    before = known_ledger(home, path)
    live = live or (before is not None and before.live and before.key == str(key))
    known = KnownLedger(path=os.path.realpath(path), key=str(key), live=live)
    if before != known:
        _write(_ledger_file(home, path), known)


def live_ledgers(home: Path, key: VerifierKey) -> list[Path]:
    """Where this user's own logs under a key lie, as far as is known. Damaged files are left
    out."""
    known = known_ledgers(home)
    return [Path(each.path) for each in known if each.live and each.key == str(key)]


def known_ledgers(home: Path) -> list[KnownLedger]:
    """Every ledger that this user has signed or verified here. Damaged files are left out."""
    folder = home / "ledgers"
    try:
        names = sorted(os.listdir(folder))[:MAX_LEDGERS]
    except OSError:
        return []
    found = []
    for name in names:
        with suppress(Unfinished):
            known = _read(folder / name, KnownLedger)
            if known is not None:
                found.append(known)
    return found


def seen_file(home: Path, key: VerifierKey) -> Path:
    """The file that says what ``recall`` returns."""
    return _largest(home, key)[0]


def _largest(home: Path, key: VerifierKey) -> tuple[Path, LastSeen | None]:
    synced, unsynced = _seen_files(home, key)
    kept, recent = _seen_in(synced, key), _seen_in(unsynced, key)
    if recent is not None and (kept is None or kept.size < recent.size):
        return unsynced, recent
    return synced, kept


def _seen_in(file: Path, key: VerifierKey) -> LastSeen | None:
    seen = _read(file, LastSeen)
    return seen if seen is not None and seen.key == str(key) else None


def _seen_files(home: Path, key: VerifierKey) -> tuple[Path, Path]:
    """Where the synced state is, and the one that is not: a rename of what is not synced over what
    is would put both at risk."""
    name = sha256(str(key).encode()).hexdigest()[:32]
    return home / "last-seen" / f"{name}.json", home / "last-seen" / f"{name}.unsynced.json"


def _ledger_file(home: Path, path: Path) -> Path:
    digest = sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return home / "ledgers" / f"{digest[:32]}.json"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time compares and writes."""
    make_private_folder(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Unfinished(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(file: Path, kind: type[State]) -> State | None:
    try:
        content = read_regular(file, MAX_STATE_BYTES)
        # Empty, or zeros: what a loss of power can leave of a file that was not synced.
        return msgspec.json.decode(content, type=kind) if content.strip(b"\0") else None
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Unfinished(f"{file}: {error}; delete it to forget what it says") from None


def _write(file: Path, state: LastSeen | KnownLedger, durable: bool = True) -> None:
    make_private_folder(file.parent)
    content = msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"
    try:
        if durable:
            write_file(file, content)
            return
        temporary = file.with_suffix(f".{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as opened:
            opened.write(content)
        os.replace(temporary, file)
    except OSError as error:
        raise Unfinished(f"{file}: {error.strerror}") from None
