"""The checks that see every record, and the page of records that they see.

Each class of this module finds the codes that its docstring names. It is made once for a
verification, sees every page in order, keeps what it needs from one page to the next, and goes on
behind every fault.
"""

import os
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ledger.artifacts import MAX_BYTES, is_digest
from ledger.finding import ERASED, Finding, shown
from ledger.merkle import Frontier
from ledger.named_artifacts import (
    artifacts_in,
    artifacts_in_content,
    fields_with_artifacts,
)
from ledger.record_page import Page, artifacts_of_unknown_type
from ledger.record_source import RecordSource
from ledger.regular_file import open_regular
from schemas.base import ArtifactRef, Event
from schemas.envelope import FIRST_PREV, MAX_RECORD_BYTES
from schemas.events import EVENT_TYPES

MAX_REMEMBERED_ARTIFACTS = 1 << 16
MAX_NAMING_ARTIFACT_BYTES = 64 << 20


class Subject(msgspec.Struct):
    """What is verified: shared by all checks, filled before the records are read."""

    source: RecordSource
    artifacts: Path | None
    targets: "list[Target]"
    """Sizes at which a root is known, smallest first."""


class Target(msgspec.Struct):
    """A root that was signed or seen for a size; ``matches`` is known once that size is read."""

    size: int
    root: bytes
    mismatch: Literal["ROOT_MISMATCH", "FORK"]
    origin: str
    """Where it comes from, in words."""
    matches: bool | None = None


class RecordCheck(Protocol):
    """Sees every page once, in order."""

    def __init__(self, subject: Subject) -> None: ...

    def look_at(self, page: Page) -> Iterator[Finding]: ...


class Positions:
    """SEQ_GAP, SEQ_DUP, DB_CORRUPT: positions are dense from 0 and can be read."""

    def __init__(self, subject: Subject) -> None:
        self.following = 0

    def look_at(self, page: Page) -> Iterator[Finding]:
        for seq in page.seqs:
            if seq < 0:
                yield Finding("SEQ_DUP", seq, "no position below 0", f"seq {seq}")
            elif seq == self.following:
                self.following += 1
            elif seq > self.following:
                yield Finding("SEQ_GAP", self.following, f"seq {self.following}", f"seq {seq}")
                self.following = seq + 1
            else:
                yield Finding("SEQ_DUP", seq, f"seq {self.following}", f"seq {seq} again")
        if page.unreadable is not None and not page.unreadable.too_large:
            lost = page.unreadable
            yield Finding(
                "DB_CORRUPT",
                lost.start,
                f"records {lost.start} to {lost.stop - 1}",
                shown(lost.reason),
            )
        if page.unreadable is not None:
            self.following = page.unreadable.stop


class Links:
    """LINK: every record names the leaf of the one before it, as computed from that one's bytes."""

    def __init__(self, subject: Subject) -> None:
        self.seq = -1
        self.leaf = FIRST_PREV

    def look_at(self, page: Page) -> Iterator[Finding]:
        for seq, fields, leaf in zip(page.seqs, page.fields, page.leaves, strict=True):
            if seq <= self.seq:
                continue  # a repeated position has no place in the chain
            if fields is not None and fields.prev != self.leaf and seq == self.seq + 1:
                yield Finding("LINK", seq, self.leaf, shown(fields.prev))
            self.seq = seq
            self.leaf = leaf.hex()


class StoredLeaves:
    """LEAF: the column holds the hash of the record's bytes."""

    def __init__(self, subject: Subject) -> None:
        pass

    def look_at(self, page: Page) -> Iterator[Finding]:
        columns = [row[2] for row in page.rows if len(row) > 2]  # a line of a file has none
        if not columns or columns == page.leaves:
            return
        for seq, row, leaf in zip(page.seqs, page.rows, page.leaves, strict=True):
            if row[2] != leaf:
                got = row[2].hex() if isinstance(row[2], bytes) else repr(row[2])
                yield Finding("LEAF", seq, leaf.hex(), shown(got))


