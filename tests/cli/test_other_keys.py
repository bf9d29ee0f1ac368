"""A ledger is written under the key that has signed it, or not at all."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.signing_keys import (
    CONFIG_HOME_VARIABLE,
    KEY_FILE,
    config_home,
    load_or_create_signing_key,
    parse_verifier_key,
)
from ledger.study_directory import StudyDirectory
from tests.cli.conftest import Run, facts_of

WRITING = (
    ["checkpoint"],
    ["query", "SELECT count(*) FROM outcomes", "--reason", "a look"],
    ["analyze", "--reason", "a look"],
)


def verifier_string(ledger: Run, study: Path) -> str:
    return str(ledger("checkpoint", "--study", study, "--json").json["key"])


Change = Callable[[Path, pytest.MonkeyPatch, Path], None]


def in_another_home(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "another"))


def with_another_key(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_another_home(home, monkeypatch, tmp_path)
    load_or_create_signing_key(tmp_path / "another")


def with_the_key_lost(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (home / KEY_FILE).rename(tmp_path / KEY_FILE)


@pytest.mark.parametrize("change", [in_another_home, with_another_key, with_the_key_lost])
def test_nothing_is_written_under_another_key(
    ledger: Run,
    study: Path,
    own_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
) -> None:
    key = verifier_string(ledger, study)
    signer = parse_verifier_key(key)
    before = facts_of(study)
    notes = StudyDirectory(study).checkpoints.read_bytes()
    change(own_home, monkeypatch, tmp_path)
    had_key = (config_home() / KEY_FILE).exists()
    for words in WRITING:
        ran = ledger(*words, "--study", study)
        assert (ran.status, ran.out) == (1, ""), ran
        assert f"signed by the key {signer.name}+{signer.id.hex()}, and " in ran.err
        assert CONFIG_HOME_VARIABLE in ran.err and KEY_FILE in ran.err and "--key" in ran.err
        assert (f"has no {KEY_FILE}" in ran.err) is not had_key
    assert (config_home() / KEY_FILE).exists() is had_key
    assert facts_of(study) == before
    assert StudyDirectory(study).checkpoints.read_bytes() == notes
    # What the message says goes on works, and so does the way back.
    assert ledger("verify-chain", "--key", key, "--require", "self", "--study", study).status == 0
    assert ledger("export", tmp_path / "exported", "--study", study).status in (0, 4)
    if change is with_the_key_lost:
        (tmp_path / KEY_FILE).rename(own_home / KEY_FILE)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(own_home))
    assert verifier_string(ledger, study) == key
    assert ledger("verify-chain", "--study", study).status == 0


def test_a_key_that_is_known_and_lost_is_not_replaced_where_no_checkpoint_names_it(
    ledger: Run, study: Path, own_home: Path
) -> None:
    key = verifier_string(ledger, study)
    connection = sqlite3.connect(StudyDirectory(study).ledger)
    with connection:
        connection.execute("DELETE FROM checkpoints")
    connection.close()
    (own_home / KEY_FILE).unlink()
    ran = ledger("checkpoint", "--study", study)
    assert ran.status == 1
    assert f"signed by the key {key}, and {own_home} has no {KEY_FILE}" in ran.err
    assert not (own_home / KEY_FILE).exists()


def test_another_ledger_at_a_path_that_is_known_may_have_another_key(
    ledger: Run, tmp_path: Path, own_home: Path
) -> None:
    place = tmp_path / "place"
    assert ledger("init", place).status == 0
    shutil.rmtree(place)
    (own_home / KEY_FILE).unlink()
    assert ledger("init", place).status == 0
    assert ledger("verify-chain", "--study", place).status == 0


def test_a_relative_configuration_folder_is_refused(
    ledger: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, "conf")
    for words in (["checkpoint", "--study", study], ["init", "new"]):
        ran = ledger(*words)
        assert ran.status == 2 and f"{CONFIG_HOME_VARIABLE}=conf is not a full path" in ran.err
    assert not (tmp_path / "conf").exists()


def test_a_configuration_folder_in_the_study_is_refused(
    ledger: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    (tmp_path / "link").symlink_to(study)
    for root, home, words in (
        (study, study / "conf", ["checkpoint", "--study", study]),
        (study, tmp_path / "link" / "conf", ["checkpoint", "--study", study]),
        (study, study, ["checkpoint", "--study", study]),
        (new, new / "conf", ["init", new]),
    ):
        monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(home))
        ran = ledger(*words)
        assert ran.status == 1 and f"a folder outside {root}" in ran.err, ran
        assert not (root / "conf").exists() and not (root / KEY_FILE).exists()
    assert not StudyDirectory(new).var.exists()


def test_a_ledger_that_was_seen_and_is_gone_is_to_be_put_back(
    ledger: Run, study: Path, tmp_path: Path, own_home: Path
) -> None:
    key = verifier_string(ledger, study)
    events = len(facts_of(study))
    StudyDirectory(study).toml.write_text("")
    assert ledger("backup", tmp_path / "backup", "--study", study).status == 0
    shutil.rmtree(StudyDirectory(study).var)
    for words in (["status"], ["checkpoint"], ["verify-chain"], ["backup", tmp_path / "second"]):
        ran = ledger(*words, "--study", study)
        assert ran.status == 3, ran
        assert f"a ledger of {events} records was seen here, signed by the key {key};" in ran.err
        assert "put a backup of the study back" in ran.err
    shutil.copytree(tmp_path / "backup" / "var", StudyDirectory(study).var)
    assert verifier_string(ledger, study) == key
