"""What a file of one repository is for: the table of its language applied to its layout."""

from collections.abc import Iterable
from dataclasses import dataclass

from actors.languages.contract import Language
from actors.languages.file_classes import HEADER_BYTES, FileClasses, matches
from actors.languages.registry import LANGUAGES
from harnesses.retrieval.snapshot import FileClass
from ledger.errors import Usage
from schemas.repair.study import Layout, Repository


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A language's table applied to the layout of one repository. Roots have no ``/`` at either
    end; the root ``""`` is the whole tree."""

    language: Language
    package_roots: tuple[str, ...]
    test_roots: tuple[str, ...]
    version_files: frozenset[str]
    requirements: frozenset[str]

    def __call__(self, path: str | bytes, content: bytes = b"") -> FileClass:
        """:meth:`classify`, for whoever asks for a function."""
        if isinstance(path, bytes):
            path = path.decode("utf-8", "surrogateescape")
        return self.classify(path, content)

    def classify(self, path: str, content: bytes = b"") -> FileClass:
        """The class of a file; ``content`` matters only for the header of generated source files
        (its first :data:`HEADER_BYTES` bytes are enough)."""
        rules, header = self.language.files, content[:HEADER_BYTES]
        folders, name = _split(path)
        root = _root_of(path, self.package_roots)
        inner = folders if root is None else folders[len(_parts(root)) :]
        in_tests = not rules.tests_beside_sources and _root_of(path, self.test_roots) is not None
        if path in self.requirements or rules.dependency_components & set(folders):
            return "dependency"
        if in_tests or rules.test_components & set(inner):
            return "test" if matches(name, rules.test_names) else "infrastructure"
        if matches(name, rules.test_names):
            return "test"
        if matches(name, rules.infrastructure_names):
            return "infrastructure"
        if path in self.version_files:
            return "generated"
        # With the whole tree as root, what lies at the top is not resources of a package.
        in_whole_tree = root == "" and not self.is_source(path)
        if root is None or (in_whole_tree and (not folders or not rules.package_marker)):
            if matches(name, rules.dependency_names):
                return "dependency"
            if rules.docs_components & set(folders) or matches(name.lower(), rules.docs_names):
                return "docs"
            if self._is_generated(name, content):
                return "generated"
            return "config" if matches(name, rules.config_names) else "other"
        if rules.other_header and self.is_source(path) and rules.other_header.search(header):
            return "other"
        if not folders and matches(name, rules.dependency_names):
            return "dependency"
        if matches(name, rules.runner_names):
            return "infrastructure"
        if not folders and matches(name, rules.config_names):
            return "config"
        if rules.docs_components & set(inner) or name.lower().endswith((".md", ".rst", ".adoc")):
            return "docs"
        if rules.other_components & set(inner):
            return "other"
        if matches(name, rules.version_names) or self._is_generated(name, content):
            return "generated"
        return "production"

    def is_selectable(self, path: str) -> bool:
        """A test file beneath a configured test root: what an arm may run, if it is built for the
        platform. One whose path is not UTF-8 is not: no test id could name it."""
        return (
            _root_of(path, self.test_roots) is not None
            and is_text(path)
            and self.classify(path) == "test"
            and path.endswith(self.language.files.source_suffixes)
        )

    def is_source(self, path: str) -> bool:
        return path.endswith(self.language.files.source_suffixes)

    def _is_generated(self, name: str, content: bytes) -> bool:
        if matches(name, self.language.files.generated_names):
            return True
        header = self.language.files.generated_header
        return (
            name.endswith(self.language.files.source_suffixes)
            and header.search(content[:HEADER_BYTES]) is not None
        )


def classifier(repository: Repository, paths: Iterable[str] | None = None) -> Classifier:
    """The classifier of a repository. Where its layout names no package root they are derived from
    ``paths``: all paths of the tree in question, or those of at most three components.

    Raises Usage where a layout without package roots comes without ``paths``.
    """
    language = LANGUAGES[repository.language]
    layout: Layout = repository.layout
    roots = tuple("/".join(_parts(root)) for root in layout.package_roots)
    if not roots and paths is None:
        raise Usage(
            f"repository {repository.id}: its layout names no package root, so the paths of a tree "
            "are needed to derive them; or set `layout.package_roots`"
        )
    return Classifier(
        language=language,
        package_roots=roots or derive_package_roots(language.files, paths or ()),
        test_roots=tuple("/".join(_parts(root)) for root in layout.test_roots)
        or (("",) if language.files.tests_beside_sources else ()),
        version_files=frozenset(layout.version_files),
        requirements=frozenset(layout.requirements),
    )


def derive_package_roots(rules: FileClasses, paths: Iterable[str]) -> tuple[str, ...]:
    """Folders ``X`` and ``src/X`` that hold the package marker and are not tests, documentation,
    scripts or hidden; sorted. A ``src`` folder whose packages have no marker is a root itself. The
    whole tree for a language without a marker."""
    if not rules.package_marker:
        return ("",)
    excluded = rules.test_components | rules.docs_components | rules.other_components
    roots = set()
    source_below_src = False
    for path in paths:
        parts = path.split("/")
        if parts[0] == "src" and len(parts) > 1:
            source_below_src = source_below_src or path.endswith(rules.source_suffixes)
            depth = 2
        else:
            depth = 1
        if len(parts) != depth + 1 or parts[-1] != rules.package_marker:
            continue
        folder = parts[depth - 1]
        if folder not in excluded and not folder.startswith("."):
            roots.add("/".join(parts[:depth]))
    if source_below_src and not any(root.startswith("src/") for root in roots):
        roots.add("src")
    return tuple(sorted(roots))


def is_text(path: str) -> bool:
    """False for a path with bytes that are not UTF-8: no document of ours can name it."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _split(path: str) -> tuple[list[str], str]:
    *folders, name = path.split("/")
    return folders, name


def _root_of(path: str, roots: tuple[str, ...]) -> str | None:
    """The longest root that ``path`` lies beneath."""
    found = [root for root in roots if root == "" or path.startswith(f"{root}/")]
    return max(found, key=len, default=None)