class CanonicalForm:
    """NON_CANONICAL: one event has one form of bytes, so no two readers can differ about it."""

    def __init__(self, subject: Subject) -> None:
        pass

    def look_at(self, page: Page) -> Iterator[Finding]:
        for seq, problem in page.not_canonical:
            yield Finding("NON_CANONICAL", seq, "a canonical record", shown(problem))
        if page.unreadable is not None and page.unreadable.too_large:
            limit = f"a record of at most {MAX_RECORD_BYTES} bytes"
            yield Finding(
                "NON_CANONICAL", page.unreadable.start, limit, shown(page.unreadable.reason)
            )


class StreamVersions:
    """STREAM_VERSION: versions of a stream are dense from 0, in the order of the log."""

    def __init__(self, subject: Subject) -> None:
        self.following: dict[str, int] = {}
        self.seq = -1
        self.records_are_missing = False

    def look_at(self, page: Page) -> Iterator[Finding]:
        following = self.following
        for seq, fields in zip(page.seqs, page.fields, strict=True):
            if seq < 0:
                continue
            if seq != self.seq + 1 or fields is None:
                self.records_are_missing = True
            if seq > self.seq:
                self.seq = seq
            if fields is None:
                continue
            stream, version = fields.stream, fields.version
            expected = following.get(stream, 0)
            following[stream] = version + 1
            # Behind a gap a jump forward says nothing new; what is missing was named.
            if version < expected or (version > expected and not self.records_are_missing):
                yield Finding("STREAM_VERSION", seq, str(expected), str(version))


class KnownTypes:
    """UNKNOWN_TYPE (note): this program verifies the record and cannot replay it."""

    def __init__(self, subject: Subject) -> None:
        pass

    def look_at(self, page: Page) -> Iterator[Finding]:
        if None not in page.events:
            return
        for seq, fields in zip(page.seqs, page.fields, strict=True):
            if fields is not None and fields.type not in EVENT_TYPES:
                yield Finding("UNKNOWN_TYPE", seq, "a type of this program", shown(fields.type))


class Clock:
    """CLOCK_BACKWARD (warning): no record is dated before the one it follows."""

    def __init__(self, subject: Subject) -> None:
        self.at = ""

    def look_at(self, page: Page) -> Iterator[Finding]:
        for seq, fields in zip(page.seqs, page.fields, strict=True):
            if fields is None:
                continue
            if fields.at < self.at:
                before = shown(f"not before {self.at}")
                yield Finding("CLOCK_BACKWARD", seq, before, shown(fields.at))
            self.at = fields.at


class NamedArtifacts:
    """ARTIFACT_MISSING, ARTIFACT_ALTERED: what a record names is there, whole and unchanged."""

    def __init__(self, subject: Subject) -> None:
        self.folder = subject.artifacts
        self.known: dict[str, int] = {}
        """Length by digest of what was looked at."""
        self.followed: set[str] = set()
        """Digests of what was looked at for what it names itself."""
        self.plans: dict[type[Event], tuple[tuple[str, Any, bool], ...]] = {}

    def look_at(self, page: Page) -> Iterator[Finding]:
        if self.folder is None:
            return
        known, plans = self.known, self.plans
        for place, event in enumerate(page.events):
            seq = page.seqs[place]
            if event is None:
                for ref in artifacts_of_unknown_type(page.fields[place]):
                    yield from self._check(seq, ref, None)
                continue
            plan = plans.get(event.__class__)
            if plan is None:
                plan = plans[event.__class__] = fields_with_artifacts(event.__class__)
            for name, content_type, directly in plan:
                if directly:
                    ref = getattr(event, name)
                    if content_type is not None or known.get(ref.digest) != ref.length:
                        yield from self._check(seq, ref, content_type)
                else:
                    for ref in artifacts_in(getattr(event, name)):
                        yield from self._check(seq, ref, content_type)

    def _check(self, seq: int, ref: ArtifactRef, content_type: Any) -> Iterator[Finding]:
        assert self.folder is not None
        followed = content_type is None or ref.digest in self.followed
        if followed and self.known.get(ref.digest) == ref.length:
            return
        if len(self.known) >= MAX_REMEMBERED_ARTIFACTS:
            self.known.clear()
            self.followed.clear()
        self.known[ref.digest] = ref.length
        if content_type is not None:
            self.followed.add(ref.digest)
        content = bytearray() if content_type is not None else None
        problem = check_artifact(self.folder, ref, content)
        if problem == MISSING:
            got = ERASED if ref.erasable else "no such file"
            yield Finding("ARTIFACT_MISSING", seq, ref.digest, got)
        elif problem:
            yield Finding("ARTIFACT_ALTERED", seq, shown(ref.digest), problem)
        elif content is not None:
            try:
                further = artifacts_in_content(bytes(content), content_type)
            except (ValueError, RecursionError) as error:
                # The bytes are the recorded ones; this program cannot tell what they name.
                yield Finding("UNKNOWN_TYPE", seq, f"artifact {ref.digest}", shown(str(error)))
                return
            for inner in further:
                yield from self._check(seq, inner, None)


