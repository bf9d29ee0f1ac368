"""Task statements: what an agent is told, with everything removed that shows the solution.

The text is the issue or merge request where one is given, else the commit's title and body. A
deterministic redactor removes gold paths, gold symbols, diff text, test names and assertions, and
trailers; what it removed is recorded by kind and digest. A statement that cannot be made leak-free
is rejected (``statement_leaks``), never repaired by hand.
"""

import hashlib
import html
import re
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from actors.languages.contract import Language
from schemas.base import Digest, Value
from schemas.look_alikes import visible

MARK = "[redacted]"
MIN_WORDS = 3
"""Fewer words than this left of a statement say nothing that could be worked on."""

RedactionKind = Literal["trailer", "diff", "assertion", "path", "test_name", "symbol"]


class Redaction(Value):
    """One removed span of the original text."""

    kind: RedactionKind
    start: Annotated[int, Meta(ge=0, description="first character in the original text, from 0")]
    length: Annotated[int, Meta(ge=1, description="characters")]
    digest: Annotated[Digest, Meta(description="SHA-256 of the removed text in UTF-8")]


class Statement(Value):
    """A redacted statement."""

    text: Annotated[str, Meta(description="Markdown, the title first")]
    words: Annotated[int, Meta(ge=0, description="words that are left, without marks")]
    redactions: tuple[Redaction, ...]
    interface: Annotated[
        tuple[str, ...],
        Meta(description="signatures added on purpose by `interface_line`; not checked for leaks"),
    ] = ()
    leaks: Annotated[
        tuple[str, ...],
        Meta(description="why it cannot be used: kind and digest, never the text; empty: usable"),
    ]


@dataclass(frozen=True, kw_only=True)
class GoldFacts:
    """What a statement of one task must not say."""

    language: Language
    """Whose assertions are recognised."""
    paths: frozenset[str]
    """Production and hidden-test paths that the change touches."""
    symbols: frozenset[str]
    """Identifier-shaped tokens of gold that the base tree does not hold."""
    plain_names: frozenset[str]
    """Plain words that gold defines and the base tree does not hold: removed only where they are
    written as code, because ``docker`` in a sentence is a word."""
    test_names: frozenset[str]
    added_lines: frozenset[str]
    """Lines that either half adds and that look like code, without outer white space."""
    removed_lines: frozenset[str]


TOKEN = re.compile(r"[^\W\d]\w*")


def tokens(content: bytes) -> frozenset[str]:
    """Identifier runs of a text; nothing of a binary file."""
    if b"\0" in content:
        return frozenset()
    return frozenset(TOKEN.findall(content.decode("utf-8", "replace")))


def is_identifier_shaped(token: str) -> bool:
    """``snake_case``, ``camelCase``, ``PascalCase`` of two parts, ``name2``; not a plain word, and
    not an acronym."""
    core = token.strip("_")
    if re.fullmatch(r"[A-Z]{2,}s", core):  # a plural: URLs
        return core != token
    return len(core) > 1 and (
        core != token
        or "_" in core
        or re.search(r"[a-z][A-Z]|[A-Z]{2}[a-z]", core) is not None
        or (re.search(r"\d", core) is not None and re.search(r"[a-z]{2}", core) is not None)
    )


def gold_facts(
    language: Language,
    *,
    production: Iterable[tuple[str, bytes]],
    hidden: Iterable[tuple[str, bytes]],
    deleted: Iterable[str],
    patches: Iterable[bytes],
    base_tokens: frozenset[str],
) -> GoldFacts:
    """Collect what the redactor needs.

    ``production`` and ``hidden`` are (path, bytes) of the gold tree, ``deleted`` the paths that
    either half removes, ``base_tokens`` all tokens of the base tree.
    """
    production, hidden = list(production), list(hidden)
    introduced: set[str] = set()
    defined: set[str] = set()
    for _, content in production:
        new = tokens(content) - base_tokens
        introduced |= new
        defined |= new & language.sources.defined_names(content)
    symbols = frozenset(token for token in introduced if is_identifier_shaped(token))
    test_names = {
        token
        for _, content in hidden
        for token in language.sources.defined_names(content)
        if language.test_name.match(token)
    }
    lines = {"+": set[str](), "-": set[str]()}
    for patch in patches:
        for sign, line in _code_lines(patch):
            lines[sign].add(line)
    return GoldFacts(
        language=language,
        paths=frozenset(deleted) | {path for path, _ in (*production, *hidden)},
        symbols=symbols,
        plain_names=frozenset(name for name in defined - symbols if len(name) > 2),
        test_names=frozenset(test_names),
        added_lines=frozenset(lines["+"]),
        removed_lines=frozenset(lines["-"]),
    )


