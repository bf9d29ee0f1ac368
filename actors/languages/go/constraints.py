"""Build constraints, evaluated for a declared platform (https://pkg.go.dev/cmd/go, "Build
constraints"): file name suffixes, ``//go:build`` lines and, without one, ``// +build`` lines.

No tags are given and cgo is off. A constraint that cannot be read excludes its file, as in Go.
"""

import re
from collections.abc import Iterator, Sequence

from schemas.repair.study import Platform

_SYSTEMS = frozenset(
    {
        "aix", "android", "darwin", "dragonfly", "freebsd", "hurd", "illumos", "ios", "js", "linux",
        "nacl", "netbsd", "openbsd", "plan9", "solaris", "wasip1", "windows", "zos",
    }
)  # fmt: skip
_UNIX = _SYSTEMS - {"js", "nacl", "plan9", "wasip1", "windows", "zos"}
_MACHINES = frozenset(
    {
        "386", "amd64", "arm", "arm64", "loong64", "mips", "mips64", "mips64le", "mipsle", "ppc64",
        "ppc64le", "riscv64", "s390x", "sparc64", "wasm",
    }
)  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(&&|\|\||[!()])|([\w.]+))")
_DEEPEST = 100


def built_for(path: str, content: bytes, platform: Platform) -> bool:
    """Whether a Go file is part of its package on ``platform``."""
    return _name_fits(path, platform) and _header_holds(content, platform)


def _name_fits(path: str, platform: Platform) -> bool:
    stem = path.rpartition("/")[2].partition(".")[0].removesuffix("_test")
    # What comes before the first underscore is never a suffix: `linux.go` is for everybody.
    parts = stem.split("_")[1:]
    if len(parts) >= 2 and parts[-2] in _SYSTEMS and parts[-1] in _MACHINES:
        return _has(parts[-2], platform) and _has(parts[-1], platform)
    if parts and parts[-1] in _SYSTEMS | _MACHINES:
        return _has(parts[-1], platform)
    return True


def _header_holds(content: bytes, platform: Platform) -> bool:
    plus_lines = []
    for line in _header(content):
        if match := re.fullmatch(r"//go:build\s+(.*)", line):
            return _holds(match[1], platform)
        if match := re.fullmatch(r"//\s*\+build\s+(.*)", line):
            plus_lines.append(match[1])
    return all(_plus_holds(line, platform) for line in plus_lines)


def _header(content: bytes) -> Iterator[str]:
    """Lines before the package clause: blank ones and comments."""
    in_block = False
    for raw in content.splitlines():
        line = raw.decode("utf-8", "replace").strip()
        if in_block:
            in_block = "*/" not in line
        elif line.startswith("/*"):
            in_block = "*/" not in line[2:]
        elif not line or line.startswith("//"):
            yield line
        else:
            return


def _has(tag: str, platform: Platform) -> bool:
    if tag == "unix":
        return platform.goos in _UNIX
    if match := re.fullmatch(r"go1\.(\d{1,3})", tag):
        return int(match[1]) <= int(platform.go.partition(".")[2])
    return tag in (platform.goos, platform.goarch, "gc")


def _plus_holds(line: str, platform: Platform) -> bool:
    """Spaces are or, commas are and, ``!`` negates a term."""

    def term(word: str) -> bool:
        return not _has(word[1:], platform) if word.startswith("!") else _has(word, platform)

    return any(all(term(word) for word in option.split(",")) for option in line.split())


def _holds(expression: str, platform: Platform) -> bool:
    tokens: list[str] = []
    position = 0
    text = expression.partition("//")[0].rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return False
        tokens.append(match[1] or match[2])
        position = match.end()
    try:
        value, left = _either(tokens, platform, 0)
    except _Unreadable:
        return False
    return value and not left


class _Unreadable(Exception):
    pass


def _either(tokens: Sequence[str], platform: Platform, depth: int) -> tuple[bool, Sequence[str]]:
    value, left = _both(tokens, platform, depth)
    while left and left[0] == "||":
        other, left = _both(left[1:], platform, depth)
        value = value or other
    return value, left


def _both(tokens: Sequence[str], platform: Platform, depth: int) -> tuple[bool, Sequence[str]]:
    value, left = _not(tokens, platform, depth)
    while left and left[0] == "&&":
        other, left = _not(left[1:], platform, depth)
        value = value and other
    return value, left


def _not(tokens: Sequence[str], platform: Platform, depth: int) -> tuple[bool, Sequence[str]]:
    if not tokens or depth > _DEEPEST:
        raise _Unreadable
    first, left = tokens[0], tokens[1:]
    if first == "!":
        value, left = _not(left, platform, depth + 1)
        return not value, left
    if first == "(":
        value, left = _either(left, platform, depth + 1)
        if not left or left[0] != ")":
            raise _Unreadable
        return value, left[1:]
    if first in ("&&", "||", ")"):
        raise _Unreadable
    return _has(first, platform), left
