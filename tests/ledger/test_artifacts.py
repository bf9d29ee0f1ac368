"""Artifacts: the bytes that a digest names, or an error that says so."""

import os
import resource
import stat
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import artifacts as artifacts_module
from ledger.artifacts import Artifacts
from ledger.atomic_file import TEMPORARY_PREFIX, sync_directory, write_file
from ledger.errors import Integrity, Refused, Unfinished, Usage
from schemas.base import ArtifactRef

TEXT = b"the same line again and again\n" * 100


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path / "var" / "artifacts")


def plant(artifacts: Artifacts, ref: ArtifactRef, stored: bytes) -> None:
    """Put other bytes under a digest."""
    artifacts.path(ref.digest).write_bytes(stored)


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=2_000), erasable=st.booleans())
def test_what_was_put_is_what_one_gets(
    artifacts: Artifacts, content: bytes, erasable: bool
) -> None:
    ref = artifacts.put(content, "text/plain", erasable)
    assert artifacts.get(ref) == content
    assert (ref.media_type, ref.erasable) == ("text/plain", erasable)
    assert ref.length == len(content) + (32 if erasable else 0)
    assert sha256(artifacts.get_raw(ref.digest)).hexdigest() == ref.digest


def test_the_digest_is_that_of_the_plain_bytes(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    assert ref.digest == sha256(TEXT).hexdigest()
    path = artifacts.path(ref.digest)
    assert path == artifacts.directory / ref.digest[:2] / ref.digest
    assert zlib.decompress(path.read_bytes()) == TEXT
    assert path.stat().st_size < len(TEXT) / 10


def test_the_same_content_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        artifacts = Artifacts(tmp_path / name)
        files.append(artifacts.path(artifacts.put(TEXT, "text/plain").digest).read_bytes())
    assert files[0] == files[1] == zlib.compress(TEXT, 6)


def test_content_that_does_not_compress_costs_next_to_nothing(artifacts: Artifacts) -> None:
    content = b"".join(sha256(b"%d" % number).digest() for number in range(10_000))
    ref = artifacts.put(content, "application/octet-stream")
    assert artifacts.path(ref.digest).stat().st_size < len(content) * 1.001
    assert artifacts.get(ref) == content


def test_files_are_for_the_owner_alone(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    path = artifacts.path(ref.digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(artifacts.directory.stat().st_mode) == 0o700


def test_digests_are_listed_in_order_and_nothing_else(artifacts: Artifacts) -> None:
    assert list(artifacts.list_digests()) == []
    refs = [artifacts.put(b"%d" % number, "text/plain") for number in range(20)]
    digest = refs[0].digest
    path = artifacts.path(digest)
    (path.parent / "notes.txt").touch()
    (path.parent / f"{TEMPORARY_PREFIX}crashed").touch()
    (artifacts.directory / "README").touch()
    other_shard = "00" if digest[:2] != "00" else "01"
    (artifacts.directory / other_shard / digest).touch()
    assert list(artifacts.list_digests()) == sorted(ref.digest for ref in refs)
    assert [file.name for file in artifacts.list_unfinished()] == [f"{TEMPORARY_PREFIX}crashed"]


def test_existence_is_that_of_a_regular_file(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    other = sha256(b"other").hexdigest()
    assert artifacts.exists(ref.digest)
    assert not artifacts.exists(other)
    artifacts.path(other).symlink_to(artifacts.path(ref.digest))
    assert not artifacts.exists(other)


@pytest.mark.parametrize("digest", ["", "ab", "AB" * 32, "../" * 22, "ab" * 32 + "\n", "é" * 64])
def test_what_is_not_a_digest_is_refused(artifacts: Artifacts, digest: str) -> None:
    for call in (artifacts.path, artifacts.exists, artifacts.get_raw):
        with pytest.raises(Usage, match="not a digest"):
            call(digest)


# --- erasable content ----------------------------------------------------------------------------


def test_erasable_content_cannot_be_recognised_by_its_digest(artifacts: Artifacts) -> None:
    first = artifacts.put(b"yes", "text/plain", erasable=True)
    second = artifacts.put(b"yes", "text/plain", erasable=True)
    assert first.digest != second.digest
    assert artifacts.get_raw(first.digest)[32:] == artifacts.get(first) == b"yes"


def test_erased_content_is_gone_and_the_error_says_that_it_may_be(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain", erasable=True)
    artifacts.erase(ref)
    artifacts.erase(ref)
    assert not artifacts.exists(ref.digest)
    with pytest.raises(Integrity, match=f"{ref.digest}: missing.*erased on purpose"):
        artifacts.get(ref)


def test_other_content_cannot_be_erased(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    with pytest.raises(Refused, match="would let anyone guess"):
        artifacts.erase(ref)
    assert artifacts.get(ref) == TEXT


# --- damage and hostile files --------------------------------------------------------------------


def test_a_missing_artifact_is_named(artifacts: Artifacts) -> None:
    ref = ArtifactRef(digest="5e" * 32, length=1, media_type="text/plain")
    with pytest.raises(Integrity, match=ref.digest):
        artifacts.get(ref)
    artifacts.put(TEXT, "text/plain")
    with pytest.raises(Integrity, match=ref.digest):
        artifacts.get(ref)


def test_a_flipped_bit_never_changes_the_content(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    stored = artifacts.path(ref.digest).read_bytes()
    for position in range(len(stored)):
        altered = bytearray(stored)
        altered[position] ^= 1 << position % 8
        plant(artifacts, ref, bytes(altered))
        try:
            content = artifacts.get(ref)
        except Integrity as error:
            assert ref.digest in str(error)
        else:
            # zlib has hints in its header and padding before its sum: what counts is the content.
            assert content == TEXT


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: b"",
        lambda stored: stored[:-1],
        lambda stored: stored[: len(stored) // 2],
        lambda stored: stored + b"\0",
        lambda stored: stored + stored,
        lambda stored: TEXT,
        lambda stored: zlib.compress(TEXT + b"more"),
        lambda stored: zlib.compress(TEXT[:-1]),
        lambda stored: zlib.compress(TEXT.upper()),
    ],
)
def test_damage_is_found_and_named(artifacts: Artifacts, damage: Callable[[bytes], bytes]) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    plant(artifacts, ref, damage(artifacts.path(ref.digest).read_bytes()))
    for call in (
        lambda: artifacts.get(ref),
        lambda: artifacts.get_raw(ref.digest),
        lambda: artifacts.put(TEXT, "text/plain"),
    ):
        with pytest.raises(Integrity, match=ref.digest):
            call()


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_record_that_gives_another_length_is_found(artifacts: Artifacts, difference: int) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    wrong = msgspec.structs.replace(ref, length=ref.length + difference)
    with pytest.raises(Integrity, match=ref.digest):
        artifacts.get(wrong)


def test_a_bomb_is_not_unpacked(artifacts: Artifacts) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(96)) + packer.flush()
    assert len(bomb) < 1 << 18
    plant(artifacts, ref, bomb)
    script = (
        "import resource, sys\n"
        "from ledger.artifacts import Artifacts\n"
        "from ledger.errors import Integrity\n"
        "from schemas.base import ArtifactRef\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))\n"
        "ref = ArtifactRef(digest=sys.argv[2], length=int(sys.argv[3]), media_type='x')\n"
        "try:\n"
        "    Artifacts(sys.argv[1]).get(ref)\n"
        "except Integrity as error:\n"
        "    print(error)\n"
    )
    arguments = [str(artifacts.directory), ref.digest, str(ref.length)]
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"artifact {ref.digest}: expands to more than {ref.length} bytes\n"


def test_of_a_long_artifact_only_the_beginning_is_held(artifacts: Artifacts) -> None:
    """An honest bomb: 64 MiB that the record names as such."""
    content = bytes(64 << 20)
    ref = artifacts.put(content, "application/octet-stream")
    del content
    tracemalloc.start()
    assert artifacts.get_beginning(ref, 1000) == bytes(1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    salted = artifacts.put(b"0123456789", "text/plain", erasable=True)
    assert artifacts.get_beginning(salted, 4) == b"0123"
    assert artifacts.get_beginning(salted, 40) == b"0123456789"
    plant(artifacts, ref, zlib.compress(bytes(1000)))
    with pytest.raises(Integrity, match="another digest"):
        artifacts.get_beginning(ref, 1000)


def test_links_and_special_files_are_refused(artifacts: Artifacts, tmp_path: Path) -> None:
    ref = artifacts.put(TEXT, "text/plain")
    path = artifacts.path(ref.digest)
    elsewhere = tmp_path / "elsewhere"
    os.rename(path, elsewhere)

    def refused() -> None:
        with pytest.raises(Integrity, match=ref.digest):
            artifacts.get(ref)
        with pytest.raises(Integrity, match=ref.digest):
            artifacts.put(TEXT, "text/plain")

    path.symlink_to(elsewhere)
    refused()
    path.unlink()
    os.mkfifo(path)
    refused()
    path.unlink()
    path.mkdir()
    refused()


def test_nothing_is_written_through_a_linked_folder(artifacts: Artifacts, tmp_path: Path) -> None:
    digest = sha256(TEXT).hexdigest()
    artifacts.put(b"something else", "text/plain")
    shard = artifacts.directory / digest[:2]
    for file in shard.iterdir():
        file.unlink()
    shard.rmdir()
    (tmp_path / "outside").mkdir()
    shard.symlink_to(tmp_path / "outside")
    with pytest.raises(Unfinished):
        artifacts.put(TEXT, "text/plain")
    assert list((tmp_path / "outside").iterdir()) == []


def test_too_large_content_is_refused(
    artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts_module, "MAX_BYTES", 100)
    artifacts.put(b"x" * 100, "text/plain")
    with pytest.raises(Refused, match="101 bytes"):
        artifacts.put(b"x" * 101, "text/plain")


# --- durability ----------------------------------------------------------------------------------


class Syncs:
    """What was synced, in order: `file` or `directory`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.kinds.append("directory" if is_directory else "file")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    def during(self, call: Callable[[], object]) -> list[str]:
        self.kinds.clear()
        call()
        return list(self.kinds)


@pytest.mark.skipif(sys.platform == "darwin", reason="syncs by fcntl there, not by os.fsync")
def test_how_many_syncs_a_put_costs(artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    artifacts.put(b"the first one makes the folders", "text/plain")
    assert syncs.during(lambda: artifacts.put(TEXT, "text/plain")) == ["file", "directory"]
    assert syncs.during(lambda: artifacts.put(TEXT, "text/plain")) == ["directory"]
    contents = [(b"%d" % number, "text/plain") for number in range(20)]
    shards = {sha256(content).hexdigest()[:2] for content, _ in contents}
    assert len(shards) < 20
    kinds = syncs.during(lambda: artifacts.put_many(contents))
    assert kinds == ["file"] * 20 + ["directory"] * len(shards)


def test_put_many_is_put_for_each(artifacts: Artifacts) -> None:
    contents = [(b"a", "text/plain"), (b"b", "text/html"), (b"a", "text/plain")]
    refs = artifacts.put_many(contents)
    assert refs == [artifacts.put(content, media_type) for content, media_type in contents]
    assert [artifacts.get(ref) for ref in refs] == [b"a", b"b", b"a"]
    assert artifacts.put_many([]) == []
    salted = artifacts.put_many(contents, erasable=True)
    assert len({ref.digest for ref in salted}) == 3


def test_existing_content_is_not_written_again_but_touched(artifacts: Artifacts) -> None:
    """So that `ledger gc` sees that somebody is about to name it."""
    path = artifacts.path(artifacts.put(TEXT, "text/plain").digest)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    before = path.stat()
    artifacts.put(TEXT, "text/plain")
    after = path.stat()
    assert before.st_ino == after.st_ino and before.st_mtime < after.st_mtime


def test_a_write_that_fails_leaves_nothing_behind(artifacts: Artifacts) -> None:
    artifacts.put(b"small", "text/plain")
    content = b"".join(sha256(b"%d" % number).digest() for number in range(4_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(Unfinished, match="look at the free space"):
            artifacts.put(content, "text/plain")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(artifacts.list_unfinished()) == []
    assert not artifacts.exists(sha256(content).hexdigest())
    assert artifacts.get(artifacts.put(content, "text/plain")) == content


def test_concurrent_puts_of_the_same_content_are_safe(artifacts: Artifacts) -> None:
    contents = [b"%d" % number * 1_000 for number in range(30)]
    results: list[list[ArtifactRef]] = []

    def work() -> None:
        own = Artifacts(artifacts.directory)  # as another process has it
        refs = []
        for content in contents:
            refs.append(own.put(content, "text/plain"))
            assert own.get(refs[-1]) == content
        results.append(refs)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(refs == results[0] for refs in results)
    assert list(artifacts.list_unfinished()) == []


# --- atomic files --------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"first")
    write_file(path, b"second")
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(OSError):
            write_file(path, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"second"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_renamed_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_file(tmp_path / "folder", b"content")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_syncing_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    sync_directory(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        sync_directory(tmp_path / "file")