_CODE = re.compile(
    r"[=(\[{]|^(return|import|from|raise|def|class|if|for|while|with|yield|async|await|assert)\b"
)


def _code_lines(patch: bytes) -> Iterable[tuple[str, str]]:
    """Sign and text of the changed lines that look like code."""
    for line in patch.decode("utf-8", "replace").split("\n"):
        if line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")):
            text = line[1:].strip()
            if len(text) >= 8 and _CODE.search(text) and not text.startswith(("#", "http")):
                yield line[0], text


def split_message(message: str) -> tuple[str, str]:
    """Title and body of a commit message. A merge's own subject says nothing: the title of its
    merge request follows it."""
    title, _, body = message.strip().partition("\n")
    if re.match(r"merge (branch|pull request|remote-tracking branch|tag)\b", title, re.IGNORECASE):
        title, _, body = body.strip().partition("\n")
    return title.strip(), body.strip()


def write_statement(text: str, facts: GoldFacts) -> Statement:
    """Redact a text (first line: the title) and check the result.

    The check looks at the text as a reader could restore it (HTML entities, percent escapes,
    compatibility forms, invisible characters, letter case), so it can find what the redactor, which
    looks at the text as it is, has missed; such a statement leaks.
    """
    title, body = split_message(text.replace("\r\n", "\n").replace("\0", ""))
    original = f"# {title}\n\n{body}" if body else f"# {title}"
    redactions = []
    kept = []
    position = 0
    for start, end, kind in _merge(_find(original, facts)):
        removed = original[start:end]
        whole_line = original[start - 1 : start] in ("", "\n") and (
            removed.endswith("\n") or end == len(original)
        )
        kept += [original[position:start], "" if whole_line else MARK]
        position = end
        redactions.append(
            Redaction(kind=kind, start=start, length=end - start, digest=_digest(removed))
        )
    kept.append(original[position:])
    lines = [line.rstrip(" \t") for line in "".join(kept).split("\n")]
    redacted = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    words = _words(redacted)
    leaks = [f"{kind} {_digest(found)}" for kind, found in sorted(set(_leaks(redacted, facts)))]
    if words < MIN_WORDS:
        leaks.append(f"only {words} words are left")
    return Statement(text=redacted, words=words, redactions=tuple(redactions), leaks=tuple(leaks))


def with_interface_line(
    statement: Statement, language: Language, names: frozenset[str], gold: Iterable[bytes]
) -> Statement:
    """Add one fixed line with ``names`` (what gold introduces and hidden tests use), as signatures
    where the gold files define them: for studies that declare it, since it says what the redactor
    removes."""
    known: dict[str, str] = {}
    for content in gold:
        known |= language.sources.signatures(content)
    interface = tuple(known.get(name, name) for name in sorted(names))
    if not interface:
        return statement
    listed = ", ".join(f"`{signature}`" for signature in interface)
    return msgspec.structs.replace(
        statement,
        text=f"{statement.text}\nNames that the tests use: {listed}.\n",
        interface=interface,
    )


_CONVENTIONAL = re.compile(r"^#?\s*[a-z]+(\([^)\n]*\))?!?:\s", re.IGNORECASE)


def _words(text: str) -> int:
    plain = _CONVENTIONAL.sub("", text, count=1).replace(MARK, " ")
    return len(re.findall(r"[^\W\d_]{2,}", plain))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


Span = tuple[int, int, RedactionKind]

