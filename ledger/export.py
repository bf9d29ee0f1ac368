"""Ledgers on the move: export to a folder of plain files, import of such a folder, backup.

    records.jsonl      one record a line, exactly the stored bytes; every line proves the one before
    checkpoints.log    every signed note, by size
    artifacts/         the files of all artifacts that records name (left out with records_only)

An imported ledger and a backup are study directories: the same files under ``var/`` around a
``ledger.db``, and in a backup what people wrote (``study.toml``, its documents and families).

Bytes are moved, never made again: the same ledger gives the same files, and what was imported
exports to the bytes it came from. Everything is written under a temporary name, synced, and renamed
when it is complete; nothing that exists is overwritten. After a kill the same call goes on: the
artifacts that were copied, which is nearly all of the work, are kept where their digest is right.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from ledger.artifacts import MAX_BYTES, Artifacts, is_digest
from ledger.atomic_file import TEMPORARY_PREFIX, make_folder, sync, sync_directory
from ledger.checkpoint import known_origin
from ledger.errors import Integrity, LedgerError, Refused, Unfinished, Usage
from ledger.last_seen import known_ledger, remember_ledger
from ledger.named_artifacts import artifacts_in_content, named_artifacts
from ledger.record_page import Page, artifacts_of_unknown_type
from ledger.record_source import (
    ARTIFACTS_FOLDER,
    CHECKPOINTS_FILE,
    DATABASE_FILE,
    RECORDS_FILE,
    Damaged,
    RecordSource,
    Stretch,
    all_notes,
    read_checkpoint_log,
)
from ledger.regular_file import open_regular
from ledger.signing_keys import config_home, parse_verifier_key
from ledger.stores import new_imported, open_records, records_at
from ledger.study_directory import IMPORTED_MARK, StudyDirectory
from ledger.verify.record_checks import MAX_REMEMBERED_ARTIFACTS, MISSING, check_artifact
from ledger.verify.verification import Options, Report, verify
from schemas.base import ArtifactRef
from schemas.counted import counted

VAR_FOLDER = "var"
IMPORTED_TEXT = b"This ledger was imported. It is opened read-only and never written.\n"


class Moved(msgspec.Struct, frozen=True):
    """What an export or a backup holds, and what it could not take along."""

    path: str
    """The file that was read."""
    ledger: str
    """Its origin, NAME/UUID, as record 0 says."""
    records: int
    checkpoints: int
    artifacts: int
    missing: tuple[str, ...] = ()
    """Digests of named artifacts that are not there."""
    altered: tuple[str, ...] = ()
    """Digests of artifacts that were copied though their bytes are not the recorded ones."""


def export(source: Path, directory: Path, records_only: bool = False) -> Moved:
    """Write a ledger (study directory, database or exported folder) to a new folder.

    Nothing is judged: verification of the export says what it is worth. Raises Refused where the
    folder has content already or lies among the ledger's own files, Integrity where a record cannot
    be read or is no line, Unfinished.
    """
    var = StudyDirectory(source).var
    _refuse_within(
        directory,
        var if var.is_dir() else source,
        f"{directory} lies among the ledger's own files: name a folder outside {var.name}/",
    )

    def write(live: bool) -> Moved:
        with _opened(source, live) as records:
            notes = _notes_of(records)
            copying = _Artifacts(None if records_only else records.artifacts, folder)
            count = 0
            with _created(folder / RECORDS_FILE) as file:
                for stretch in _readable(records):
                    for row in stretch.rows:
                        record = row[1]
                        if not isinstance(record, bytes) or b"\n" in record:
                            raise Integrity(f"seq {count}: not a line; run `ledger verify-chain`")
                        file.write(record + b"\n")
                        count += 1
                    copying.take(Page(stretch, count))
            _write(folder / CHECKPOINTS_FILE, b"".join(note + b"\n" for note in notes))
            copying.finish()
            return Moved(
                str(records.path),
                known_origin(records.first()),
                count,
                len(notes),
                copying.count,
                tuple(copying.missing),
                tuple(copying.altered),
            )

    with _new_folder(directory) as folder:
        return _beside_a_writer(folder, write)


def import_ledger(directory: Path, target: Path, key: str | None = None) -> Report:
    """Make a read-only ledger, a new study directory ``target``, from an exported one.

    Everything is verified before it gets its name; ``key``, the verifier string that its owner
    published, is remembered for it. Returns the report (its status may be ``unanchored``). Raises
    Integrity with the first finding when anything contradicts, Refused, Usage or Unfinished.
    """
    verifier = parse_verifier_key(key) if key is not None else None
    if not directory.is_dir():
        raise Usage(f"{directory} is no folder; name the folder that `ledger export` has written")
    _refuse_within(
        target,
        directory,
        f"{target} lies in the export itself, which must stay as it was received: name a folder "
        "outside it",
    )
    for name in (RECORDS_FILE, CHECKPOINTS_FILE):
        _check_regular(directory / name)
    if records_at(directory).name != RECORDS_FILE:
        raise Refused(f"{directory} is a ledger already; copy it with `ledger backup`")
    with _new_folder(target) as folder, _opened(directory) as records:
        var = _make_var(folder)
        published = read_checkpoint_log(directory / CHECKPOINTS_FILE)
        database = var / DATABASE_FILE
        with new_imported(database) as imported:
            imported.add_notes(published)
            copying = _Artifacts(records.artifacts, var)
            following = 0
            for stretch in _readable(records):
                page = Page(stretch, following)
                imported.add_records(page)
                copying.take(page)
                following += len(stretch.rows)
        copying.finish()
        _write(var / CHECKPOINTS_FILE, published)
        _write(var / IMPORTED_MARK, IMPORTED_TEXT)
        database.chmod(0o400)
        _sync_file(database)
        sync_directory(var)
        report = _verified(folder, Options(key=key, last_seen=False))
        if verifier is not None:
            # Before it has its name: killed in between, it would stand there under no key.
            remember_ledger(config_home(), StudyDirectory(target).ledger, verifier, live=False)
    return report


def backup(source: Path, target: Path) -> Report:
    """Copy a ledger that may be in use, with checkpoints and artifacts, into a new study directory.

    ``source`` is a study directory (then ``study.toml`` and what it binds is copied too), or a
    database. Copying ``ledger.db`` alone would silently lose what is still in its WAL. The copy is
    verified, against the newest checkpoint too, before it gets its name. Returns the report. Raises
    Refused (also for a place inside the study), Integrity with the first finding, Unfinished.
    """
    root = StudyDirectory(source).root
    _refuse_within(
        target,
        root,
        f"{target} lies in the study's own folder: what destroys the study destroys the backup "
        f"too; name a folder outside {root}, best on another disk",
    )

    def write(live: bool) -> Path:
        with _opened(source, live) as records:
            var = _make_var(folder)
            notes = _notes_of(records)
            database = var / DATABASE_FILE
            records.copy_to(database)
            _sync_file(database)
            _write(var / CHECKPOINTS_FILE, b"".join(note + b"\n" for note in notes))
            if records.imported:
                _write(var / IMPORTED_MARK, IMPORTED_TEXT)
            copying = _Artifacts(records.artifacts, var)
            with _opened(database) as copied:
                for stretch in _readable(copied):
                    copying.take(Page(stretch, 0))
            copying.finish()
            sync_directory(var)
            return records.path

    with _new_folder(target) as folder:
        path = _beside_a_writer(folder, write)
        _copy_what_people_wrote(StudyDirectory(source), folder)
        # The copy must be signed by whom the original must be.
        known = known_ledger(config_home(), path)
        demanded = Options(key=known.key if known else None, require="self", last_seen=False)
        report = _verified(folder, demanded)
        if known is not None:
            # As at an import. Where the configuration cannot be written, the copy is good.
            with suppress(Unfinished):
                key, ledger = parse_verifier_key(known.key), StudyDirectory(target).ledger
                remember_ledger(config_home(), ledger, key, live=False)
    return report


def _copy_what_people_wrote(study: StudyDirectory, folder: Path) -> None:
    """``study.toml`` and what the freeze binds of it: documents, in a transfer study its families.
    The frozen ones are artifacts already; these are here so that the backup can be gone on with."""
    try:
        content, declared = study.read_study()
    except LedgerError:
        return  # no study file, or one that cannot be used: the ledger is what must be kept
    _write(folder / study.toml.name, content)
    for name in declared.bound_documents:
        try:
            document = study.document(name)
        except LedgerError:
            continue
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / name, document)


T = TypeVar("T")


class _WriterCame(Unfinished):
    """A database at rest was written to while it was read without locks."""


def _beside_a_writer(folder: Path, write: Callable[[bool], T]) -> T:
    """Read without locks where nobody writes (a read-only medium has no room for them); where
    somebody begins to, read once more with locks."""
    try:
        return write(False)
    except _WriterCame:
        _clear(folder)
        return write(True)


# --- folders and files ---------------------------------------------------------------------------


def _refuse_within(target: Path, folder: Path, why: str) -> None:
    """Raises Refused with ``why`` for a place inside ``folder``, whatever links lead there."""
    if Path(os.path.realpath(folder)) in Path(os.path.realpath(target)).parents:
        raise Refused(why)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that gets its name when the block ends well.

    An error removes it. A kill or Ctrl-C leaves it behind, without harm, for the same call to use.
    """
    if os.path.lexists(target) and (
        not target.is_dir() or target.is_symlink() or any(target.iterdir())
    ):
        raise Refused(f"{target} exists and is not empty; name a new folder")
    target = target.absolute()
    if not target.name:
        raise Refused(f"{target} cannot be a new folder")
    temporary = target.parent / f"{TEMPORARY_PREFIX}{target.name}"
    try:
        make_folder(target.parent)
        with suppress(FileExistsError):
            temporary.mkdir(mode=0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(temporary, flags)
        try:
            if os.fstat(lock).st_uid != os.geteuid():
                raise Refused(f"{temporary} belongs to somebody else; name another place")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"another program is writing {target}; wait for its end") from None
            os.fchmod(lock, 0o700)
            _clear(temporary)
            try:
                yield temporary
                sync(lock)
                os.rename(temporary, target)
                sync_directory(target.parent)
            except Exception:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
        finally:
            os.close(lock)
    except OSError as error:
        raise Unfinished(
            f"{target}: {error.strerror or error}; nothing was kept, look at the disk"
        ) from error