class Roots:
    """ROOT_MISMATCH, FORK: the Merkle root at every signed or seen size. Of several mismatches of
    one kind the first is named: all later ones follow from it."""

    def __init__(self, subject: Subject) -> None:
        self.targets = subject.targets
        self.place = 0
        self.frontier = Frontier()
        self.broken_at: int | None = None
        self.named: set[str] = set()

    def look_at(self, page: Page) -> Iterator[Finding]:
        if page.seqs and page.seqs[-1] < 0:
            return  # found as a position; the records from 0 on have their own root
        whole = 0
        if self.broken_at is None:
            size = self.frontier.size
            while whole < len(page.seqs) and page.seqs[whole] == size + whole:
                whole += 1
            taken = 0
            while self.place < len(self.targets):
                target = self.targets[self.place]
                needed = target.size - self.frontier.size
                if needed > whole - taken:
                    break
                self.frontier.extend(page.leaves[taken : taken + needed])
                taken += needed
                yield from self._compare(target, self.frontier.root())
            self.frontier.extend(page.leaves[taken:whole])
        if self.broken_at is None and (whole < len(page.seqs) or page.unreadable is not None):
            self.broken_at = self.frontier.size
        if self.broken_at is not None:
            reached = max(page.seqs, default=-1) + 1
            if page.unreadable is not None:
                reached = max(reached, page.unreadable.stop)
            while self.place < len(self.targets) and self.targets[self.place].size <= reached:
                yield from self._compare(self.targets[self.place], None)

    def _compare(self, target: Target, root: bytes | None) -> Iterator[Finding]:
        self.place += 1
        target.matches = root == target.root
        if not target.matches and target.mismatch not in self.named:
            self.named.add(target.mismatch)
            got = f"none: records are missing from seq {self.broken_at} on"
            yield Finding(
                target.mismatch,
                target.size - 1 if target.size else None,
                f"root {target.root.hex()} of {target.size} records ({target.origin})",
                got if root is None else f"root {root.hex()}",
            )

    def root(self) -> bytes | None:
        return self.frontier.root() if self.broken_at is None else None


MISSING = "missing"


def check_artifact(folder: Path, ref: ArtifactRef, content: bytearray | None = None) -> str:
    """Read an artifact through, in constant memory; append its plain bytes to ``content``.

    Returns "" when it is whole, ``MISSING``, or what is wrong. Follows no link.
    """
    if not is_digest(ref.digest):
        return "not a digest"
    try:
        shard = os.open(folder / ref.digest[:2], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"its folder cannot be opened: {error.strerror}"
    try:
        file = open_regular(ref.digest, shard)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"not a file that can be opened: {error.strerror}"
    finally:
        os.close(shard)
    with file:
        limit = min(ref.length, MAX_BYTES)
        if content is not None and limit > MAX_NAMING_ARTIFACT_BYTES:
            return f"longer than {MAX_NAMING_ARTIFACT_BYTES} bytes, too long for a list"
        digest, length, expand = sha256(), 0, zlib.decompressobj()
        try:
            while not expand.eof and (packed := file.read(1 << 16)):
                while packed and length <= limit:
                    plain = expand.decompress(packed, 1 << 20)
                    packed = expand.unconsumed_tail
                    digest.update(plain)
                    length += len(plain)
                    if content is not None:
                        content += plain
                if length > limit:
                    return f"expands to more than {limit} bytes"
            if not expand.eof:
                return f"cut off after {length} bytes"
            if expand.unused_data or file.read(1):
                return "followed by other bytes"
        except zlib.error as error:
            return f"damaged: {error}"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
    if length != ref.length or digest.hexdigest() != ref.digest:
        return f"{length} bytes with digest {digest.hexdigest()}"
    return ""
