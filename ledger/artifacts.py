"""Content-addressed files beside the log: ``artifacts/<first two hex>/<digest>``.

The digest is SHA-256 of the plain bytes. The file is one zlib stream (RFC 1950) of them, always:
where deflate does not make content shorter, zlib itself puts it into stored blocks (5 bytes for
every 64 KiB), so the two forms are told apart by the standard's own block headers and never by
guessing, and ``zlib.decompress`` of any language reads every artifact. Erasable content is 32
random bytes followed by the content; the digest covers both, so what was erased cannot be guessed
from it.

A record may name an artifact only after ``put`` has returned: file and directory entry are durable
then. A crash leaves an unnamed or an unfinished file, never a missing one.
"""

import fcntl
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from ledger.atomic_file import TEMPORARY_PREFIX, sync_directory, write_temporary
from ledger.clock import salt
from ledger.errors import Integrity, Refused, Unfinished, Usage
from ledger.regular_file import is_no_file, open_regular
from schemas.base import ArtifactRef

SALT_BYTES = 32
MAX_BYTES = 1 << 30
COMPRESSION_LEVEL = 6

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHARDS = [f"{number:02x}" for number in range(256)]


def is_digest(text: str) -> bool:
    """False for whatever else a record may name, a path for instance: it must be part of none."""
    return _DIGEST.fullmatch(text) is not None