def _clear(folder: Path) -> None:
    """Remove everything but artifacts, which need not be copied again."""
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif path.name == VAR_FOLDER:
            _clear(path)
        elif path.name != ARTIFACTS_FOLDER:
            shutil.rmtree(path)


def _make_var(folder: Path) -> Path:
    var = folder / VAR_FOLDER
    var.mkdir(mode=0o700, exist_ok=True)
    return var


@contextmanager
def _opened(source: Path, live: bool = False) -> Iterator[RecordSource]:
    """Raises _WriterCame in the end, whatever happened meanwhile, where reading without locks was
    not enough."""
    try:
        records = open_records(source, None, live)
    except Damaged as error:
        raise Integrity(f"{source}: {error}; run `ledger verify-chain`") from None
    try:
        try:
            yield records
        except (LedgerError, Damaged) as error:
            if records.changed_at_rest():
                raise _WriterCame(str(error)) from error
            if isinstance(error, Damaged):
                raise Integrity(f"{source}: {error}; run `ledger verify-chain`") from None
            raise
        if records.changed_at_rest():
            raise _WriterCame(f"{source}: somebody began to write to it; run this again")
    finally:
        records.close()


def _notes_of(records: RecordSource) -> list[bytes]:
    """Every note, to be taken before the records: none may be ahead of those that are copied."""
    published = records.published()
    return all_notes(records.checkpoint_rows(), published)


