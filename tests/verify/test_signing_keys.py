"""Where the private key lies, who may read it, and how the public one is written."""

import multiprocessing
import stat
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from ledger.errors import Refused, Unfinished, Usage
from ledger.last_seen import known_ledger, recall, remember, remember_ledger, seen_file
from ledger.signing_keys import (
    KEY_FILE,
    VerifierKey,
    config_home,
    load_or_create_signing_key,
    load_signing_key,
    parse_verifier_key,
)


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    default = tmp_path / ".config" / "laboratory-ledger"
    assert config_home({}) == default
    assert config_home({"XDG_CONFIG_HOME": "relative"}) == default
    assert config_home({"XDG_CONFIG_HOME": "/x"}) == Path("/x/laboratory-ledger")
    assert config_home({"XDG_CONFIG_HOME": "/x", "LEDGER_CONFIG_HOME": "/y"}) == Path("/y")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert config_home({}) == tmp_path / "Library/Application Support/laboratory-ledger"


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_readme_says_where_the_key_is(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    assert f"`~/{config_home({}).relative_to(Path.home())}`" in readme


def test_key_is_made_once_and_for_this_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "a" / "b"
    assert load_signing_key(home) is None
    key = load_or_create_signing_key(home)
    assert load_or_create_signing_key(home).public_key == key.public_key
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [KEY_FILE]


def _create(home: Path, queue: "multiprocessing.queues.Queue[bytes]") -> None:
    queue.put(load_or_create_signing_key(home).public_key)


def test_processes_agree_about_a_new_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_create, args=(tmp_path / "k", queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    keys = {queue.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join(60)
    assert len(keys) == 1


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_or_create_signing_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(Refused, match="chmod 600"):
        load_signing_key(tmp_path)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    another_kind = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for content in (b"", b"garbage", another_kind):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(Unfinished, match="not an unencrypted Ed25519"):
            load_signing_key(tmp_path)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unfinished, match="LEDGER_CONFIG_HOME"):
        load_or_create_signing_key(tmp_path / "file" / "below")


def test_verifier_string_reads_back(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("study/018f")
    assert parse_verifier_key(f" {key}\n") == key
    name, key_id, encoded = str(key).split("+", 2)
    for wrong in (
        "",
        name,
        f"{name}+{key_id}",
        f"other+{key_id}+{encoded}",
        f"{name}+00000000+{encoded}",
        f"{name}+{key_id}+{encoded[:-4]}",
        f"{name}+{key_id}+{'B' + encoded[1:]}",
        f"a b+{key_id}+{encoded}",
    ):
        with pytest.raises(Usage, match="verifier string"):
            parse_verifier_key(wrong)


def test_signature_needs_the_key(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path)
    signature = key.sign(b"text")
    verifier = key.verifier("a/b")
    assert verifier.accepts(signature, b"text")
    assert not verifier.accepts(signature, b"other")
    assert not verifier.accepts(signature[:-1], b"text")
    assert not VerifierKey("a/b", b"\xff" * 32).accepts(signature, b"text")


def test_what_was_seen_only_grows(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    assert recall(tmp_path, key) is None
    remember(tmp_path, key, 7, b"\x07" * 32)
    remember(tmp_path, key, 5, b"\x05" * 32)
    seen = recall(tmp_path, key)
    assert seen is not None
    assert (seen.size, seen.root) == (7, "07" * 32)
    assert recall(tmp_path, load_or_create_signing_key(tmp_path).verifier("a/c")) is None


def test_key_of_a_path(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    path = tmp_path / "ledger.db"
    assert known_ledger(tmp_path, path) is None
    remember_ledger(tmp_path, path, key)
    (tmp_path / "link").symlink_to(tmp_path)
    known = known_ledger(tmp_path, tmp_path / "link" / "ledger.db")
    assert known is not None and (known.key, known.live) == (str(key), True)
    # A later look at it as a copy does not make it one.
    remember_ledger(tmp_path, path, key, live=False)
    assert known_ledger(tmp_path, path) == known
    assert known_ledger(tmp_path, tmp_path / "other.db") is None


def test_what_a_loss_of_power_leaves_of_it_is_as_nothing(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    remember(tmp_path, key, 7, b"\x07" * 32, durable=False)
    (file,) = (tmp_path / "last-seen").iterdir()
    seen = recall(tmp_path, key)
    assert seen is not None and seen.size == 7
    file.write_bytes(b"")
    assert recall(tmp_path, key) is None


@pytest.mark.parametrize("left", [b"", bytes(120), None], ids=["empty", "zeros", "no name"])
def test_a_loss_of_power_takes_nothing_that_was_synced(tmp_path: Path, left: bytes | None) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    remember(tmp_path, key, 7, b"\x07" * 32)
    synced = set((tmp_path / "last-seen").iterdir())
    remember(tmp_path, key, 9, b"\x09" * 32, durable=False)
    seen = recall(tmp_path, key)
    assert seen is not None and (seen.size, seen.root) == (9, "09" * 32)
    (unsynced,) = set((tmp_path / "last-seen").iterdir()) - synced
    assert seen_file(tmp_path, key) == unsynced
    if left is None:
        unsynced.unlink()
    else:
        unsynced.write_bytes(left)
    seen = recall(tmp_path, key)
    assert seen is not None and (seen.size, seen.root) == (7, "07" * 32)
    assert {seen_file(tmp_path, key)} == synced


def test_what_was_seen_unsynced_is_synced_when_it_is_seen_again(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    remember(tmp_path, key, 7, b"\x07" * 32, durable=False)
    (unsynced,) = (tmp_path / "last-seen").iterdir()
    remember(tmp_path, key, 7, b"\x07" * 32)
    unsynced.unlink()
    seen = recall(tmp_path, key)
    assert seen is not None and seen.size == 7


def test_damaged_state_says_what_to_do(tmp_path: Path) -> None:
    key = load_or_create_signing_key(tmp_path).verifier("a/b")
    remember(tmp_path, key, 7, b"\x07" * 32)
    (file,) = (tmp_path / "last-seen").iterdir()
    file.write_bytes(b"{")
    with pytest.raises(Unfinished, match="delete it"):
        recall(tmp_path, key)
