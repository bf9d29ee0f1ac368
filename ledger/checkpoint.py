"""Checkpoints: a signed root stands for every record up to a size.

A checkpoint is a signed note (C2SP signed-note and tlog-checkpoint), byte for byte:

    <name>/<ledger uuid>                                       origin, also the name of the key
    <number of records>
    <base64 of the Merkle root>

    — <name>/<ledger uuid> <base64(key id ‖ Ed25519 signature over the lines above the blank one)>

Notes lie in the table ``checkpoints`` of the log's database and, once that is committed, in
``checkpoints.log`` beside it (each followed by an empty line, synced). Together they show a
truncated tail, an edit with everything after it recomputed, and an older copy put back: against
accidents and partial edits, not against an owner who holds the key. For that a note must be
anchored where the owner cannot change it.
"""

import base64
import errno
import fcntl
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ledger.atomic_file import sync, sync_directory
from ledger.codec import decode_envelope, decode_event
from ledger.errors import Integrity, Refused, Unfinished, Usage
from ledger.last_seen import known_ledger, recall, remember, remember_ledger, seen_file
from ledger.log import EventLog
from ledger.merkle import HASH_BYTES, Frontier
from ledger.regular_file import read_regular
from ledger.signing_keys import (
    CONFIG_HOME_VARIABLE,
    KEY_FILE,
    SigningKey,
    VerifierKey,
    config_home,
    is_key_name,
    load_or_create_signing_key,
    load_signing_key,
    parse_verifier_key,
)
from ledger.unsigned_tail import check_unsigned
from schemas.events.ledger import LedgerCreated

CHECKPOINT_INTERVAL = 1_000
"""Records between two checkpoints of a log that is being written."""
MAX_NOTE_BYTES = 16 << 10
MAX_FRONTIER_BYTES = 2 * MAX_NOTE_BYTES

_DASH = "— "
_NOTE = re.compile(
    rb"(?P<text>[^\n]{1,512}\n[0-9]{1,20}\n[A-Za-z0-9+/=]{44}\n)\n"
    rb"(?P<signatures>(?:\xe2\x80\x94 [^\n]{1,1024}\n){1,16})"
)
_LINES_BEFORE_A_SIGNATURE = 4
_NOT_IN_ORIGIN = re.compile(r"[^A-Za-z0-9._-]")


class Checkpoint(msgspec.Struct, frozen=True):
    """What is signed: the first ``size`` records of the log ``origin`` have this Merkle root."""

    origin: str
    size: int
    root: bytes

    def text(self) -> bytes:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n".encode()


class NoteSignature(msgspec.Struct, frozen=True):
    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        encoded = base64.b64encode(self.key_id + self.signature).decode()
        return f"{_DASH}{self.name} {encoded}\n"


class SignedCheckpoint(msgspec.Struct, frozen=True):
    checkpoint: Checkpoint
    signatures: tuple[NoteSignature, ...]

    def note(self) -> bytes:
        lines = "".join(signature.line() for signature in self.signatures)
        return self.checkpoint.text() + b"\n" + lines.encode()


def sign_checkpoint(checkpoint: Checkpoint, key: SigningKey) -> bytes:
    """The note. The same checkpoint and key give the same bytes."""
    if not is_key_name(checkpoint.origin):
        raise Usage(f"{checkpoint.origin!r} cannot be an origin: it has a space, a plus or nothing")
    verifier = key.verifier(checkpoint.origin)
    signature = NoteSignature(checkpoint.origin, verifier.id, key.sign(checkpoint.text()))
    return SignedCheckpoint(checkpoint, (signature,)).note()


def parse_checkpoint(note: bytes) -> SignedCheckpoint:
    """Read a note. Nothing is verified yet.

    Strict: what does not serialise to the same bytes is refused, so that one checkpoint has one
    form. Raises Integrity that says what is wrong.
    """
    match = _NOTE.fullmatch(note) if len(note) <= MAX_NOTE_BYTES else None
    if match is None:
        raise Integrity("not a checkpoint: it needs origin, size, root, an empty line, signatures")
    try:
        origin, size, root = match["text"].decode().splitlines()
        signatures = []
        for line in match["signatures"].decode().splitlines():
            name, encoded = line.removeprefix(_DASH).split(" ")
            signature = base64.b64decode(encoded, validate=True)
            signatures.append(NoteSignature(name, signature[:4], signature[4:]))
        signed = SignedCheckpoint(
            Checkpoint(origin, int(size), base64.b64decode(root, validate=True)), tuple(signatures)
        )
    except ValueError as error:
        raise Integrity(f"not a checkpoint: {error}") from None
    if signed.note() != note:
        raise Integrity("not a checkpoint: it does not re-serialise to itself")
    names = [origin, *(signature.name for signature in signatures)]
    if len(signed.checkpoint.root) != HASH_BYTES or not all(map(is_key_name, names)):
        raise Integrity("not a checkpoint: a root of 32 bytes and names without spaces are needed")
    return signed