def _readable(records: RecordSource) -> Iterator[Stretch]:
    """Every record; raises Integrity where one cannot be read."""
    try:
        for stretch in records.stretches(records.end()):
            if stretch.unreadable is not None:
                lost = stretch.unreadable
                raise Integrity(f"seq {lost.start}: {lost.reason}; run `ledger verify-chain`")
            yield stretch
    except Damaged as error:
        raise Integrity(f"{records.path}: {error}; run `ledger verify-chain`") from None


@contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    """A new file for this user alone, durable when the block ends."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        yield file
        file.flush()
        sync(file.fileno())


def _write(path: Path, content: bytes) -> None:
    with _created(path) as file:
        file.write(content)


def _check_regular(path: Path) -> None:
    """What is imported is what stands in the folder, not what a link in it points to."""
    try:
        open_regular(path).close()
    except FileNotFoundError:
        raise Refused(f"{path.parent} holds no {path.name}; name the folder of an export") from None
    except OSError as error:
        raise Refused(f"{path} is {error.strerror}; name the folder of an export") from None


class _Artifacts:
    """Copies the artifacts that records name, each once, as they are stored."""

    def __init__(self, source: Path | None, folder: Path) -> None:
        self._source = source
        self._target = folder / ARTIFACTS_FOLDER
        self.count = 0
        self.missing: list[str] = []
        self.altered: list[str] = []
        self._kept = set(Artifacts(self._target).list_digests())
        """Digests that an interrupted call has copied and that were not looked at yet."""
        self._followed: set[str] = set()
        """Digests of artifacts whose content was looked at for what it names itself."""
        self._copied: set[str] = set()
        """Digests of some that are in the target: most records name what others have named."""
        if source is not None:
            self._target.mkdir(mode=0o700, exist_ok=True)

    def take(self, page: Page) -> None:
        if self._source is None:
            return
        for fields, event in zip(page.fields, page.events, strict=True):
            if event is not None:
                for ref, content_type in named_artifacts(event):
                    self._copy(self._source, ref, content_type)
            else:
                for ref in artifacts_of_unknown_type(fields):
                    self._copy(self._source, ref, None)

    def _copy(self, source: Path, ref: ArtifactRef, content_type: Any) -> None:
        if content_type is None and ref.digest in self._copied:
            return
        if not is_digest(ref.digest):
            # A path, perhaps, that leads out of both folders.
            if ref.digest not in self.altered:
                self.altered.append(ref.digest)
            return
        target = self._target / ref.digest[:2] / ref.digest
        if ref.digest in self._kept:
            self._kept.remove(ref.digest)
            if content_type is None and check_artifact(self._target, ref) == "":
                self.count += 1
                return
            target.unlink()
        if target.exists() and (content_type is None or ref.digest in self._followed):
            return
        if content_type is not None:
            self._followed.add(ref.digest)
        content = bytearray() if content_type is not None else None
        problem = check_artifact(source, ref, content)
        if problem == MISSING:
            if ref.digest not in self.missing:
                self.missing.append(ref.digest)
            return
        if problem and ref.digest not in self.altered:
            self.altered.append(ref.digest)
        if not target.exists() and not self._copy_file(source, ref, target):
            return
        if content is not None and not problem:
            try:
                further = artifacts_in_content(bytes(content), content_type)
            except (ValueError, RecursionError):
                return  # verification notes that this program cannot tell what it names
            for inner in further:
                self._copy(source, inner, None)

    def _copy_file(self, source: Path, ref: ArtifactRef, target: Path) -> bool:
        """False where there is nothing to take along: a link or a pipe in an artifact's place is
        never followed, and a file that is longer than the stream of these bytes can be is none."""
        try:
            file = open_regular(source / ref.digest[:2] / ref.digest)
        except OSError:
            return False
        with file:
            if os.fstat(file.fileno()).st_size > _most_packed(ref.length):
                return False
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with _created(target) as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        self.count += 1
        if len(self._copied) >= MAX_REMEMBERED_ARTIFACTS:
            self._copied.clear()
        self._copied.add(ref.digest)
        return True

    def finish(self) -> None:
        """Remove what an interrupted call copied and nobody names; make the folders durable."""
        for digest in self._kept:
            (self._target / digest[:2] / digest).unlink()
        if self._source is None:
            shutil.rmtree(self._target, ignore_errors=True)
        else:
            for shard in sorted(self._target.iterdir()):
                sync_directory(shard)
            sync_directory(self._target)


def _most_packed(length: int) -> int:
    """The most bytes that a zlib stream of ``length`` bytes has: 5 for every stored block."""
    return min(length, MAX_BYTES) + 5 * (min(length, MAX_BYTES) // 16_000 + 1) + 64


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _verified(folder: Path, options: Options) -> Report:
    """Verify a new folder; raises when it may not get its name."""
    report = verify(folder, options=options)
    if report.status == "violated":
        first = next(f for f in report.findings if f.severity == "violation")
        place = "" if first.seq is None else f" at seq {first.seq}"
        raise Integrity(
            f"{counted(len(report.findings), 'finding')}, the first is {first.code}{place}: "
            f"expected {first.expected}, got {first.got}; nothing was kept"
        )
    if report.status == "unfinished":
        raise Unfinished(f"{report.assurance} Nothing was kept.")
    return report
