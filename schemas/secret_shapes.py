"""Texts that look like secrets: keys, tokens, passwords. Found by shape, never by lookup.

What reaches the log stays there, so such a text is refused before. A finding says what kind it is
and where it stands and never repeats any of it. A shape proves nothing in either direction: an
unusual secret passes, and a harmless text may be refused; then a pointer to it is the way out.
"""

import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from schemas.look_alikes import latin_form

_SHAPES = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("a private key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----"),
        ("an AWS access key", r"\b(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
        ("a GitHub token", r"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
        ("a GitLab token", r"\bgl(pat|dt|rt|cbt|ptt|ft)-[A-Za-z0-9_-]{16,}"),
        ("a Slack token", r"\b(xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,})"),
        ("a Slack webhook", r"\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
        ("an API key", r"\b(sk|rk|pk)[-_](live|test|proj|ant|or)[-_][A-Za-z0-9_-]{12,}"),
        ("an API key", r"\bsk-[A-Za-z0-9]{20,}"),
        ("a Google API key", r"\bAIza[0-9A-Za-z_-]{30,}"),
        ("a Google OAuth token", r"\bya29\.[0-9A-Za-z_-]{20,}"),
        ("an npm token", r"\bnpm_[A-Za-z0-9]{30,}"),
        ("a PyPI token", r"\bpypi-AgE[A-Za-z0-9_-]{20,}"),
        ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}"),
        ("a SendGrid key", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("a JSON web token", r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        ("a password in a URL", r"\b[A-Za-z][A-Za-z0-9+.-]{0,40}://[^/\s:@]*:[^/\s@]+@"),
        (
            "a secret in a URL",
            r"(?i)[?&][^=&?\s]{0,80}(token|key|secret|passw|sig|auth|credential)[^=&?\s]{0,80}="
            r"[^&\s]{6,}",
        ),
        (
            "an authorization header",
            r"(?i)\b(bearer|basic)\s+(?=[A-Za-z0-9+/_.=-]*[0-9])[A-Za-z0-9+/_.=-]{16,}",
        ),
    )
)
_PASSWORD_WORD = (
    r"\b(?:password|passwd|passphrase|pwd|passcode|passwort|kennwort|wachtwoord|contrase\u00f1a)\b"
)
_PASSWORD = re.compile(rf"(?i){_PASSWORD_WORD}\s*(?:is\b\s*)?[\"']?\s*[:=]\s*[\"']?(\S{{4,}})")
_SPOKEN_PASSWORD = re.compile(
    rf"(?i){_PASSWORD_WORD}[\"']?\s+(?:is|was|ist|war|lautet)\s+[\"']?([^\s\"']{{4,}})"
)
_ASSIGNMENT = re.compile(
    r"(?i)(?:\b|_)(secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|"
    r"credentials?|auth)\b[\"']?\s*[:=]\s*[\"']?([^\s\"',;]{8,})"
)
_LONG_WORD = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_BASE64_WORD = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{20,}={0,2}(?![A-Za-z0-9+/=])")
MIN_ENTROPY = 4.0
"""Bits a character, above which a long word of mixed letters and digits is like a key."""


def secret_kinds(text: str) -> tuple[str, ...]:
    """What the text seems to hold, in words, without any of it; empty for a harmless one.

    Read as it looks: in compatibility form, without what nobody sees, with Latin letters for those
    that are drawn like them.
    """
    seen = latin_form(text)
    found = _named_kinds(seen)
    words = _BASE64_WORD.findall(seen)
    if not found and any(_named_kinds(_decoded(word)) for word in words):
        found.append("a secret in base64")
    if not found and (
        any(_is_key_like(word) for word in _LONG_WORD.findall(seen))
        or any(_is_jumbled(word) for word in words)
    ):
        found.append("a random-looking key")
    return tuple(dict.fromkeys(found))


def marked_secrets(text: str) -> tuple[str, ...]:
    """The same without what merely looks random: for text that has digests and signatures in it."""
    return tuple(dict.fromkeys(_named_kinds(latin_form(text))))


def _named_kinds(text: str) -> list[str]:
    """Kinds that are known by a word or a mark beside the secret, or in it."""
    found = [kind for kind, pattern in _SHAPES if pattern.search(text)]
    if _PASSWORD.search(text) or any(
        _is_no_word(match[1]) for match in _SPOKEN_PASSWORD.finditer(text)
    ):
        found.append("a password")
    if any(_looks_random(match[2]) for match in _ASSIGNMENT.finditer(text)):
        found.append("an assigned secret")
    return found


def secrets_in(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(key, kind) for every secret-shaped text of plain data, keys of mappings included. A mapping
    is also read as assignments, ``{password: x}`` is one, and a list of texts also as one text."""
    if isinstance(document, str):
        for kind in secret_kinds(document):
            yield path, kind
    elif isinstance(document, Mapping):
        for key, value in document.items():
            named = secret_kinds(str(key))
            below = f"{path}.{key}".lstrip(".") if not named else f"{path}.[key]".lstrip(".")
            for kind in named:
                yield below, kind
            inner = list(secrets_in(value, below))
            yield from inner
            if isinstance(value, str) and not inner:
                for kind in secret_kinds(f"{key}: {value}"):
                    yield below, kind
    elif isinstance(document, Sequence):
        inner = [
            found
            for index, value in enumerate(document)
            for found in secrets_in(value, f"{path}[{index}]")
        ]
        yield from inner
        parts = [value for value in document if isinstance(value, str)]
        if len(parts) > 1 and not inner:
            # What is glued without a space may make a word of two harmless ones; a mark stays one.
            whole = latin_form("".join(parts))
            joined = {kind for kind, pattern in _SHAPES if pattern.search(whole)}
            for kind in sorted(joined.union(_named_kinds(latin_form(" ".join(parts))))):
                yield path, kind


def _looks_random(value: str) -> bool:
    has_digit = any(char.isdigit() for char in value)
    has_letter = any(char.isalpha() for char in value)
    return has_digit and has_letter and _entropy(value) >= 2.5


def _is_no_word(value: str) -> bool:
    """`hunter2`, `s3cr3t!x`, `openSesame`: not the next word of a sentence."""
    inner = re.sub("[-'\u2019]", "", value.strip(".,;:!?()"))
    return bool(inner) and not (inner.isalpha() and (inner.islower() or inner.istitle()))


def _decoded(word: str) -> str:
    """The text that base64 stands for; empty where it is none."""
    try:
        return b64decode(word + "=" * (-len(word) % 4), validate=True).decode("ascii")
    except ValueError:
        return ""


def _is_jumbled(word: str) -> bool:
    """Lower and upper case and digits that change at every third character or more often, as in a
    key and not as in a name of several words."""
    kinds = ["a" if c.islower() else "A" if c.isupper() else "1" for c in word if c.isalnum()]
    changes = sum(
        (one.isdigit(), one.isupper()) != (other.isdigit(), other.isupper())
        for part in re.split("[/+=]", word)  # a path changes between its parts
        for one, other in pairwise(part)
    )
    return set(kinds) == {"a", "A", "1"} and 3 * changes >= len(kinds) and _entropy(word) >= 3.5


def _is_key_like(word: str) -> bool:
    """Mixed case and digits without a pattern. Digests (hexadecimal) are no secrets."""
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", word):
        return False
    kinds = [any(map(test, word)) for test in (str.islower, str.isupper, str.isdigit)]
    return all(kinds) and _entropy(word) >= MIN_ENTROPY


def _entropy(text: str) -> float:
    """Shannon entropy in bits a character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())
