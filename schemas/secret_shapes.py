"""Texts that look like secrets: keys, tokens, passwords. Found by shape, never by lookup.

What reaches the log stays there, so such a text is refused before. A finding says what kind it is
and where it stands and never repeats any of it. A shape proves nothing in either direction: an
unusual secret passes, and a harmless text may be refused; then a pointer to it is the way out.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
        ("a JSON web token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        ("a password in a URL", r"\b[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"),
        (
            "a secret in a URL",
            r"(?i)[?&][^=&\s]*(token|key|secret|passw|sig|auth|credential)[^=&\s]*=[^&\s]{6,}",
        ),
        (
            "an authorization header",
            r"(?i)\b(bearer|basic)\s+(?=[A-Za-z0-9+/_.=-]*[0-9])[A-Za-z0-9+/_.=-]{16,}",
        ),
    )
)
_PASSWORD = re.compile(
    r"(?i)\b(password|passwd|passphrase|pwd|passcode)\b\s*(?:is\b\s*)?[\"']?\s*[:=]\s*[\"']?(\S{4,})"
)
_ASSIGNMENT = re.compile(
    r"(?i)(?:\b|_)(secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|"
    r"credentials?|auth)\b[\"']?\s*[:=]\s*[\"']?([^\s\"',;]{8,})"
)
_LONG_WORD = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
MIN_ENTROPY = 4.0
"""Bits a character, above which a long word of mixed letters and digits is like a key."""


def secret_kinds(text: str) -> tuple[str, ...]:
    """What the text seems to hold, in words, without any of it; empty for a harmless one."""
    found = [kind for kind, pattern in _SHAPES if pattern.search(text)]
    if _PASSWORD.search(text):
        found.append("a password")
    if any(_looks_random(match[2]) for match in _ASSIGNMENT.finditer(text)):
        found.append("an assigned secret")
    if not found and any(_is_key_like(word) for word in _LONG_WORD.findall(text)):
        found.append("a random-looking key")
    return tuple(dict.fromkeys(found))


def secrets_in(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(key, kind) for every secret-shaped text of plain data, keys of mappings included. A mapping
    is also read as assignments: ``{password: x}`` is one."""
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
        for index, value in enumerate(document):
            yield from secrets_in(value, f"{path}[{index}]")


def _looks_random(value: str) -> bool:
    has_digit = any(char.isdigit() for char in value)
    has_letter = any(char.isalpha() for char in value)
    return has_digit and has_letter and _entropy(value) >= 2.5


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