_TRAILER = re.compile(
    r"""^[ \t]*(
      [A-Za-z][A-Za-z-]*-by:\s.*
    | (Change-Id|Changelog|Cc|EE|MR|Part-of|Link|Refs?|See-also|Depends-on|Release-note):\s.*
    | (close[sd]?|fix(e[sd])?|resolve[sd]?|implement(s|ed)?|relate[sd]?(\ to)?|refs?|part\ of)
      :?\s+([\w./-]*[\#!]\d+|https?://\S+)([\s,]+(and\s+)?([\w./-]*[\#!]\d+|https?://\S+))*\.?
    | See\ merge\ request\ \S+
    )[ \t]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_DIFF_LINE = re.compile(
    r"^\s*(diff --git |index [0-9a-f]{7,}\.\.[0-9a-f]{7,}|--- (a/|/dev/null)|\+\+\+ (b/|/dev/null)"
    r"|@@ -\d+(,\d+)? \+\d+(,\d+)? @@|(new|deleted) file mode \d{6}|rename (from|to) )"
)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(\w*)")


def _find(text: str, facts: GoldFacts) -> Iterable[Span]:
    """Every span that says what it must not, in no particular order and overlapping."""
    position = 0
    fence = ""
    in_hunk = address_goes_on = False
    for line in text.splitlines(keepends=True):
        start, end = position, position + len(line)
        position = end
        bare = line.rstrip("\r\n")
        opened = _FENCE.match(bare)
        if opened:
            closes = bool(fence) and opened[1].startswith(fence[:3])
            fence = "" if closes else f"{opened[1]}{opened[2].lower()}"
            in_hunk = False
            continue
        in_diff_fence = fence.lstrip("`~") in ("diff", "patch", "udiff")
        starts_diff = _DIFF_LINE.match(bare) is not None
        in_hunk = starts_diff or (in_hunk and bare[:1] in ("+", "-", " ", "\\"))
        code = bare.strip().lstrip("+->").strip()
        if in_diff_fence or in_hunk or code in facts.added_lines or code in facts.removed_lines:
            yield start, end, "diff"
        elif facts.language.assertion.match(bare):
            yield start, end, "assertion"
        elif start > 0 and (address_goes_on or _TRAILER.match(bare)):
            yield start, end, "trailer"
            # Some tools wrap `Co-authored-by: Name <address>` in the middle of the address.
            address_goes_on = "<" in bare and ">" not in bare
            continue
        address_goes_on = False
    for match in _CODE_SPAN.finditer(text):
        if facts.language.assertion_fragment.search(match[1]):
            yield *match.span(), "assertion"
        # A bare name, call or option is not diff text; whether it is new is asked of its tokens.
        fragment = match[1].strip()
        if (
            len(fragment) >= 20
            and not re.fullmatch(r"[\w.]+(\(\)|=\w+)?", fragment)
            and any(fragment in line for line in facts.added_lines)
        ):
            yield *match.span(), "diff"
    yield from _find_paths(text, facts.paths, facts.language)
    for match in TOKEN.finditer(text):
        start, end = match.span()
        if match[0] in facts.test_names:
            yield start, end, "test_name"
        elif match[0] in facts.symbols or (
            match[0] in facts.plain_names and _is_written_as_code(text, start, end)
        ):
            yield start, end, "symbol"


def _is_written_as_code(text: str, start: int, end: int) -> bool:
    """``word(``, ``object.word`` or the word alone in back-quotes."""
    before, after = text[max(start - 2, 0) : start], text[end : end + 1]
    return (
        after == "("
        or (before.endswith(".") and before[:1].isalnum())
        or (before.endswith("`") and after == "`")
    )


_PATH_CHARACTER = re.compile(r"[\w./\\@+-]")


def _find_paths(text: str, paths: Iterable[str], language: Language) -> Iterable[Span]:
    """Paths by their file name with the folders before it, and as modules."""
    names: set[str] = set()
    for path in paths:
        parts = path.split("/")
        # `docker` is a word; as a file name without a suffix it needs its folder.
        names.add(parts[-1] if "." in parts[-1] else "/".join(parts[-2:]))
        names.update(language.sources.module_names(path))
    if not names:
        return
    done = 0
    suffixes = _alternatives(language.files.source_suffixes)
    for match in re.finditer(rf"(?<!\w)({_alternatives(names)})({suffixes})?(?!\w)", text):
        start, end = match.span()
        while start > done and _PATH_CHARACTER.match(text[start - 1]):
            start -= 1
        done = end
        yield start, end, "path"


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w)))


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans without overlap; of overlapping ones the first and longest gives the kind, and a
    whole line swallows what is in it."""
    merged: list[Span] = []
    for start, end, kind in sorted(set(spans), key=lambda span: (span[0], -span[1], span[2])):
        if merged and start < merged[-1][1]:
            last_start, last_end, last_kind = merged[-1]
            merged[-1] = (last_start, max(last_end, end), last_kind)
        else:
            merged.append((start, end, kind))
    return merged


def _leaks(text: str, facts: GoldFacts) -> Iterable[tuple[str, str]]:
    """What a reader could restore from a redacted text: (kind, what was found)."""
    restored = visible(urllib.parse.unquote(html.unescape(text), errors="replace"))
    restored = re.sub(r"\\([_*.`\[\]()])", r"\1", restored)
    for start, end, kind in _find(restored, facts):
        yield kind, restored[start:end]
    folded = restored.casefold()
    for kind, words in (("symbol", facts.symbols), ("test_name", facts.test_names)):
        unmistakable = {word.casefold() for word in words if "_" in word.strip("_")}
        for match in TOKEN.finditer(folded):
            if match[0] in unmistakable:
                yield kind, match[0]
    folded_paths = {path.casefold() for path in facts.paths}
    for start, end, kind in _find_paths(folded, folded_paths, facts.language):
        yield kind, folded[start:end]
