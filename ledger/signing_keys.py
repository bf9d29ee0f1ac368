"""The key that signs checkpoints, and the strings by which others know it.

One Ed25519 key a user, in the user's configuration folder and never in a study: whoever copies a
study directory does not get the power to sign for it.

    $LEDGER_CONFIG_HOME                                   where it is set
    $XDG_CONFIG_HOME/laboratory-ledger                    else, where that is set to a full path
    ~/Library/Application Support/laboratory-ledger       else, on macOS
    ~/.config/laboratory-ledger                           else

``signing-key.pem`` (PKCS #8, mode 0600, in a folder of mode 0700) is made when the first ledger is
signed, never for one that has another signer already. It is in no backup of a study. The public
half is written as a verifier string of the Go checksum database, which C2SP's signed notes use:

    <name>+<key id, 8 hex digits>+<base64(0x01 ‖ public key)>

The name is the origin of a ledger, so one key has a different verifier string for every ledger and
a signature under one is never valid for another.
"""

import base64
import binascii
import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from ledger.atomic_file import make_folder, sync, write_temporary
from ledger.errors import Refused, Unfinished, Usage

CONFIG_HOME_VARIABLE = "LEDGER_CONFIG_HOME"
KEY_FILE = "signing-key.pem"
ED25519 = b"\x01"
"""C2SP's signature type identifier."""

_FOLDER = "laboratory-ledger"
# C2SP: a key name is not empty and has no space, no plus and no control character.
_NAME = re.compile(r"^[^\s+\x00-\x20\x7f]+$")
_VERIFIER = re.compile(r"^([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$")


def config_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's configuration folder; it need not exist. Raises Usage for a relative one, which
    would be another folder, and so another key, wherever a command is run from."""
    if chosen := environment.get(CONFIG_HOME_VARIABLE):
        if not os.path.isabs(chosen):
            raise Usage(
                f"{CONFIG_HOME_VARIABLE}={chosen} is not a full path: it names another folder, and "
                "so another key, wherever a command is run; write it from / on"
            )
        return Path(chosen)
    # The XDG specification: a path that is not absolute is to be ignored.
    xdg = environment.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg) / _FOLDER
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / _FOLDER
    return Path.home() / ".config" / _FOLDER


def make_private_folder(folder: Path) -> None:
    """Make a folder (mode 0700) with its parents. Raises Unfinished with what to do."""
    try:
        make_folder(folder, 0o700)
    except OSError as error:
        raise Unfinished(
            f"{folder}: {error.strerror}; set {CONFIG_HOME_VARIABLE} to a folder of yours"
        ) from None


def is_key_name(name: str) -> bool:
    """True for what C2SP allows as the name of a key (and we as an origin)."""
    return _NAME.match(name) is not None


def key_id(name: str, public_key: bytes) -> bytes:
    """SHA-256(name ‖ "\\n" ‖ 0x01 ‖ public key)[:4] (C2SP signed-note, "Ed25519 signatures")."""
    return sha256(name.encode() + b"\n" + ED25519 + public_key).digest()[:4]


class VerifierKey(msgspec.Struct, frozen=True):
    """A public key under a name. ``str()`` gives the verifier string."""

    name: str
    public_key: bytes

    @property
    def id(self) -> bytes:
        return key_id(self.name, self.public_key)

    def __str__(self) -> str:
        encoded = base64.b64encode(ED25519 + self.public_key).decode()
        return f"{self.name}+{self.id.hex()}+{encoded}"

    def accepts(self, signature: bytes, text: bytes) -> bool:
        """True when this key made ``signature`` over ``text`` (RFC 8032)."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, text)
        except (InvalidSignature, ValueError):
            return False
        return True


def parse_verifier_key(text: str) -> VerifierKey:
    """Read a verifier string. Raises Usage with the form of one."""
    match = _VERIFIER.match(text.strip())
    if match is not None and is_key_name(match[1]):
        decoded = base64.b64decode(match[3])
        key = VerifierKey(match[1], decoded[1:])
        if decoded[:1] == ED25519 and str(key) == text.strip():
            return key
    raise Usage(
        f"{text!r} is not the verifier string of a key: it reads NAME+8 HEX DIGITS+BASE64, as "
        "`ledger checkpoint` prints it"
    )


class SigningKey:
    """The private key of one user."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        self.public_key = private_key.public_key().public_bytes_raw()

    def verifier(self, name: str) -> VerifierKey:
        return VerifierKey(name, self.public_key)

    def sign(self, text: bytes) -> bytes:
        """64 bytes; the same text gives the same signature (RFC 8032 is deterministic)."""
        return self._private_key.sign(text)


def load_signing_key(home: Path) -> SigningKey | None:
    """The user's key, or None where none was made yet.

    Raises Refused when others can read the file, Unfinished when it cannot be read.
    """
    path = home / KEY_FILE
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            folder = home.stat()
            content = file.read(1 << 16)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unfinished(f"{path}: {error.strerror}; make it readable for you alone") from None
    if mode & 0o077:
        raise Refused(
            f"{path}: others may read it (mode {mode:04o}), so its signatures prove nothing; if "
            f"nobody has, run: chmod 600 '{path}'"
        )
    if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
        raise Refused(
            f"{home}: others may write to it and put their own key and memory in the place of "
            f"yours; if nobody has, run: chmod 700 '{home}'"
        )
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Unfinished(f"{path}: not an unencrypted Ed25519 private key; put the right file back")
    return SigningKey(key)


def load_or_create_signing_key(home: Path) -> SigningKey:
    """The user's key; made on first use, by exactly one of several processes."""
    key = load_signing_key(home)
    if key is not None:
        return key
    make_private_folder(home)
    content = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        directory = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            temporary = write_temporary(directory, content, 0o600)
            try:
                # A link is made once; a rename would replace a key that another process has just
                # made and perhaps already used.
                with suppress(FileExistsError):
                    os.link(temporary, KEY_FILE, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                os.unlink(temporary, dir_fd=directory)
            sync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise Unfinished(
            f"{home / KEY_FILE}: {error.strerror}; set {CONFIG_HOME_VARIABLE} to a folder of yours"
        ) from None
    made = load_signing_key(home)
    assert made is not None
    return made
