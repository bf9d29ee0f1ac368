"""Requirement files: what of them may reach pip, and how a pin is lifted.

Building an environment needs a network and runs outside of the sandbox, so a requirement file may
name packages and nothing that is built or fetched in another way.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

_PROJECT_ITSELF = re.compile(r"\s*(?:(?:-e|--editable)[ \t=]*)?\.(?:\[[^\]]*\])?/?\s*(?:#.*)?")
_PLAIN_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[^\]]*\])?\s*"  # name and extras
    r"(?:\(?\s*(?:===?|[<>!~]=?)[^;@/\\:]*)?(?:;[^@]*)?"  # versions and marker, no URL
)
_OPTIONS = {
    "-r", "--requirement", "-c", "--constraint", "-i", "--index-url", "--extra-index-url",
    "--no-index", "-f", "--find-links", "--pre", "--prefer-binary", "--require-hashes",
    "--only-binary",
}  # fmt: skip
_INCLUDES = {"-r", "--requirement", "-c", "--constraint"}
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\s*\[[^\]]*\])?(?P<rest>.*)")


def lift_pin(content: bytes, name: str) -> bytes:
    """A requirement file with the version of ``name`` (any spelling) left open."""

    def canonical(text: str) -> str:
        return re.sub(r"[-_.]+", "-", text).lower()

    lines = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        match = PIN.match(line)
        if match and canonical(match["name"]) == canonical(name):
            _, semicolon, marker = match["rest"].partition(";")
            line = f"{match['name']}{match['extras'] or ''}{semicolon}{marker}"
        lines.append(line + "\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


class RefusedLine(Exception):
    """A line of a requirement file that is not given to pip."""


def requirement_lines(path: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """(what pip may read of a requirement file, lines that name the project itself).

    A package with versions is unpacked and no more. An archive, a folder, the address of a
    repository, or an option that allows one would be built, which is to run its code; an include of
    a file that nobody declared could hold any of these; a variable could carry a secret into an
    address. What is given to pip is written anew, without comments: one of them could name another
    encoding. Raises :class:`RefusedLine`.
    """
    kept: list[str] = []
    left_out: list[str] = []
    for line in _logical_lines(path, files[path]):

        def refuse(why: str, line: str = line) -> NoReturn:
            raise RefusedLine(f"{path}: {line!r}: {why}")

        if _PROJECT_ITSELF.fullmatch(line):
            left_out.append(line)
            continue
        if "${" in line:
            refuse("variables are not read")
        if line.startswith("-"):
            if set(line) & set("\\\"'"):
                refuse("an option is written without quotes")
            words = [part for word in line.split() for part in word.split("=", 1)]
            for option, value in zip(words, [*words[1:], ""], strict=True):
                if not option.startswith("-"):
                    continue
                if option not in _OPTIONS:
                    refuse(f"{option} is not an option that a requirement file may have here")
                included = os.path.normpath(os.path.join(os.path.dirname(path), value))
                if option in _INCLUDES and included not in files:
                    refuse(f"layout.requirements does not name {included}")
                if option == "--only-binary" and ":none:" in value:
                    refuse("only wheels are installed")
        else:
            requirement, *options = line.split(" --")
            hashes_only = all(option.startswith("hash=") for option in options)
            if not _PLAIN_REQUIREMENT.fullmatch(requirement.strip()) or not hashes_only:
                refuse("only packages that an index has as a wheel can be named here")
        kept.append(line)
    return kept, left_out


def _logical_lines(path: str, content: bytes) -> Iterator[str]:
    """Lines with their continuations, as pip joins them, without comments and empty ones."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedLine(f"{path}: not UTF-8") from None
    joined = ""
    for line in [*text.splitlines(), ""]:
        comment = line.lstrip().startswith("#")
        joined += "" if comment else line
        if joined.endswith("\\") and not comment:
            joined = joined[:-1]
            continue
        logical = re.sub(r"(^|\s+)#.*$", "", joined).strip()
        joined = ""
        if logical:
            yield logical