def check_signature(
    signed: SignedCheckpoint, key: VerifierKey
) -> Literal["valid", "bad", "unknown"]:
    """``unknown`` where this key has not signed at all, ``bad`` where it has not signed this.

    Signatures of other keys are ignored, as C2SP demands. A note under another origin than the
    key's name is never valid: the key speaks for one ledger.
    """
    ours = [s for s in signed.signatures if s.name == key.name and s.key_id == key.id]
    if not ours:
        return "unknown"
    text = signed.checkpoint.text()
    valid = signed.checkpoint.origin == key.name and all(
        key.accepts(signature.signature, text) for signature in ours
    )
    return "valid" if valid else "bad"


def split_notes(content: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """Take ``checkpoints.log`` apart: (notes, pieces that are no notes, what follows the last).

    A crash during an append leaves an end that ``is_cut_off``; the row is in the log.
    """
    notes, strays = [], []
    end = 0
    for match in _NOTE.finditer(content):
        if stray := content[end : match.start()].strip(b"\n"):
            strays.append(stray)
        notes.append(match[0])
        end = match.end()
    return notes, strays, content[end:].lstrip(b"\n")


def is_cut_off(end: bytes, origin: str) -> bool:
    """True for the beginning of a note of this ledger, which a crash leaves, and for zeros in its
    place or after it, which a loss of power leaves; anything else came from neither. What has as
    many lines as a note was whole before somebody changed it."""
    line = f"{origin}\n".encode()
    begun = end.rstrip(b"\0")
    is_whole = begun.count(b"\n") > _LINES_BEFORE_A_SIGNATURE
    return (
        len(end) <= MAX_NOTE_BYTES
        and not is_whole
        and (begun.startswith(line) or line.startswith(begun))
    )


def ledger_origin(created: LedgerCreated) -> str:
    """``<name>/<uuid>``. Of the name only what a key name and a URL can carry is kept."""
    name = _NOT_IN_ORIGIN.sub("-", created.name).strip("-.") or "ledger"
    return f"{name}/{created.uuid}"


def origin_of_first_record(record: bytes) -> str:
    """The origin that record 0 gives its ledger. Raises Integrity."""
    event = decode_event(decode_envelope(record))
    if not isinstance(event, LedgerCreated):
        raise Integrity(f"record 0 is a {event.TYPE}, not a {LedgerCreated.TYPE}")
    origin = ledger_origin(event)
    if not is_key_name(origin):
        raise Integrity("record 0 has no uuid that can be part of an origin")
    return origin


def known_origin(record: bytes | None) -> str:
    """The same; "" where there is no record 0, or none that names an origin."""
    with suppress(Integrity):
        return origin_of_first_record(record) if record is not None else ""
    return ""


def ledger_key(log: EventLog) -> VerifierKey:
    """The user's own key under the origin of this ledger: its string is what others verify with."""
    first = next(iter(log.read(0, 1)), None)
    if first is None:
        raise Usage("an empty log has no origin; its first record comes first")
    origin = origin_of_first_record(first.record)
    return load_or_create_signing_key(config_home()).verifier(origin)


class CheckpointFiles(Protocol):
    """Where a study keeps its log and its checkpoints (``StudyDirectory``)."""

    @property
    def root(self) -> Path: ...

    @property
    def ledger(self) -> Path: ...

    @property
    def checkpoints(self) -> Path: ...


class Checkpointer:
    """Signs the present root of a log: at every close, every 1,000 records and on demand.

    The frontier of the newest checkpoint is kept in ``checkpoints.frontier``, so a checkpoint costs
    one hash for each new record and not one for each record of the log. The file needs no trust:
    its hashes must fold to a root that our own key has signed, else it is made again.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        """Raises Refused or Unfinished where the user's key cannot be used, Refused also where it
        would lie in the study."""
        self._ledger = files.ledger
        self._log_file = files.checkpoints
        self._frontier_file = files.checkpoints.with_suffix(".frontier")
        self._home = config_home()
        if Path(os.path.realpath(self._home)).is_relative_to(os.path.realpath(files.root)):
            raise Refused(
                f"the configuration folder {self._home} lies in the study's own folder: whoever "
                f"copies the study could sign for it; set {CONFIG_HOME_VARIABLE} to a folder "
                f"outside {files.root}"
            )
        self._key = load_signing_key(self._home)

    def sign(self, log: EventLog) -> bytes:
        """Sign the root over all records; commit the note, publish it, and remember its root in the
        user's configuration folder. Returns the note.

        Raises Integrity, and signs nothing, when the records contradict what was signed before or
        what this user has seen before (an older copy of the study that was put back), or when one
        that no checkpoint covers cannot be of this program (``check_unsigned``). Raises Refused
        where another key than the user's has signed this ledger.
        """
        origin = _origin(log)
        key = self._signing_key(log, origin)
        verifier = key.verifier(origin)
        frontier = self._load_frontier(verifier)
        # What was signed before the head: another process may sign more records meanwhile.
        seen = recall(self._home, verifier)
        rows = log.checkpoints()
        head = log.head()
        size = 0 if head is None else head.seq + 1
        if frontier.size > size or (rows and frontier.size > rows[-1][0]):
            frontier = Frontier()  # an older copy of the database was put back
        known = []
        if rows:
            newest = parse_checkpoint(rows[-1][1]).checkpoint
            known.append((newest.size, newest.root, "a checkpoint"))
        if seen is not None:
            where = f"what was seen before ({seen_file(self._home, verifier)})"
            known.append((seen.size, bytes.fromhex(seen.root), where))
        for known_size, root, source in sorted(known):
            if known_size > size:
                raise _shorter(known_size, size, source)
            if known_size >= frontier.size:
                _extend(frontier, log, known_size)
                if frontier.root() != root:
                    raise Integrity(
                        f"the first {known_size} records differ from those of {source}: nothing "
                        "was signed; run `ledger verify-chain`"
                    )
        _extend(frontier, log, size)
        check_unsigned(log, _signed(rows), size)
        note = sign_checkpoint(Checkpoint(origin, frontier.size, frontier.root()), key)
        if not rows or rows[-1][0] != frontier.size:
            log.add_checkpoint(frontier.size, note)
        self._publish(rows, note, origin)
        self._save_frontier(frontier, note)
        with suppress(Unfinished):  # the folder may be read-only; what is signed is signed
            remember_ledger(self._home, self._ledger, verifier)
            remember(self._home, verifier, frontier.size, frontier.root(), durable=False)
        return note

    def check_before_writing(self, log: EventLog) -> None:
        """Raises Refused where another key than the user's has signed this ledger, Integrity where
        this user has seen more records of it than there are: nothing is appended to what could not
        be signed, nor to an older copy. ``sign`` compares the roots as well."""
        origin = _origin(log)
        verifier = self._signing_key(log, origin).verifier(origin)
        seen = recall(self._home, verifier)
        head = log.head()
        size = 0 if head is None else head.seq + 1
        if seen is not None and seen.size > size:
            where = f"what was seen before ({seen_file(self._home, verifier)})"
            raise _shorter(seen.size, size, where)
        check_unsigned(log, _signed(log.checkpoints()), size)

    def _signing_key(self, log: EventLog, origin: str) -> SigningKey:
        """The user's key, made where nobody has signed this ledger yet.

        Raises Refused where the newest checkpoint, or without one what this user knows of the
        path, names another key: signed with two, a ledger would verify under neither.
        """
        if self._key is None:
            self._key = load_signing_key(self._home)
        ours = self._key.verifier(origin) if self._key is not None else None
        rows = log.checkpoints()
        known = known_ledger(self._home, self._ledger) if not rows else None
        if rows:
            newest = parse_checkpoint(rows[-1][1])
            foreign = ours is None or check_signature(newest, ours) == "unknown"
            signers = ", ".join(f"{s.name}+{s.key_id.hex()}" for s in newest.signatures)
        elif known is not None and parse_verifier_key(known.key).name == origin:
            foreign = known.key != str(ours)
            signers = known.key
        else:
            foreign = False  # new, or another ledger than the one that was at this path before
        if foreign:
            raise _other_key(self._ledger, signers, ours, self._home)
        if self._key is None:
            self._key = load_or_create_signing_key(self._home)
        return self._key

    def _load_frontier(self, verifier: VerifierKey) -> Frontier:
        try:
            notes, _, roots = split_notes(read_regular(self._frontier_file, MAX_FRONTIER_BYTES))
            signed = parse_checkpoint(notes[0])
            hashes = [bytes.fromhex(line) for line in roots.decode("ascii").splitlines()]
            frontier = Frontier(signed.checkpoint.size, hashes)
        except (OSError, IndexError, ValueError, Integrity):
            return Frontier()
        authentic = (
            check_signature(signed, verifier) == "valid"
            and signed.checkpoint.root == frontier.root()
        )
        return frontier if authentic else Frontier()

    def _save_frontier(self, frontier: Frontier, note: bytes) -> None:
        # Not synced: what a loss of power leaves of it does not fold to a signed root.
        hashes = "".join(f"{root.hex()}\n" for root in frontier.roots)
        temporary = self._frontier_file.with_suffix(f".{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(note + b"\n" + hashes.encode())
            os.replace(temporary, self._frontier_file)

    def _publish(self, rows: Sequence[tuple[int, bytes]], note: bytes, origin: str) -> None:
        """Append to ``checkpoints.log`` what is committed and not yet there, and sync it.

        Only the beginning of a note, which a crash leaves, is cut off; whatever else stands in the
        file stays there for verification to find.
        """
        # Not blocking: a pipe of that name would wait for a reader for ever.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            new = not self._log_file.exists()
            with open(os.open(self._log_file, flags, 0o600), "r+b", buffering=0) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                    raise OSError(errno.EINVAL, "not a regular file with one name")
                fcntl.flock(file, fcntl.LOCK_EX)
                length = file.seek(0, os.SEEK_END)
                start = file.seek(max(0, length - 2 * MAX_NOTE_BYTES))
                tail = file.read()
                published, _, torn = split_notes(tail)
                separator = b""
                if torn and is_cut_off(torn, origin) and (published or start == 0):
                    os.ftruncate(file.fileno(), start + tail.rindex(torn))
                elif torn and not tail.endswith(b"\n"):
                    separator = b"\n"
                # Whoever crashed between commit and file left its note to the next one.
                last = _size(published[-1]) if published else 0
                missing = [row for size, row in rows if size > last and row != note]
                if note not in published:
                    missing.append(note)
                content = separator + b"".join(entry + b"\n" for entry in missing)
                if missing:
                    if file.write(content) != len(content):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    sync(file.fileno())
            if new:
                sync_directory(self._log_file.parent)
        except OSError as error:
            raise Unfinished(
                f"{self._log_file}: {error.strerror}; the checkpoint is in the database, look at "
                "the disk and run `ledger checkpoint`"
            ) from None


def _origin(log: EventLog) -> str:
    """Raises Usage for an empty log, Integrity for one that has lost its beginning."""
    first = next(iter(log.read(0, 1)), None)
    if first is not None:
        return origin_of_first_record(first.record)
    if log.head() is None and not log.checkpoints():
        raise Usage("an empty log has no root to sign; its first record comes first")
    raise Integrity(
        "record 0 is missing: nothing was signed; run `ledger verify-chain` and go on with a copy"
    )


def _other_key(ledger: Path, signers: str, ours: VerifierKey | None, home: Path) -> Refused:
    if ours is None:
        here = f"{home} has no {KEY_FILE}"
        bring = f"put its {KEY_FILE} there"
    else:
        here = f"yours in {home} is {ours.name}+{ours.id.hex()}"
        bring = f"to a new one with its {KEY_FILE}"
    return Refused(
        f"{ledger} is signed by the key {signers}, and {here}: nothing was written, no key was "
        f"made. Set {CONFIG_HOME_VARIABLE} to the folder with that key, or {bring}. Without it the "
        "ledger can be verified (`ledger verify-chain --key STRING`) and exported, but not written"
    )


def _shorter(known: int, size: int, source: str) -> Integrity:
    return Integrity(
        f"the log has {size} records, and {source} covers {known}: an older copy was put back, or "
        "records were removed. Nothing was signed; run `ledger verify-chain` and put the newer "
        "copy back. Where that is lost for good, delete the file that says what was seen, and the "
        "copy is gone on with; whoever holds a newer note sees the loss"
    )


def _signed(rows: Sequence[tuple[int, bytes]]) -> int:
    """How many records the newest of the ledger's own checkpoints covers."""
    return parse_checkpoint(rows[-1][1]).checkpoint.size if rows else 0


def _size(note: bytes) -> int:
    return int(note.split(b"\n", 2)[1])


def _extend(frontier: Frontier, log: EventLog, size: int) -> None:
    frontier.extend(log.leaves(frontier.size, size))
    if frontier.size != size:
        raise Integrity(
            f"seq {frontier.size} is missing: nothing was signed; run `ledger verify-chain`"
        )
