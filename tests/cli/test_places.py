"""Which files a command reads, writes and removes: those of the study that was named, no others."""

import os
import shutil
from pathlib import Path

import pytest

from ledger.cli.main import main
from ledger.study_directory import OWN_FOLDERS

JUDGES = {
    "verify-chain": ["verify-chain"],
    "audit": ["audit", "chain"],
    "backup": ["backup", "elsewhere/copy"],
    "export": ["export", "elsewhere/copy"],
    "gc": ["gc", "--remove", "--older-than", "0"],
    "status": ["status"],
    "query": ["query", "SELECT * FROM cells"],
}


@pytest.fixture
def place(study: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (study.parent / "elsewhere").mkdir()
    monkeypatch.chdir(study.parent)
    return study


def ledger(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """(status, all that was printed)"""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def files(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("command", JUDGES)
def test_two_ledgers_in_one_study_are_refused_by_name(
    place: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A decoy beside a truncated ledger was verified, backed up and exported, and removal went by
    what the decoy names."""
    shutil.copy(place / "var/ledger.db", place / "ledger.db")
    before = files(place)
    status, said = ledger(capsys, *JUDGES[command], "--study", str(place))
    assert status == 1, said
    assert "holds ledger.db and var/ledger.db" in said
    assert files(place) == before
    assert not Path("elsewhere/copy").exists()


@pytest.mark.parametrize("command", ["verify-chain", "audit", "backup", "export", "gc"])
def test_who_judges_or_removes_says_which_file_and_ledger(
    place: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status, said = ledger(capsys, *JUDGES[command], "--study", str(place))
    assert status == 0, said
    (line,) = [line for line in said.splitlines() if line.startswith("ledger ")]
    path, origin = line.split()[1:]
    assert path == str(place / "var/ledger.db")
    name, uuid = origin.split("/")
    assert (name, len(uuid)) == ("recorded0", 36)


@pytest.mark.parametrize("name", OWN_FOLDERS)
def test_a_folder_of_a_study_that_is_a_link_is_refused_by_name(
    place: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """What it leads to is another study's: it was read as this one's, or removed."""
    folder = place / "var" / name
    shutil.rmtree(folder, ignore_errors=True)
    other = place.parent / "elsewhere"
    (other / "kept").write_text("kept")
    folder.symlink_to(other)
    for words in (JUDGES["verify-chain"], JUDGES["query"], JUDGES["gc"], ["checkpoint"]):
        status, said = ledger(capsys, *words, "--study", str(place))
        assert (status, f"{folder} is a link" in said) == (1, True), said
    status, said = ledger(capsys, "verify-chain", "--path", str(place))
    assert (status, f"{folder} is a link" in said) == (1, True), said
    assert files(other) == {"kept": 4}


def test_var_that_is_a_link_to_another_study_is_refused_by_name(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.rename(place / "var", "elsewhere/var")
    (place / "var").symlink_to(Path("elsewhere/var").resolve())
    for words in (["--study", str(place)], ["--path", str(place)]):
        status, said = ledger(capsys, "verify-chain", *words)
        assert (status, f"{place / 'var'} is a link" in said) == (1, True), said


@pytest.mark.parametrize("name", ["ledger.db", "checkpoints.log"])
def test_nothing_is_written_to_a_file_with_a_second_name(
    place: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    other = Path("elsewhere/other")
    os.link(place / "var" / name, other)
    before = other.read_bytes()
    status, said = ledger(capsys, "checkpoint", "--study", str(place))
    assert status == (3 if name == "ledger.db" else 5), said
    assert name in said
    assert other.read_bytes() == before
    assert ledger(capsys, "verify-chain", "--study", str(place))[0] == 0