class Artifacts:
    """The artifacts of one ledger. Any number of processes may put and get at the same time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._has_shards = False

    def put(self, content: bytes, media_type: str, erasable: bool = False) -> ArtifactRef:
        """Store content durably and return what a record names. Costs two syncs, one where the
        same content is there already (it is verified then and not written again).

        Raises Refused above 1 GiB, Integrity where a damaged file stands in its place.
        """
        return self.put_many([(content, media_type)], erasable)[0]

    def put_many(
        self, contents: Sequence[tuple[bytes, str]], erasable: bool = False
    ) -> list[ArtifactRef]:
        """``put`` for several (content, media type): one sync a file and one a directory."""
        refs = []
        with _explained(self.directory):
            for content, media_type in contents:
                plain = salt() + content if erasable else content
                if len(plain) > MAX_BYTES:
                    raise Refused(f"an artifact of {len(plain)} bytes; at most {MAX_BYTES} fit")
                digest = sha256(plain).hexdigest()
                self._store(digest, plain)
                refs.append(
                    ArtifactRef(
                        digest=digest,
                        length=len(plain),
                        media_type=media_type,
                        erasable=erasable,
                    )
                )
            for shard in sorted({ref.digest[:2] for ref in refs}):
                # Also where the file was there: the process that wrote it may not be so far yet.
                sync_directory(self.directory / shard)
        return refs

    def _store(self, digest: str, plain: bytes) -> None:
        if not self._has_shards:
            self._make_shards()
        directory = self._open_shard(digest)
        try:
            # Removal of leftovers takes this lock alone: what is found here stays, and is young.
            fcntl.flock(directory, fcntl.LOCK_SH)
            if self._is_stored(directory, digest):
                self._read(directory, digest, len(plain))
                os.utime(digest, dir_fd=directory, follow_symlinks=False)
                return
            packed = zlib.compress(plain, COMPRESSION_LEVEL)
            temporary = write_temporary(directory, packed)
            os.rename(temporary, digest, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            os.close(directory)

    def get(self, ref: ArtifactRef) -> bytes:
        """The content that a record names, without the salt.

        Raises Integrity naming the digest when it is missing or differs in a single bit.
        """
        plain = self.get_raw(ref.digest, ref.length)
        if len(plain) != ref.length:
            raise Integrity(
                f"artifact {ref.digest}: {len(plain)} bytes, the record says {ref.length}"
            )
        return plain[SALT_BYTES:] if ref.erasable else plain

    def get_beginning(self, ref: ArtifactRef, count: int) -> bytes:
        """The first ``count`` bytes of the content that a record names, of which the rest is read
        and checked but never held. Raises Integrity like ``get``."""
        salt_bytes = SALT_BYTES if ref.erasable else 0
        plain, length = self._opened(ref.digest, ref.length, salt_bytes + count)
        if length != ref.length:
            raise Integrity(f"artifact {ref.digest}: {length} bytes, the record says {ref.length}")
        return plain[salt_bytes:]

    def get_raw(self, digest: str, at_most: int = MAX_BYTES) -> bytes:
        """The plain bytes under a digest, the salt of erasable content included.

        Never expands more than ``at_most`` bytes. Raises Integrity.
        """
        return self._opened(digest, at_most, at_most)[0]

    def _opened(self, digest: str, at_most: int, keep: int) -> tuple[bytes, int]:
        self.path(digest)
        with _explained(self.directory):
            try:
                directory = self._open_shard(digest)
            except FileNotFoundError:
                raise _missing(digest) from None
            try:
                return self._read(directory, digest, at_most, keep)
            finally:
                os.close(directory)

    def _read(self, directory: int, digest: str, at_most: int, keep: int = 0) -> tuple[bytes, int]:
        """(the first ``keep`` plain bytes, how many there are), checked to the end."""
        try:
            file = open_regular(digest, directory)
        except FileNotFoundError:
            raise _missing(digest) from None
        except OSError as error:
            if not is_no_file(error):
                raise
            raise Integrity(f"artifact {digest}: {error.strerror}") from None
        with file:
            expand, hasher = zlib.decompressobj(), sha256()
            kept, length = bytearray(), 0
            try:
                while not expand.eof and (packed := file.read(1 << 16)):
                    while packed and length <= at_most:
                        plain = expand.decompress(packed, min(at_most + 1 - length, 1 << 20))
                        packed = expand.unconsumed_tail
                        hasher.update(plain)
                        kept += plain[: max(0, keep - length)]
                        length += len(plain)
            except zlib.error as error:
                raise Integrity(f"artifact {digest}: damaged ({error})") from None
            if length > at_most:
                raise Integrity(f"artifact {digest}: expands to more than {at_most} bytes")
            if not expand.eof or expand.unused_data or file.read(1):
                raise Integrity(f"artifact {digest}: cut off, or followed by other bytes")
        if hasher.hexdigest() != digest:
            raise Integrity(f"artifact {digest}: altered, its bytes have another digest")
        return bytes(kept), length

    def path(self, digest: str) -> Path:
        """Where the file of a digest stands. Raises Usage for what is not a digest."""
        if not is_digest(digest):
            raise Usage(f"{digest!r} is not a digest: 64 hexadecimal digits in lower case")
        return self.directory / digest[:2] / digest

    def exists(self, digest: str) -> bool:
        """True where a regular file stands under the digest; its content is not looked at."""
        try:
            return stat.S_ISREG(self.path(digest).lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def list_digests(self) -> Iterator[str]:
        """Every digest with a file, in order."""
        for shard, name in self._list_files():
            if is_digest(name) and name.startswith(shard):
                yield name

    def list_unfinished(self) -> Iterator[Path]:
        """Temporary files: those of a put that is going on, and what a crash left behind."""
        for shard, name in self._list_files():
            if name.startswith(TEMPORARY_PREFIX):
                yield self.directory / shard / name

    def _list_files(self) -> Iterator[tuple[str, str]]:
        for shard in _SHARDS:
            with _explained(self.directory), suppress(FileNotFoundError, NotADirectoryError):
                for name in sorted(os.listdir(self.directory / shard)):
                    yield shard, name

    def erase(self, ref: ArtifactRef) -> None:
        """Remove erasable content for good; the chain stays whole. Once erased, nothing to do.

        Raises Refused for content that was not recorded as erasable.
        """
        if not ref.erasable:
            raise Refused(
                f"artifact {ref.digest} was not recorded as erasable: its digest, which stays in "
                "the log, would let anyone guess the content"
            )
        path = self.path(ref.digest)
        with _explained(self.directory), suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)

    def _open_shard(self, digest: str) -> int:
        # Not through a symbolic link: an imported directory must not make us write elsewhere.
        return os.open(self.directory / digest[:2], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def _make_shards(self) -> None:
        """All 256 at the first put of this object: two syncs, instead of one for every new one."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for shard in _SHARDS:
            with suppress(FileExistsError):
                os.mkdir(self.directory / shard, 0o700)
        sync_directory(self.directory)
        sync_directory(self.directory.parent)
        self._has_shards = True

    @staticmethod
    def _is_stored(directory: int, digest: str) -> bool:
        try:
            os.stat(digest, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


def _missing(digest: str) -> Integrity:
    return Integrity(
        f"artifact {digest}: missing; restore it from a copy of the artifacts directory, or it was "
        "erased on purpose (`ledger verify-chain` says which)"
    )


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Turn errors of the operating system into ours, with what to do."""
    try:
        yield
    except OSError as error:
        raise Unfinished(
            f"{directory}: {error.strerror or error}; look at the free space and at the "
            "permissions of the directory, then run the command again"
        ) from error
