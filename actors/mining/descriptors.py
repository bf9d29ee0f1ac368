"""Descriptors of a task that exist before any agent has run: how large its base tree is, which
languages it holds, and how many gold symbols its hidden tests need."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from actors.languages.registry import LANGUAGES
from actors.mining.statements import GoldFacts, tokens
from actors.mining.trees import Entry, TreeStore
from schemas.base import Count, Value
from schemas.repair.task import Size

# Names as GitHub's linguist writes them, in lower case; every other suffix counts as "other".
_OTHERS = {
    ".js": "javascript", ".ts": "typescript",
    ".c": "c", ".h": "c", ".cc": "c++", ".cpp": "c++", ".hpp": "c++", ".java": "java",
    ".rb": "ruby", ".rs": "rust", ".sh": "shell", ".sql": "sql", ".html": "html", ".css": "css",
    ".md": "markdown", ".rst": "restructuredtext", ".json": "json", ".toml": "toml",
    ".yml": "yaml", ".yaml": "yaml", ".proto": "protobuf",
}  # fmt: skip
LANGUAGE_OF = _OTHERS | {
    suffix: language.id
    for language in LANGUAGES.values()
    for suffix in language.files.source_suffixes
}


class LanguageCount(Value):
    files: Count
    lines: Count
    bytes: Count


class BlobFacts(Value):
    """What the descriptors need of one blob, kept because adjacent trees share most blobs."""

    text: Annotated[bool, Meta(description="holds no NUL byte")]
    bytes: Count
    lines: Count
    tokens: frozenset[str]


class TreeFacts:
    """Facts of whole trees; a blob is read once however many trees hold it."""

    def __init__(self, trees: TreeStore) -> None:
        self._trees = trees
        self._blobs: dict[str, BlobFacts] = {}

    def tokens(self, files: Iterable[Entry]) -> frozenset[str]:
        """All identifier tokens of the text files."""
        found: set[str] = set()
        for entry in files:
            if entry.mode.startswith("100"):
                found |= self._blob(entry.oid).tokens
        return frozenset(found)

    def languages(self, files: dict[str, Entry]) -> dict[str, LanguageCount]:
        """Text files by language, sorted by name."""
        counted: dict[str, list[int]] = {}
        for path, entry in files.items():
            facts = self._blob(entry.oid) if entry.mode.startswith("100") else None
            if facts is not None and facts.text:
                name = path.rpartition("/")[2]
                suffix = "." + name.rpartition(".")[2].lower() if "." in name else ""
                row = counted.setdefault(LANGUAGE_OF.get(suffix, "other"), [0, 0, 0])
                for index, number in enumerate((1, facts.lines, facts.bytes)):
                    row[index] += number
        return {
            name: LanguageCount(files=row[0], lines=row[1], bytes=row[2])
            for name, row in sorted(counted.items())
        }

    def _blob(self, oid: str) -> BlobFacts:
        if oid not in self._blobs:
            content = self._trees.blob(oid)
            self._blobs[oid] = BlobFacts(
                text=b"\0" not in content,
                bytes=len(content),
                lines=content.count(b"\n") + (content != b"" and not content.endswith(b"\n")),
                tokens=tokens(content),
            )
        return self._blobs[oid]


def size(languages: dict[str, LanguageCount], language: str) -> Size:
    """Size of a tree; ``language`` is the repository's, whose files are the source files."""
    total = sum(row.bytes for row in languages.values())
    source = languages.get(language, LanguageCount(files=0, lines=0, bytes=0))
    return Size(
        bytes=total,
        source_files=source.files,
        source_lines=source.lines,
        estimated_tokens=-(-total // 4),
    )


def needed_gold_symbols(facts: GoldFacts, hidden: Iterable[bytes]) -> frozenset[str]:
    """Names that gold introduces and that occur in the hidden files: what no leak-free statement
    may name and no agent can know (interpretations, "Solvability")."""
    used: set[str] = set()
    for content in hidden:
        used |= tokens(content)
    return (facts.symbols | facts.plain_names) & used
