"""What a study leaves on disk: no secret of its user, nothing that another user could change."""

import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.signing_keys import KEY_FILE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from tests.end_to_end import canaries
from tests.end_to_end.rehearsal_study import StudyOnDisk, take_steps

MARK = canaries.MARK.encode()


@pytest.fixture(scope="module")
def finished(completed_study: StudyOnDisk, tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    """The completed rehearsal, analysed and reported, exported and backed up, all beside it."""
    study = completed_study.copy(tmp_path_factory.mktemp("finished") / "place")
    place = study.path.parent
    take_steps(study, "analyze --reason planned", "report", "query --csv SELECT/**/1", "replay")
    take_steps(study, "audit", f"export {place / 'exported'}", f"backup {place / 'backup'}")
    return study


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what they hold where they are a zlib stream."""
    content = path.read_bytes()
    yield content
    try:
        yield zlib.decompress(content)
    except zlib.error:
        return


def test_no_secret_is_anywhere(finished: StudyOnDisk, completed_study: StudyOnDisk) -> None:
    looked_at = artifacts = 0
    for root in (finished.path.parent, completed_study.path.parent):
        for path in root.rglob("*"):
            if path.is_file() and not path.is_relative_to(root / "home"):
                found = list(contents(path))
                assert not any(MARK in content for content in found), path
                looked_at += 1
                artifacts += len(found) > 1 and "artifacts" in path.parts
    assert looked_at > 300 and artifacts > 100
    log = SqliteLog.open_read_only(StudyDirectory(finished.path).ledger)
    assert not any(MARK in stored.record for stored in log.read())
    log.close()


def test_the_secrets_were_there_to_be_found(finished: StudyOnDisk) -> None:
    """Else the test above would prove nothing."""
    environment = finished.environment()
    assert sum(canaries.MARK in value for value in environment.values()) == len(canaries.VARIABLES)
    home = Path(environment["HOME"])
    assert all(MARK in (home / name).read_bytes() for name in canaries.FILES)


def test_nobody_else_can_change_a_file(finished: StudyOnDisk) -> None:
    """Every command ran with a umask of 0."""
    found = [finished.path, *finished.path.rglob("*"), finished.config, *finished.config.rglob("*")]
    for folder in ("exported", "backup"):
        found += [finished.path.parent / folder, *(finished.path.parent / folder).rglob("*")]
    ours = [path for path in found if not path.is_symlink()]
    assert len(ours) > 300
    assert [
        oct(path.stat().st_mode) + f" {path}" for path in ours if path.stat().st_mode & 0o022
    ] == []


def test_what_must_be_private_is(finished: StudyOnDisk) -> None:
    directory = StudyDirectory(finished.path)
    folders = [directory.var, finished.config, finished.path.parent / "backup"]
    folders += [finished.path.parent / "exported"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 4
    files = [directory.ledger, directory.checkpoints, finished.config / KEY_FILE]
    files += [path for path in directory.artifacts.rglob("*") if path.is_file()]
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {"0o600"}


def test_no_folder_of_sockets_is_left(finished: StudyOnDisk, completed_study: StudyOnDisk) -> None:
    for study in (finished, completed_study):
        assert not os.path.lexists(StudyDirectory(study.path).sockets)
